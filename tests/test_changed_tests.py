"""tools/changed_tests.py: which tests `make check` runs for a change."""

import subprocess
from pathlib import Path

import changed_tests
import pytest


@pytest.fixture
def checkout(tmp_path):
    """A repository with two modules and their tests, and a branch on which nothing has changed yet."""

    def git(*words):
        own = ["-c", "user.name=t", "-c", "user.email=t@t", "-c", "init.defaultBranch=main"]
        subprocess.run(["git", *own, *words], cwd=tmp_path, check=True, capture_output=True)

    files = {
        "rllib/replay/tree.py": "",
        "rllib/losses/td.py": "",
        "tests/test_both.py": "from rllib.replay.tree import SumTree\nfrom rllib.losses.td import error\n",
        "tests/test_tree.py": "",
        "tests/replay/test_rows.py": "from rllib.replay import tree\n",
        "tests/test_schedules.py": "import rllib\n",
        "docs/index.md": "",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    git("init")
    git("add", ".")
    git("commit", "-m", "all")
    git("switch", "-c", "change")
    return tmp_path, git


def named(root) -> list[str]:
    return [str(path) for path in changed_tests.tests_of(changed_tests.changed_files("main", root), root)]


def test_nothing_has_changed(checkout):
    assert named(checkout[0]) == []


def test_tests_of_committed_open_and_new_changes_are_named_once(checkout):
    root, git = checkout
    (root / "rllib/replay/tree.py").write_text("deep = True\n")
    git("commit", "-am", "deeper")
    assert named(root)[0] == "tests/test_tree.py"
    assert {*named(root)[1:]} == {"tests/replay/test_rows.py", "tests/test_both.py"}
    (root / "rllib/losses/td.py").write_text("wide = True\n")
    (root / "tests/test_new.py").write_text("")
    (root / "docs/index.md").write_text("more")
    found = named(root)
    assert found[:3] == ["tests/test_new.py", "tests/test_tree.py", "tests/test_both.py"]
    assert sorted(found[3:]) == ["tests/replay/test_rows.py"]


def test_the_last_change_names_tests_that_are_there():
    found = changed_tests.tests_of([Path("rllib/schedules.py"), Path("tests/test_layout.py")])
    assert found[0] == Path("tests/test_layout.py") and Path("tests/test_schedules.py") in found
    assert all((changed_tests.ROOT / path).exists() for path in found)
