"""Sittings of long tests: nothing runs twice, nothing is left out, and the list says what happened."""

import os
import subprocess
import sys
from pathlib import Path

from tests import sittings

TESTS = """
import pytest

@pytest.mark.parametrize("x", [1, 2, 3])
def test_some(x):
    assert x != 2

@pytest.mark.learning
@pytest.mark.parametrize("x", [1, 2])
def test_each(x):
    pass

def test_not_here():
    pytest.skip("no such device")
"""
ROOT = Path(__file__).parents[1]


def sit(directory, minutes):
    """What a sitting prints, its exit code, and the list after it."""
    options = ["-p", "tests.sittings", "-p", "no:cacheprovider", "-o", "markers=learning", "--list", "list.csv"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "--minutes", str(minutes), "--rootdir", ".", "test_long.py"],
        cwd=directory, env={**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True, text=True, timeout=100,
    )  # fmt: skip
    lines = sittings.read(directory / "list.csv")
    return done.stdout, done.returncode, [(line["test"], line["result"], line["variants"]) for line in lines]


def test_sittings_together_run_all_tests_once(tmp_path):
    (tmp_path / "test_long.py").write_text(TESTS)
    for command in (["init"], ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "--allow-empty", "-m", "first"]):
        subprocess.run(["git", *command, "-q"], cwd=tmp_path, check=True)
    said, code, lines = sit(tmp_path, 0)  # all variants of one test
    some = ("test_long.py::test_some", "failed", "3")
    assert code == 1 and lines == [some] and "the sitting is over; tests that are left: 3" in said
    said, code, lines = sit(tmp_path, 0)
    each = [(f"test_long.py::test_each[{x}]", "passed", "1") for x in (1, 2)]
    assert code == 0 and "tests that are left: 2" in said and lines == [each[0], some]
    said, code, lines = sit(tmp_path, 100)
    assert code == 0 and lines == [*each, ("test_long.py::test_not_here", "skipped", "1"), some]
    said, code, again = sit(tmp_path, 100)
    assert again == lines and "6 deselected" in said
