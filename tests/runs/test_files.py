"""A run's files: what a kill, a full disk or a stranger has left of them is read, and written on."""

import contextlib
import csv
import os
import sys
from pathlib import Path

import pytest
from full_disk import disk_of

from rllib.runs.entries import finite_numbers
from rllib.runs.events import TensorBoardLogger
from rllib.runs.files import CsvLogger, ResultFiles, close_all, drop_results_after, read_params, read_results
from rllib.runs.safe_files import write_whole


def result(iteration, **more):
    return {"training_iteration": iteration, "timesteps_total": 10 * iteration, **more}


def write(directory, iterations, **more):
    files = ResultFiles(directory)
    for iteration in iterations:
        files.on_result(result(iteration, **more))
    files.close()


def iterations(directory) -> list[int]:
    return [each["training_iteration"] for each in read_results(directory)]


def rows(directory) -> list[int]:
    with open(directory / "progress.csv", newline="") as file:
        table = list(csv.DictReader(file))
    assert all(int(row["timesteps_total"]) == 10 * int(row["training_iteration"]) for row in table)
    return [int(row["training_iteration"]) for row in table]


def tear(directory):
    """What a writer that is killed in `write` may leave."""
    for name, half in (("result.json", '{"training_iteration": 99, "times'), ("progress.csv", "99,9")):
        with open(directory / name, "a") as file:
            file.write(half)


def test_half_a_last_line_is_cut_before_the_next_is_written(tmp_path):
    write(tmp_path, [1, 2, 3])
    tear(tmp_path)
    assert iterations(tmp_path) == [1, 2, 3]
    write(tmp_path, [4])
    assert iterations(tmp_path) == rows(tmp_path) == [1, 2, 3, 4]


@pytest.mark.parametrize(("kept", "newest"), [([1, 2, 3], 5), ([1, 2], 2), ([], 0)])
def test_results_are_taken_out_behind_half_a_line(tmp_path, kept, newest):
    write(tmp_path, [1, 2, 3])
    tear(tmp_path)
    assert [each["training_iteration"] for each in drop_results_after(tmp_path, newest)] == kept
    write(tmp_path, [newest + 1])
    assert iterations(tmp_path) == rows(tmp_path) == [*kept, newest + 1]


def test_what_came_before_a_trial_took_over_an_earlier_state_stays(tmp_path):
    write(tmp_path, [1, 2, 7, 3, 4, 5])
    drop_results_after(tmp_path, 4)
    assert iterations(tmp_path) == rows(tmp_path) == [1, 2, 7, 3, 4]


# ---------------------------------------------------------------------- killed in between


class Killed(BaseException):
    """As SIGKILL: no handler of OSError or Exception runs."""


class _Kills:
    """Raises at one of the steps that change files below a directory."""

    def __init__(self):
        self.below, self.left = None, 0
        sys.addaudithook(self)  # for as long as the process lives; without `below` it does nothing

    def __call__(self, event, arguments):
        if self.below is None or event not in ("open", "os.truncate", "os.rename", "os.remove"):
            return
        if str(arguments[0]).startswith(str(self.below)):
            self.left -= 1
            if self.left < 0:
                self.below = None
                raise Killed(event)

    @contextlib.contextmanager
    def at(self, step, below):
        self.below, self.left = below, step
        try:
            yield
        finally:
            self.below = None


@pytest.fixture(scope="module")
def kills():
    return _Kills()


@pytest.mark.parametrize("newest", [0, 7, 12])
def test_a_kill_while_results_are_taken_out_loses_none_that_stay(tmp_path, kills, newest):
    steps = 0
    for step in range(30):
        run = tmp_path / str(step)
        run.mkdir()
        write(run, range(1, 13))
        tear(run)
        kept = list(range(1, newest + 1))
        try:
            with kills.at(step, run):
                drop_results_after(run, newest)
        except Killed:
            steps += 1
        else:
            break
        assert iterations(run)[:newest] == kept
        drop_results_after(run, newest)
        assert iterations(run) == kept
        write(run, [newest + 1])
        assert iterations(run) == rows(run) == [*kept, newest + 1]
    assert steps >= 2 and iterations(run) == kept


def test_a_kill_while_a_column_is_added_loses_no_row(tmp_path, kills):
    for step in range(10):
        run = tmp_path / str(step)
        run.mkdir()
        write(run, [1, 2])
        logger = CsvLogger(run)
        try:
            with kills.at(step, run):
                logger.on_result(result(3, late=1))
        except Killed:
            assert rows(run)[:2] == [1, 2]
        else:
            break
        finally:
            logger.close()
    assert step > 1 and rows(run) == [1, 2, 3]


# ---------------------------------------------------------------------- a full disk


def test_on_a_full_disk_files_are_whole_and_the_message_names_one(tmp_path):
    write(tmp_path, [1])
    with disk_of(60_000), pytest.raises(OSError, match=r"result\.json") as caught:
        write(tmp_path, range(2, 100), text="x" * 1000)
    assert caught.value.filename == str(tmp_path / "result.json")
    there = iterations(tmp_path)
    assert there == list(range(1, len(there) + 1)) and len(there) > 10
    assert (tmp_path / "result.json").read_bytes().endswith(b"}\n"), "half a line was taken back"
    write(tmp_path, [len(there) + 1])
    assert iterations(tmp_path) == rows(tmp_path) == [*there, len(there) + 1]


def test_a_file_that_cannot_be_replaced_stays_and_is_named(tmp_path):
    write_whole(tmp_path / "run.json", b"before")
    with disk_of(10_000), pytest.raises(OSError) as caught:
        write_whole(tmp_path / "run.json", b"x" * 20_000)
    assert caught.value.filename == str(tmp_path / "run.json")
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("run.json", b"before")]


def test_every_logger_is_closed_though_another_raises():
    closed = []

    class Closes:
        def __init__(self, name, error=None):
            self.name, self.error = name, error

        def close(self):
            closed.append(self.name)
            if self.error:
                raise self.error

    with pytest.raises(OSError, match="full"):
        close_all([Closes("a", OSError("full")), Closes("b"), Closes("c")])
    assert closed == ["a", "b", "c"]


# ---------------------------------------------------------------------- damaged files


@pytest.mark.parametrize(
    "line",
    [b"{broken", b'{"a": 1}{"training_iteration": 3}', b"[1]", b"3", b'{"a": "\xff"}', b'{"a": ' + b"[" * 200_000,
     b'{"training_iteration": "x"}', b'{"training_iteration": null}', b""],
    ids=lambda line: repr(line[:20]),
)  # fmt: skip
def test_a_line_without_a_result_is_left_out_and_named(tmp_path, caplog, line):
    write(tmp_path, [1, 2])
    with open(tmp_path / "result.json", "ab") as file:
        file.write(line + b"\n")
    write(tmp_path, [3])
    assert iterations(tmp_path) == [1, 2, 3]
    assert f"{tmp_path / 'result.json'}: line 3 holds no result" in caplog.text
    assert [each["training_iteration"] for each in drop_results_after(tmp_path, 3)] == [1, 2, 3]
    assert rows(tmp_path) == [1, 2, 3]
    assert iterations(tmp_path) == [1, 2, 3]
    assert caplog.text.count("holds no result") == 1


def test_each_file_with_a_bad_line_is_named(tmp_path, caplog):
    for name in "ab":
        (tmp_path / name).mkdir()
        (tmp_path / name / "result.json").write_text("[1]\n")
        assert iterations(tmp_path / name) == []
    assert caplog.text.count("line 1 holds no result") == 2


def test_a_pipe_instead_of_a_file_is_refused(tmp_path):
    os.mkfifo(tmp_path / "result.json")
    with pytest.raises(ValueError, match=r"'result\.json' in .* is no regular file"):
        read_results(tmp_path)
    os.mkfifo(tmp_path / "params.json")
    assert read_params(tmp_path) == {}


@pytest.mark.parametrize("text", [b"[1]", b"{", b'{"a": ' + b"[" * 200_000], ids=["list", "half", "deep"])
def test_damaged_settings_are_left_out_with_a_warning(tmp_path, caplog, text):
    (tmp_path / "params.json").write_bytes(text)
    assert read_params(tmp_path) == {} and "params.json cannot be read" in caplog.text


# ---------------------------------------------------------------------- TensorBoard

GIF = b"GIF89a" + b"\x02\x00\x03\x00" + b"picture"


@pytest.fixture
def run(tmp_path):
    """A run with videos, beside a secret."""
    pytest.importorskip("tensorboardX")
    (tmp_path / "secret").write_bytes(GIF + b"secret")
    run = tmp_path / "run"
    (run / "videos").mkdir(parents=True)
    return run


def events_with(run: Path, video) -> bytes:
    logger = TensorBoardLogger(run)
    logger.on_result(result(1, evaluation={"video": video}))
    logger.close()
    (events,) = run.glob("events.out.tfevents*")
    return events.read_bytes()


def test_the_video_of_a_run_is_in_its_events(run):
    (run / "videos" / "iteration_000001.gif").write_bytes(GIF)
    assert GIF in events_with(run, "videos/iteration_000001.gif")


@pytest.mark.parametrize(
    "name", ["/dev/zero", "../secret", "secret", "videos", "videos/", "videos/..", "videos/../../secret", "videos/link",
             "videos/pipe", "videos/text", "videos/large", "videos/none", "videos/x/y", "videos/a\0b", 5, ["videos"]],
    ids=repr,
)  # fmt: skip
def test_nothing_else_is_taken_for_a_video(run, name, caplog):
    (run / "secret").write_bytes(GIF + b"secret")
    (run / "videos" / "link").symlink_to("../../secret")
    (run / "videos" / "text").write_bytes(b"secret" * 9)
    os.mkfifo(run / "videos" / "pipe")
    with open(run / "videos" / "large", "wb") as file:
        file.write(GIF + b"secret")
        file.truncate(2**30)
    content = events_with(run, name)
    assert b"secret" not in content and b"timesteps_total" in content
    assert "a video is left out" in caplog.text


def test_a_linked_folder_of_videos_is_not_followed(run, tmp_path):
    (run / "videos").rmdir()
    (run / "videos").symlink_to("..")
    assert b"secret" not in events_with(run, "videos/secret")


def test_charts_have_each_number_once_and_no_clutter():
    shown = finite_numbers(
        {
            "timesteps_total": 8, "num_env_steps_sampled": 8, "agent_timesteps_total": 8, "num_agent_steps_sampled": 8,
            "num_env_steps_trained": 6, "num_agent_steps_trained": 6, "training_iteration": 2,
            "iterations_since_restore": 1, "pid": 77, "timestamp": 1e9, "done": False, "date": "today",
            "counters": {"num_env_steps_sampled": 8, "num_updates": 3}, "info": {"num_updates": 3, "size": 10**400,
            "num_env_steps_trained": 6, "learner": {"default_policy": {"learner_stats": {"kl": 0.1}}}},
            "episode_reward_mean": 5.0, "policy_reward_mean": {"default_policy": 5.0}, "num_healthy_workers": 2,
            "fault_tolerance": {"num_healthy_workers": 2}, "evaluation": {"episode_reward_mean": 6.0},
        }
    )  # fmt: skip
    assert set(shown) == {
        "timesteps_total", "num_env_steps_trained", "training_iteration", "info/num_updates", "episode_reward_mean",
        "info/learner/default_policy/learner_stats/kl", "num_healthy_workers", "evaluation/episode_reward_mean",
    }  # fmt: skip
    assert finite_numbers({"num_env_steps_sampled": 8, "counters": {"own": 1}}) == {
        "num_env_steps_sampled": 8, "counters/own": 1,
    }, "what has no other name stays"  # fmt: skip


def test_events_of_others_stay_when_these_are_made_again(run):
    (run / "events.out.tfevents.1.users").write_bytes(b"mine")
    for iteration in (1, 2):
        logger = TensorBoardLogger.fresh(run)
        logger.on_result(result(iteration))
        logger.close()
    assert len(list(run.glob("events.out.tfevents*"))) == 2
    assert (run / "events.out.tfevents.1.users").read_bytes() == b"mine"


def test_times_and_steps_that_are_none_do_not_stop_the_events(run):
    logger = TensorBoardLogger(run)
    for steps in ("many", None, 10**400, [1]):
        logger.on_result({"training_iteration": 3, "timesteps_total": steps, "timestamp": "now", "a": 1.0})
    logger.close()


def test_numbers_of_several_agents_are_no_copies_of_their_environments():
    steps = {"num_env_steps_sampled": 9, "timesteps_total": 9, "num_agent_steps_sampled": 18}
    returns = {"episode_reward_mean": 5.0, "policy_reward_mean": {"default_policy": 2.5}}
    assert finite_numbers({**steps, **returns}).keys() == {"timesteps_total", "episode_reward_mean"}
    several = finite_numbers({**steps, **returns, "agent_steps_sampled": {"a": 9, "b": 9}})
    assert several["num_agent_steps_sampled"] == 18 and several["policy_reward_mean/default_policy"] == 2.5
    assert "num_env_steps_sampled" not in several
