"""Experiments that continue after kill -9 of the driver, at any moment."""

import json
import math
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from climber import Climber

from rllib import tune
from rllib.runs.files import ResultFiles
from rllib.tune.experiment.files import roll_back
from rllib.tune.experiment.spec import PARTS_OF_CONFIGS, ExperimentSpec, settings_in
from rllib.tune.experiment.trial import Trial, TrialCheckpoint
from rllib.tune.reporting.analysis import ExperimentAnalysis
from rllib.tune.running.tuner import continued
from rllib.tune.schedulers import create_scheduler
from rllib.tune.search import create_searcher
from rllib.tune.trainables.checkpoint import temporary_directory
from rllib.tune.trainables.session import TrialContext
from tests.runtime.runtime_support import wait_until

pytestmark = pytest.mark.usefixtures("two_cpus")


class CopiesEverything(tune.Callback):
    """At every event, what a driver that is killed now leaves on the disk."""

    def __init__(self, experiment: Path, copies: Path):
        self.experiment, self.copies, self.paths = experiment, copies, []

    def copy(self, **info):
        self.paths.append(self.copies / f"at_{len(self.paths)}")
        drafts = shutil.ignore_patterns(".checkpoint*.tmp-*")  # a trial may be renaming one
        shutil.copytree(self.experiment, self.paths[-1], ignore=drafts)

    on_trial_start = on_trial_result = on_trial_save = on_checkpoint = on_trial_complete = copy


def outcome(analysis):
    return [(t.config, t.status, t.stopped_by, t.last_result["training_iteration"], t.last_result["height"])
            for t in analysis.trials]  # fmt: skip


RATES = tune.grid_search([4.0, 1.0, 3.0, 5.0, 2.0])
SEARCHES = {
    "asha": lambda: {
        "scheduler": create_scheduler("asha", max_t=9, grace_period=1, reduction_factor=2),
        "checkpoint_freq": 2,
    },
    "asha without checkpoints": lambda: {
        "scheduler": create_scheduler("asha", max_t=6, grace_period=1, reduction_factor=2),
    },
    "median": lambda: {
        "scheduler": create_scheduler(
            "median_stopping", time_attr="training_iteration", grace_period=2, min_samples_required=2
        ),
        "stop": {"training_iteration": 5},
        "checkpoint_freq": 3,
    },
    "hyperband": lambda: {"scheduler": create_scheduler("hyperband", max_t=9, reduction_factor=3)},
    "pbt": lambda: {
        "scheduler": create_scheduler(
            "pbt", time_attr="training_iteration", perturbation_interval=2, seed=3,
            hyperparam_mutations={"rate": [1.0, 2.0, 3.0, 4.0, 5.0]},
        ),
        "stop": {"training_iteration": 8},
    },
    "pb2": lambda: {
        "scheduler": create_scheduler(
            "pb2", time_attr="training_iteration", perturbation_interval=2, seed=3,
            hyperparam_bounds={"rate": tune.loguniform(1, 5)},
        ),
        "stop": {"training_iteration": 8},
    },
    "tpe": lambda: {
        "config": {"rate": tune.uniform(0, 5)},
        "num_samples": 8,
        "search_alg": create_searcher("optuna", seed=1, n_startup_trials=3),
        "stop": {"training_iteration": 2},
    },
}  # fmt: skip


@pytest.mark.parametrize("name", SEARCHES)
def test_a_killed_experiment_ends_as_it_would_have(tmp_path, monkeypatch, name):
    # What is not in the first state of searcher and scheduler is in the journal alone.
    monkeypatch.setattr("rllib.tune.experiment.directory._SNAPSHOT_SHARE", 10**9)
    if name == "tpe":
        pytest.importorskip("optuna")

    def run(directory, **more):
        return tune.run(Climber, **{"name": directory.name, "storage_path": directory.parent, "metric": "height",
                        "mode": "max", "config": {"rate": RATES}, "max_concurrent_trials": 1, "verbose": 0,
                        "tensorboard": False, **SEARCHES[name](), **more})  # fmt: skip

    copies = CopiesEverything(tmp_path / "whole", tmp_path)
    expected = outcome(run(tmp_path / "whole", callbacks=[copies]))
    chosen = copies.paths[len(copies.paths) // 6 :: len(copies.paths) // 3]
    for path in chosen:
        assert outcome(run(path, resume=True)) == expected, f"killed at event {path.name} of {len(copies.paths)}"


class Records(tune.schedulers.TrialScheduler):
    needs_metric = False

    def __init__(self):
        super().__init__()
        self.iterations = []

    def on_trial_result(self, runner, trial, result):
        self.iterations.append(result["training_iteration"])
        return self.CONTINUE


class FailsOnce(Climber):
    def step(self):
        marker = Path(self.logdir, "failed")
        if self.iteration == 5 and not marker.exists():
            marker.touch()
            raise RuntimeError("once")
        return super().step()


def test_results_that_come_again_after_a_failure_are_judged_once(tmp_path):
    scheduler = Records()
    [trial] = tune.run(
        FailsOnce, config={"rate": 1.0}, stop={"training_iteration": 8}, checkpoint_freq=3, verbose=0,
        scheduler=scheduler, max_failures=1, storage_path=tmp_path, tensorboard=False,
    ).trials  # fmt: skip
    assert trial.last_result["height"] == 8.0 and trial.num_failures == 1
    assert scheduler.iterations == [1, 2, 3, 4, 5, 6, 7]


def test_a_restart_of_errored_trials_forgets_their_checkpoints(tmp_path):
    settings = {"name": "x", "storage_path": tmp_path, "stop": {"training_iteration": 8}, "config": {"rate": 1.0},
                "checkpoint_freq": 3, "verbose": 0, "tensorboard": False}  # fmt: skip
    tune.run(FailsOnce, raise_on_failed_trial=False, **settings)
    [trial] = tune.run(FailsOnce, resume="RESTART_ERRORED", **settings).trials
    assert trial.last_result["iterations_since_restore"] == 8 and trial.status == "TERMINATED"
    assert [each.iteration for each in ExperimentAnalysis(tmp_path / "x").trials[0].checkpoints] == [3, 6]


@pytest.mark.parametrize("gone", [(2,), (4,), (2, 4)])
def test_checkpoints_that_somebody_has_removed_are_left_out(tmp_path, gone):
    settings = {"name": "x", "storage_path": tmp_path, "stop": {"training_iteration": 8}, "config": {"rate": 1.0},
                "checkpoint_freq": 2, "verbose": 0, "tensorboard": False}  # fmt: skip
    [failed] = tune.run(FailsOnce, raise_on_failed_trial=False, **settings).trials
    for iteration in gone:
        shutil.rmtree(failed.checkpoint_path_at(iteration))
    [trial] = tune.run(FailsOnce, resume="AUTO+ERRORED", **settings).trials
    heights = [json.loads(line)["height"] for line in result_lines(trial).splitlines()]
    assert trial.last_result["height"] == 8.0 and heights == [*range(1, 9)]
    [read] = ExperimentAnalysis(tmp_path / "x").trials
    there = sorted(path.name for path in Path(trial.logdir).glob("checkpoint_*"))
    for each in (trial, read):
        assert [checkpoint.name for checkpoint in each.checkpoints] == there


class Pauses(tune.schedulers.TrialScheduler):
    needs_metric = False

    def on_trial_result(self, runner, trial, result):
        return self.PAUSE


class LeavesDrafts(Climber):
    """Leaves what a process leaves that is killed while it is saved, and reports what it finds when it starts."""

    def setup(self, config):
        super().setup(config)
        self.found = len(list(Path(self.logdir).glob(".checkpoint*.tmp-*")))

    def step(self):
        return {**super().step(), "found": self.found}

    def save_checkpoint(self, checkpoint_dir):
        temporary_directory(self.logdir)
        return super().save_checkpoint(checkpoint_dir)


def test_drafts_that_a_dead_process_left_are_gone_when_its_trial_starts_again(tmp_path):
    [trial] = tune.run(
        LeavesDrafts, config={"rate": 1.0}, stop={"training_iteration": 4}, scheduler=Pauses(), verbose=0,
        storage_path=tmp_path, tensorboard=False,
    ).trials  # fmt: skip
    results = [json.loads(line) for line in result_lines(trial).splitlines()]
    assert [result["height"] for result in results] == [1.0, 2.0, 3.0, 4.0]
    assert [result["found"] for result in results] == [0] * 4


def test_an_analysis_of_a_killed_experiment_has_the_results_so_far(tmp_path):
    copies = CopiesEverything(tmp_path / "x", tmp_path)
    tune.run(
        FailsOnce, name="x", storage_path=tmp_path, config={"rate": RATES}, stop={"training_iteration": 4}, verbose=0,
        tensorboard=False, checkpoint_freq=2, metric="height", mode="max", callbacks=[copies], max_concurrent_trials=1,
    )  # fmt: skip
    seen = set()
    for path in copies.paths:
        analysis = ExperimentAnalysis(path)
        reported = [trial for trial in analysis.trials if result_lines(trial)]
        for trial in reported:
            heights = [json.loads(line)["height"] for line in result_lines(trial).splitlines()]
            assert trial.last_result["height"] == heights[-1] and trial.last_result["config"] == trial.config
            stats = trial.metric_analysis["height"]
            assert (stats["min"], stats["max"], stats["last"]) == (heights[0], heights[-1], heights[-1])
            seen.add((trial.status, bool(trial.checkpoints)))
        if reported:
            assert analysis.best_trial is max(reported, key=lambda trial: trial.last_result["height"])
            assert analysis.best_result["height"] == max(trial.last_result["height"] for trial in reported)
        else:
            assert not any(trial.last_result for trial in analysis.trials)
    assert {("RUNNING", False), ("RUNNING", True), ("TERMINATED", True)} <= seen


def test_an_analysis_of_a_trial_that_runs_again_forgets_the_results_of_its_first_run(tmp_path):
    settings = {"name": "x", "storage_path": tmp_path, "stop": {"training_iteration": 8}, "config": {"rate": 1.0},
                "checkpoint_freq": 3, "verbose": 0, "tensorboard": False}  # fmt: skip
    tune.run(FailsOnce, raise_on_failed_trial=False, **settings)
    copies = CopiesEverything(tmp_path / "x", tmp_path)
    tune.run(FailsOnce, resume="AUTO+ERRORED", callbacks=[copies], **settings)
    [trial] = ExperimentAnalysis(copies.paths[1]).trials
    assert trial.status == "RUNNING" and trial.last_result["training_iteration"] == 4
    assert trial.metric_analysis["height"]["last"] == 4.0


class NaNAtTimes(Climber):
    """Its height is NaN in odd iterations, and it has no name; in its fourth step it fails once."""

    def step(self):
        marker = Path(self.logdir, "failed")
        if self.iteration == 3 and not marker.exists():
            marker.touch()
            raise RuntimeError("once")
        result = super().step()
        return {**result, "nested": {"loss": math.nan}, "name": None,
                "height": result["height"] if self.iteration % 2 else math.nan}  # fmt: skip


class ComparesNumbers(Records):
    def on_trial_result(self, runner, trial, result):
        assert isinstance(result["height"], float)
        return super().on_trial_result(runner, trial, result)

    def on_trial_error(self, runner, trial):
        assert isinstance(trial.last_result["height"], float)


def test_numbers_that_were_nan_are_nan_when_an_experiment_continues(tmp_path, monkeypatch):
    """JSON has null in their place."""
    monkeypatch.setattr("rllib.tune.experiment.directory._SNAPSHOT_SHARE", 10**9)
    settings = {"name": "x", "storage_path": tmp_path, "stop": {"training_iteration": 7}, "config": {"rate": 1.0},
                "verbose": 0, "tensorboard": False, "metric": "height", "mode": "max", "checkpoint_freq": 1,
                "keep_checkpoints_num": 2, "checkpoint_score_attr": "height"}  # fmt: skip
    copies = CopiesEverything(tmp_path / "x", tmp_path)
    tune.run(NaNAtTimes, raise_on_failed_trial=False, callbacks=[copies], scheduler=ComparesNumbers(), **settings)
    [read] = ExperimentAnalysis(tmp_path / "x").trials
    assert math.isnan(read.metric_analysis["height"]["last"]) and read.metric_analysis["height"]["max"] == 2.0
    assert math.isnan(read.last_result["height"]) and math.isnan(read.last_result["nested"]["loss"])
    assert read.last_result["name"] is None, "no number"
    assert [math.isnan(checkpoint.metrics["height"]) for checkpoint in read.checkpoints] == [False, True]

    [running] = ExperimentAnalysis(next(path for path in copies.paths if len(result_lines_in(path)) == 3)).trials
    assert running.status == "RUNNING" and math.isnan(running.metric_analysis["height"]["last"])

    [trial] = tune.run(NaNAtTimes, resume="AUTO+ERRORED", scheduler=ComparesNumbers(), **settings).trials
    assert [checkpoint.iteration for checkpoint in trial.checkpoints] == [4, 6, 7]
    for path in copies.paths[-2:]:  # the journal has results that the state of the scheduler lacks
        (path / "NaNAtTimes_0" / "failed").touch()  # the step may not have failed yet when the copy was made
        scheduler = ComparesNumbers()
        [trial] = tune.run(
            NaNAtTimes, resume="AUTO+ERRORED", scheduler=scheduler, **{**settings, "name": path.name}
        ).trials
        assert trial.status == "TERMINATED" and scheduler.iterations == list(range(1, 7))


class InfiniteAtTimes(Climber):
    def step(self):
        return {**super().step(), "height": [math.inf, 2.0, -math.inf, math.nan][self.iteration % 4]}


class RecordsHeights(Records):
    def on_trial_result(self, runner, trial, result):
        super().on_trial_result(runner, trial, result)
        self.heights = [*getattr(self, "heights", ()), str(result["height"])]
        return self.CONTINUE


def test_infinite_numbers_are_so_when_an_experiment_continues(tmp_path, monkeypatch):
    monkeypatch.setattr("rllib.tune.experiment.directory._SNAPSHOT_SHARE", 10**9)
    settings = {"storage_path": tmp_path, "stop": {"training_iteration": 5}, "config": {"rate": 1.0}, "verbose": 0,
                "tensorboard": False, "metric": "height", "mode": "max", "checkpoint_freq": 1}  # fmt: skip
    copies = CopiesEverything(tmp_path / "x", tmp_path)
    [trial] = tune.run(InfiniteAtTimes, name="x", callbacks=[copies], scheduler=RecordsHeights(), **settings).trials
    expected = ["inf", "2.0", "-inf", "nan", "inf"]
    assert [str(checkpoint.metrics["height"]) for checkpoint in trial.checkpoints] == expected
    for path in (tmp_path / "x", *copies.paths[-2:]):
        scheduler = RecordsHeights()
        [again] = tune.run(InfiniteAtTimes, name=path.name, resume=True, scheduler=scheduler, **settings).trials
        for there in (again, *ExperimentAnalysis(path).trials):
            assert [str(checkpoint.metrics["height"]) for checkpoint in there.checkpoints] == expected
            assert str(there.last_result["height"]) == str(there.metric_analysis["height"]["last"]) == "inf"
            if path == tmp_path / "x":
                assert str(there.metric_analysis["height"]) == str(trial.metric_analysis["height"])
            else:
                assert scheduler.heights == expected[:4]


def test_a_trial_goes_back_to_its_last_result_with_its_nan(tmp_path):
    context = TrialContext("x_0", "x", str(tmp_path))
    trainable = NaNAtTimes({"rate": 1.0}, context)
    files = ResultFiles(tmp_path)
    files.on_result(trainable.train())
    files.close()
    trainable.save()
    trial = Trial("x_0", 0, "x", {}, experiment_dir=tmp_path.parent)
    trial.dirname = tmp_path.name
    trial.checkpoints = [TrialCheckpoint("checkpoint_000001", 1, {"height": math.nan, "nested/loss": -math.inf})]
    trial.go_back(*roll_back(trial))
    assert math.isnan(trial.last_result["height"]) and trial.last_result["nested"]["loss"] == -math.inf
    assert trial.last_result["name"] is None and math.isnan(trial.metric_analysis["height"]["last"])


PPO_DRIVER = """
    import sys
    import numpy
    from rllib import tune

    if __name__ == "__main__":
        numpy.random.seed(0)
        tune.run("PPO", name="x", storage_path=sys.argv[1], resume=sys.argv[2] == "resume", num_samples=20,
                 metric="episode_reward_mean", mode="max", stop={"training_iteration": 6}, checkpoint_freq=2,
                 config={"env": "CartPole-v1", "num_workers": 0, "train_batch_size": 1024, "num_sgd_iter": 2,
                         "sgd_minibatch_size": 128, "model": {"fcnet_hiddens": [16]},
                         "lr": tune.loguniform(1e-4, 1e-2)},
                 scheduler=tune.schedulers.create_scheduler("asha", max_t=6, grace_period=4, reduction_factor=2),
                 verbose=0, tensorboard=False)
"""


def start_ppo(tmp_path, what):
    script = tmp_path / "ppo.py"
    script.write_text(textwrap.dedent(PPO_DRIVER))
    return subprocess.Popen(
        [sys.executable, str(script), str(tmp_path), what], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )  # fmt: skip


def is_under_way(path):
    """Whether seven trials have ended, and a running one has its first checkpoint: its next is two iterations away."""
    try:
        trials = ExperimentAnalysis(path).trials
    except ValueError:
        return False
    return sum(t.is_finished for t in trials) >= 7 and any(
        t.checkpoints and t.checkpoint.iteration == 2 and not t.is_finished for t in trials
    )


def result_lines_in(experiment):
    """Lines of the results of an experiment's only trial."""
    return [line for path in experiment.glob("*/result.json") for line in path.read_text().splitlines()]


def result_lines(trial):
    path = Path(trial.logdir, "result.json")
    return path.read_text() if path.exists() else ""


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_twenty_ppo_trials_go_on_after_their_driver_was_killed(tmp_path, how):
    driver = start_ppo(tmp_path, "start")
    wait_until(lambda: is_under_way(tmp_path / "x"), 120, "seven trials did not finish")
    began = time.monotonic()
    driver.send_signal(how)
    driver.communicate(timeout=30)
    assert how == signal.SIGKILL or time.monotonic() - began < 5
    before = ExperimentAnalysis(tmp_path / "x").trials
    finished = {trial.trial_id: result_lines(trial) for trial in before if trial.is_finished}
    saved = {trial.trial_id: trial.checkpoint.iteration for trial in before if trial.checkpoints}
    lines_before = {trial.trial_id: result_lines(trial) for trial in before if trial.checkpoints}
    assert 7 <= len(finished) < 20

    resumed = start_ppo(tmp_path, "resume")
    _, errors = resumed.communicate(timeout=240)
    assert resumed.returncode == 0, errors
    analysis = ExperimentAnalysis(tmp_path / "x", default_metric="episode_reward_mean", default_mode="max")
    assert [trial.status for trial in analysis.trials] == ["TERMINATED"] * 20
    continued = 0
    for trial in analysis.trials:
        results = [json.loads(line) for line in result_lines(trial).splitlines()]
        iterations = [result["training_iteration"] for result in results]
        assert iterations in (list(range(1, 5)), list(range(1, 7)))
        if trial.trial_id in finished:
            assert result_lines(trial) == finished[trial.trial_id], "a finished trial ran again"
        elif trial.trial_id in saved and result_lines(trial) != lines_before[trial.trial_id]:
            # (One that is as it was had its last result already, and was only ended.)
            started_at = results[-1]["training_iteration"] - results[-1]["iterations_since_restore"]
            # The newest checkpoint may be one that the driver did not live to write down.
            assert started_at >= saved[trial.trial_id], "it did not go on from its checkpoint"
            continued += 1
    assert continued
    assert analysis.best_config["lr"] and len(analysis.dataframe()) == 20


class EndsAll(tune.Stopper):
    """Ends the experiment, as a time budget does, after the first result."""

    is_over = False

    def __call__(self, trial_id, result):
        EndsAll.is_over = True
        return False

    def stop_all(self):
        return EndsAll.is_over


@pytest.mark.parametrize("stop", [{"training_iteration": 1}, "all"])
def test_an_experiment_with_nothing_left_to_do_says_so(tmp_path, monkeypatch, caplog, stop):
    monkeypatch.setattr(EndsAll, "is_over", False)
    settings = {"name": "x", "storage_path": tmp_path, "verbose": 0, "config": {"rate": 1.0}}
    (before,) = tune.run(Climber, stop=EndsAll() if stop == "all" else stop, **settings).trials
    assert "nothing was left" not in caplog.text
    monkeypatch.setattr(EndsAll, "is_over", False)
    (trial,) = tune.run(Climber, stop={"training_iteration": 9}, resume=True, **settings).trials
    assert trial.status == "TERMINATED" and trial.last_result["height"] == before.last_result["height"]
    assert "nothing was left to resume: the experiment's 1 trial had ended" in caplog.text


class EndsTheProgram(tune.Callback):
    def on_trial_result(self, result, **info):
        if result["training_iteration"] == 2:
            raise RuntimeError("the program ends")


@pytest.mark.parametrize("given", [{}, {"config": {"rate": tune.grid_search([1.0, 2.0])}}], ids=["nothing", "config"])
def test_settings_that_are_left_out_when_it_is_resumed_are_the_saved_ones(tmp_path, given):
    """Without its stop criterion a trial would never end."""
    where = {"name": "x", "local_dir": tmp_path, "verbose": 0}
    with pytest.raises(RuntimeError, match="the program ends"):
        tune.run(
            Climber, config={"rate": tune.grid_search([1.0, 2.0])}, num_samples=2, stop={"training_iteration": 4},
            checkpoint_freq=1, keep_checkpoints_num=2, metric="height", mode="min", callbacks=[EndsTheProgram()],
            max_concurrent_trials=1, **where,
        )  # fmt: skip
    # With nothing given, code of its own is asked for, such as the class of its callbacks.
    given = given or {"callbacks": [tune.Callback()]}
    analysis = tune.run(Climber, resume=True, **given, **where)
    assert [trial.last_result["training_iteration"] for trial in analysis.trials] == [4] * 4
    assert [len(trial.checkpoints) for trial in analysis.trials] == [2] * 4
    assert analysis.best_config == {"rate": 1.0}
    analysis = tune.run(Climber, resume=True, num_samples=3, stop={"training_iteration": 5}, **given, **where)
    assert [trial.last_result["training_iteration"] for trial in analysis.trials] == [4] * 4 + [5] * 2


def test_settings_that_replaced_the_saved_ones_are_the_saved_ones_from_then_on(tmp_path):
    """Each program but the last one is killed; the last one names none of the settings of the one before it."""
    where = {"name": "x", "local_dir": tmp_path, "verbose": 0}
    first = {"stop": {"training_iteration": 2}, "checkpoint_freq": 3, "metric": "height", "mode": "min"}
    changed = {
        "stop": {"training_iteration": 4}, "num_samples": 3, "checkpoint_freq": 1, "keep_checkpoints_num": 2,
        "max_failures": 1, "mode": "max", "time_budget_s": 1e6, "max_concurrent_trials": 1, "tensorboard": False,
    }  # fmt: skip
    with pytest.raises(RuntimeError, match="the program ends"):
        tune.run(Climber, config={"rate": 1.0}, callbacks=[EndsTheProgram()], **first, **where)
    with pytest.raises(RuntimeError, match="the program ends"):
        tune.run(Climber, resume=True, callbacks=[EndsTheProgram()], **changed, **where)
    left_out = continued(ExperimentSpec(trainable=Climber, resume=True, callbacks=[tune.Callback()], **where))
    assert {name: getattr(left_out, name) for name in changed} == changed
    analysis = tune.run(Climber, resume=True, callbacks=[tune.Callback()], **where)
    assert [trial.last_result["training_iteration"] for trial in analysis.trials] == [4] * 3
    assert [len(trial.checkpoints) for trial in analysis.trials] == [2] * 3
    again = ExperimentAnalysis(analysis.experiment_path)
    assert (again.default_metric, again.default_mode) == ("height", "max")


# Settings with a default that is not None -> another value.
OTHER_VALUES = {
    "num_samples": 3, "reuse_actors": True, "chdir_to_trial_dir": False, "log_to_file": True, "checkpoint_freq": 2,
    "checkpoint_at_end": True, "keep_checkpoints_num": 2, "checkpoint_score_order": "min", "max_failures": 2,
    "fail_fast": True, "tensorboard": False, "verbose": 0,
}  # fmt: skip
# That say how the experiment is resumed, or where; and num_seeds, which cannot change.
_OF_THE_PROGRAM = {"resume", "load_user_code", "raise_on_failed_trial", "return_trials", "num_seeds"}


def test_a_setting_that_is_given_with_its_default_replaces_the_saved_one(tmp_path):
    defaults = {one.name: one.default for one in settings_in(ExperimentSpec)}
    for name, value in defaults.items():
        assert value is None or name in {*OTHER_VALUES, *_OF_THE_PROGRAM}, name
    defaults = {name: False if value is None else value for name, value in defaults.items() if name in OTHER_VALUES}
    defaults |= {"keep_checkpoints_num": 5, "verbose": 1}  # of None
    where = {"name": "x", "local_dir": tmp_path}
    watching = {"callbacks": [EndsTheProgram()]}
    with pytest.raises(RuntimeError, match="the program ends"):
        tune.run(Climber, config={"rate": 1.0}, **watching, **OTHER_VALUES, **where)
    assert_settings(continued(ExperimentSpec(trainable=Climber, resume=True, **watching, **where)), OTHER_VALUES)
    assert_settings(
        continued(ExperimentSpec(trainable=Climber, resume=True, **watching, **defaults, **where)), defaults
    )
    run_settings = {name: defaults[name] for name in ("log_to_file", "verbose")}
    tune_settings = {name: defaults[name] for name in ("num_samples", "reuse_actors", "chdir_to_trial_dir")}
    failures = tune.FailureConfig()
    given = tune.RunConfig(**run_settings, callbacks=[EndsTheProgram()], failure_config=failures)
    tuner = tune.Tuner.restore(tmp_path / "x", Climber, run_config=given, tune_config=tune.TuneConfig(**tune_settings))
    kept = {name: value for name, value in OTHER_VALUES.items() if name not in ("max_failures", "fail_fast")}
    assert_settings(tuner._spec, kept | run_settings | tune_settings)
    assert tuner._spec.failures == failures
    with pytest.raises(RuntimeError, match="the program ends"):  # these are the saved ones from now on
        tune.run(Climber, resume=True, **watching, **defaults, **where)
    assert_settings(continued(ExperimentSpec(trainable=Climber, resume=True, **watching, **where)), defaults)


def with_attributes(config, **settings):
    for name, value in settings.items():
        setattr(config, name, value)
    return config


@pytest.mark.parametrize("given_in", [with_attributes, replace], ids=["attributes", "replace"])
def test_a_default_that_is_set_later_replaces_the_saved_one(tmp_path, given_in):
    other = {"num_samples": 3, "chdir_to_trial_dir": False, "log_to_file": True, "tensorboard": False}
    with pytest.raises(RuntimeError, match="the program ends"):
        tune.run(
            Climber,
            config={"rate": 1.0},
            callbacks=[EndsTheProgram()],
            name="x",
            local_dir=tmp_path,
            verbose=0,
            **other,
        )
    untouched = given_in(tune.TuneConfig(metric="height"), mode="max"), given_in(tune.RunConfig(callbacks=[]), name="x")
    for configs, expected in (
        (untouched, other),
        (
            (given_in(tune.TuneConfig(), num_samples=1), given_in(tune.RunConfig(), log_to_file=False)),
            {**other, "num_samples": 1, "log_to_file": False},
        ),
    ):
        configs = {"tune_config": configs[0], "run_config": given_in(configs[1], callbacks=[EndsTheProgram()])}
        assert_settings(tune.Tuner.restore(tmp_path / "x", Climber, **configs)._spec, expected)
    spec = given_in(
        ExperimentSpec(trainable=Climber, callbacks=[], resume=True, name="x", local_dir=tmp_path), tensorboard=True
    )
    assert_settings(continued(spec), {**other, "tensorboard": True})


@dataclass
class ThreeSamples(tune.TuneConfig):
    num_samples: int = 3
    owner: str = "me"  # no setting


@dataclass
class Quiet(tune.RunConfig):
    verbose: int = 0


class Named(tune.RunConfig):
    def __init__(self, name):
        super().__init__(name=name, verbose=1)


@pytest.mark.parametrize(
    ("configs", "expected"),
    [
        ((ThreeSamples(), Quiet()), {"num_samples": 3, "verbose": 0, "metric": None}),
        ((ThreeSamples(num_samples=1, metric="a"), Quiet(name="x")), {"num_samples": 1, "name": "x", "metric": "a"}),
        ((tune.TuneConfig("a", "min", 2), Named("x")), {"num_samples": 2, "mode": "min", "name": "x", "verbose": 1}),
    ],
)
def test_configs_of_a_users_subclass_are_taken_with_its_defaults(configs, expected):
    tune_config, run_config = configs
    assert_settings(tune.Tuner(Climber, tune_config=tune_config, run_config=run_config)._spec, expected)


def test_the_attributes_of_a_config_are_arguments(tmp_path):
    config = tune.RunConfig(name="x", verbose=0, storage_path=tmp_path, stop={"training_iteration": 1})
    experiment = tune.run(Climber, config={"rate": 1.0}, **vars(config))
    assert [trial.status for trial in experiment.trials] == ["TERMINATED"] and (tmp_path / "x").is_dir()


def assert_settings(spec: ExperimentSpec, expected) -> None:
    assert {name: getattr(spec, name) for name in expected} == expected


PARTS = {
    "checkpoint_config": (
        tune.CheckpointConfig(num_to_keep=3, checkpoint_frequency=5, checkpoint_score_attribute="height"),
        {"keep_checkpoints_num": 2, "checkpoint_freq": 1, "checkpoint_score_attr": "rate",
         "checkpoint_score_order": "min", "checkpoint_at_end": True},
    ),
    "failure_config": (tune.FailureConfig(max_failures=7), {"max_failures": 2, "fail_fast": True}),
}  # fmt: skip


@pytest.mark.parametrize(("config", "name"), [(config, name) for config in PARTS for name in PARTS[config][1]])
def test_a_separate_setting_replaces_the_one_in_a_saved_config(tmp_path, config, name):
    where = {"name": "x", "local_dir": tmp_path, "verbose": 0}
    saved, given = PARTS[config]
    with pytest.raises(RuntimeError, match="the program ends"):
        tune.run(Climber, config={"rate": 1.0}, callbacks=[EndsTheProgram()], **{config: saved}, **where)
    own = {"callbacks": [tune.Callback()], name: given[name]}
    spec = continued(ExperimentSpec(trainable=Climber, resume=True, **own, **where))
    by_name = {part: getattr(saved, field) for part, field in PARTS_OF_CONFIGS[config].items()}
    made = {part: getattr(getattr(spec, config), field) for part, field in PARTS_OF_CONFIGS[config].items()}
    assert made == {**by_name, name: given[name]}
