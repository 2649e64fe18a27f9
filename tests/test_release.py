"""tools/release.py: the wheel holds what a user needs, works outside of the checkout, and has a tag only if it may."""

import email.parser
import re
import subprocess
import sysconfig
import tarfile
import zipfile
from email.message import Message

import click
import pytest
import release
import release_extras
import yaml

import rllib
from rllib.cli import command

pytest.importorskip("hatchling", reason="needs hatchling to build the wheel")
pytestmark = pytest.mark.skipif(not (release.ROOT / ".git").exists(), reason="needs a git checkout to compare with")


@pytest.fixture(scope="module")
def files():
    return release.files_of_packages()


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    return release.build(tmp_path_factory.mktemp("dist"))


def test_wheel_and_sdist_hold_what_they_should(built, files):
    wheel, sdist = built
    assert release.wheel_problems(wheel, files) == []
    assert release.sdist_problems(sdist, files) == []
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    examples = ("rllib-stubs/algorithms/ppo.pyi", "rllib/tuned_examples/ppo/cartpole.yaml")
    for name in ("rllib/py.typed", "rllib-stubs/py.typed", "runtime/py.typed", *examples):
        assert name in names


def test_the_wheel_works_in_an_environment_of_its_own(built, tmp_path):
    """Dependencies are this environment's, its rllib is not: a .pth file of a .pth file's directory is not read."""
    python = release.environment(tmp_path / "env")
    release.install(python, built[0], "--no-deps", "--no-index")
    (packages,) = (tmp_path / "env").glob("lib/python*/site-packages")
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    printed = release.use(python, tmp_path / "user")
    assert "training_iteration 2 >= 2" in printed
    assert list((tmp_path / "user" / "results").glob("*/checkpoint_*"))


def test_what_a_wheel_lacks_or_has_too_much_is_named(built, files, tmp_path):
    broken = tmp_path / built[0].name
    with zipfile.ZipFile(built[0]) as whole, zipfile.ZipFile(broken, "w") as archive:
        for name in whole.namelist():
            if name != "rllib/py.typed" and not name.endswith("LICENSE"):
                archive.writestr(name, whole.read(name))
        archive.writestr("rllib/notes.txt", "forgotten")
    problems = release.wheel_problems(broken, files)
    assert "rllib/py.typed is missing" in problems and "LICENSE is missing" in problems
    assert "rllib/notes.txt does not belong there" in problems


def test_what_an_sdist_lacks_is_named(tmp_path, files):
    empty = tmp_path / "empty.tar.gz"
    with tarfile.open(empty, "w:gz") as archive:
        archive.add(__file__, "rllib-1/results/test_release.py")
    problems = release.sdist_problems(empty, files)
    assert "pyproject.toml is missing" in problems and "results/test_release.py does not belong there" in problems


def test_metadata_that_an_index_refuses():
    metadata = Message()
    metadata["Name"], metadata["Version"] = "rllib", "1.2-beta"
    metadata["Requires-Dist"] = "torch @ https://example.org/torch.whl"
    metadata.set_payload("short")
    problems = "\n".join(release.metadata_problems(metadata))
    for part in ("no Summary", "'1.2-beta' is not like 1.2.3", "a dependency is an address", "README.md is not"):
        assert part in problems


def test_links_of_the_description_lead_to_the_repository(built):
    with zipfile.ZipFile(built[0]) as archive:
        (info,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        description = email.parser.Parser().parsestr(archive.read(info).decode()).get_payload()
    repository = release.project()["urls"]["Repository"]
    assert f"]({repository}/docs/pictures/panel.svg)" in description and f"]({repository}/CHANGELOG.md)" in description
    metadata = Message()
    metadata.set_payload("[here](#here) [a page](docs/a.md) [elsewhere](https://host.org)")
    assert "links of the description lead nowhere on an index: docs/a.md" in release.metadata_problems(metadata)


def test_an_address_that_is_a_placeholder_stops_a_tag():
    assert any("no address of the repository" in problem for problem in release.tree_problems("0.0.0"))


@pytest.fixture
def checkout(tmp_path):
    """A git repository with a version."""

    def git(*arguments):
        command = ["git", "-c", "user.name=t", "-c", "user.email=t@t", *arguments]
        subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)

    (tmp_path / "rllib").mkdir()
    urls = '[project.urls]\nRepository = "https://host.org/r"\n'
    (tmp_path / "pyproject.toml").write_text('[project]\nversion = "1.2.3"\n' + urls)
    (tmp_path / "rllib/__init__.py").write_text('__version__ = "1.2.3"\n')
    (tmp_path / "CHANGELOG.md").write_text("# Changes\n\n## 1.2.3 (2026-01-01)\n\n- all\n\n## 1.2.2\n")
    git("init")
    git("add", ".")
    git("commit", "-m", "all")
    return tmp_path, git


def test_a_clean_tree_with_a_new_version_and_a_changelog_may_be_tagged(checkout):
    root, git = checkout
    assert release.version(root) == "1.2.3"
    assert release.tree_problems("1.2.3", root) == []
    git("tag", "v1.2.3")
    assert "is tagged already" in release.tree_problems("1.2.3", root)[0]


def test_what_stands_in_the_way_of_a_tag(checkout):
    root, _ = checkout
    (root / "pyproject.toml").write_text('[project]\nversion = "1.2.4"\n')
    with pytest.raises(release.Problem, match=r"pyproject.toml has the version 1.2.4, rllib/__init__.py 1.2.3"):
        release.version(root)
    problems = release.tree_problems("1.2.4", root)
    assert "the tree is not clean" in problems[0] and "pyproject.toml" in problems[0]
    assert "no address of the repository" in problems[1] and "has no heading '## 1.2.4'" in problems[2]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("## 1.2.3\n\n- x\n", None),
        ("## [1.2.3] - 2026-01-01\n### Added\n- x\n", None),
        ("## v1.2.3\n- x", None),
        ("## 1.2.30\n- x", "no heading"),
        ("## 1.2.3\n\n## 1.2.2\n- x\n", "says nothing"),
        ("", "no heading"),
    ],
)
def test_the_changelog_names_the_version(text, problem):
    found = release.changelog_problem(text, "1.2.3")
    assert found is None if problem is None else problem in found


def test_versions_of_the_checkout_agree():
    release.version()


def test_a_check_runs_every_verb():
    verbs = {line.split()[1] for line in (*release.TOUR, *release.SERVERS) if line.startswith("rllib ")}
    assert verbs == set(command.list_commands(click.Context(command))) - {*release.NOT_IN_TOUR}


def test_the_image_copies_what_the_build_reads_and_has_no_ray():
    commands = [
        line for line in (release.ROOT / "deploy" / "Dockerfile").read_text().splitlines() if not line.startswith("#")
    ]
    copied = {name for line in commands if line.startswith("COPY") for name in line.split()[1:-1]}
    assert copied >= {"pyproject.toml", "README.md", "LICENSE", *release.PACKAGES}
    assert all((release.ROOT / name).exists() for name in copied)
    torch = next(
        line for line in (release.ROOT / "constraints.txt").read_text().splitlines() if line.startswith("torch==")
    )
    assert any(line.endswith(torch) for line in commands) and not any("ray" in line for line in commands)


def test_the_citation_has_the_version():
    cited = yaml.safe_load((release.ROOT / "CITATION.cff").read_text())
    assert cited["version"] == rllib.__version__ and cited["license"] == "Apache-2.0"


def test_each_extra_is_used():
    assert set(release_extras.USES) == release_extras.extras()
    assert set(release_extras.MAKES) <= set(release_extras.USES)
    lines = [line for lines in release_extras.USES.values() for line in lines]
    verbs = {line.split()[1] for line in lines if line.startswith("rllib ")}
    assert verbs <= set(command.list_commands(click.Context(command)))
    read = {word for line in lines for word in line.split() if word.endswith(".py") and "{root}" not in word}
    assert read <= set(release_extras.FILES)


def test_the_wheel_itself_is_not_copied_with_its_dependencies(built, tmp_path, monkeypatch):
    """pip would take it as installed, and put no commands into the environment of an extra."""
    wheel, _ = built
    packages = tmp_path / "base/lib/python3.11/site-packages"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(packages)
    (packages / "numpy").mkdir()
    copy = tmp_path / "copy"
    (copy / "lib/python3.11/site-packages").mkdir(parents=True)
    monkeypatch.setattr(release, "environment", lambda where: where)
    release_extras.copied(tmp_path / "base/bin/python", copy)
    assert [path.name for path in copy.glob("lib/python*/site-packages/*")] == ["numpy"]


def test_extras_pass_fail_or_cannot_be_installed(tmp_path, monkeypatch, capsys):
    def install(python, package, *options, extras=""):
        if extras == "openspiel":
            raise release.Problem("rllib.whl could not be installed:\nERROR: No matching distribution for open-spiel")

    def ran(arguments, where, **variables):
        if "upload" in arguments:
            raise release.Problem("rllib upload ended with 1:\nno module fsspec")
        assert variables["HOME"] == str(where) and (where / "program.py").exists()
        return ""

    monkeypatch.setattr(release, "build_and_look", lambda: (tmp_path / "rllib.whl", None))
    monkeypatch.setattr(release, "install", install)
    monkeypatch.setattr(release, "ran", ran)
    with pytest.raises(release.Problem, match="of the extras plot, storage failed"):
        release_extras.check(["atari", "openspiel", "plot", "storage"])
    said = capsys.readouterr().out
    assert re.search(r"^atari +pass, \d+ s, of which \d+ s to install$", said, re.M)
    assert re.search(r"^openspiel +cannot be installed: ERROR: No matching distribution for open-spiel$", said, re.M)
    assert re.search(r"^plot +FAIL, \d+ s:\nthere is no curves.png$", said, re.M)
    assert re.search(r"^storage +FAIL.*\nrllib upload ended with 1:\nno module fsspec$", said, re.M)
    with pytest.raises(release.Problem, match=r"there is no extra 'plots'\. There are: atari, "):
        release_extras.check(["plots"])
