"""The script that counts Ray's own tests: which files it finds, how it runs them, and what its table says."""

import json

import ray_tests
from ray_tests import Counted


def write(path, text=""):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_files_of_tests_are_found_with_their_folders(tmp_path):
    rllib = tmp_path / "rllib"
    for name in ("env/tests/test_a.py", "tests/test_b.py", "tests/helper.py", "utils/test_utils.py"):
        write(rllib / name)
    found = list(ray_tests.files(tmp_path))
    assert [(path.name, ray_tests.area(path, tmp_path)) for path in found] == [
        ("test_a.py", "env"),
        ("test_b.py", "tests"),
    ]


def test_each_test_of_a_file_is_counted(tmp_path):
    write(tmp_path / "rllib" / "tests" / "conftest.py", "raise RuntimeError('it is not read')")
    path = tmp_path / "rllib" / "tests" / "test_mine.py"
    write(
        path,
        "import time, unittest\n"
        "from ray.rllib.policy.sample_batch import SampleBatch\n"
        "from ray.tune.search.ax import AxSearch\n"
        "class TestMine(unittest.TestCase):\n"
        "    def test_passes(self): assert SampleBatch({'obs': [1]}).count == 1\n"
        "    def test_fails(self): AxSearch()\n"
        "    def test_is_skipped(self): self.skipTest('not today')\n"
        "    def test_stays(self): time.sleep(60)\n",
    )
    tests = ray_tests.run(path, tmp_path, 60, 1)
    assert tests[:3] == (1, 2, 1)
    assert sorted(tests.reasons) == [
        "TimeoutError: still running after 1 s",
        "ray.tune.search.ax.AxSearch is not here",
    ]


def test_a_file_that_cannot_be_imported_has_a_reason(tmp_path):
    path = tmp_path / "rllib" / "tests" / "test_mine.py"
    write(path, "import there_is_no_such_module\n")
    tests = ray_tests.run(path, tmp_path, 60, 9)
    assert not tests.is_imported
    assert tests.reasons == ["ModuleNotFoundError: No module named 'there_is_no_such_module'"]


def test_tests_that_were_not_reached_have_failed():
    lines = [["", "found", 4], ["a", "passed", ""], ["b", "failed", "x.py:3: in f\nE   ValueError: at 0x12ab\nmore"]]
    tests = ray_tests.result(list(map(json.dumps, lines)), "still running after 5 s")
    assert tests == (1, 3, 0, ["ValueError: at 0x...", *["still running after 5 s"] * 2])
    assert ray_tests.result([], "exit code -11") == (0, 0, 0, ["exit code -11"])


def test_the_table_has_sums_and_the_commonest_reasons():
    shown = ray_tests.table(
        {"env": [Counted(2, 1, 0, ["a|b"]), Counted(0, 0, 0, ["a|b"])], "core": [Counted(0, 2, 1, ["c", "c"])]}, 1
    )
    assert "| core | 1 | 1 | 0 | 2 | 1 |\n| env | 2 | 1 | 2 | 1 | 0 |\n| all | 3 | 2 | 2 | 3 | 1 |" in shown
    assert shown.endswith("| a\\|b | 2 |")
