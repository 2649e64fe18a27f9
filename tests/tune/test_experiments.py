"""Experiments of functions and small classes, through tune.run."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from datetime import timedelta
from pathlib import Path

import pytest

import runtime
from rllib import tune
from rllib.errors import TuneError
from rllib.tune.reporting.analysis import ExperimentAnalysis
from rllib.tune.schedulers import AsyncHyperBandScheduler
from rllib.tune.search import Searcher
from rllib.tune.trainables import session
from runtime.errors import UnschedulableError
from tests.runtime.runtime_support import wait_until

ROOT = Path(__file__).parents[2]


pytestmark = pytest.mark.usefixtures("two_cpus")


def lines(trial):
    return [json.loads(line) for line in (Path(trial.logdir) / "result.json").read_text().splitlines()]


# ---------------------------------------------------------------------- spellings


def by_track(config):
    for i in range(3):
        tune.track.log(mean_loss=config["a"] * i)


def by_reporter(config, reporter):
    for i in range(3):
        reporter(mean_loss=config["a"] * i, timesteps_total=10 * i)


def by_keywords(config):
    for i in range(3):
        tune.report(mean_loss=config["a"] * i)


def by_dict(config):
    for i in range(3):
        tune.report({"mean_loss": config["a"] * i})


def by_session(config):
    for i in range(3):
        session.report({"mean_loss": config["a"] * i})


def by_yield(config):
    for i in range(3):
        yield {"mean_loss": config["a"] * i}


@pytest.mark.parametrize("function", [by_track, by_reporter, by_keywords, by_dict, by_session, by_yield])
def test_every_spelling_of_report(run, function):
    analysis = run(function, config={"a": tune.grid_search([1.0, 2.0])}, metric="mean_loss", mode="max")
    assert [trial.status for trial in analysis.trials] == ["TERMINATED"] * 2
    assert [[line["mean_loss"] for line in lines(trial)] for trial in analysis.trials] == [[0, 1, 2], [0, 2, 4]]
    assert analysis.best_config == {"a": 2.0}


def test_a_returned_dict_and_number_are_results(run):
    (trial,) = run(lambda config: {"loss": 2 * config["a"]}, config={"a": 3}).trials
    assert trial.last_result["loss"] == 6 and trial.last_result["done"] and len(lines(trial)) == 1
    (trial,) = run(lambda config: 1.5).trials
    assert trial.last_result["_metric"] == 1.5


def test_results_have_the_usual_keys_and_trials_their_files(run):
    (trial,) = run(by_reporter, config={"a": 2}).trials
    keys = {"training_iteration", "time_this_iter_s", "time_total_s", "timesteps_total", "timesteps_this_iter", "done",
            "trial_id", "experiment_tag", "date", "timestamp", "pid", "hostname", "node_ip", "time_since_restore",
            "iterations_since_restore"}  # fmt: skip
    assert not keys - set(lines(trial)[-1])
    assert [line["training_iteration"] for line in lines(trial)] == [1, 2, 3]
    assert {"params.json", "params.pkl", "result.json", "progress.csv"} <= set(os.listdir(trial.logdir))
    assert list(Path(trial.logdir).parent.glob("experiment_state-*.json"))


class Counter(tune.Trainable):
    def setup(self, config):
        self.value = config.get("start", 0)

    def step(self):
        self.value += 1
        return {"value": self.value}

    def save_checkpoint(self, checkpoint_dir):
        return {"value": self.value}

    def load_checkpoint(self, checkpoint):
        self.value = checkpoint["value"]


class OldCounter(tune.Trainable):
    def _setup(self, config):
        self.value = 0

    def _train(self):
        self.value += 1
        return {"value": self.value, "done": self.value == 4}

    def _save(self, checkpoint_dir):
        path = os.path.join(checkpoint_dir, "value.txt")
        Path(path).write_text(str(self.value))
        return path

    def _restore(self, path):
        self.value = int(Path(path).read_text())


def test_class_of_this_generation_with_stop_and_checkpoints(run):
    (trial,) = run(Counter, stop={"value": 5}, checkpoint_freq=2, checkpoint_at_end=True).trials
    assert trial.last_result["value"] == 5 and trial.stopped_by == "value 5 >= 5"
    names = sorted(path.name for path in Path(trial.logdir).glob("checkpoint_*"))
    assert names == ["checkpoint_000002", "checkpoint_000004", "checkpoint_000005"]
    again = run(Counter, stop={"value": 6}, restore=f"{trial.logdir}/checkpoint_000004").trials[0]
    assert [line["value"] for line in lines(again)] == [5, 6]
    assert again.last_result["training_iteration"] == 6 and again.last_result["iterations_since_restore"] == 2


def test_class_with_underscore_methods(run):
    (trial,) = run(OldCounter, checkpoint_freq=1, keep_checkpoints_num=2).trials
    assert trial.last_result["value"] == 4
    assert [c.iteration for c in trial.checkpoints] == [3, 4]
    checkpoint = f"{trial.logdir}/checkpoint_000003"
    for path in (checkpoint, *map(str, Path(checkpoint).glob("*"))):  # Ray 0.8 gave the file's path
        again = run(OldCounter, restore=path).trials[0]
        assert [line["value"] for line in lines(again)] == [4]
    with pytest.raises(ValueError, match=r"restore must be a path that exists, but got .*checkpoint_7"):
        run(OldCounter, restore=f"{trial.logdir}/checkpoint_7")


def with_a_default(config, checkpoint_dir="of my own"):
    tune.report(got=Path(checkpoint_dir).name)
    with tune.checkpoint_dir(step=1) as directory:
        Path(directory, "x").touch()
    tune.report(got=Path(checkpoint_dir).name)


def test_a_default_of_checkpoint_dir_holds_until_there_is_a_checkpoint(run):
    (trial,) = run(with_a_default).trials
    assert [line["got"] for line in lines(trial)] == ["of my own"] * 2
    (again,) = run(with_a_default, restore=trial.checkpoint_path(trial.checkpoint)).trials
    assert [line["got"] for line in lines(again)] == ["checkpoint_000002"] * 2
    (bound,) = run(tune.with_parameters(with_a_default, checkpoint_dir="given")).trials
    assert [line["got"] for line in lines(bound)] == ["given"] * 2


class Scored(Counter):
    """Its value goes up and down."""

    def step(self):
        return {"score": [3.0, 9.0, 5.0, 7.0, 1.0, float("nan"), 6.0, 2.0][self.iteration]}


@pytest.mark.parametrize(
    "settings, kept",
    [
        ({"keep_checkpoints_num": 1, "checkpoint_score_attr": "score"}, [2, 8]),
        ({"keep_checkpoints_num": 2, "checkpoint_score_attr": "score"}, [2, 4, 8]),
        ({"keep_checkpoints_num": 1, "checkpoint_score_attr": "min-score"}, [5, 8]),
        ({"keep_checkpoints_num": 2, "checkpoint_score_attr": "score", "checkpoint_score_order": "min"}, [5, 8]),
        ({"keep_checkpoints_num": 2}, [7, 8]),
    ],
)
def test_the_best_checkpoints_are_kept_beside_the_newest(run, settings, kept):
    (trial,) = run(Scored, checkpoint_freq=1, stop={"training_iteration": 8}, **settings).trials
    assert [c.iteration for c in trial.checkpoints] == kept
    assert sorted(int(path.name[-6:]) for path in Path(trial.logdir).glob("checkpoint_*")) == kept


def with_checkpoint_dir(config, checkpoint_dir=None):
    start = int(Path(checkpoint_dir, "step").read_text()) + 1 if checkpoint_dir else 0
    for step in range(start, 6):
        with tune.checkpoint_dir(step=step) as directory:
            Path(directory, "step").write_text(str(step))
        tune.report(step=step, restored=bool(checkpoint_dir))
        if step == 3 and not checkpoint_dir:
            raise ValueError("the machine is hot")


def with_checkpoint_object(config):
    checkpoint = tune.get_checkpoint()
    start = checkpoint.to_dict()["step"] + 1 if checkpoint else 0
    for step in range(start, 6):
        tune.report({"step": step, "restored": start > 0}, checkpoint=tune.Checkpoint.from_dict({"step": step}))
        if step == 3 and not checkpoint:
            raise ValueError("the machine is hot")


@pytest.mark.parametrize("function", [with_checkpoint_dir, with_checkpoint_object])
def test_a_function_that_fails_goes_on_from_its_checkpoint(run, function):
    (trial,) = run(function, max_failures=1).trials
    assert trial.status == "TERMINATED" and trial.num_failures == 1
    assert [line["step"] for line in lines(trial)] == [0, 1, 2, 3, 4, 5]
    assert [line["restored"] for line in lines(trial)] == [False] * 4 + [True] * 2
    assert "the machine is hot" in (Path(trial.logdir) / "error.txt").read_text()


def is_killed_while_it_saves(config, checkpoint_dir=None):
    if not checkpoint_dir:
        with tune.checkpoint_dir() as directory:
            Path(directory, "step").touch()
        tune.report(loss=3.0)
        with tune.checkpoint_dir() as directory:
            os._exit(1)
    tune.report(loss=2.0)


def test_nothing_is_left_of_a_checkpoint_whose_writer_was_killed(run):
    (trial,) = run(is_killed_while_it_saves, max_failures=1).trials
    assert trial.status == "TERMINATED" and trial.num_failures == 1
    assert [line["loss"] for line in lines(trial)] == [3.0, 2.0]
    assert not list(Path(trial.logdir).glob(".checkpoint*.tmp-*"))


def saves_then_fails(config, checkpoint_dir=None):
    if not checkpoint_dir:
        with tune.checkpoint_dir() as directory:
            Path(directory, "step").touch()
        tune.report(loss=3.0)
        raise ValueError("after everything was done")


def test_a_restored_function_with_nothing_left_to_report_adds_no_result(run):
    (trial,) = run(saves_then_fails, max_failures=1).trials
    assert trial.status == "TERMINATED" and trial.num_failures == 1
    assert [line["loss"] for line in lines(trial)] == [3.0] and trial.last_result["loss"] == 3.0


def saves_after_its_last_report(config):
    tune.report(loss=1.0)
    with tune.checkpoint_dir() as directory:
        Path(directory, "weights").write_text("last")


def saves_before_it_returns(config):
    with tune.checkpoint_dir() as directory:
        Path(directory, "weights").write_text("last")
    return {"loss": 1.0}


@pytest.mark.parametrize("function", [saves_after_its_last_report, saves_before_it_returns])
def test_the_last_checkpoint_of_a_function_is_kept(run, function):
    analysis = run(function, metric="loss", mode="min")
    (trial,) = analysis.trials
    assert len(lines(trial)) == 1
    assert (trial.checkpoint.iteration, trial.checkpoint.metrics["loss"]) == (1, 1.0)
    assert Path(analysis.best_checkpoint.path, "weights").read_text() == "last"


# ---------------------------------------------------------------------- failures


def fails_for_two(config):
    tune.report(loss=1.0)
    if config["a"] == 2:
        raise KeyError("no such thing")


def test_the_error_ends_with_the_trials_own_traceback(run, tmp_path):
    with pytest.raises(TuneError) as caught:
        run(fails_for_two, config={"a": tune.grid_search([1, 2, 3])})
    assert str(caught.value).rstrip().endswith("KeyError: 'no such thing'")
    assert "in fails_for_two" in str(caught.value) and isinstance(caught.value.__cause__, KeyError)
    (path,) = tmp_path.iterdir()
    statuses = [trial.status for trial in ExperimentAnalysis(path).trials]
    assert statuses == ["TERMINATED", "ERROR", "TERMINATED"]
    analysis = run(fails_for_two, config={"a": tune.grid_search([2, 3])}, raise_on_failed_trial=False)
    assert analysis.trials[0].error and analysis.trials[1].status == "TERMINATED"


def test_fail_fast_raise_gives_the_users_exception(run):
    with pytest.raises(KeyError, match="no such thing"):
        run(fails_for_two, config={"a": tune.grid_search([2, 3, 3, 3])}, fail_fast="raise")


def kills_itself(config):
    tune.report(loss=1.0)
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_killed_trial_is_reported_and_the_others_go_on(run):
    analysis = run(
        lambda config: kills_itself(config) if config["a"] else by_keywords(config),
        config={"a": tune.grid_search([1, 0])}, raise_on_failed_trial=False,
    )  # fmt: skip
    assert [trial.status for trial in analysis.trials] == ["ERROR", "TERMINATED"]
    assert "SIGKILL" in analysis.trials[0].error


def hangs(config):
    tune.report(loss=1.0)
    time.sleep(3600)


class HangsInStep(tune.Trainable):
    def step(self):
        if self.iteration:
            time.sleep(3600)
        return {"loss": 1.0}


class HangsInSetup(tune.Trainable):
    def setup(self, config):
        time.sleep(3600)


@pytest.fixture
def short_grace(monkeypatch):
    monkeypatch.setattr("rllib.tune.running.trials.GRACE_S", 0.5)


def test_the_time_budget_ends_a_trial_that_hangs(run, short_grace, caplog):
    (trial,) = run(HangsInStep, time_budget_s=3.0).trials
    assert trial.status == "TERMINATED" and "time budget of 3 s" in trial.stopped_by
    assert trial.stopped_by.endswith("it hung in a step and was killed") and f"{trial} hangs in a step" in caplog.text
    assert len(lines(trial)) == 1


def hangs_or_reports(config):
    return hangs(config) if config["hangs"] else by_dict({"a": 1})


def test_a_time_limit_ends_a_trial_that_hangs_and_no_other(run, short_grace):
    space = {"hangs": tune.grid_search([True, False])}
    trial, other = run(hangs_or_reports, config=space, stop={"time_total_s": 4}).trials
    assert trial.stopped_by == "time_total_s >= 4: it hung in a step and was killed" and len(lines(trial)) == 1
    assert len(lines(other)) == 3


def test_a_time_limit_ends_a_trial_that_hangs_in_its_setup(run, short_grace):
    (trial,) = run(HangsInSetup, stop={"time_total_s": 2}).trials
    assert trial.stopped_by == "time_total_s >= 2: it hung in its setup and was killed"


class StopsAll(tune.Stopper):
    def __call__(self, trial_id, result):
        return False

    def stop_all(self):
        return (Path(self.directory) / "stop").exists()


def stops_the_experiment(config):
    tune.report(loss=1.0)
    (Path(tune.get_trial_dir()).parent / "stop").touch()
    time.sleep(0.05)
    while True:
        tune.report(loss=1.0)
        time.sleep(0.05)


@pytest.mark.parametrize("how", ["stop_all", "timedelta"])
def test_trials_that_never_started_are_terminated_when_the_experiment_is_stopped(run, tmp_path, how):
    stopper = StopsAll()
    stopper.directory = str(tmp_path / "x")
    how = {"stop_all": {"stop": stopper}, "timedelta": {"time_budget_s": timedelta(seconds=1.5)}}[how]  # fmt: skip
    analysis = run(stops_the_experiment, name="x", num_samples=5, max_concurrent_trials=1, **how)
    for trials in (analysis.trials, ExperimentAnalysis(tmp_path / "x").trials):
        assert [trial.status for trial in trials] == ["TERMINATED"] * 5
        assert ["loss" in trial.last_result for trial in trials] == [True] + [False] * 4


def test_a_long_step_within_its_grace_is_taken(run):
    (trial,) = run(lambda config: time.sleep(1.0) or {"loss": 1.0}, stop=[{"time_total_s": 0.5}]).trials
    assert trial.last_result["loss"] == 1.0 and "killed" not in (trial.stopped_by or "")


def test_what_can_never_fit_says_need_and_have(run):
    with pytest.raises(UnschedulableError, match=r"needs GPU: 1.*it has CPU: 2"):
        run(by_track, config={"a": 1}, resources_per_trial={"cpu": 1, "gpu": 1})
    with pytest.raises(UnschedulableError, match=r"needs CPU: 3"):
        run(tune.with_resources(by_track, {"cpu": 3}), config={"a": 1})


NEEDS = {
    "too much": lambda config: {"cpu": config["need"]},
    "cannot be said": lambda config: {"cpu": 1 / (config["need"] < 3)},
    "no resources": lambda config: {"cpu": 1 if config["need"] < 3 else "three"},
}


@pytest.mark.parametrize("needs", NEEDS.values(), ids=NEEDS)
def test_a_trial_that_can_never_start_fails_alone(run, tmp_path, needs):
    trainable = tune.with_resources(lambda config: {"loss": config["need"]}, needs)
    settings = {"metric": "loss", "mode": "max", "name": "x", "raise_on_failed_trial": False}
    space = {"need": tune.grid_search([1, *[99] * 9, 2, 3])}
    for resume in (False, "AUTO+ERRORED"):
        analysis = run(trainable, config=space, resume=resume, **settings)
        statuses = [trial.status for trial in analysis.trials]
        assert statuses == ["TERMINATED", *["ERROR"] * 9, "TERMINATED", "ERROR"]
        assert analysis.best_config == {"need": 2}
        failed = analysis.trials[1]
        assert failed.error.split(":")[0] in ("UnschedulableError", "ZeroDivisionError", "ValueError", "TypeError")
        assert Path(failed.error_file).read_text().count("Failure #") == 1 + bool(resume)


@pytest.mark.parametrize("num_samples", [1, 12, -1])
def test_an_experiment_of_which_no_trial_can_ever_start_is_refused(run, num_samples):
    trainable = tune.with_resources(by_track, lambda config: {"cpu": 50 + config["need"]})
    with pytest.raises(UnschedulableError, match=r"needs CPU: [5-9]\d.*it has CPU: 2"):
        run(trainable, config={"need": tune.randint(0, 20)}, num_samples=num_samples)


def test_an_experiment_is_not_resumed_where_its_trials_never_fit(run, monkeypatch):
    class Stops(tune.Callback):
        def on_trial_result(self, **info):
            raise ConnectionError("of my own")

    settings = {"config": {"a": tune.grid_search([1, 2])}, "name": "x"}
    trainable = tune.with_resources(by_track, lambda config: {"cpu": need})
    need = 1
    with pytest.raises(ConnectionError):
        run(trainable, callbacks=[Stops()], **settings)
    monkeypatch.setattr(runtime, "cluster_resources", lambda: {"CPU": 0.5})
    with pytest.raises(UnschedulableError, match=r"by_track_0_a=1 needs CPU: 1.*it has CPU: 0.5"):
        run(trainable, resume=True, **settings)
    monkeypatch.undo()
    assert [trial.status for trial in run(trainable, resume=True, **settings).trials] == ["TERMINATED"] * 2


def test_workers_that_do_not_fit_share_the_cpus(run, caplog):
    (trial,) = run(by_track, config={"a": 1}, resources_per_trial={"cpu": 1, "extra_cpu": 7}).trials
    assert trial.status == "TERMINATED"
    assert sum("wants 8 CPUs and there are 2" in record.message for record in caplog.records) == 1


def test_unknown_trainable_names_the_nearest():
    with pytest.raises(ValueError, match=r"no trainable 'PP0'.*Did you mean 'PPO'"):
        tune.run("PP0")


def test_a_metric_that_no_result_has(run):
    with pytest.raises(ValueError, match=r"the results have no mean_lost. Did you mean mean_loss\?"):
        run(by_track, config={"a": 1}, metric="mean_lost")
    with pytest.raises(ValueError, match=r"no result has the metric 'mean_lost'. Did you mean mean_loss\?"):
        run(by_track, config={"a": 1}).get_best_config("mean_lost")


def test_nan_is_never_the_best(run):
    analysis = run(
        lambda config: {"loss": config["a"]}, config={"a": tune.grid_search([float("nan"), 3.0, 2.0])},
        metric="loss", mode="min",
    )  # fmt: skip
    assert analysis.best_config == {"a": 2.0}


def test_a_full_disk_ends_the_experiment_and_keeps_the_results(run, tmp_path, monkeypatch):
    from rllib.tune.experiment.directory import Journal

    written = []

    def append(self, record, before=Journal.append):
        written.append(record)
        if record["type"] == "status" and record["status"] == "RUNNING" and record["id"].endswith("00002"):
            raise OSError(28, "No space left on device")
        before(self, record)

    with monkeypatch.context() as patched:
        patched.setattr(Journal, "append", append)
        with pytest.raises(TuneError, match=r"the disk is full.*resume=True"):
            run(by_track, name="full", config={"a": tune.grid_search([1, 2, 3, 4])}, max_concurrent_trials=1)
    analysis = run(by_track, name="full", config={"a": tune.grid_search([1, 2, 3, 4])}, resume=True)
    assert [trial.last_result["mean_loss"] for trial in analysis.trials] == [2, 4, 6, 8]


# ---------------------------------------------------------------------- directories


def test_a_name_that_is_taken_gets_a_number_and_another_experiment_is_refused(run, tmp_path):
    run(by_track, name="mine", config={"a": 1})
    again = run(by_track, name="mine", config={"a": 1})
    assert again.experiment_path == str(tmp_path / "mine_2")
    with pytest.raises(ValueError, match="another experiment: it ran by_track, not by_dict"):
        run(by_dict, name="mine", config={"a": 1}, resume=True)
    with pytest.raises(ValueError, match="to resume"):
        run(by_dict, name="yours", config={"a": 1}, resume=True)
    assert len(run(by_dict, name="yours", config={"a": 1}, resume="AUTO").trials) == 1


def reports_its_directory(config):
    yield {"directory": tune.get_trial_dir()}


a_function_whose_name_alone_fills_the_directory_name = type(reports_its_directory)(
    reports_its_directory.__code__, globals(), "long_" * 40
)


@pytest.mark.parametrize(
    "function, settings",
    [
        (reports_its_directory, {"trial_dirname_creator": lambda trial: "same", "trial_name_creator": lambda t: "t"}),
        (a_function_whose_name_alone_fills_the_directory_name, {}),
    ],
)
def test_trials_never_share_a_directory(run, function, settings):
    space = {"a": tune.grid_search([1, 2, 3, 4])}
    trials = run(function, name="x", config=space, **settings).trials
    trials = run(function, name="x", config=space, num_samples=2, resume=True, **settings).trials
    assert len({trial.last_result["directory"] for trial in trials}) == 8
    assert [trial.logdir for trial in trials] == [trial.last_result["directory"] for trial in trials]
    assert [len(lines(trial)) for trial in trials] == [1] * 8


def test_a_directory_name_that_no_file_system_takes(run):
    with pytest.raises(ValueError, match=r"a trial's directory.* has 300 bytes, and file systems take 255"):
        run(reports_its_directory, trial_dirname_creator=lambda trial: "é" * 150)


def writes_into_its_working_directory(config):
    Path("weights").write_text(str(config["a"]))
    return {"where": os.getcwd()}


class WritesIntoItsWorkingDirectory(tune.Trainable):
    def setup(self, config):
        Path("weights").write_text(str(config["a"]))

    def step(self):
        return {"where": os.getcwd(), "done": True}

    def reset_config(self, new_config):
        self.setup(new_config)
        return True


@pytest.mark.parametrize(
    "trainable, reuse", [(writes_into_its_working_directory, False), (WritesIntoItsWorkingDirectory, True)]
)
def test_trials_run_in_their_own_directories(run, trainable, reuse):
    here = os.getcwd()
    trials = run(trainable, config={"a": tune.grid_search([1, 2, 3])}, reuse_actors=reuse).trials
    assert [trial.last_result["where"] for trial in trials] == [trial.logdir for trial in trials]
    assert [Path(trial.logdir, "weights").read_text() for trial in trials] == ["1", "2", "3"]
    assert os.getcwd() == here


class Prints(tune.Trainable):
    """Prints its number in every step; notes in its trial's directory that it has ended."""

    def setup(self, config):
        self.a = config["a"]

    def step(self):
        print(f"this is {self.a}", flush=True)
        if self.config.get("fails"):
            raise RuntimeError("in a step")
        return {"a": self.a, "done": True}

    def save_checkpoint(self, checkpoint_dir):
        raise RuntimeError("in a save")

    def cleanup(self):
        with open(Path(self.logdir, "ended"), "a") as file:
            file.write(f"{self.a}\n")
        print(f"this was {self.a}", flush=True)

    def reset_config(self, new_config):
        self.a = new_config["a"]
        return self.config["can_reset"]


@pytest.mark.parametrize("can_reset", [True, False])
def test_trials_that_share_processes_print_to_their_own_files(run, can_reset):
    config = {"a": tune.grid_search([1, 2, 3]), "can_reset": can_reset}
    trials = run(Prints, config=config, reuse_actors=True, log_to_file=True, max_concurrent_trials=1).trials
    printed = [Path(trial.logdir, "stdout").read_text() for trial in trials]
    assert [text.splitlines()[0] for text in printed] == ["this is 1", "this is 2", "this is 3"]
    assert [text.count("this is") for text in printed] == [1, 1, 1]


@pytest.mark.parametrize("settings", [
    {},
    {"reuse_actors": True},
    {"reuse_actors": True, "max_concurrent_trials": 1},
    {"config": {"fails": True}},
    {"config": {"fails": True}, "max_failures": 1},
    {"checkpoint_at_end": True},
    {"metric": "word", "mode": "max"},
], ids=str)  # fmt: skip
def test_every_trainable_ends_with_its_cleanup(run, settings):
    """Also one that has raised, or whose process was to be taken over by another trial."""

    class Ends(Prints):
        def step(self):
            return {**super().step(), "word": "text"}

        def reset_config(self, new_config):
            return False

    config = {"a": tune.grid_search([1, 2, 3]), **settings.get("config", {})}
    trials = run(Ends, raise_on_failed_trial=False, **{**settings, "config": config}).trials
    times = 1 + settings.get("max_failures", 0)
    assert [Path(trial.logdir, "ended").read_text() for trial in trials] == [f"{a}\n" * times for a in (1, 2, 3)]


IMPORTS = """
from rllib import tune

def imports(config):
    import beside_the_script
    return {"value": beside_the_script.VALUE}

[trial] = tune.run(imports, verbose=0, tensorboard=False).trials
print(trial.last_result["value"])
"""


def test_trials_import_what_lies_where_the_script_was_started(tmp_path):
    (tmp_path / "beside_the_script.py").write_text("VALUE = 7")
    command = [sys.executable, "-c", IMPORTS]  # whose sys.path has "", the working directory
    output = subprocess.check_output(command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, text=True)
    assert output.strip() == "7"


def test_trials_may_stay_in_the_start_directory(run):
    (trial,) = run(lambda config: {"where": os.getcwd()}, chdir_to_trial_dir=False).trials
    assert trial.last_result["where"] == os.getcwd()


def fails_once(config):
    marker = Path(tune.get_trial_dir(), "was_here")
    if config["a"] == 2 and not marker.exists():
        marker.touch()
        raise RuntimeError("first time")
    tune.report(a=config["a"])


def test_errored_only_runs_the_failed_trials_again(run):
    space = {"a": tune.grid_search([1, 2])}
    first = run(fails_once, name="x", config=space, raise_on_failed_trial=False)
    kept = Path(first.trials[0].logdir, "result.json").read_text()
    second = run(fails_once, name="x", config=space, resume="ERRORED_ONLY")
    assert [trial.status for trial in second.trials] == ["TERMINATED"] * 2
    assert Path(second.trials[0].logdir, "result.json").read_text() == kept


class CtrlCBeforeTheEnd(tune.Callback):
    """Presses it when the next result, the last one, has been asked for."""

    def on_trial_result(self, iteration, trials, trial, result, **info):
        if result["value"] == 3:
            signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize("scheduler", [None, "asha"])
def test_a_trial_interrupted_at_its_last_result_does_not_go_beyond_it(run, scheduler):
    settings = {"name": "x", "stop": {"value": 4}, "checkpoint_freq": 2,
                "scheduler": scheduler, "metric": "value", "mode": "max"}  # fmt: skip
    with pytest.raises(KeyboardInterrupt):
        run(Counter, callbacks=[CtrlCBeforeTheEnd()], **settings)
    [trial] = run(Counter, resume=True, **settings).trials
    assert trial.status == "TERMINATED" and [line["value"] for line in lines(trial)] == [1, 2, 3, 4]


DRIVER = """
    import sys, time
    from pathlib import Path
    import runtime
    from rllib import tune

    ROOT = sys.argv[1]

    class Slow(tune.Trainable):
        def setup(self, config):
            self.n = 0
            with open(ROOT + "/started", "a") as file:
                file.write(f"{config['a']}\\n")
        def step(self):
            time.sleep(0.05)
            self.n += 1
            return {"n": self.n, "a": self.config["a"]}
        def save_checkpoint(self, directory):
            return {"n": self.n}
        def load_checkpoint(self, checkpoint):
            self.n = checkpoint["n"]

    runtime.init(num_cpus=2, preload=["numpy", "rllib.tune.running.actor"])
    analysis = tune.run(Slow, name="x", storage_path=ROOT, config={"a": tune.uniform(0, 1)}, num_samples=6,
                        stop={"n": 8}, checkpoint_freq=3, resume=sys.argv[2] == "resume", verbose=0, tensorboard=False)
    print([(t.status, t.last_result["n"], t.last_result["a"]) for t in analysis.trials])
"""


def start_driver(tmp_path, what):
    script = tmp_path / "driver.py"
    script.write_text(textwrap.dedent(DRIVER))
    return subprocess.Popen(
        [sys.executable, str(script), str(tmp_path), what], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip


def num_finished(path):
    try:
        return sum(trial.status == "TERMINATED" for trial in ExperimentAnalysis(path).trials)
    except (ValueError, FileNotFoundError):
        return 0


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_an_interrupted_experiment_goes_on_exactly(tmp_path, how):
    driver = start_driver(tmp_path, "start")
    wait_until(lambda: num_finished(tmp_path / "x") >= 3, 60, "three trials did not finish")
    began = time.monotonic()
    driver.send_signal(how)
    _, errors = driver.communicate(timeout=30)
    assert driver.returncode != 0
    if how == signal.SIGINT:
        assert time.monotonic() - began < 5 and "resume=True" in errors and "KeyboardInterrupt" in errors
    before = {t.trial_id: t for t in ExperimentAnalysis(tmp_path / "x").trials}
    finished = {t.config["a"] for t in before.values() if t.status == "TERMINATED"}
    started = (tmp_path / "started").read_text().split()
    resumed = start_driver(tmp_path, "resume")
    output, errors = resumed.communicate(timeout=60)
    assert resumed.returncode == 0, errors
    analysis = ExperimentAnalysis(tmp_path / "x")
    assert [t.status for t in analysis.trials] == ["TERMINATED"] * 6, output
    for trial in analysis.trials:
        assert [line["n"] for line in lines(trial)] == list(range(1, 9))
        assert trial.trial_id not in before or trial.config == before[trial.trial_id].config
    again = {float(a) for a in (tmp_path / "started").read_text().split()[len(started) :]}
    assert not again & finished, "a finished trial ran again"


# ---------------------------------------------------------------------- by what trials are compared


def bare_number(config):
    for i in range(1, 4):
        tune.report(config["a"] / i)


def test_a_scheduler_without_a_metric_compares_bare_numbers(run):
    analysis = run(bare_number, config={"a": tune.grid_search([4.0, 2.0, 3.0])}, scheduler="asha", mode="min")
    assert (analysis.default_metric, analysis.best_config) == ("_metric", {"a": 2.0})
    reopened = tune.ExperimentAnalysis(analysis.experiment_path)
    assert (reopened.default_metric, reopened.best_config) == ("_metric", {"a": 2.0})


def test_a_scheduler_without_a_metric_compares_algorithms_by_return(run):
    config = {"env": "CartPole-v1", "num_workers": 0, "train_batch_size": 200, "sgd_minibatch_size": 100,
              "num_sgd_iter": 1, "seed": tune.grid_search([0, 1])}  # fmt: skip
    analysis = run("PPO", config=config, scheduler="asha", stop={"training_iteration": 1})
    assert (analysis.default_metric, analysis.default_mode) == ("episode_reward_mean", "max")
    best = max(analysis.trials, key=lambda trial: trial.last_result["episode_reward_mean"])
    assert analysis.best_trial is best


class OneValue(Searcher):
    def suggest(self, trial_id):
        return {"a": 1.0}


def two_metrics(config):
    for step in range(1, 4):
        tune.report(loss=config["a"], gain=step * config["a"])


def test_a_scheduler_and_a_searcher_may_have_different_metrics(run):
    searcher = OneValue(metric="loss", mode="min")
    scheduler = AsyncHyperBandScheduler(metric="gain", mode="max", grace_period=1)
    analysis = run(two_metrics, search_alg=searcher, scheduler=scheduler)
    assert (searcher.metric, searcher.mode) == ("loss", "min") and (scheduler.metric, scheduler.mode) == ("gain", "max")
    assert (analysis.default_metric, analysis.default_mode) == ("gain", "max")


@pytest.mark.parametrize("mistaken", [{"metric": "losss", "mode": "min"}, {"stop": {"losss": 1}}])
def test_an_experiment_that_raises_leaves_no_file_open(mistaken):
    def endless(config):
        while True:
            tune.report(loss=1.0)

    with pytest.raises(ValueError, match="losss"):
        tune.run(endless, config={"a": tune.grid_search([1, 2])}, name="mistaken", verbose=0, **mistaken)
    opened = [os.readlink(f"/proc/self/fd/{number}") for number in os.listdir("/proc/self/fd") if number.isdigit()
              and os.path.exists(f"/proc/self/fd/{number}")]  # fmt: skip
    assert not [path for path in opened if "mistaken" in path]
