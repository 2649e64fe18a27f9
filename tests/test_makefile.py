"""What `make` would do, without doing it."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="there is no make here")


def steps(target, *options) -> str:
    """The commands of a target in a fresh clone."""
    done = subprocess.run(["make", "-n", *options, target], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def installed(target, *options) -> list[str]:
    return re.findall(r"-e '(\S+)'", steps(target, *options))


def test_training_installs_what_it_needs_and_shows_the_progress():
    assert installed("train", "-B") == [".[plot]"] and "--quiet" not in steps("train", "-B")


@pytest.mark.parametrize("target", ["test", "venv"])
def test_the_tests_complete_the_environment_of_training(target):
    assert installed(target, "-B") == [".[plot]", ".[test]"]


def test_neither_installs_again_what_the_other_has(tmp_path):
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / ".venv").mkdir()
    for stamp in ("trains", "installed"):
        (tmp_path / ".venv" / stamp).touch()
    for target in ("train", "test", "venv"):
        assert installed(target, "-C", str(tmp_path)) == []
    (tmp_path / ".venv" / "installed").unlink()
    assert installed("train", "-C", str(tmp_path)) == [] and installed("test", "-C", str(tmp_path)) == [".[test]"]
