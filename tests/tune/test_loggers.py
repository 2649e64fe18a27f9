import csv
import json
import math
import os
import select
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import runtime
from rllib import tune
from rllib.extras import install_hint
from rllib.runs.drawing import CurveLogger
from rllib.runs.entries import flatten
from rllib.runs.files import CsvLogger, JsonLogger, write_params
from rllib.runs.follower import thinned
from rllib.runs.sidecar import SidecarLogger
from rllib.tune.experiment.trial import Trial


def result_of(iteration, **more):
    return {
        "training_iteration": iteration,
        "timesteps_total": 100 * iteration,
        "episode_reward_mean": math.nan if iteration == 1 else 10.0 * iteration,
        "episode_reward_min": 0.0,
        "episode_reward_max": 50.0,
        "hist_stats": {"episode_reward": [1.0, 2.0]},
        "config": {"lr": 0.1},
        **more,
    }


def read_json_lines(path):
    def refuse(constant):
        raise AssertionError(f"{constant} is not JSON")

    return [json.loads(line, parse_constant=refuse) for line in path.read_text().splitlines()]


def read_csv(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def test_flatten_keeps_numbers_and_strings_under_paths():
    result = {"a": 1, "b": {"c": np.float32(2.5), "d": {"e": "x"}}, "list": [1, 2], "config": {"lr": 1}, "none": None}
    assert dict(flatten(result)) == {"a": 1, "b/c": 2.5, "b/d/e": "x"}


def test_json_lines_are_whole_while_the_run_goes_on(tmp_path):
    logger = JsonLogger(tmp_path)
    logger.on_result(result_of(1, array=np.arange(3), number=np.float64(math.inf)))
    (line,) = read_json_lines(tmp_path / "result.json")
    assert line["array"] == [0, 1, 2] and line["number"] is None and line["episode_reward_mean"] is None
    assert "config" not in line and line["hist_stats"] == {"episode_reward": [1.0, 2.0]}
    logger.on_result(result_of(2))
    assert len(read_json_lines(tmp_path / "result.json")) == 2
    logger.close()


def test_csv_takes_keys_that_appear_later(tmp_path):
    logger = CsvLogger(tmp_path)
    logger.on_result({"a": 1, "b": {"c": 2.5}})
    assert read_csv(tmp_path / "progress.csv") == [{"a": "1", "b/c": "2.5"}]
    logger.on_result({"a": 2, "late": "x, y"})
    logger.on_result({"b": {"c": 3.0}, "a": 3})
    assert read_csv(tmp_path / "progress.csv") == [
        {"a": "1", "b/c": "2.5", "late": ""},
        {"a": "2", "b/c": "", "late": "x, y"},
        {"a": "3", "b/c": "3.0", "late": ""},
    ]
    logger.close()
    assert os.listdir(tmp_path) == ["progress.csv"]


def test_csv_goes_on_with_an_existing_file(tmp_path):
    for iteration in (1, 2):
        logger = CsvLogger(tmp_path)
        logger.on_result({"a": iteration})
        logger.close()
    assert [row["a"] for row in read_csv(tmp_path / "progress.csv")] == ["1", "2"]


def test_params_name_what_json_cannot_hold(tmp_path):
    write_params(tmp_path, {"lr": 1e-3, "callback": math.sqrt, "space": np.float32, "set": {1}, "array": np.zeros(2)})
    params = json.loads((tmp_path / "params.json").read_text())
    assert params == {"lr": 1e-3, "callback": "math:sqrt", "space": "numpy:float32", "set": [1], "array": [0.0, 0.0]}


def log_three_results(directory):
    json_logger, sidecar = JsonLogger(directory), SidecarLogger(directory, "PPO on Nothing-v0")
    for iteration in (1, 2, 3):
        for logger in (json_logger, sidecar):
            logger.on_result(result_of(iteration))
    json_logger.close()
    sidecar.close()
    return sidecar


@pytest.mark.sidecar
def test_a_sidecar_without_time_says_what_draws_the_curve(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr("rllib.runs.sidecar._CLOSE_S", 0.0)
    (notice,) = log_three_results(tmp_path).notices
    assert "not finished" in notice and f"rllib plot {tmp_path}" in notice
    assert "for TensorBoard events and curve: the machine is busy" in caplog.text


@pytest.mark.sidecar
def test_sidecar_writes_curve_and_events_without_torch_in_any_process(tmp_path):
    before = set(sys.modules)
    sidecar = log_three_results(tmp_path)
    assert sidecar.notices == []
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")
    (events,) = tmp_path.glob("events.out.tfevents*")
    assert scalars(events)["timesteps_total"] == [(100, 100.0), (200, 200.0), (300, 300.0)]
    assert scalars(events)["episode_reward_mean"] == [(200, 20.0), (300, 30.0)]
    assert not {"torch", "tensorboardX"} & (set(sys.modules) - before)


def scalars(path):
    """tag -> [(step, value), ...] of an event file, read in a process of its own, as tensorboardX imports torch."""
    code = """
import collections, json, struct, sys
sys.modules["torch"] = None
from tensorboardX.proto.event_pb2 import Event
found, data, at = collections.defaultdict(list), open(sys.argv[1], "rb").read(), 0
while at < len(data):
    (length,) = struct.unpack_from("<Q", data, at)
    event = Event.FromString(data[at + 12 : at + 12 + length])
    at += length + 16
    for value in event.summary.value:
        found[value.tag].append((event.step, value.simple_value))
print(json.dumps(found))
"""
    run = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=True, timeout=60)
    return {tag: [tuple(point) for point in points] for tag, points in json.loads(run.stdout).items()}


def test_a_result_without_episodes_is_a_gap_of_the_curve(tmp_path):
    pytest.importorskip("matplotlib", reason="needs the extra `plot`")
    pictures = []
    for name, results in (("gap", (2, 3, 4, 5)), ("none", (2, 3, 5))):
        (tmp_path / name).mkdir()
        logger = CurveLogger(tmp_path / name)
        for iteration in results:
            logger.on_result(result_of(iteration, **({"episode_reward_mean": None} if iteration == 4 else {})))
        logger.close()
        pictures.append((tmp_path / name / "curve.png").read_bytes())
    assert pictures[0] != pictures[1], "the line goes on over the gap"


@pytest.mark.sidecar
def test_sidecar_without_matplotlib_says_what_to_install(tmp_path, monkeypatch):
    (tmp_path / "packages").mkdir()
    (tmp_path / "packages" / "matplotlib.py").write_text("raise ImportError('not here')")
    monkeypatch.syspath_prepend(tmp_path / "packages")
    sidecar = log_three_results(tmp_path)
    assert sidecar.notices == [f"curve.png needs matplotlib: {install_hint('plot')}"]
    assert not (tmp_path / "curve.png").exists()
    assert list(tmp_path.glob("events.out.tfevents*"))


def test_sidecar_finishes_the_files_when_the_run_is_killed(tmp_path):
    code = """
import os, signal, sys
from pathlib import Path
from rllib.runs.files import JsonLogger
from rllib.runs.sidecar import SidecarLogger
directory = Path(sys.argv[1])
loggers = [JsonLogger(directory), SidecarLogger(directory)]
for iteration in range(1, 4):
    for logger in loggers:
        logger.on_result({"timesteps_total": iteration, "episode_reward_mean": 1.0, "episode_reward_min": 0.0,
                          "episode_reward_max": 2.0})
print(loggers[1].pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    run = subprocess.run([sys.executable, "-c", code, tmp_path], capture_output=True, text=True, timeout=60)
    assert run.returncode == -9, run.stderr
    wait_for_end(int(run.stdout))
    assert (tmp_path / "curve.png").exists()


def test_thinned_keeps_the_last():
    assert thinned([], 3) == []
    assert thinned([1, 2, 3], 3) == [1, 2, 3]
    assert thinned(list(range(10)), 4) == [0, 3, 6, 9]
    assert thinned(list(range(9)), 4) == [2, 5, 8]


def wait_for_end(pid):
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        assert select.select([descriptor], [], [], 100)[0], "the process beside the run outlives it"
    finally:
        os.close(descriptor)


@pytest.mark.sidecar
@pytest.mark.parametrize("results", [0, 1])
def test_sidecar_ends_when_there_was_nothing_to_draw(tmp_path, results):
    json_logger, sidecar = JsonLogger(tmp_path), SidecarLogger(tmp_path)
    for iteration in range(results):
        json_logger.on_result({"training_iteration": iteration, "timesteps_total": 1, "episode_reward_mean": math.nan})
        sidecar.on_result({})
    json_logger.close()
    sidecar.close()
    assert sidecar.notices == [] and not (tmp_path / "curve.png").exists()


# ---------------------------------------------------------------------- callbacks under Ray's names


def test_logger_callbacks_write_files_by_hand(tmp_path):
    trial = Trial("1", 0, "f", {"lr": 0.1}, {"lr": 0.1}, tmp_path)
    directory = Path(trial.logdir)
    callbacks = [tune.JsonLoggerCallback(), tune.CSVLoggerCallback(), tune.TBXLoggerCallback()]
    for callback in callbacks:
        for iteration in (2, 3):
            trial.last_result = result_of(iteration)
            callback.on_trial_result(iteration, [trial], trial, trial.last_result)
        callback.on_trial_complete(3, [trial], trial)
    assert [line["timesteps_total"] for line in read_json_lines(directory / "result.json")] == [200, 300]
    assert [row["timesteps_total"] for row in read_csv(directory / "progress.csv")] == ["200", "300"]
    assert json.loads((directory / "params.json").read_text()) == {"lr": 0.1}
    found = [scalars(events) for events in sorted(directory.glob("events.out.tfevents*"))]
    assert found[0]["episode_reward_mean"] == [(200, 20.0), (300, 30.0)]
    assert sys.modules.get("torch", "not imported") is not None, "torch can be imported afterwards"


class Counts(tune.CSVLoggerCallback):
    """Adds a file of its own to what the base class does."""

    def log_trial_result(self, iteration, trial, result):
        super().log_trial_result(iteration, trial, result)
        with open(Path(trial.logdir) / "count", "a") as file:
            file.write("x")


@pytest.mark.sidecar
def test_an_experiment_writes_each_result_once_whatever_callbacks_it_is_given(tmp_path):
    def reports(config):
        tune.report(a=1)
        tune.report(a=2)

    callbacks = [tune.JsonLoggerCallback(), Counts(), tune.CSVLoggerCallback(), tune.TBXLoggerCallback()]
    runtime.init(num_cpus=1)
    try:
        (trial,) = tune.run(reports, storage_path=tmp_path, verbose=0, tensorboard=False, callbacks=callbacks).trials
    finally:
        runtime.shutdown()
    directory = Path(trial.logdir)
    assert [row["a"] for row in read_csv(directory / "progress.csv")] == ["1", "2"]
    assert [line["a"] for line in read_json_lines(directory / "result.json")] == [1, 2]
    assert (directory / "count").read_text() == "xx"
    for _ in range(1000):
        if list(directory.glob("events.out.tfevents*")):
            break
        time.sleep(0.1)
    else:
        pytest.fail("TBXLoggerCallback is to have event files written")
