"""Bad input: messages that help, and the results of the other trials."""

import errno
import json
import os
import random
from pathlib import Path
from types import SimpleNamespace

import pytest

from rllib import PPO, Algorithm, PPOConfig, tune
from rllib.errors import TuneError
from rllib.policies import PolicySpec
from rllib.tune.experiment.spec import ExperimentSpec, settings_in
from rllib.tune.reporting.analysis import ExperimentAnalysis
from rllib.tune.running.build import check_spec
from rllib.tune.schedulers import PB2, PopulationBasedTraining, PopulationBasedTrainingReplay, create_scheduler
from rllib.tune.search.base import Searcher
from rllib.tune.trainables.resolve import resolve_trainable

pytestmark = pytest.mark.usefixtures("two_cpus")


def reports(config):
    for i in range(3):
        tune.report(loss=config["a"] * (i + 1))


SPACE = {"a": tune.grid_search([1.0, 2.0, 3.0])}


@pytest.mark.parametrize(
    "trainable, settings, error, message",
    [
        ("PPPO", {}, ValueError, r"no trainable 'PPPO'.*Did you mean 'PPO'"),
        (3, {}, TypeError, r"3"),
        (dict, {}, TypeError, r"the class dict cannot be run.*Derive it from tune.Trainable"),
        (Algorithm, {}, TypeError, r"the class Algorithm cannot be run.*a base of algorithms without training_step"),
        (reports, {"scheduler": "ashaa"}, ValueError, r"ashaa.*asha"),
        (reports, {"search_alg": "optunaa"}, ValueError, r"optunaa.*optuna"),
        (reports, {"metric": "loss", "mode": "least"}, ValueError, r"'max' or 'min'|\"max\" or \"min\".*'least'"),
        (reports, {"metric": "loss", "scheduler": "asha"}, ValueError, r"mode is missing.*mode='max'"),
        (reports, {"scheduler": "asha"}, ValueError, r"metric and mode is missing"),
        (reports, {"config": {"a": {"grid_search": []}}}, ValueError, r"a: .*draws nothing"),
        (reports, {"config": {"a": tune.uniform(0, 1)}, "num_samples": 0}, ValueError, r"num_samples.*0"),
        (reports, {"config": [1]}, TypeError, r"config must be a dict.*\[1\]"),
        (reports, {"config": {"a": 1}, "stop": 5}, TypeError, r"stop must be a dict.*5"),
        (reports, {"config": {"a": 1}, "stop": {"loss": "low"}}, ValueError, r"loss needs a number.*'low'"),
        (reports, {"config": {"a": 1}, "time_budget_s": -1}, ValueError, r"time_budget_s.*> 0.*-1"),
        (reports, {"config": {"a": 1}, "time_budget_s": "1h"}, ValueError, r"time_budget_s.*or a timedelta.*'1h'"),
        (reports, {"config": {"a": 1}, "max_failures": 1.5}, ValueError, r"max_failures.*whole number.*1.5"),
        (reports, {"config": {"a": 1}, "checkpoint_freq": 1}, ValueError, r"is a function, which saves its own"),
        (reports, {"config": {"a": 1}, "resume": "YES"}, ValueError, r"resume must be one of.*'YES'"),
        (reports, {"config": {"a": 1}, "name": "../elsewhere"}, ValueError, r"'\.\./elsewhere' would lie outside of"),
        (reports, {"config": {"a": 1}, "name": "/root/elsewhere"}, ValueError, r"'/root/elsewhere' would lie outside"),
        (reports, {"config": {"a": 1}, "stop": lambda result: True}, TypeError, r"trial_id and result.*\(result\)"),
        (reports, {"config": {"a": 1}, "stop": [dict, lambda: 1]}, TypeError, r"trial_id and result"),
        (reports, {"config": {"a": 1}, "callbacks": [3]}, TypeError, r"list of objects.*3, which has no setup"),
        (reports, {"config": {"a": 1}, "callbacks": tune.Callback()}, TypeError, r"list of objects.*Callback object"),
        (reports, {"config": {"a": 1}, "callbacks": [tune.Callback]}, TypeError, r"the class Callback. Use Callback\("),
        (reports, {"config": {"a": 1}, "metrics": "loss"}, TypeError, r"'metrics'.*Did you mean metric"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_before_anything_starts(run, tmp_path, trainable, settings, error, message):
    with pytest.raises(error, match=message):
        run(trainable, **settings)
    assert not list(tmp_path.iterdir()), "a directory was left behind"


def test_a_trials_directory_stays_in_the_experiments(run, tmp_path):
    with pytest.raises(ValueError, match=r"a trial's directory '\.\./elsewhere' would lie outside of"):
        run(reports, config={"a": 1}, name="inside", trial_dirname_creator=lambda trial: "../elsewhere")
    assert [path.name for path in tmp_path.iterdir()] == ["inside"]


@pytest.mark.parametrize("config, error, message", [
    ({"num_worker": 1}, TypeError, r"'num_worker'.*num_workers"),
    ({"num_worker": tune.grid_search([0, 1])}, TypeError, r"'num_worker'.*num_workers"),
    ({"lr": "abc"}, ValueError, r"lr='abc' must be a number"),
    ({"lr": "abc", "gamma": tune.uniform(0.9, 1)}, ValueError, r"lr='abc' must be a number"),
    ({"train_batch_size": 10, "lr": tune.uniform(0, 1)}, ValueError, r"sgd_minibatch_size=128 must be at most train_b"),
])  # fmt: skip
def test_settings_of_an_algorithm_that_no_trial_can_have(run, tmp_path, config, error, message):
    with pytest.raises(error, match=message):
        run("PPO", config={"env": "CartPole-v1", **config})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("settings, is_told", [
    ({"num_samples": 2}, True),
    ({"num_samples": 2, "config": {"lr": tune.grid_search([1, 2])}}, True),
    ({"num_samples": 2, "config": {"lr": tune.uniform(0, 1)}}, False),
    ({"config": {"seed": tune.grid_search([1, 2])}}, False),
    ({"num_samples": 2, "scheduler": "pbt"}, False),
    ({"num_samples": 2, "num_seeds": 3}, True),
    ({"num_samples": 2, "num_seeds": 3, "config": {"seed": None}}, True),
    ({"num_samples": 2, "config": {"seed": None}}, False),
    ({}, False),
])  # fmt: skip
def test_trials_that_would_repeat_one_another_are_told(caplog, settings, is_told):
    config = {"env": "CartPole-v1", "seed": 3, **settings.pop("config", {})}
    check_spec(ExperimentSpec(trainable="PPO", config=config, **settings), resolve_trainable("PPO"))
    assert ("num_samples=2 runs the same trials again" in caplog.text) == is_told


@pytest.mark.parametrize("config", [
    {"train_batch_size": 10, "sgd_minibatch_size": tune.grid_search([5, 10])},
    {"timesteps_per_batch": tune.grid_search([300, 600]), "num_sgd_iter": 1},
    {"training": {"train_batch_size": tune.grid_search([300, 600])}},
    {"num_workers": tune.grid_search([0]), "model": {"fcnet_hiddens": tune.grid_search([[8], [16]])}},
])  # fmt: skip
def test_settings_that_a_search_draws_are_not_judged_before(config):
    config = {"env": "CartPole-v1", "num_workers": 0, **config}
    check_spec(ExperimentSpec(trainable="PPO", config=config), resolve_trainable("PPO"))


class OwnConfig(PPOConfig):
    def __init__(self, algo_class=None):
        super().__init__(algo_class=algo_class or OwnPPO)
        self.own_setting = 3


class OwnPPO(PPO):
    @classmethod
    def get_default_config(cls):
        return OwnConfig(algo_class=cls)


def test_settings_are_those_of_the_default_config_of_an_algorithm():
    """Also where a class of a program gives it by get_default_config, as RLlib's do."""
    config = OwnConfig().environment("CartPole-v1").training(own_setting=7).to_dict()
    check_spec(ExperimentSpec(trainable=OwnPPO, config=config), resolve_trainable(OwnPPO))
    with pytest.raises(TypeError, match="own_settin"):
        wrong = {"env": "CartPole-v1", "own_settin": 7}
        check_spec(ExperimentSpec(trainable=OwnPPO, config=wrong), resolve_trainable(OwnPPO))


@pytest.mark.parametrize("name", ["lambda", "lambda_"])
@pytest.mark.parametrize(
    "place, is_bounded",
    [
        (lambda given: given, True),
        (lambda given: {"training": given}, True),
        (lambda given: {"policies": {"gamma": given}}, True),
        (lambda given: {"multi_agent": {"policies": {"p0": given}}}, True),
        (lambda given: {"env_config": given}, False),  # the environment's own
    ],
)
def test_a_scheduler_keeps_a_setting_within_its_bounds(name, place, is_bounded):
    mutations = place({name: lambda: 0.95})
    scheduler = PopulationBasedTraining(
        metric="loss", mode="min", hyperparam_mutations=mutations, resample_probability=0, perturbation_factors=[1.2]
    )
    config = {"env": "CartPole-v1", **place({name: 0.95})}
    check_spec(ExperimentSpec(trainable="PPO", config=config, scheduler=scheduler), resolve_trainable("PPO"))
    explored, _ = scheduler._explored(None, SimpleNamespace(config=config), None, random.Random(0))
    assert explored == {"env": "CartPole-v1", **place({name: 1 if is_bounded else 0.95 * 1.2})}


@pytest.mark.parametrize("space, message", [
    (SPACE, r"a is a grid_search, which only the default search .* Use tune.choice"),
    ({"a": 1.0}, r"nothing to search"),
])  # fmt: skip
def test_a_space_that_an_optimiser_cannot_search(run, tmp_path, space, message):
    pytest.importorskip("optuna")
    with pytest.raises(ValueError, match=message):
        run(reports, config=space, search_alg="optuna", metric="loss", mode="min")
    assert not list(tmp_path.iterdir())


class DrawsNothing(Searcher):
    needs_metric = False

    def suggest(self, trial_id):
        return self.FINISHED


def test_a_search_that_draws_nothing_says_so(run, caplog):
    assert run(reports, config={"a": tune.uniform(0, 1)}, search_alg=DrawsNothing()).trials == []
    assert "DrawsNothing suggested no configuration, so there are no trials" in caplog.text


def test_a_mode_that_is_missing_is_max_where_nothing_was_searched_by_it(run):
    analysis = run(reports, config=SPACE, metric="loss")
    assert analysis.best_config == {"a": 3.0}
    assert analysis.get_best_trial("loss", "min").config == {"a": 1.0}


def for_ever(config):
    while True:
        tune.report(loss=1.0)


@pytest.mark.parametrize("names", [{"metric": "lose"}, {"stop": {"lose": 1}}])
def test_a_key_that_no_result_has_ends_the_experiment_at_the_first(run, names):
    with pytest.raises(ValueError, match=r"the results have no lose. Did you mean loss\? They have: .*\bloss\b"):
        run(for_ever, config=SPACE, **names)


@pytest.mark.parametrize("names, what", [
    ({"metric": "env_runner/episode_return_mean"}, "metric"),
    ({"stop": {"env_runner/episode_return_mean": 1}}, "stop"),
    ({"checkpoint_score_attr": "min-env_runner/episode_return_mean", "keep_checkpoints_num": 1}, "checkpoint_score"),
])  # fmt: skip
def test_a_key_that_no_algorithm_reports_is_refused_before_anything_starts(run, tmp_path, names, what):
    with pytest.raises(ValueError, match=rf"^{what}.*no result has 'env_runner/epi.*Did you mean env_runners"):
        run("PPO", config={"env": "CartPole-v1"}, **names)
    assert not list(tmp_path.iterdir())


def test_a_metric_of_a_wrong_type_fails_its_trial_alone(run):
    how = tune.grid_search(["a word", 2.0])
    analysis = run(lambda config: {"score": config["how"]}, config={"how": how}, stop={"score": 1.0}, metric="score",
                   raise_on_failed_trial=False)  # fmt: skip
    assert [trial.status for trial in analysis.trials] == ["ERROR", "TERMINATED"]
    assert "must be a number in the results, but it is 'a word'" in analysis.trials[0].error
    assert analysis.best_config == {"how": 2.0}


def test_nan_is_reported_and_never_wins(run):
    nan = float("nan")
    analysis = run(
        lambda config: [tune.report(loss=value) for value in config["a"]] and None,
        config={"a": tune.grid_search([[nan, nan], [2.0, nan], [1.0, 3.0]])}, metric="loss", mode="min",
    )  # fmt: skip
    assert [trial.status for trial in analysis.trials] == ["TERMINATED"] * 3
    assert analysis.best_trial is analysis.trials[2]
    assert analysis.get_best_trial("loss", "min", scope="all") is analysis.trials[2]
    later = run(
        lambda config: [tune.report(loss=loss) for loss in config["a"]] and None, scheduler="asha", mode="min",
        config={"a": tune.grid_search([[2.0] * 4, [nan, nan, 1.0, 1.0], [nan, 3.0, 3.0]])}, metric="loss",
        max_concurrent_trials=1,
    ).trials  # fmt: skip
    assert [trial.last_result["training_iteration"] for trial in later] == [4, 4, 2]
    assert later[2].stopped_by == "the scheduler"


def goes_wrong(config):
    tune.report(loss=1.0)
    if config["how"] == "raises":
        raise ZeroDivisionError("of my own")
    if config["how"] == "is killed":
        os.kill(os.getpid(), 9)
    if config["how"] == "exits":
        os._exit(3)
    if config["how"] == "reports nonsense":
        return "nonsense"
    tune.report(loss=2.0)


def test_whatever_a_trial_does_the_others_results_are_kept(run):
    hows = ["raises", "is killed", "exits", "reports nonsense", "is well"]
    analysis = run(goes_wrong, config={"how": tune.grid_search(hows)}, raise_on_failed_trial=False)
    trials = dict(zip(hows, analysis.trials))
    assert {how for how in hows if trials[how].status == "ERROR"} == set(hows) - {"is well"}
    assert all(len(analysis.trial_dataframes[trial.logdir]) >= 1 for trial in analysis.trials)
    assert "ZeroDivisionError: of my own" in trials["raises"].error
    assert "SIGKILL" in trials["is killed"].error and "3" in trials["exits"].error
    assert "returned 'nonsense'" in trials["reports nonsense"].error
    assert trials["is well"].last_result["loss"] == 2.0 and trials["is well"].stopped_by is None


class Something:
    """No value of any setting."""


_WRONG = {
    "number": 1.5, "negative": -1, "word": "a word", "list": [1], "dict": {"a": {"b": 1}}, "object": Something(),
    "class": Something, "function": lambda *arguments: None, "bytes": b"x", "infinite": float("inf"), "empty": "",
}  # fmt: skip
# Setting -> wrong values of these kinds that it takes.
_TAKES = {
    "metric": {"word"}, "num_samples": {"negative"}, "time_budget_s": {"number"},
    "trial_name_creator": {"function"}, "trial_dirname_creator": {"function"}, "name": {"word", "empty"},
    "stop": {"function", "dict"}, "log_to_file": {"word", "empty"}, "config": {"dict"},
    "resources_per_trial": {"function"}, "checkpoint_score_attr": {"word", "empty"}, "max_failures": {"negative"},
    "restore": {"empty"}, "storage_path": {"word", "empty"}, "local_dir": {"word", "empty"},
    "search_alg": {"empty"}, "scheduler": {"empty"},
}  # fmt: skip
_OF_OTHER_TESTS = {"trainable", "verbose", "progress_reporter", "storage_path", "local_dir", "sync_config"}


@pytest.mark.parametrize(
    "setting", [one.name for one in settings_in(ExperimentSpec) if one.name not in _OF_OTHER_TESTS]
)
def test_values_of_a_wrong_kind_are_refused_before_anything_starts(run, tmp_path, setting):
    for kind in _WRONG.keys() - _TAKES.get(setting, set()):
        settings = {"config": {"a": 1}, "stop": {"training_iteration": 1}, setting: _WRONG[kind]}
        with pytest.raises((TypeError, ValueError)) as refused:
            run(CannotBeSaved, **settings)
        assert not list(tmp_path.iterdir()), (setting, kind, refused.value)


# ---------------------------------------------------------------------- a full disk


def name_of(trial):
    return f"trial_{trial.index}"


def full(path):
    """Whoever writes there finds the disk full."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to("/dev/full")


@pytest.mark.parametrize("file", [".params.json.tmp", ".params.pkl.tmp", "result.json"])
def test_a_full_disk_keeps_what_there_is_and_can_be_resumed(run, tmp_path, file):
    def with_full_disk(trial):
        if trial.index == 2:
            full(trial.experiment_dir / "trial_2" / file)
        return name_of(trial)

    settings = {"name": "full", "config": SPACE, "max_concurrent_trials": 1}
    with pytest.raises(TuneError, match=r"the disk is full.*Make room.*resume=True") as caught:
        run(reports, trial_dirname_creator=with_full_disk, **settings)
    assert caught.value.__cause__.errno == errno.ENOSPC
    (tmp_path / "full/trial_2" / file).unlink(missing_ok=True)
    analysis = run(reports, trial_dirname_creator=name_of, resume=True, **settings)
    assert [trial.last_result["loss"] for trial in analysis.trials] == [3, 6, 9]
    assert [len(analysis.trial_dataframes[trial.logdir]) for trial in analysis.trials] == [3, 3, 3]


def test_a_full_disk_under_the_state_of_the_search(run, tmp_path, monkeypatch):
    monkeypatch.setattr("rllib.tune.experiment.directory._SNAPSHOT_SHARE", 0)

    class FillsTheDisk(tune.Callback):
        def on_trial_complete(self, iteration, trials, trial, **info):
            full(tmp_path / "full" / ".search_state.json.tmp")

    settings = {"name": "full", "config": SPACE, "max_concurrent_trials": 1}
    with pytest.raises(TuneError, match=r"the disk is full.*1 of its trials"):
        run(reports, callbacks=[FillsTheDisk()], **settings)
    assert not (tmp_path / "full/.search_state.json.tmp").exists()
    analysis = run(reports, resume=True, **settings)
    assert [trial.last_result["loss"] for trial in analysis.trials] == [3, 6, 9]


@pytest.mark.parametrize("is_resumed", [False, True])
def test_a_full_disk_at_the_first_write_ends_in_the_same_words(run, tmp_path, monkeypatch, is_resumed):
    settings = {"name": "full", "config": SPACE, "resume": is_resumed}
    if is_resumed:
        run(reports, **{**settings, "resume": False})

    def no_room(*arguments):
        raise OSError(errno.ENOSPC, "No space left on device", str(tmp_path / "full" / "a"))

    with monkeypatch.context() as patched:
        patched.setattr("rllib.tune.experiment.directory.write_whole", no_room)
        patched.setattr("rllib.tune.experiment.directory.ExperimentDirectory.note_settings", no_room)
        with pytest.raises(
            TuneError, match=r"experiment in .*full cannot.*the disk is full\. Make room, then"
        ) as caught:
            run(reports, **settings)
    assert ("resume=True" in str(caught.value)) == is_resumed
    run(reports, **settings)
    assert [path.name for path in tmp_path.iterdir()] == ["full"]


class CannotBeSaved(tune.Trainable):
    def step(self):
        return {"loss": self.config["a"]}

    def save_checkpoint(self, directory):
        with open("/dev/full" if self.config["a"] == 2 else Path(directory, "x"), "w") as file:
            file.write("x")


def test_a_checkpoint_on_a_full_disk_fails_its_trial_only(run, tmp_path):
    with pytest.raises(TuneError, match=r"1 of 3 trials failed.*(?s:.*)No space left on device"):
        run(CannotBeSaved, config=SPACE, name="x", stop={"training_iteration": 2}, checkpoint_freq=1)
    trials = ExperimentAnalysis(tmp_path / "x").trials
    assert [trial.status for trial in trials] == ["TERMINATED", "ERROR", "TERMINATED"]
    assert not list(Path(trials[1].logdir).glob("*checkpoint*")), "half a checkpoint was left behind"


# ---------------------------------------------------------------------- directories


def test_the_directory_of_another_experiment_is_left_alone(run, tmp_path):
    run(reports, name="mine", config=SPACE)
    before = {path: path.read_bytes() for path in (tmp_path / "mine").rglob("*") if path.is_file()}
    with pytest.raises(ValueError, match=r"another experiment: it ran reports, not goes_wrong. Give this one another"):
        run(goes_wrong, name="mine", config={"how": "is well"}, resume=True)
    with pytest.raises(ValueError, match=r"another experiment: its configuration has a, not b"):
        run(reports, name="mine", config={"b": 1.0}, resume=True)
    assert {path: path.read_bytes() for path in (tmp_path / "mine").rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("content, message", [
    (b"not even JSON\n", "is damaged"),
    (b'{"type": "something"}\n', "is not the journal of an experiment"),
    (b'{"type": "experiment", "format": 99}\n', "format 99"),
])  # fmt: skip
def test_a_journal_that_is_none(run, tmp_path, content, message):
    (tmp_path / "x").mkdir()
    (tmp_path / "x/experiment_state-2020-01-01_00-00-00.json").write_bytes(content)
    with pytest.raises(ValueError, match=message):
        run(reports, name="x", config=SPACE, resume=True)


class LosesItsFile(tune.Callback):
    """Fails as a callback of a user does whose network drive is gone."""

    def __init__(self, error):
        self.error = error

    def on_trial_result(self, **info):
        raise self.error


@pytest.mark.parametrize(
    "error",
    [OSError("the tracking server is away"), OSError(errno.ENOSPC, "No space left on device"), ConnectionError("away")],
    ids=["plain", "their disk is full", "connection"],
)
def test_an_oserror_of_a_callback_is_not_called_a_full_disk(run, error):
    with pytest.raises(type(error)) as caught:
        run(reports, config={"a": 1.0}, callbacks=[LosesItsFile(error)])
    assert caught.value is error
    assert caught.value.__notes__ == ["raised in LosesItsFile.on_trial_result, a callback of the experiment"]


@pytest.mark.parametrize(
    "error", [OSError("the tracking server is away"), FileNotFoundError(errno.ENOENT, "nothing", "/no/such/file")]
)
def test_an_oserror_of_a_stop_function_is_its_own(run, error):
    def stop(trial_id, result):
        raise error

    with pytest.raises(type(error)) as caught:
        run(reports, config={"a": 1.0}, stop=stop)
    assert caught.value is error


@pytest.mark.parametrize(
    ("space", "message"),
    [
        ({"lr": tune.grid_search([1e-3, "x"])}, r"search space has lr='x'"),
        ({"lr": tune.choice([1e-3, -1.0])}, r"search space has lr=-1.0"),
        ({"sgd_stepsize": tune.grid_search([1e-3, "x"])}, r"search space has sgd_stepsize='x'"),
        ({"train_batch_size": 10, "sgd_minibatch_size": tune.grid_search([5, 20])}, r"has sgd_minibatch_size=20"),
        ({"model": {"fcnet_hiddens": tune.grid_search([[8], "x"]), "fcnet_activation": tune.choice(["relu"])}},
         r"search space has model=\{'fcnet_hiddens': 'x'"),
        ({"training": {"lr": tune.grid_search([1e-3, "x"]), "gamma": tune.choice([0.9])}}, r"has training=\{'lr': 'x'"),
    ],
)  # fmt: skip
def test_each_value_of_a_grid_is_checked_before_the_first_trial(space, message):
    settings = {"trainable": "PPO", "config": {"env": "CartPole-v1", "gamma": tune.uniform(0.9, 1), **space}}
    if "training" in space:
        del settings["config"]["gamma"]
    with pytest.raises((TypeError, ValueError), match=message):
        check_spec(ExperimentSpec(**settings), resolve_trainable("PPO"))


@pytest.mark.parametrize(
    ("space", "message"),
    [
        ({"lr": tune.uniform(-1, 0)}, r"search space has lr=-0.9"),
        ({"clip_param": tune.uniform(0, 1)}, None),  # which draws 0 with probability 0
        ({"lr": tune.loguniform(1e-5, 1)}, None),
        ({"lr": tune.randn(1e-3, 1e-4)}, None),  # may be negative
        ({"clip_param": tune.quniform(0, 1, 0.1)}, r"search space has clip_param=0.0"),
        ({"num_sgd_iter": tune.randint(0, 9)}, r"search space has num_sgd_iter=0"),
        ({"num_sgd_iter": tune.uniform(1, 9)}, r"search space has num_sgd_iter=1.0"),
        ({"train_batch_size": 100, "sgd_minibatch_size": tune.randint(10, 200)}, "has sgd_minibatch_size=199"),
        ({"train_batch_size": tune.randint(50, 500), "sgd_minibatch_size": tune.randint(10, 200)}, None),
        ({"model": {"fcnet_hiddens": [tune.randint(-2, 0)]}}, r"search space has model=\{'fcnet_hiddens': \[-2\]"),
    ],
)
def test_the_ends_of_a_range_are_checked_before_the_first_trial(space, message):
    _checks({"config": space}, message)


def _checks(settings, message, trainable="PPO"):
    settings = {**settings, "config": {"env": "CartPole-v1", **settings.get("config", {})}}
    if message is None:
        check_spec(ExperimentSpec(trainable=trainable, **settings), resolve_trainable(trainable))
        return
    with pytest.raises((TypeError, ValueError), match=message):
        check_spec(ExperimentSpec(trainable=trainable, **settings), resolve_trainable(trainable))


_MUTATIONS = [
    ({"lr": [1e-3, -1.0]}, "{} has lr=-1.0"),
    ({"lr": [1e-3, 1e-4], "sgd_stepsize": (1e-3, "x")}, "{} has sgd_stepsize='x'"),
    ({"learning_rte": [1e-3]}, "{}: .*learning_rte"),
    ({"nothing_of_ppo": lambda: 1}, "{}: .*nothing_of_ppo"),
    ({"lr": tune.uniform(-1, 1)}, "{} has lr=-0.99"),
    ({"lr": lambda: -1.0}, None),  # what a function returns is known when it is called
    ({"num_sgd_iter": tune.uniform(1, 9)}, "{} has num_sgd_iter=1.0"),
    ({"model": {"fcnet_hiddens": [[8], "x"]}}, r"{} has model=\{{'fcnet_hiddens': 'x'"),
    ({"model": {"nothing": [1]}}, "{}.*nothing"),
    ({"training": {"lr": [-1.0]}}, r"{} has training=\{{'lr': -1.0"),
    ({"sgd_minibatch_size": [8, 64]}, None),  # both below train_batch_size=200, and the default is not used
    ({"sgd_minibatch_size": [8, 640]}, "{} has sgd_minibatch_size=640"),
    ({"sgd_minibatch_size": [8, 640], "train_batch_size": [100, 700]}, None),
    ({"lambda": [0.9, 1.0], "gamma": [0.9, 1.5]}, "{} has gamma=1.5"),
]


@pytest.mark.parametrize(("mutations", "message"), _MUTATIONS)
def test_mutations_are_checked_before_the_first_trial(mutations, message):
    scheduler = PopulationBasedTraining(hyperparam_mutations=mutations)
    _checks(
        {"config": {"train_batch_size": 200}, "scheduler": scheduler},
        message and message.format("hyperparam_mutations"),
    )


def test_what_is_searched_and_changed_has_no_default():
    """Other values are not looked at with the default of a setting that the space draws and the scheduler changes."""
    sizes = [8, 64]  # below the batch, and the default is not
    scheduler = PopulationBasedTraining(hyperparam_mutations={"sgd_minibatch_size": sizes, "lr": [1e-3, 1e-4]})
    searched = {"sgd_minibatch_size": tune.grid_search(sizes), "lr": tune.grid_search([1e-3, 1e-4])}
    _checks({"config": {"train_batch_size": 100, **searched}, "scheduler": scheduler}, None)


@pytest.mark.parametrize(
    ("scheduler", "message"),
    [
        (lambda: PopulationBasedTraining(hyperparam_mutations={"teacher": ["a", "b"]}), "would change teacher,"),
        (lambda: PopulationBasedTraining(hyperparam_mutations={"training": {"teacher": ["a", "b"]}}), "would change"),
        (lambda: PopulationBasedTraining(hyperparam_mutations={"teacher": lambda: "a"}), "would change teacher,"),
        (lambda: PopulationBasedTraining(hyperparam_mutations={"teacher_coeff": [0.5, 1.0]}), None),
        (lambda: "pbt", None),
    ],
)
def test_a_population_leaves_teachers_as_they_are(scheduler, message):
    space = {"teacher": tune.grid_search(["a", "b"]), "teacher_coeff": tune.uniform(0.1, 1)}
    _checks({"config": space, "scheduler": scheduler()}, message)
    _checks({"config": {"training": space}, "scheduler": scheduler()}, message)


def _of_policies(own):
    return {"policies": {"teacher": own, "p": {}}}


@pytest.mark.parametrize("where", [dict, lambda own: {"multi_agent": own}], ids=["flat", "section"])
@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (_of_policies({"teacher": ["a", "b"]}), "would change teacher,"),
        (_of_policies({"teacher": tune.choice(["a", "b"])}), "would change teacher,"),
        (_of_policies({"teacher": ["a"]}), None),
        (_of_policies({"teacher_coeff": [0.5, 1.0]}), None),
        ({"policies": [_of_policies({"teacher": each})["policies"] for each in "ab"]}, "would change teacher,"),
        ({"policies": [{"teacher": PolicySpec(config={"teacher": each})} for each in "ab"]}, "would change teacher,"),
        ({"policies": [{"teacher": {"teacher": "a", "lr": each}} for each in (1e-3, 1e-4)]}, None),
        ("pbt", None),
    ],
)
def test_a_population_leaves_teachers_of_policies_as_they_are(changed, where, message):
    """Whatever the policies are called."""
    own = {"teacher": "a", "teacher_coeff": tune.uniform(0.1, 1)}
    if changed == "pbt":
        own |= {"teacher": tune.grid_search(["a", "b"]), "model": tune.grid_search([{"use_lstm": True}, {}])}
        scheduler = changed
    else:
        scheduler = PopulationBasedTraining(hyperparam_mutations=where(changed))
    _checks({"config": where(_of_policies(own)), "scheduler": scheduler}, message)


def test_what_pbt_changes_of_policies():
    own = {"teacher": tune.choice(["a", "b"]), "model": tune.choice([{}]), "lr": tune.uniform(0.1, 1)}
    space = {**_of_policies(own), "training": {"teacher": tune.choice(["a"]), "gamma": tune.uniform(0.9, 1)}}
    scheduler = create_scheduler("pbt", space=space)
    assert scheduler.changes(space) == {
        "policies": {"teacher": {"lr": own["lr"]}},
        "training": {"gamma": space["training"]["gamma"]},
    }


def test_what_is_searched_of_a_policy_may_be_its_teacher():
    """Nor is it missed, where the algorithm learns from nothing else."""
    own = {"teacher": tune.grid_search(["a", "b"])}
    for space in (_of_policies(own), {"multi_agent": _of_policies(own)}):
        _checks({"config": space}, None, "Distillation")
    _checks({"config": {"lr": tune.grid_search([1e-3, 1e-4])}}, "there is none", "Distillation")


@pytest.mark.parametrize(
    ("bounds", "config", "message"),
    [
        ({"lr": [1e-5, 1e-3]}, {}, None),
        ({"lr": [-1.0, 1e-3]}, {}, "hyperparam_bounds has lr=-"),
        ({"clip_param": [0.0, 0.3]}, {}, None),
        ({"nothing": [0.0, 1.0]}, {}, "hyperparam_bounds: .*nothing"),
        ({"num_sgd_iter": [1, 8]}, {"num_sgd_iter": 2}, None),  # whole, as the configuration's
        ({"num_sgd_iter": [1, 8]}, {"num_sgd_iter": tune.randint(1, 8)}, None),
        ({"num_sgd_iter": [1, 8]}, {"num_sgd_iter": tune.grid_search([1, 8])}, None),
        ({"num_sgd_iter": [1, 8]}, {}, r"hyperparam_bounds has num_sgd_iter=1\.0"),
        ({"num_sgd_iter": tune.randint(0, 8)}, {"num_sgd_iter": 2}, "hyperparam_bounds has num_sgd_iter=0"),
    ],
)
def test_bounds_are_checked_before_the_first_trial(bounds, config, message):
    _checks({"config": config, "scheduler": PB2(hyperparam_bounds=bounds)}, message)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"lr": 1e-4}, None),
        ({"lr": -1.0}, "policy_file has lr=-1.0"),
        ({"teacher": "b"}, "policy_file would change teacher,"),
    ],
)
def test_what_is_replayed_is_checked_before_the_first_trial(tmp_path, changed, message):
    first = {"env": "CartPole-v1", "lr": 1e-3, "teacher": "a", "teacher_coeff": 1.0}
    (tmp_path / "policy.txt").write_text(json.dumps(["a", "b", 1, 1, first, {**first, **changed}, {}]))
    _checks({"scheduler": PopulationBasedTrainingReplay(tmp_path / "policy.txt")}, message)
