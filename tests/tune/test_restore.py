"""Settings that `Tuner.restore` continues with, and resumed experiments that are refused."""

import datetime
import enum
import json
import resource
import threading
from decimal import Decimal
from pathlib import Path

import climber
import numpy as np
import pytest

from rllib import tune
from rllib.tune import search as searchers
from rllib.tune.experiment.directory import described, difference
from rllib.tune.schedulers import AsyncHyperBandScheduler

pytestmark = pytest.mark.usefixtures("two_cpus")


class Climber(climber.Climber):
    """Fails in its fourth step for as long as there is a file `fails` in the experiment's directory."""

    def step(self):
        if self.iteration == 3 and (Path(self.logdir).parent / "fails").exists():
            (Path(self.logdir).parent / "fails").unlink()
            raise RuntimeError("once")
        return super().step()


class BreaksOff(tune.Callback):
    """Ends the driver, as a crash would, when the experiment has this many results for the first time."""

    def __init__(self, after: int, marker: Path):
        self.left, self.marker = after, marker

    def on_trial_result(self, iteration, trials, trial, result, **info):
        self.left -= 1
        if not self.left and not self.marker.exists():
            self.marker.touch()
            raise ConnectionError("the driver's end")


def broken_off(tmp_path, trainable=Climber, after=3, tune_config=None, space=None, **run_config):
    """Path of an experiment whose driver has ended after some results."""
    tuner = tune.Tuner(
        trainable,
        param_space=space or {"rate": 1.0},
        tune_config=tune.TuneConfig(**{"max_concurrent_trials": 1, **(tune_config or {})}),
        run_config=tune.RunConfig(
            name="x", storage_path=tmp_path, verbose=0, callbacks=[BreaksOff(after, tmp_path / "broken")], **run_config
        ),
    )
    with pytest.raises(Exception, match="the driver's end"):
        tuner.fit()
    return tmp_path / "x"


def test_a_restored_tuner_stops_where_the_original_would_have(tmp_path):
    path = broken_off(tmp_path, stop={"training_iteration": 5})
    (result,) = tune.Tuner.restore(path, Climber, load_user_code=True).fit()
    assert result.metrics["training_iteration"] == 5


def test_an_experiment_with_a_number_behind_the_name_is_not_the_restored_one(tmp_path):
    path = broken_off(tmp_path, stop={"training_iteration": 5})
    tune.run(climber.Climber, name="x_2", storage_path=tmp_path, verbose=0, config={"rate": 7.0}, stop={"height": 7})
    (result,) = tune.Tuner.restore(path, Climber, load_user_code=True).fit()
    assert Path(result.path).parent == path and result.metrics["height"] == 5.0


def test_a_restored_tuner_keeps_failures_checkpoints_and_resources(tmp_path):
    path = broken_off(
        tmp_path, tune.with_resources(Climber, {"cpu": 2}), stop=lambda trial_id, result: result["height"] >= 6,
        space={"rate": tune.grid_search([1.0, 1.0])}, failure_config=tune.FailureConfig(max_failures=1),
        checkpoint_config=tune.CheckpointConfig(num_to_keep=1, checkpoint_frequency=2),
    )  # fmt: skip
    (path / "fails").touch()
    results = tune.Tuner.restore(path, Climber, load_user_code=True).fit()
    assert [result.metrics["height"] for result in results] == [6.0, 6.0] and not results.errors
    for result in results:
        assert [Path(checkpoint.path).name for checkpoint, _ in result.best_checkpoints] == ["checkpoint_000006"]
        assert result.trial.resources.own == {"CPU": 2}


def test_a_tuner_keeps_the_checkpoints_of_an_experiment_of_run(run, tmp_path):
    """It saves algorithms when they end in addition, and not instead of what `tune.run` was asked for."""
    config = {"env": "CartPole-v1", "num_workers": 0, "train_batch_size": 64, "sgd_minibatch_size": 64}
    settings = {"stop": {"training_iteration": 4}, "checkpoint_freq": 1, "keep_checkpoints_num": 2}
    with pytest.raises(ConnectionError):
        run("PPO", name="x", config=config, callbacks=[BreaksOff(2, tmp_path / "broken")], **settings)
    own = tune.RunConfig(callbacks=[tune.Callback()], verbose=0)
    (result,) = tune.Tuner.restore(tmp_path / "x", "PPO", run_config=own).fit()
    assert [path.name for path in sorted(Path(result.path).glob("checkpoint_*"))] == [
        "checkpoint_000003", "checkpoint_000004",
    ]  # fmt: skip


def test_a_restored_tuner_keeps_the_scheduler_and_its_state(tmp_path):
    scheduler = AsyncHyperBandScheduler(max_t=4, grace_period=2, reduction_factor=2)
    path = broken_off(
        tmp_path, after=10, space={"rate": tune.grid_search([4.0, 3.0, 2.0, 5.0])},
        tune_config={"scheduler": scheduler, "metric": "height", "mode": "max"},
    )  # fmt: skip
    results = tune.Tuner.restore(path, Climber, load_user_code=True).fit()
    assert [result.metrics["training_iteration"] for result in results] == [4, 2, 2, 4]


@pytest.mark.parametrize("space", [{"rate": tune.uniform(0, 5)}, {"rate": tune.uniform(0, 5), "own": True}])
def test_a_restored_tuner_keeps_the_searcher_and_its_state(tmp_path, space):
    pytest.importorskip("optuna")
    from rllib.tune.search import ConcurrencyLimiter, OptunaSearch

    own, space = ({"rate": space["rate"]}, {}) if "own" in space else (None, space)

    def search():
        return ConcurrencyLimiter(OptunaSearch(own, seed=1, n_startup_trials=2), 1)

    settings = {"metric": "height", "mode": "max", "num_samples": 6}
    whole = tune.run(Climber, name="whole", storage_path=tmp_path, config=space, search_alg=search(), verbose=0,
                     stop={"training_iteration": 2}, tensorboard=False, **settings)  # fmt: skip
    path = broken_off(tmp_path, after=7, space=space or {"fixed": 1}, tune_config={**settings, "search_alg": search()},
                      stop={"training_iteration": 2})  # fmt: skip
    results = tune.Tuner.restore(path, Climber, load_user_code=True).fit()
    assert [result.config["rate"] for result in results] == [trial.config["rate"] for trial in whole.trials]


class Forgetful(searchers.Searcher):
    """Counts its suggestions, and saves nothing."""

    needs_metric, count = False, 0

    def suggest(self, trial_id):
        self.count += 1
        return {"rate": float(self.count)}


class OwnMetric(Forgetful):
    needs_metric = True


def test_a_restored_tuner_keeps_the_metrics_of_scheduler_and_searcher(tmp_path):
    scheduler = AsyncHyperBandScheduler(metric="height", mode="max", max_t=4)
    searcher = OwnMetric(metric="training_iteration", mode="min")
    path = broken_off(tmp_path, tune_config={"scheduler": scheduler, "search_alg": searcher, "num_samples": 1})
    results = tune.Tuner.restore(path, Climber, load_user_code=True).fit()
    assert results.get_best_result().metrics["height"] == 4.0


class LargeTimeout(tune.TimeoutStopper):
    """Says in the experiment's directory how much was used before each run."""

    def __init__(self, path):
        super().__init__(600)
        self.path = path

    def add_time(self, seconds):
        super().add_time(seconds)
        self.path.write_text(str(self.get_state()))


@pytest.mark.parametrize("share", [0, 1e9], ids=["the state is written after every result", "it is so slow: only once"])
def test_a_restored_tuner_has_what_is_left_of_its_timeout(tmp_path, monkeypatch, share):
    monkeypatch.setattr("rllib.tune.experiment.directory._SNAPSHOT_SHARE", share)
    path = broken_off(tmp_path, stop=[LargeTimeout(tmp_path / "used_s"), {"training_iteration": 5}])
    (result,) = tune.Tuner.restore(path, Climber, load_user_code=True).fit()
    assert result.metrics["training_iteration"] == 5 and float((tmp_path / "used_s").read_text()) > 0


class Remembers(tune.Stopper):
    """Writes down the iterations that it was asked about, over all runs."""

    def __init__(self, path):
        self.path, self.asked = path, []

    def __call__(self, trial_id, result):
        self.asked.append(result["training_iteration"])
        self.path.write_text(str(self.asked))
        return self.asked[-1] == 5

    def get_state(self):
        return list(self.asked)

    def set_state(self, state):
        self.asked = list(state)


def test_a_resumed_stopper_counts_no_result_twice(tmp_path, monkeypatch):
    monkeypatch.setattr("rllib.tune.experiment.directory._SNAPSHOT_SHARE", 0)  # the state is written after every result
    path = broken_off(tmp_path, after=4, stop=[Remembers(tmp_path / "asked"), {"training_iteration": 5}],
                      checkpoint_config=tune.CheckpointConfig(checkpoint_frequency=1))  # fmt: skip
    (result,) = tune.Tuner.restore(path, Climber, load_user_code=True).fit()
    assert result.metrics["training_iteration"] == 5
    asked = json.loads((tmp_path / "asked").read_text())
    assert asked[0] == 1 and asked[-1] == 5 and len(set(asked)) == len(asked), asked


def test_what_a_restored_tuner_is_given_goes_before_what_was_saved(tmp_path):
    path = broken_off(tmp_path, stop={"training_iteration": 5})
    more = {"run_config": tune.RunConfig(stop={"training_iteration": 4}), "tune_config": tune.TuneConfig(num_samples=2)}
    results = tune.Tuner.restore(path, Climber, load_user_code=True, **more).fit()
    assert [result.metrics["training_iteration"] for result in results] == [4, 4]


def test_a_setting_that_cannot_be_pickled_is_asked_for_again(tmp_path, caplog):
    lock = threading.Lock()
    path = broken_off(tmp_path, stop=lambda trial_id, result: lock.locked() or result["height"] >= 5)
    restored = tune.Tuner.restore(path, Climber, load_user_code=True,
                                  run_config=tune.RunConfig(stop={"height": 4}))  # fmt: skip
    assert "stop could not be pickled" in caplog.text and "give it again" in caplog.text
    (result,) = restored.fit()
    assert result.metrics["height"] == 4


class Colour(enum.Enum):
    RED, BLUE = 1, 2


def once(config):
    tune.report({"it": 1})
    if Path(config["fails"]).exists():
        raise RuntimeError("once")


@pytest.mark.parametrize(
    "value",
    [
        Path("/data"),
        Colour.RED,
        range(3),
        np.dtype("f4"),
        {"at": [datetime.date(2020, 1, 1), Decimal("1.5")]},
        tune.grid_search([Path("a"), Colour.BLUE]),
        tune.choice([Colour.BLUE, Colour.BLUE]),
    ],
    ids=repr,
)
def test_values_of_pythons_types_are_restored_without_loading_code(tmp_path, caplog, value):
    (tmp_path / "fails").touch()
    space = {"fails": str(tmp_path / "fails"), "value": value}
    settings = {"run_config": tune.RunConfig(name="x", storage_path=tmp_path, verbose=0)}
    before = tune.Tuner(once, param_space=space, **settings).fit()
    assert "holds code" not in caplog.text
    (tmp_path / "fails").unlink()
    after = tune.Tuner.restore(tmp_path / "x", once, resume_errored=True).fit()
    assert not after.errors and [each.config for each in after] == [each.config for each in before]


def own(config):
    return 1


def test_resources_that_the_trainable_has_are_given_again(tmp_path):
    trainable = tune.with_resources(once, lambda config: {"cpu": 1})
    (tmp_path / "fails").touch()
    settings = {"run_config": tune.RunConfig(name="x", storage_path=tmp_path, verbose=0)}
    tune.Tuner(trainable, param_space={"fails": str(tmp_path / "fails")}, **settings).fit()
    (tmp_path / "fails").unlink()
    assert not tune.Tuner.restore(tmp_path / "x", trainable, resume_errored=True).fit().errors
    with pytest.raises(ValueError, match="resources_per_trial: the experiment holds code"):
        tune.Tuner.restore(tmp_path / "x", once)


@pytest.mark.parametrize("value", [len, own, lambda: 1, Climber], ids=["len", "own", "lambda", "class"])
def test_code_in_a_configuration_is_named_when_the_experiment_begins(tmp_path, caplog, value):
    space = {"fails": str(tmp_path / "fails"), "value": value}
    tune.run(once, config=space, name="x", storage_path=tmp_path, verbose=0)
    assert caplog.text.count("this experiment holds code") == 1 and "load_user_code=True" in caplog.text
    tune.run(once, config=space, name="x", storage_path=tmp_path, verbose=0, resume=True)
    assert caplog.text.count("this experiment holds code") == 1


def test_a_restored_tuner_may_leave_unfinished_trials(tmp_path):
    def fails_for_one(config):
        if config["a"] == 1 and not (tmp_path / "broken").exists():
            raise RuntimeError("once")
        for step in range(5):
            tune.report(step=step)

    path = broken_off(tmp_path, fails_for_one, space={"a": tune.grid_search([1, 2])})
    with pytest.raises(ValueError, match="needs resume_errored=True"):
        tune.Tuner.restore(path, fails_for_one, resume_unfinished=False)
    tuner = tune.Tuner.restore(path, fails_for_one, resume_unfinished=False, resume_errored=True, load_user_code=True)
    assert [result.metrics["step"] for result in tuner.fit() if result.config["a"] == 1] == [4]
    assert [result.trial.status for result in tuner.get_results()] == ["TERMINATED", "RUNNING"]


class ForgetfulWithoutBase:
    """As little as a searcher can be."""

    def set_search_properties(self, metric, mode, config, **spec):
        return True

    is_exhaustive = False
    on_trial_result = on_trial_complete = lambda self, *arguments, **more: None

    def suggest(self, trial_id):
        return {"rate": 1.0}


@pytest.mark.parametrize(
    "make", [Forgetful, ForgetfulWithoutBase, lambda: searchers.ConcurrencyLimiter(Forgetful(), 1)]
)
def test_a_searcher_without_state_is_said_to_begin_anew(run, caplog, make):
    settings = {"name": "x", "stop": {"training_iteration": 1}}
    run(Climber, search_alg=make(), num_samples=2, **settings)
    assert "starts from scratch" not in caplog.text
    trials = run(Climber, search_alg=make(), num_samples=3, resume=True, **settings).trials
    assert len(trials) == 3 and caplog.text.count("starts from scratch") == 1
    assert "Forgetful" in caplog.text and "FIFO" not in caplog.text


# ---------------------------------------------------------------------- what is another experiment


@pytest.mark.parametrize("resume", [True, "AUTO+ERRORED"])
def test_an_experiment_is_resumed_without_its_config(run, tmp_path, resume):
    """As it may be copied from elsewhere; its other settings come from it, too, unless they are given."""
    space = {"rate": tune.grid_search([1.0, 2.0])}
    run(Climber, config=space, stop={"training_iteration": 3}, name="x", metric="height", mode="max", checkpoint_freq=1)
    (tmp_path / "x").rename(tmp_path / "moved")
    again = run(Climber, name="moved", resume=resume)
    assert [trial.config["rate"] for trial in again.trials] == [1.0, 2.0] and again.best_config == {"rate": 2.0}
    more = run(Climber, name="moved", resume=resume, num_samples=2, metric="rate", mode="min")
    assert [trial.last_result["height"] for trial in more.trials] == [3.0, 6.0, 3.0, 6.0]
    assert more.best_config == {"rate": 1.0}
    with pytest.raises(ValueError, match="its configuration has rate, not nothing"):
        run(Climber, name="moved", resume=resume, config={})


def test_a_resumed_experiment_with_another_searcher_says_so(run):
    pytest.importorskip("optuna")
    settings = {"name": "x", "config": {"rate": tune.uniform(0, 1)}, "stop": {"training_iteration": 1},
                "metric": "height", "mode": "max"}  # fmt: skip
    run(Climber, search_alg="optuna", **settings)
    run(Climber, resume=True, **settings)  # the saved one
    with pytest.raises(ValueError, match="search_alg of kind OptunaSearch, and cannot continue with BasicVariant"):
        run(Climber, resume=True, search_alg="random", **settings)
    with pytest.raises(ValueError, match="scheduler of kind FIFOScheduler, and cannot continue with AsyncHyperBand"):
        run(Climber, resume=True, search_alg="optuna", scheduler="asha", **settings)


def test_a_resumed_space_with_other_values_is_refused(run):
    settings = {"name": "x", "stop": {"training_iteration": 1}}
    run(Climber, config={"rate": tune.uniform(0, 1), "layers": [8, 8]}, **settings)
    with pytest.raises(ValueError, match=r"experiment: its rate was 'uniform\(0.0, 1.0\)', and is .*2.0\)' now"):
        run(Climber, resume=True, config={"rate": tune.uniform(0, 2), "layers": [8, 8]}, **settings)
    with pytest.raises(ValueError, match=r"its layers was \[8, 8\], and is \[8, 16\] now"):
        run(Climber, resume=True, config={"rate": tune.uniform(0, 1), "layers": [8, 16]}, **settings)


def test_a_resumed_experiment_is_extended_by_num_samples(run):
    settings = {"name": "x", "stop": {"training_iteration": 1}, "config": {"rate": tune.grid_search([1.0, 2.0])}}
    first = run(Climber, **settings)
    trials = run(Climber, resume=True, num_samples=2, **settings).trials
    assert [trial.config["rate"] for trial in trials] == [1.0, 2.0, 1.0, 2.0]
    assert [trial.trial_id for trial in trials[:2]] == [trial.trial_id for trial in first.trials]


class Doubled:
    def __call__(self, spec):
        return 2 * spec.config.lr


def space(**more):
    return {
        "lr": tune.loguniform(1e-4, 1e-1),
        "model": {"layers": tune.choice([[8], [8, 8]]), "size": tune.sample_from(lambda spec: 2)},
        "doubled": tune.sample_from(Doubled()),
        "env": Climber,
        "seed": tune.grid_search([1, 2]),
        **more,
    }


def test_equal_spaces_have_no_difference():
    before, now = space(), space()  # both alive, so that no two objects have one address
    assert difference(described(before), described(now)) is None


@pytest.mark.parametrize(
    "other, path",
    [
        ({"lr": tune.uniform(1e-4, 1e-1)}, "lr"),
        ({"lr": 0.1}, "lr"),
        ({"model": {"layers": tune.choice([[8], [8, 9]]), "size": tune.sample_from(lambda spec: 2)}}, "model/layers"),
        ({"model": {"layers": 1}}, "its model has"),
        ({"env": BreaksOff}, "env"),
        ({"seed": tune.grid_search([1, 2, 3])}, "seed/grid_search"),
        ({"more": float("nan")}, "configuration has"),
    ],
)
def test_spaces_that_differ_in_a_value(other, path):
    assert path in difference(described(space()), described(space(**other)))


def test_a_program_that_ends_before_the_first_record_leaves_no_experiment(run, tmp_path):
    """As on a full disk, or after kill -9: the same call with resume="AUTO" starts the search later."""
    search = {"name": "x", "config": {"rate": 1.0}, "stop": {"training_iteration": 1}, "resume": "AUTO"}
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))  # no file may grow
    try:
        with pytest.raises(OSError, match="File too large"):
            run(Climber, **search)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    (trial,) = run(Climber, **search).trials
    assert trial.status == "TERMINATED" and Path(trial.logdir).parent == tmp_path / "x"
