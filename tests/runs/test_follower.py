"""The process beside a run: what it makes of result.json, and that it ends with the run."""

import collections
import json
import struct
import subprocess
import sys

import pytest
from full_disk import disk_of

from rllib.runs.events import TensorBoardLogger
from rllib.runs.files import ResultFiles, drop_results_after, write_params
from rllib.runs.follower import Follower, wants_groups
from rllib.runs.run_log import RunLog
from rllib.runs.safe_files import AppendedFile
from rllib.runs.sidecar import SidecarLogger

pytest.importorskip("tensorboardX")


def result(iteration, **more):
    return {"training_iteration": iteration, "timesteps_total": 10 * iteration, "episode_reward_mean": 1.0, **more}


def write(directory, iterations, **more):
    files = ResultFiles(directory)
    for iteration in iterations:
        files.on_result(result(iteration, **more))
    files.close()


def events(directory) -> dict[str, list[int]]:
    """Tag -> steps."""
    from tensorboardX.proto.event_pb2 import Event

    found = collections.defaultdict(list)
    for path in directory.glob("events.out.tfevents*"):
        data, at = path.read_bytes(), 0
        while at < len(data):
            (length,) = struct.unpack_from("<Q", data, at)
            event = Event.FromString(data[at + 12 : at + 12 + length])
            at += length + 16
            for value in event.summary.value:
                found[value.tag].append(event.step)
    return found


class Remembers:
    points_per_poll = 1000
    what = "what it remembers is"

    def __init__(self):
        self.seen, self.is_closed = [], False

    def on_result(self, result):
        self.seen.append(result["training_iteration"])

    def close(self):
        self.is_closed = True


class Raises(Remembers):
    def on_result(self, result):
        raise ValueError("it breaks")


@pytest.fixture
def follower(tmp_path):
    opened = []

    def open_loggers():
        opened.append(Remembers())
        return [TensorBoardLogger.fresh(tmp_path), opened[-1]]

    follower = Follower(tmp_path, open_loggers)
    follower.opened = opened
    return follower


@pytest.mark.parametrize("again", [0, 1, 5], ids=lambda count: f"{count} lines more")
@pytest.mark.parametrize("kept", [0, 2])
def test_results_that_were_taken_out_are_taken_out_of_the_events(follower, tmp_path, kept, again):
    """Whatever length the file has reached again when that is seen."""
    write(tmp_path, [1, 2, 3, 4], time=1)
    follower.poll()
    drop_results_after(tmp_path, kept)
    expected = [*range(1, kept + 1), *range(kept + 1, kept + 1 + again)]
    write(tmp_path, expected[kept:], time=2)
    follower.poll()
    follower.close()
    first, second = follower.opened
    assert first.seen == [1, 2, 3, 4] and first.is_closed
    assert second.seen == expected and second.is_closed
    assert events(tmp_path).get("training_iteration", []) == [10 * iteration for iteration in expected]


def test_lines_without_a_result_are_passed_over(follower, tmp_path):
    write(tmp_path, [1])
    with open(tmp_path / "result.json", "ab") as file:
        file.write(b'{"half\n[1]\n\n')
    write(tmp_path, [2])
    follower.poll()
    write(tmp_path, [3])
    follower.close()
    assert follower.opened[0].seen == [1, 2, 3] and len(follower.opened) == 1


def test_a_logger_that_raises_does_not_stop_the_others(tmp_path, capsys):
    good = Remembers()
    follower = Follower(tmp_path, lambda: [Raises(), good])
    write(tmp_path, [1])
    follower.poll()
    write(tmp_path, [2])
    follower.close()
    assert good.seen == [1, 2] and good.is_closed
    assert capsys.readouterr().out == "what it remembers is incomplete: ValueError: it breaks\n"


@pytest.mark.sidecar
def test_on_a_full_disk_the_process_ends_and_says_what_is_missing(tmp_path):
    pytest.importorskip("matplotlib", reason="needs the extra `plot`")
    sidecar = SidecarLogger(tmp_path)
    write(tmp_path, range(1, 80))  # more than the queue of a writer's thread would hold
    with disk_of(3000):
        sidecar.start()
    sidecar.close()
    assert len(sidecar.notices) == 2, sidecar.notices
    for notice, name in zip(sidecar.notices, ("TensorBoard events are", "curve.png is")):
        assert notice.startswith(f"{name} incomplete: OSError") and str(tmp_path) in notice
    assert events(tmp_path)["training_iteration"], "what there was room for is whole"


def test_the_process_ends_whatever_its_logger_waits_for(tmp_path):
    code = """
import sys, threading
from pathlib import Path
from rllib.runs import follower
follower.LONGEST_END_S = 0.05
def waits():
    print("waits", flush=True)
    threading.Event().wait()
rounds = follower.until_input_ends()
follower.Follower(Path(sys.argv[1]), waits).poll()
"""
    write(tmp_path, [1])
    with subprocess.Popen(
        [sys.executable, "-c", code, tmp_path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout.readline() == b"waits\n"
        process.stdin.close()
        assert process.wait(60) == 1


def test_a_log_that_cannot_close_a_file_ends_the_process_beside_it(tmp_path, monkeypatch):
    ended, close = [], AppendedFile.close
    monkeypatch.setattr(SidecarLogger, "close", lambda self: ended.append(self))
    log = RunLog(tmp_path)
    log.start({}, "")

    def full(self):
        close(self)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(AppendedFile, "close", full)
    with pytest.raises(OSError, match="No space"):
        log.close()
    assert len(ended) == 1
    RunLog(tmp_path).close()  # it is not locked


@pytest.mark.sidecar
def test_the_events_of_a_run_have_its_hyperparameters(tmp_path):
    write_params(tmp_path, {"lr": 0.1, "model": {"fcnet_hiddens": [8]}, "none": None})
    write(tmp_path, [1, 2])
    sidecar = SidecarLogger(tmp_path)
    sidecar.start()
    sidecar.close()
    assert "_hparams_/session_start_info" in events(tmp_path)
    (file,) = tmp_path.glob("events.out.tfevents*")
    content = file.read_bytes()
    assert b"model/fcnet_hiddens" in content and b"none" not in content
    assert sidecar.notices == [] and json.loads((tmp_path / "params.json").read_text())["lr"] == 0.1


def test_curves_are_in_groups_where_the_settings_ask_for_it(tmp_path):
    write_params(tmp_path, {"lr": 0.1})
    assert not wants_groups(tmp_path)
    write_params(tmp_path, {"lr": 0.1, "tensorboard_groups": True})
    logger = TensorBoardLogger.fresh(tmp_path, wants_groups(tmp_path))
    logger.on_result(result(1))
    logger.add_hparams({"lr": 0.1}, result(1))
    logger.close()
    found = events(tmp_path)
    assert found["rollout/ep_rew_mean"][0] == 10 and "time/total_timesteps" in found
    assert "episode_reward_mean" not in found
