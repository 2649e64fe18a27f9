"""Builds what is published, checks it, and tags it. Nothing is uploaded unless `upload` is typed.

    python tools/release.py build    wheel and sdist in dist/, and a look at what they hold
    python tools/release.py owner    whose the distribution's name is on the index
    python tools/release.py check    owner and build; then each, with its dependencies, in an empty environment, as
                                     users have it; of the wheel with its extras every verb of the command
    python tools/release.py tag      check, of a clean tree with a new version that CHANGELOG.md has; then a git tag
    python tools/release.py upload   the files in dist/, of the commit that is tagged, to the index (needs twine)

`make wheel` is the first, `make release-check` the second, which needs a package index. Both need hatchling.
release_extras.py tries the extras one by one.
"""

import argparse
import email.parser
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
import urllib.request
import zipfile
from pathlib import Path

import stubs

from rllib.extras import DISTRIBUTION

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"
PACKAGES = ("rllib", "runtime", "tuned_examples")
# A wheel that is larger has something in it that does not belong there: data, pictures, a build. It holds Python, its
# stubs and YAML alone, some 1,100 files.
MOST_BYTES = 3 << 20
# README's main job in short, and the other things that a new user does first.
SETTINGS = ["lr=1e-3", "num_rollout_workers=2", "train_batch_size=1000", "num_sgd_iter=2"]
JOB = ["rllib", "train", "PPO", "CartPole-v1", *SETTINGS, "--stop", "iterations=2"]
EXAMPLE = ["rllib", "train", "-f", "ppo/cartpole", "--stop", "iterations=2"]
# Every verb, with the extras that it needs, in the order in which a new user may come to it.
EXTRAS = "dashboard,onnx,plot,serve,tune,video"
TOUR = (
    "rllib train PPO CartPole-v1 --stop iterations=3 --name first --seed 1",
    "rllib train PPO CartPole-v1 lr=1e-3 train_batch_size=1000 --stop iterations=3 --name second --seed 2 --profile",
    "rllib train --resume results/first --stop iterations=5",
    "rllib train PPO CartPole-v1 train_batch_size=500 --seeds 2 --stop iterations=1 --name seeds",
    "rllib evaluate results/first --episodes 5",
    "rllib play results/first --episodes 1",
    "rllib record results/first -o agent.mp4",
    "rllib record results/first --to steps.npz --steps 200",
    "rllib dataset info steps.npz",
    "rllib plot results/first results/second -o curves.png",
    "rllib compare results/first results/second --measure improvement",
    "rllib report results/first results/second -o report.html",
    "rllib export results/first --format torch -o first.pt2",
    "rllib export results/first --format onnx -o first.onnx",
    "rllib tune PPO CartPole-v1 train_batch_size=500 num_rollout_workers=0 --search lr=log:1e-4:1e-2 --trials 2 "
    "--stop iterations=2 --name search",
    "rllib benchmark classic --algo PPO --tasks CartPole-v1 --seeds 2 --steps 8000",
    "rllib example list --filter ppo",
    "rllib import-sb3 model.zip --env CartPole-v1 -o results/of_sb3",
    "rllib import-ray ray_checkpoint --env CartPole-v1 -o results/of_ray",
    "rllib convert program_for_ray.py",
    "rllib upload results/first memory://copy/first",
    "rllib check-env CartPole-v1 --steps 200",
    "rllib config PPO lr",
    "rllib client-example",
    "python program.py",
)
TOUR_MAKES = (
    *("agent.mp4", "steps.npz", "curves.png", "first.pt2", "first.onnx"),
    *("results/second/profile.json", "logged/result.json"),
)
# Verbs that nothing can answer here: they need an account at the Hub.
NOT_IN_TOUR = ("push",)
# Files of the checkout that the tour reads -> their names there
TOUR_READS = {"tests/data/sb3/ppo_cartpole.zip": "model.zip", "tests/data/ray/ppo_new": "ray_checkpoint"}
# command of a server -> what is asked of it: path and body
SERVERS = {
    "rllib serve results/first --port 0": ("/act", b'{"observation": [0, 0.1, 0, -0.1]}'),
    "rllib dashboard results --port 0": ("/api/runs", None),
}
PROGRAM = """
import rllib

config = rllib.PPOConfig().environment("CartPole-v1").training(train_batch_size=500).reporting(log_dir="logged")
with config.build() as algo:
    algo.learn(1_000, progress_bar=True)
    path = algo.save()
print(rllib.load_policy(path).compute_single_action([0, 0.1, 0, -0.1], explore=False))
"""
PROGRAM_FOR_RAY = "import ray\nfrom ray.rllib.algorithms.ppo import PPOConfig\n\nray.init()\n"
IMPORTS = "import rllib, runtime, rllib.tune; from rllib import PPO, PPOConfig; print(rllib.__file__)"


class Problem(Exception):
    """What stands in the way of a release, with what to do."""


# ---- build


def build(where: Path, root: Path = ROOT) -> tuple[Path, Path]:
    """Builds wheel and sdist of a checkout into a directory, without installing anything.

    Raises:
        Problem: if hatchling is missing or fails.
    """
    where.mkdir(parents=True, exist_ok=True)
    code = (
        "import sys; from hatchling import build; "
        "print(build.build_wheel(sys.argv[1])); print(build.build_sdist(sys.argv[1]))"
    )
    result = subprocess.run([sys.executable, "-c", code, str(where)], cwd=root, capture_output=True, text=True)
    if result.returncode:
        raise Problem(f"hatchling could not build (pip install hatchling):\n{result.stderr.strip()}")
    wheel, sdist = result.stdout.split()[-2:]
    return where / wheel, where / sdist


# ---- the name


def owner_problem(summary: str) -> str | None:
    """What is wrong with the distribution's name: an index has something else of this name.

    Args:
        summary: of this library; a distribution with another summary belongs to another project.

    Raises:
        Problem: if there is no index to ask.
    """
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    with tempfile.TemporaryDirectory() as place:
        download = [*pip, "download", "--no-deps", "--only-binary=:all:", "--ignore-requires-python", "--dest", place]
        found = subprocess.run([*download, DISTRIBUTION], capture_output=True, text=True)
        wheels = list(Path(place).glob("*.whl"))
        if not wheels and "No matching distribution" in found.stderr and _index_answers(pip):
            return None
        if not wheels:
            raise Problem(f"whose the name {DISTRIBUTION} is could not be asked:\n{found.stderr.strip()[-500:]}")
        with zipfile.ZipFile(wheels[0]) as archive:
            info = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
            owner = email.parser.Parser().parsestr(archive.read(info).decode())["Summary"]
    return None if owner == summary else f"the name {DISTRIBUTION} is another project's: {owner!r}. Choose another one."


def _index_answers(pip: list[str]) -> bool:
    """Whether an index has a package that is on every one: where none can be reached, none has anything."""
    return not subprocess.run([*pip, "index", "versions", "pip"], capture_output=True).returncode


def owner() -> None:
    """`owner`."""
    if problem := owner_problem(project()["description"]):
        raise Problem(problem)
    print(f"the name {DISTRIBUTION} is free, or ours")


# ---- what the files hold


def files_of_packages(root: Path = ROOT) -> list[str]:
    """The files of the packages that git knows or does not ignore, and the stubs, which a build makes."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", *PACKAGES]
    listed = subprocess.check_output(command, cwd=root, text=True).splitlines()
    made = [str(path.relative_to(root)) for path in stubs.stubs()]
    return [*(name for name in listed if (root / name).exists()), *made]


def wheel_problems(wheel: Path, files: list[str]) -> list[str]:
    """What is wrong with a wheel: files that lack or are too many, its size, its metadata."""
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        info = next(name for name in names if name.endswith(".dist-info/METADATA"))
        metadata = email.parser.Parser().parsestr(archive.read(info).decode())
        entry_points = archive.read(info.replace("METADATA", "entry_points.txt")).decode()
    # Further top-level folders would be installed into site-packages, where all packages share their names.
    expected = {re.sub("^tuned_examples/", "rllib/tuned_examples/", name) for name in files}
    problems = [f"{name} is missing" for name in sorted(expected - names)]
    own = {name for name in names if ".dist-info/" not in name}
    problems += [f"{name} does not belong there" for name in sorted(own - expected)]
    if wheel.stat().st_size > MOST_BYTES:
        problems.append(f"it has {wheel.stat().st_size / 2**20:.1f} MB, more than {MOST_BYTES / 2**20:g}")
    problems += [f"{marker} is missing" for marker in ("rllib/py.typed", "runtime/py.typed") if marker not in names]
    if not any(name.endswith("licenses/LICENSE") for name in names):
        problems.append("LICENSE is missing")
    if "rllib = rllib.cli:main" not in entry_points or "runtime = runtime.engines.zeromq.cli:main" not in entry_points:
        problems.append("the commands rllib and runtime are missing")
    return problems + metadata_problems(metadata)


def metadata_problems(metadata) -> list[str]:
    """What a package index or pip would refuse or show wrongly."""
    needed = ("Name", "Version", "Summary", "Requires-Python", "Description-Content-Type", "License-Expression")
    problems = [f"the metadata has no {name}" for name in needed if not metadata[name]]
    if metadata["Description-Content-Type"] and "text/markdown" not in metadata["Description-Content-Type"]:
        problems.append("the description is not Markdown")
    if len(metadata.get_payload()) < 1000:
        problems.append("README.md is not the description")
    if not re.fullmatch(r"\d+\.\d+\.\d+((a|b|rc)\d+)?", metadata["Version"] or ""):
        problems.append(f"the version {metadata['Version']!r} is not like 1.2.3 or 1.2.3rc1")
    if links := re.findall(r"\]\((?!https?:|#|mailto:)([^)]*)", metadata.get_payload()):
        problems.append(f"links of the description lead nowhere on an index: {', '.join(links[:3])}")
    if any("@" in requirement for requirement in metadata.get_all("Requires-Dist", [])):
        problems.append("a dependency is an address, which package indexes refuse")
    return problems


def sdist_problems(sdist: Path, files: list[str]) -> list[str]:
    """Problems of an sdist, from which the wheel is built again and the tests are run."""
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    needed = [*files, "pyproject.toml", "README.md", "LICENSE", "tests/conftest.py", "docs/project/architecture.md"]
    problems = [f"{name} is missing" for name in needed if name not in names]
    foreign = (".venv", "results/", "dist/", "build/", "shared")
    return problems + [f"{name} does not belong there" for name in sorted(names) if name.startswith(foreign)]


def project(root: Path = ROOT) -> dict:
    """The table [project] of pyproject.toml."""
    return tomllib.loads((root / "pyproject.toml").read_text())["project"]


def version(root: Path = ROOT) -> str:
    """The version of pyproject.toml.

    Raises:
        Problem: if the library has another one.
    """
    declared = project(root)["version"]
    found = re.search(r'__version__ = "(.+)"', (root / "rllib/__init__.py").read_text())
    if not found or found[1] != declared:
        raise Problem(f"pyproject.toml has the version {declared}, rllib/__init__.py {found and found[1]}. Use one.")
    return declared


# ---- installed in an empty environment


def environment(where: Path, python: str = sys.executable) -> Path:
    """The python of a new virtual environment, without anything installed, pip neither."""
    subprocess.run([python, "-m", "venv", "--without-pip", str(where)], check=True)
    return where / "bin" / "python"


def install(python: Path, package: Path, *options: str, extras: str = "") -> None:
    """Installs a file, with extras such as "plot,video", with the pip of this interpreter.

    Raises:
        Problem: with pip's words.
    """
    pip = [sys.executable, "-m", "pip", "--python", str(python), "--quiet", "--disable-pip-version-check"]
    command = [*pip, "install", *options, f"{package}[{extras}]" if extras else str(package)]
    result = subprocess.run(command, capture_output=True, text=True, cwd=python.parent)
    if result.returncode:
        raise Problem(f"{package.name} could not be installed:\n{result.stderr.strip()}")


def use(python: Path, where: Path, *more: list[str]) -> str:
    """Runs what a new user runs first, and `more` commands, in an empty directory; returns what README's job printed.

    Raises:
        Problem: with what the command printed.
    """
    where.mkdir(parents=True, exist_ok=True)
    printed = ran([str(python), "-c", IMPORTS], where)
    if str(python.parents[1]) not in printed:
        raise Problem(f"rllib is not imported from where it was installed, but: {printed}")
    for command in (["rllib", "--help"], ["runtime", "--help"], *more):
        ran([str(python.parent / command[0]), *command[1:]], where)
    return ran([str(python.parent / JOB[0]), *JOB[1:]], where)


def tour(python: Path, where: Path) -> None:
    """Runs every verb of the command once, and a program, where there is no display; prints what is typed and seen.

    Raises:
        Problem: with what the command printed.
    """
    (where / "program.py").write_text(PROGRAM)
    (where / "program_for_ray.py").write_text(PROGRAM_FOR_RAY)
    for source, name in TOUR_READS.items():
        copy = shutil.copytree if (ROOT / source).is_dir() else shutil.copyfile
        copy(ROOT / source, where / name)
    for line in TOUR:
        print(f"$ {line}")
        name, *arguments = shlex.split(line)
        _show(ran([str(python.parent / name), *arguments], where))
    if missing := [name for name in TOUR_MAKES if not (where / name).stat().st_size]:
        raise Problem(f"nothing is in {', '.join(missing)}")
    for line in SERVERS:
        print(f"$ {line}")
        for said in ask(line, python, where):
            _show(said)


def ask(line: str, python: Path, where: Path) -> tuple[str, str]:
    """Starts a server of SERVERS, asks it, and gives what it printed and answered."""
    path, body = SERVERS[line]
    name, *arguments = shlex.split(line)
    command = [str(python.parent / name), *arguments]
    with subprocess.Popen(command, cwd=where, env=_environment(), stdout=subprocess.PIPE, text=True) as server:
        try:
            said = server.stdout.readline()
            address = re.search(r"http://[^/\s]+", said)
            if not address:
                raise Problem(f"{line} printed no address, but: {said}")
            asked = "curl" + (f" --json '{body.decode()}'" if body else "") + f" {address[0]}{path}"
            request = urllib.request.Request(address[0] + path, body, {"Content-Type": "application/json"})
            with urllib.request.urlopen(request, timeout=60) as answer:
                return f"{said}$ {asked}\n", answer.read().decode()
        finally:
            server.terminate()


def _show(text: str) -> None:
    lines = [line[:160] for line in text.splitlines() if line.strip()]
    print("\n".join(f"    {line}" for line in lines[:3] + ["..."] * (len(lines) > 6) + lines[3:][-3:]), flush=True)


def _environment() -> dict[str, str]:
    """Without what belongs to the checkout, and without a display."""
    own = ("PYTHON", "VIRTUAL_ENV", "DISPLAY", "WAYLAND_DISPLAY")
    return {name: value for name, value in os.environ.items() if not name.startswith(own)}


def ran(command: list[str], where: Path, **variables: str) -> str:
    own = {**_environment(), **variables}
    result = subprocess.run(command, cwd=where, env=own, capture_output=True, text=True, timeout=300)
    if result.returncode:
        said = (result.stdout + result.stderr).strip()
        raise Problem(f"{' '.join(command)} ended with {result.returncode}:\n{said[-3000:]}")
    return result.stdout


# ---- before a tag


def changelog_problem(text: str, number: str) -> str | None:
    """What is wrong with the entry of a version in CHANGELOG.md: a heading with the number, and lines below it."""
    found = re.search(rf"^## \[?v?{re.escape(number)}\]?(?=[\s(]|$)[^\n]*\n(.*?)(?=^## |\Z)", text, re.M | re.S)
    if not found:
        return f"CHANGELOG.md has no heading '## {number}'. Write what has changed for users."
    if not found[1].strip():
        return f"CHANGELOG.md says nothing below '## {number}'."
    return None


def tree_problems(number: str, root: Path = ROOT) -> list[str]:
    """What stands in the way of a tag in the working tree."""
    problems = []
    if changed := subprocess.check_output(["git", "status", "--porcelain"], cwd=root, text=True).strip():
        problems.append(f"the tree is not clean; commit or remove:\n{changed}")
    if subprocess.check_output(["git", "tag", "--list", f"v{number}"], cwd=root, text=True).strip():
        problems.append(f"v{number} is tagged already. Raise the version in pyproject.toml and rllib/__init__.py.")
    urls = project(root).get("urls", {})
    if not urls or any("example.org" in url for url in urls.values()):
        problems.append("[project.urls] of pyproject.toml has no address of the repository. Say where it is published.")
    changelog = root / "CHANGELOG.md"
    if problem := changelog_problem(changelog.read_text() if changelog.exists() else "", number):
        problems.append(problem)
    return problems


# ---- commands


def build_and_look() -> tuple[Path, Path]:
    """`build`."""
    number, files = version(), files_of_packages()
    for old in DIST.glob("*"):
        old.unlink()
    wheel, sdist = build(DIST)
    with tempfile.TemporaryDirectory() as place:
        again = build(Path(place))
        different = [file.name for file, other in zip((wheel, sdist), again) if file.read_bytes() != other.read_bytes()]
        if different:
            raise Problem(f"a second build made other bytes of {', '.join(different)}: the build cannot be verified")
    problems = [f"{wheel.name}: {problem}" for problem in wheel_problems(wheel, files)]
    problems += [f"{sdist.name}: {problem}" for problem in sdist_problems(sdist, files)]
    if problems:
        raise Problem("\n".join(problems))
    for file in (wheel, sdist):
        print(f"{file.relative_to(ROOT)}  {file.stat().st_size / 2**20:.2f} MB")
    print(f"version {number}, {len(files)} files of the packages, metadata as an index wants it, the same bytes twice")
    return wheel, sdist


def check() -> None:
    """`check`."""
    owner()
    for file in build_and_look():
        with tempfile.TemporaryDirectory() as place:
            python, user = environment(Path(place) / "env"), Path(place) / "user"
            print(f"{file.name}: installing it with its dependencies, from the index ...", flush=True)
            began = time.monotonic()
            install(python, file, "--no-cache-dir")
            installed = time.monotonic()
            print(use(python, user, EXAMPLE).rstrip())
            print(
                f"{file.name}: installed in {installed - began:.0f} s with an empty cache, "
                f"first results {time.monotonic() - installed:.0f} s later"
            )
            if file.suffix == ".whl":
                print(f"{file.name}: installing its extras {EXTRAS} ...", flush=True)
                install(python, file, extras=EXTRAS)
                tour(python, user)


def tag() -> None:
    """`tag`."""
    number = version()
    if problems := tree_problems(number):
        raise Problem("\n".join(problems))
    check()
    subprocess.run(["git", "tag", "--annotate", f"v{number}", "--message", f"Version {number}"], cwd=ROOT, check=True)
    print(f"tagged v{number}. git push origin v{number} publishes the tag; tools/release.py upload the files.")


def upload() -> None:
    """`upload`."""
    number = version()
    here, tagged = _commit("HEAD"), _commit(f"v{number}^{{commit}}")
    if not tagged or here != tagged:
        raise Problem(f"v{number} is not the tag of this commit. Use: python tools/release.py tag")
    files = sorted(map(str, DIST.glob(f"{DISTRIBUTION.replace('-', '_')}-{number}*")))
    if len(files) != 2:
        raise Problem(f"dist/ must hold wheel and sdist of {number}, but has {files}. Use: tools/release.py build")
    subprocess.run([sys.executable, "-m", "twine", "upload", *files], check=True)


def _commit(name: str) -> str:
    command = ["git", "rev-parse", "--quiet", "--verify", name]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = {"build": build_and_look, "owner": owner, "check": check, "tag": tag, "upload": upload}
    parser.add_argument("command", choices=commands)
    try:
        commands[parser.parse_args().command]()
    except Problem as problem:
        sys.exit(f"Error: {problem}")


if __name__ == "__main__":
    main()
