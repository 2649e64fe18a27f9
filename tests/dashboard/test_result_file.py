"""Reading result.json while it grows, when it is damaged, and when it is another file than before."""

import json

import numpy as np
import pytest

from rllib.dashboard.result_file import ABSENT, ResultFile, read_last
from rllib.runs.files import drop_results_after
from rllib.storage import growing_lines


def _line(**result) -> str:
    return json.dumps(result) + "\n"


def _all(file: ResultFile, most_bytes: int = 1 << 20) -> list:
    rows = [file.read(most_bytes)]
    while file.behind_bytes:
        rows.append(file.read(most_bytes))
    return np.concatenate(rows).tolist()


def test_only_what_is_new_is_read_and_half_a_line_waits(tmp_path):
    path = tmp_path / "result.json"
    file = ResultFile(path, ["a"])
    assert _all(file) == []
    path.write_text(_line(a=1.0) + _line(a=2.0) + '{"a": 3.')
    assert _all(file) == [[1.0], [2.0]]
    assert (file.count, file.unfinished_bytes, file.bad_lines) == (2, 8, 0)
    with open(path, "a") as end:
        end.write("5}\n")
    assert _all(file) == [[3.5]]
    assert (file.count, file.unfinished_bytes) == (3, 0)
    assert _all(file) == []


@pytest.mark.parametrize("most_bytes", [1, 7, 40, 1000])
def test_pieces_of_any_size_give_the_same(tmp_path, most_bytes):
    path = tmp_path / "result.json"
    path.write_text("".join(_line(a=n, text="x" * (n % 60)) for n in range(50)) + '{"a"')
    file = ResultFile(path, ["a"])
    assert _all(file, most_bytes) == [[float(n)] for n in range(50)]
    assert file.unfinished_bytes == 4


@pytest.mark.parametrize("name", ['a"b', "a\\b", "a\nb", "\x00", "é", "", "a'b"])
def test_a_metric_may_have_any_name(tmp_path, name):
    path = tmp_path / "result.json"
    path.write_text(_line(**{name: 1.0, "x": 2.0, "in": {name: 3.0}}))
    assert _all(ResultFile(path, [name, "x", f"in/{name}"])) == [[1.0, 2.0, 3.0]]


def test_a_line_that_is_too_long_for_a_result_is_left(tmp_path, monkeypatch):
    monkeypatch.setattr(growing_lines, "_LONGEST_LINE_BYTES", 1000)
    path = tmp_path / "result.json"
    path.write_text(_line(a=1.0) + "x" * 5000 + "\n" + _line(a=2.0))
    file = ResultFile(path, ["a"])
    assert _all(file, 100) == [[1.0]] and file.unfinished_bytes > 5000


def test_broken_lines_are_counted_and_the_others_read(tmp_path):
    path = tmp_path / "result.json"
    path.write_bytes(b'{"a": 1}\n{"a": oops}\n\x00\x00\xff\n[5]\n{"a": 2}\n')
    file = ResultFile(path, ["a"])
    assert _all(file) == [[1.0], [2.0]]
    assert file.bad_lines == 3 and file.first_bad.startswith("line 2: ")


def test_what_is_no_number_is_nan(tmp_path):
    path = tmp_path / "result.json"
    path.write_text(
        _line(a=None) + _line(a="5") + _line(a=True) + _line(b=1) + _line(a=[1]) + _line(a=10**400) + _line(a=7)
    )
    rows = _all(ResultFile(path, ["a"]))
    assert [value for (value,) in rows if np.isfinite(value)] == [7.0] and len(rows) == 7


def test_keys_are_names_or_paths(tmp_path):
    path = tmp_path / "result.json"
    path.write_text(
        json.dumps({"info": {"learner": {"kl": 0.5}}, "flat/key": 2, "n": 1}) + "\n" + _line(info=3) + _line(info={})
    )
    rows = np.array(_all(ResultFile(path, ["info/learner/kl", "flat/key", "n", "info"])))
    np.testing.assert_array_equal(rows[0], [0.5, 2.0, 1.0, np.nan])
    np.testing.assert_array_equal(rows[1], [ABSENT, ABSENT, ABSENT, 3.0])
    np.testing.assert_array_equal(rows[2], [ABSENT, ABSENT, ABSENT, np.nan])


def test_keys_are_names_of_later_versions_too(tmp_path):
    path = tmp_path / "result.json"
    learner = {"default_policy": {"learner_stats": {"entropy": 0.5}}}
    path.write_text(_line(episode_reward_mean=2, info={"learner": learner}) + _line(**{"env_runners/num_episodes": 3}))
    keys = ["env_runners/episode_return_mean", "learners/__all_modules__/entropy", "env_runners/num_episodes"]
    rows = np.array(_all(ResultFile(path, keys)))
    np.testing.assert_array_equal(rows, [[2.0, 0.5, ABSENT], [ABSENT, ABSENT, 3.0]])


def test_a_file_that_was_made_anew_is_read_from_its_beginning(tmp_path):
    path = tmp_path / "result.json"
    path.write_text("".join(_line(a=n, training_iteration=n) for n in range(1, 6)))
    file = ResultFile(path, ["a"])
    assert len(_all(file)) == 5
    drop_results_after(tmp_path, 2)  # as --resume does
    assert _all(file) == [[1.0], [2.0]] and file.restarts == 1 and file.count == 2
    path.write_text("".join(_line(a=-n, training_iteration=n) for n in range(1, 9)))  # longer, and another one
    assert _all(file) == [[-float(n)] for n in range(1, 9)] and file.restarts == 2
    path.unlink()
    assert _all(file) == [] and file.count == 0


def test_the_last_result_is_found_from_the_end(tmp_path):
    path = tmp_path / "result.json"
    assert read_last(path) == {}
    path.write_text('{"half')
    assert read_last(path) == {}
    path.write_text(_line(a=1) + _line(a=2, long="x" * 300_000) + '{"a": 3')
    assert read_last(path)["a"] == 2
    path.write_text(_line(a=1) + "broken\n")
    assert read_last(path) == {"a": 1}
