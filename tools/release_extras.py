"""Tries each extra of pyproject.toml: the wheel with it in an empty environment, and a line of what the extra is for.

    python tools/release_extras.py               all extras (half an hour of two cores); `make release-extras`
    python tools/release_extras.py plot video    these

Packages that all share are installed once, and linked into the environment of each extra. It needs hatchling and a
package index.
"""

import argparse
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Sequence
from pathlib import Path

import release

from rllib.extras import DISTRIBUTION

WHEEL = DISTRIBUTION.replace("-", "_")  # as files of the distribution are named

# extra -> lines that need it; a server is asked as in release.SERVERS, {python} and {root} are paths.
FIRST = "rllib train PPO CartPole-v1 train_batch_size=500 --stop iterations=1 --name first"
USES = {
    "atari": ("rllib check-env ALE/Pong-v5 --steps 50",),
    "box2d": ("rllib check-env LunarLander-v3 --steps 50",),
    "brax": ("rllib check-env brax:inverted_pendulum --steps 50",),
    "clearml": (f"{FIRST} 'clearml={{offline: true, project_name: poles}}'",),
    "comet": (f"{FIRST} 'comet={{online: false, project_name: poles}}'",),
    "craftax": ("rllib check-env craftax:Craftax-Classic-Symbolic-v1 --steps 50",),
    "dashboard": (FIRST, "rllib dashboard results --port 0"),
    "dm-control": ("rllib check-env shimmy:dm_control/cartpole-balance-v0 --steps 50",),
    "docs": ("{python} -m sphinx -q -W -c {root}/docs/site pages site",),
    "envpool": ("rllib check-env envpool:CartPole-v1 --steps 50",),
    "gymnax": ("rllib check-env gymnax:CartPole-v1 --steps 50",),
    "hub": ("{python} -c 'from rllib.remote import hub; print(hub.library().HfApi().endpoint)'",),
    "joblib": ("{python} program_joblib.py",),
    "jumanji": ("rllib check-env jumanji:Game2048-v1 --steps 50",),
    "lbforaging": ("rllib check-env lbforaging:Foraging-8x8-2p-3f-v3 --steps 50",),
    "minatar": ("rllib check-env rllib.env.tasks.minatar_games:MinAtar/Breakout-v1 --steps 50",),
    "minigrid": ("rllib train -f ppo/minigrid_empty --stop iterations=1",),
    "mjlab": ("{python} -m rllib.mjlab train --task Mjlab-Cartpole-Balance --num_envs 4 --max_iterations 1",),
    "mlflow": (f"{FIRST} 'mlflow={{tracking_uri: \"sqlite:///runs.db\"}}'",),
    "mujoco": ("rllib check-env HalfCheetah-v5 --steps 50",),
    "multiagent": ("rllib check-env pettingzoo:mpe2.simple_spread_v3 --steps 50",),
    "navix": ("rllib check-env navix:Navix-Empty-5x5-v0 --steps 50",),
    "offline": (FIRST, "rllib record results/first --to steps.parquet --steps 200", "rllib dataset info steps.parquet"),
    "onnx": (FIRST, "rllib export results/first --format onnx -o first.onnx"),
    "openspiel": ("rllib check-env rllib.env.multi_agent.openspiel:OpenSpielEnv game=tic_tac_toe --steps 50",),
    "pgx": ("rllib check-env pgx:2048 --steps 50",),
    "playground": ("rllib check-env playground:CartpoleBalance --steps 50",),
    "plot": (FIRST, "rllib plot results/first -o curves.png"),
    "ray": ("{python} program_ray.py",),
    "robotics": ("rllib check-env gymnasium_robotics:FetchReach-v4 --steps 50",),
    "rware": ("rllib check-env rware:rware-tiny-2ag-v2 --steps 50",),
    "serve": (FIRST, "rllib serve results/first --port 0"),
    "storage": (FIRST, "rllib upload results/first memory://copy/first"),
    "test": ("{python} -m pytest {root}/tests/test_schedules.py",),
    "trackio": (f"{FIRST} 'trackio={{project: poles}}'",),
    "tune": (
        "rllib tune PPO CartPole-v1 train_batch_size=500 num_rollout_workers=0 --search lr=log:1e-4:1e-2 --trials 2 "
        "--searcher optuna --stop iterations=1",
    ),
    "types": ("{python} -m basedpyright --pythonpath {python} --level error program.py",),
    "video": (FIRST, "rllib record results/first -o agent.mp4"),
    "vmas": ("rllib check-env vmas:balance --steps 50",),
    "wandb": (f"{FIRST} 'wandb={{mode: offline, project: poles}}'",),
}
# extra -> a file that it leaves, as a pattern
MAKES = {
    "clearml": "**/offline-*.zip",
    "comet": "**/*.zip",
    "docs": "site/index.html",
    "mlflow": "runs.db",
    "offline": "steps.parquet",
    "onnx": "first.onnx",
    "plot": "curves.png",
    "trackio": "**/poles.db",
    "video": "agent.mp4",
    "wandb": "wandb/offline-run-*/*.wandb",
}
# Files that the lines read
FILES = {
    "program.py": release.PROGRAM,
    "pages/index.md": "# A page\n",
    "program_joblib.py": """
import joblib
from runtime.util.joblib import register_runtime

if __name__ == "__main__":
    register_runtime()
    with joblib.parallel_config(backend="runtime", n_jobs=2):
        assert joblib.Parallel()(joblib.delayed(abs)(-i) for i in range(4)) == [0, 1, 2, 3]
""",
    "program_ray.py": """
import runtime


@runtime.remote
def square(x):
    return x * x


if __name__ == "__main__":
    runtime.init(engine="ray", num_cpus=1)
    assert runtime.get([square.remote(i) for i in range(3)]) == [0, 1, 4]
    runtime.shutdown()
""",
}


def copied(python: Path, where: Path) -> Path:
    """The python of a new environment with the packages of another one, but for those of the wheel.

    Their files are links, so that gigabytes of torch are unpacked once; pip replaces files, and never writes into them.
    """
    made = release.environment(where)
    (packages,) = python.parents[1].glob("lib/python*/site-packages")
    (target,) = where.glob("lib/python*/site-packages")
    for path in packages.iterdir():
        if path.name in release.PACKAGES or path.name.startswith(("rllib-", f"{WHEEL}-")):
            continue
        if path.is_dir():
            shutil.copytree(path, target / path.name, copy_function=os.link, dirs_exist_ok=True)
        elif not (target / path.name).exists():
            os.link(path, target / path.name)
    return made


def use_extra(extra: str, python: Path, where: Path) -> None:
    """Uses an extra in an empty directory, which is the home as well.

    Raises:
        Problem: with what the command printed, or if the file that it makes is missing.
    """
    for name, text in FILES.items():
        (where / name).parent.mkdir(parents=True, exist_ok=True)
        (where / name).write_text(text)
    for line in USES[extra]:
        if line in release.SERVERS:
            release.ask(line, python, where)
            continue
        name, *arguments = shlex.split(line.format(python=python, root=release.ROOT) if "{python}" in line else line)
        release.ran([str(python.parent / name), *arguments], where, HOME=str(where))
    if extra in MAKES and not any(path.stat().st_size for path in where.glob(MAKES[extra])):
        raise release.Problem(f"there is no {MAKES[extra]}")


def extras() -> set[str]:
    """Names of the extras in pyproject.toml."""
    return set(tomllib.loads((release.ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])


def check(names: Sequence[str]) -> None:
    """Tries extras, all by default, and prints of each whether it passes, with the seconds.

    Raises:
        Problem: if one fails. One that pip cannot install here is no failure: its words are printed.
    """
    known = extras()
    if unknown := [name for name in names if name not in known]:
        raise release.Problem(f"there is no extra {unknown[0]!r}. There are: {', '.join(sorted(known))}.")
    wheel, _ = release.build_and_look()
    failed = []
    with tempfile.TemporaryDirectory() as place:
        base, began = release.environment(Path(place) / "base"), time.monotonic()
        release.install(base, wheel)
        print(f"{wheel.name} and its dependencies are installed after {time.monotonic() - began:.0f} s", flush=True)
        for name in names or sorted(known):
            began = time.monotonic()
            try:
                python = copied(base, Path(place) / name)
                try:
                    release.install(python, wheel, extras=name)
                except release.Problem as problem:
                    result = f"cannot be installed: {str(problem).splitlines()[-1]}"
                else:
                    installed = time.monotonic() - began
                    use_extra(name, python, Path(place) / f"user_{name}")
                    result = f"pass, {time.monotonic() - began:.0f} s, of which {installed:.0f} s to install"
            except (release.Problem, subprocess.TimeoutExpired, OSError) as problem:
                result = f"FAIL, {time.monotonic() - began:.0f} s:\n{problem}"
                failed.append(name)
            print(f"{name:<12}{result}", flush=True)
            shutil.rmtree(Path(place) / name, ignore_errors=True)
    if failed:
        raise release.Problem(f"of the extras {', '.join(failed)} failed")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="EXTRA", help="extras to try  [default: all]")
    try:
        check(parser.parse_args().names)
    except release.Problem as problem:
        sys.exit(f"Error: {problem}")


if __name__ == "__main__":
    main()
