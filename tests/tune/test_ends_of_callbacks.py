"""Callbacks at the end of an experiment, whatever has ended it, and in one that is resumed."""

import signal
from pathlib import Path

import numpy as np
import pytest

from rllib import tune
from rllib.tune.experiment import loggers
from rllib.tune.experiment.callbacks import Callbacks
from rllib.tune.experiment.trial import Trial
from rllib.tune.search import BasicVariantGenerator, ConcurrencyLimiter
from rllib.tune.states import TERMINATED
from tests.tune.climber import Climber

RESULT = {"training_iteration": 1, "timesteps_total": 10, "score": 1.0}


class StandIn:
    """A tracker; `closed` has the name of each run that was closed, and whether it had failed."""

    closed: list
    broken = ()

    def __init__(self, params, name, **options):
        self.name = name

    def on_result(self, result):
        pass

    def close(self, failed=False):
        self.closed.append((self.name, failed))
        if self.name in self.broken:
            raise ConnectionError(f"no answer for {self.name}")


@pytest.fixture
def stand_in(monkeypatch):
    monkeypatch.setattr(loggers, "check_package", lambda name: None)
    monkeypatch.setattr(loggers, "TRACKERS", {"mlflow": StandIn})
    monkeypatch.setattr(StandIn, "closed", [], raising=False)
    return StandIn


def two_started(callback, tmp_path):
    """Two trials that have reported, of which the first has ended."""
    trials = [Trial(str(index), index, "f", {}, {}, tmp_path) for index in range(2)]
    for trial in trials:
        callback.on_trial_start(1, trials, trial)
        callback.on_trial_result(1, trials, trial, RESULT)
    callback.on_trial_complete(1, trials, trials[0])
    trials[0].status = TERMINATED
    return trials


def test_runs_of_unfinished_trials_are_closed_with_the_experiment(stand_in, tmp_path):
    callback = tune.MLflowLoggerCallback()
    trials = two_started(callback, tmp_path)
    for _ in range(2):
        callback.on_experiment_end(trials=trials)
        assert stand_in.closed == [("f_0", False), ("f_1", True)]


def test_a_run_that_cannot_be_closed_leaves_no_other_open(stand_in, monkeypatch, tmp_path):
    monkeypatch.setattr(stand_in, "broken", ("f_1", "f_2"))
    callback = tune.MLflowLoggerCallback()
    trials = [Trial(str(index), index, "f", {}, {}, tmp_path) for index in range(4)]
    for trial in trials:
        callback.on_trial_start(1, trials, trial)
    with pytest.raises(ConnectionError, match="no answer"):
        callback.on_experiment_end(trials=trials)
    assert sorted(stand_in.closed) == [(f"f_{index}", True) for index in range(4)]


def test_files_of_unfinished_trials_are_closed_with_the_experiment(tmp_path):
    failed_ones = []

    class Notes(tune.CSVLoggerCallback):
        def log_trial_end(self, trial, failed=False):
            failed_ones.extend([trial.trial_id] * failed)
            super().log_trial_end(trial, failed)

    callback = Notes()
    trials = two_started(callback, tmp_path)
    for _ in range(2):
        callback.on_experiment_end(trials=trials)
        assert failed_ones == ["1"]


def test_every_callback_is_called_even_if_one_raises():
    called = []

    class Raises(tune.Callback):
        def on_experiment_end(self, **info):
            called.append("raises")
            raise OSError("first")

    class Listens(tune.Callback):
        def on_experiment_end(self, **info):
            called.append("listens")

    with pytest.raises(OSError, match="first") as caught:
        Callbacks([Raises(), Listens()], None, []).call("on_experiment_end")
    assert called == ["raises", "listens"] and "Raises.on_experiment_end" in caught.value.__notes__[0]


class CtrlC(tune.Callback):
    def on_trial_result(self, iteration, trials, trial, result, **info):
        if result["training_iteration"] == 2:
            signal.raise_signal(signal.SIGINT)


def test_runs_are_closed_after_ctrl_c(two_cpus, run, stand_in):
    callbacks = [tune.MLflowLoggerCallback(), CtrlC()]
    with pytest.raises(KeyboardInterrupt):
        run(Climber, config={"rate": 1.0}, name="x", callbacks=callbacks)
    assert stand_in.closed == [("Climber_0", True)]


@pytest.mark.parametrize("first_that_fails", [0, 1])
def test_a_tracker_that_has_begun_ends_no_experiment(run, stand_in, monkeypatch, caplog, first_that_fails):
    made = []

    def begins(params, name, **options):
        made.append(name)
        if len(made) > first_that_fails:
            raise ConnectionError("no server")
        return stand_in(params, name, **options)

    monkeypatch.setattr(loggers, "TRACKERS", {"mlflow": begins})
    settings = {"config": {"rate": tune.grid_search([1.0, 2.0, 3.0])}, "stop": {"training_iteration": 2},
                "callbacks": [tune.MLflowLoggerCallback()], "max_concurrent_trials": 1}  # fmt: skip
    if first_that_fails == 0:  # nothing has been trained yet, and the user's mistake is likely
        with pytest.raises(ConnectionError, match="no server"):
            run(Climber, **settings)
        return
    assert [trial.status for trial in run(Climber, **settings).trials] == [TERMINATED] * 3
    assert len(made) == 3 and len(stand_in.closed) == 1
    assert "mlflow: no run could be made for Climber_1_rate=2" in caplog.text


def test_an_experiment_whose_callback_cannot_begin_ends_in_order(two_cpus, run, tmp_path):
    class CannotBegin(tune.Callback):
        ends = 0

        def setup(self, **info):
            raise ConnectionError("no server")

        def on_experiment_end(self, **info):
            CannotBegin.ends += 1

    settings = {"config": {"rate": 1.0}, "name": "x", "stop": {"training_iteration": 1}}
    with pytest.raises(ConnectionError, match="no server"):
        run(Climber, callbacks=[CannotBegin()], **settings)
    assert CannotBegin.ends == 1 and Path(tmp_path, "x").is_dir()
    (trial,) = run(Climber, resume=True, **settings).trials
    assert trial.status == TERMINATED


class Counts(tune.Callback):
    """Counts results over all processes of an experiment, and notes what it is told of it."""

    def __init__(self):
        self.results, self.told = 0, []

    def setup(self, stop=None, num_samples=None, total_num_samples=None, **info):
        self.told.append((str(stop), num_samples, total_num_samples, info["time_budget_s"], self.results))

    def on_trial_result(self, **info):
        self.results += 1

    def on_trial_recover(self, trial, **info):
        self.told.append((trial.num_failures, trial.error.splitlines()[-1]))

    def get_state(self):
        return {"results": self.results, "highest": np.array([np.inf])}

    def set_state(self, state):
        assert state["highest"] == np.inf
        self.results = state["results"]


@pytest.mark.parametrize(
    "searcher", [None, lambda: ConcurrencyLimiter(BasicVariantGenerator(), max_concurrent=1)], ids=["grid", "wrapped"]
)
def test_callbacks_know_the_experiment_and_their_state(tmp_path, searcher):
    def fails_once(config):
        tune.report({"score": 1})
        if config["a"] == 2 and not (tmp_path / "failed").exists():
            (tmp_path / "failed").touch()
            raise RuntimeError("not yet")
        tune.report({"score": 2})

    def run(num_samples, callbacks):
        space = {"a": tune.grid_search([1, 2, 3]), "b": tune.uniform(0, 1)}
        tune.run(
            fails_once, config=space, num_samples=num_samples, callbacks=callbacks, max_failures=1, verbose=0,
            stop={"score": 2}, time_budget_s=99, name="x", local_dir=tmp_path, resume="AUTO",
            search_alg=searcher and searcher(), max_concurrent_trials=1,
        )  # fmt: skip

    first, second, third, other = Counts(), Counts(), Counts(), tune.Callback()
    run(1, [other, first, third])
    recovered = (1, "RuntimeError: not yet")
    assert first.told == third.told == [("score >= 2", 1, 3, 99, 0), recovered] and first.results == 7
    run(2, [second, other])
    assert second.told == [("score >= 2", 2, 6, 99, 7)] and second.results == 13
    again, left_out = Counts(), Counts()  # whose state the second program has kept
    run(3, [again, left_out])
    assert (again.told[0][-1], left_out.told[0][-1]) == (13, 7)


def test_a_state_of_a_callback_that_cannot_be_saved_is_an_error_at_the_start(tmp_path):
    class Unsaved(tune.Callback):
        def get_state(self):
            return {"function": lambda: None}

    with pytest.raises(TypeError, match="plain data") as error:
        tune.run(lambda config: {"loss": 1}, callbacks=[Unsaved()], verbose=0, local_dir=tmp_path)
    assert "Unsaved.get_state" in error.value.__notes__[0]
