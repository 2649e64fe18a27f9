"""Names of Ray Tune beside those of the other tests: types, module paths, lists of experiments, studies of Optuna."""

import importlib
import logging

import numpy as np
import pytest
import yaml

from rllib import PPOConfig, tune
from rllib.tune.experiment.spec import make_spec
from rllib.tune.running import tuner
from rllib.tune.search import OptunaSearch
from rllib.tune.trainables.session import TrialContext


class Stepper(tune.Trainable):
    def step(self):
        return {"loss": self.config["x"], "done": True}


@pytest.mark.parametrize(
    ("path", "names"),
    [
        ("registry", ["register_env", "get_trainable_cls"]),
        ("logger", ["pretty_print", "LoggerCallback", "CSVLoggerCallback", "JsonLoggerCallback", "TBXLoggerCallback"]),
        ("stopper", ["NoopStopper", "MaximumIterationStopper", "TrialPlateauStopper", "CombinedStopper"]),
        ("callback", ["Callback"]),
        ("progress_reporter", ["CLIReporter"]),
        ("result_grid", ["ResultGrid"]),
        ("sample", ["uniform", "choice"]),
        ("search.optuna", ["OptunaSearch"]),
        ("search.bayesopt", ["BayesOptSearch"]),
        ("search.concurrency_limiter", ["ConcurrencyLimiter"]),
        ("search.searcher", ["Searcher"]),
        ("suggest", ["ConcurrencyLimiter", "Searcher"]),
        ("syncer", ["SyncConfig"]),
        ("trial", ["Trial"]),
    ],
)
def test_a_module_of_ray_tune_has_its_names(path, names):
    module = importlib.import_module(f"rllib.tune.{path}")
    assert [name for name in names if not hasattr(module, name)] == []


def test_a_list_of_experiments_is_run():
    analysis = tune.run(
        [tune.Experiment("first", Stepper, config={"x": 2.0}), tune.Experiment("second", Stepper, config={"x": 1.0})],
        metric="loss", mode="min", verbose=0,
    )  # fmt: skip
    assert len(analysis.trials) == 2 and analysis.best_config == {"x": 1.0}


# Settings of tune.run that an Experiment does not have in the test below, and values that are not the defaults.
GIVEN = {
    "metric": "loss", "mode": "min", "num_samples": 2, "stop": {"training_iteration": 1}, "verbose": 0,
    "scheduler": "asha", "search_alg": "optuna", "raise_on_failed_trial": False, "max_failures": 3,
    "checkpoint_freq": 4, "time_budget_s": 5.0, "max_concurrent_trials": 1, "resume": True, "local_dir": "somewhere",
    "name": "other", "num_seeds": 2, "fail_fast": True, "keep_checkpoints_num": 2,
}  # fmt: skip


@pytest.mark.parametrize("setting", GIVEN)
def test_a_setting_of_tune_run_holds_for_whatever_is_run(setting, monkeypatch):
    """For a trainable, an Experiment, a list of these, and those of run_experiments."""

    class Ran(Exception):
        def __init__(self, spec):
            self.spec = spec

    def run_spec(spec):
        raise Ran(spec)

    monkeypatch.setattr(tuner, "run_spec", run_spec)
    more, experiment = {setting: GIVEN[setting]}, tune.Experiment("first", Stepper, config={"x": 1.0})
    specs = []
    for run, given in ((tune.run, Stepper), (tune.run, experiment), (tune.run, [experiment])):
        with pytest.raises(Ran) as ran:
            run(given, **more)
        specs.append(ran.value.spec)
    with pytest.raises(Ran) as ran:
        tune.run_experiments({"first": {"run": Stepper, "config": {"x": 1.0}}}, **more)
    values = [getattr(spec, setting) for spec in (*specs, ran.value.spec)]
    assert all(value == values[0] for value in values), values
    assert specs[1].config == {"x": 1.0}, "what is not given again is the experiment's"


def test_a_config_object_is_a_search_space_wherever_a_dict_is():
    config = PPOConfig().environment("CartPole-v1").training(lr=tune.grid_search([1e-3, 1e-4]))
    specs = (
        make_spec({"trainable": "PPO", "config": config}, "tune.run"),
        tune.Experiment("first", "PPO", config=config).spec,
        tune.Experiment("first", "PPO", env="CartPole-v1", config=config).spec,
        tune.Tuner("PPO", param_space=config)._spec,
    )
    for spec in specs:
        assert spec.config == {"env": "CartPole-v1", "lr": {"grid_search": [1e-3, 1e-4]}}


def test_results_have_a_type():
    grid = tune.Tuner(Stepper, param_space={"x": 1.0}, run_config=tune.RunConfig(verbose=0)).fit()
    assert isinstance(grid[0], tune.Result)


@pytest.mark.parametrize(("at_end", "saved"), [(None, True), (False, False)])
def test_a_tuner_saves_algorithms_at_their_end(at_end, saved):
    """As Ray's does, whose programs go on with `best.checkpoint`."""
    config = PPOConfig().environment("CartPole-v1").rollouts(num_rollout_workers=0)
    config.training(train_batch_size=64, sgd_minibatch_size=32, num_sgd_iter=1)
    how = tune.RunConfig(
        stop={"training_iteration": 1}, verbose=0, checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=at_end)
    )
    (result,) = tune.Tuner("PPO", param_space=config, run_config=how).fit()
    assert (result.checkpoint is not None) == saved


def test_a_stopper_that_never_stops():
    assert not tune.NoopStopper()("trial", {"training_iteration": 1e9})


def test_settings_of_copies_are_accepted(caplog):
    with caplog.at_level(logging.INFO, "rllib"):
        run_config = tune.RunConfig(sync_config=tune.SyncConfig(sync_period=10), verbose=0)
    assert "sync_config has no effect here" in caplog.text
    assert len(tune.Tuner(Stepper, param_space={"x": 1.0}, run_config=run_config).fit()) == 1
    assert tune.RunConfig() == tune.RunConfig(sync_config=None)


@pytest.mark.parametrize(
    ("given", "resume"),
    [
        ({}, True),
        ({"errored": "RESUME"}, "AUTO+ERRORED"),
        ({"errored": tune.ResumeConfig.ResumeType.RESTART}, "RESTART_ERRORED"),
        ({"unfinished": "SKIP", "errored": "RESUME"}, "ERRORED_ONLY"),
    ],
)
def test_what_goes_on_in_rays_words(given, resume):
    assert tune.ResumeConfig(**given).resume == resume


def test_a_combination_that_cannot_go_on_is_refused():
    with pytest.raises(ValueError, match=r"ResumeConfig.*finished SKIP"):
        tune.ResumeConfig(finished="RESTART")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"resume_config": "AUTO"}, "resume_config must be a tune.ResumeConfig, but got 'AUTO'"),
        ({"upload_dir": "memory://a", "storage_path": "b"}, "Give storage_path alone"),
    ],
)
def test_words_of_ray_that_mean_nothing_are_refused(given, message):
    with pytest.raises(TypeError, match=message):
        tune.run(Stepper, config={"x": 1.0}, verbose=0, **given)


def test_a_resumed_experiment_takes_rays_words():
    tune.run(Stepper, config={"x": 1.0}, name="again", verbose=0)
    analysis = tune.run(
        Stepper, config={"x": 1.0}, name="again", resume=True, resume_config=tune.ResumeConfig(), verbose=0
    )
    assert len(analysis.trials) == 1


def test_a_result_is_printed_as_yaml():
    result = {"config": {"lr": 1}, "hist_stats": [1], "loss": np.float32(0.5), "nothing": None, "of": {"a": (1, "b")}}
    assert yaml.safe_load(tune.pretty_print(result)) == {"loss": 0.5, "of": {"a": [1, "b"]}}
    assert yaml.safe_load(tune.pretty_print(result, exclude=["of"])) == {"loss": 0.5}
    with (
        PPOConfig()
        .environment("CartPole-v1")
        .rollouts(num_rollout_workers=0, rollout_fragment_length=16)
        .training(train_batch_size=16, sgd_minibatch_size=16, num_sgd_iter=1)
        .build() as algo
    ):
        assert yaml.safe_load(tune.pretty_print(algo.train()))["training_iteration"] == 1


# ------------------------------------------------------------------ Optuna

SPACE = {"x": tune.uniform(0, 1)}


@pytest.fixture
def searched():
    pytest.importorskip("optuna")

    def search(points, rewards, mode="max", **more):
        found = OptunaSearch(SPACE, "score", mode, points_to_evaluate=points, evaluated_rewards=rewards, **more)
        found.set_search_properties("score", mode, {})
        return found

    return search


def test_points_with_known_rewards_are_learned_from_and_not_run(searched):
    search = searched([{"x": 0.25}, {"x": 0.75}], [1.0, 2.0], mode="min", seed=1)
    assert search.suggest("a")["x"] not in (0.25, 0.75)
    search.on_trial_complete("a", {"score": 3.0})
    assert [trial.value for trial in search._study.trials] == [1.0, 2.0, 3.0]
    restored = searched([{"x": 0.25}, {"x": 0.75}], [1.0, 2.0], mode="min", seed=1)
    restored.set_state(search.get_state())
    assert restored.suggest("b") == search.suggest("b")
    assert [trial.value for trial in restored._study.trials] == [1.0, 2.0, 3.0, None]


def test_rewards_have_to_belong_to_whole_points(searched):
    with pytest.raises(ValueError, match="needs one number for each of points_to_evaluate, but 1 were given for 2"):
        searched([{"x": 0.25}, {"x": 0.75}], [1.0])
    with pytest.raises(ValueError, match=r"must name all that is drawn, but lacks \['x'\]"):
        searched([{}], [1.0])


def test_a_study_outlives_the_search(searched, tmp_path):
    pytest.importorskip("sqlalchemy")
    kept = {"study_name": "mine", "storage": f"sqlite:///{tmp_path}/study.db", "seed": 2}
    first = searched(None, None, **kept)
    first.suggest("a")
    first.on_trial_complete("a", {"score": 1.0})
    second = searched(None, None, **kept)
    second.suggest("b")
    second.on_trial_complete("b", {"score": 2.0})
    assert [trial.value for trial in second._study.trials] == [1.0, 2.0]


@pytest.mark.parametrize("rewards", [None, [1.0, 2.0]])
def test_a_stored_study_gets_each_point_once(searched, tmp_path, rewards):
    pytest.importorskip("sqlalchemy")
    kept = {"study_name": "mine", "storage": f"sqlite:///{tmp_path}/study.db", "seed": 2}
    points = [{"x": 0.25}, {"x": 0.75}]
    first = searched(points, rewards, **kept)
    if rewards is None:
        assert [first.suggest(trial_id)["x"] for trial_id in "ab"] == [0.25, 0.75]
    again, continued = searched(points, rewards, **kept), searched(points, rewards, **kept)
    continued.set_state(first.get_state())
    for search in (again, continued):
        assert search.suggest("c")["x"] not in (0.25, 0.75)
    assert [trial.params["x"] for trial in again._study.trials[:2]] == [0.25, 0.75]
    assert len(again._study.trials) == 4


@pytest.mark.parametrize(
    ("module", "name", "advice"),
    [
        ("schedulers", "HyperBandForBOHB", "use AsyncHyperBandScheduler"),
        ("search", "HyperOptSearch", "use OptunaSearch"),
        ("search.hyperopt", "HyperOptSearch", None),
    ],
)
def test_a_class_of_ray_tune_that_is_absent_is_explained(module, name, advice):
    if advice is None:
        with pytest.raises(ModuleNotFoundError):
            importlib.import_module(f"rllib.tune.{module}")
        return
    with pytest.raises(AttributeError, match=advice):
        getattr(importlib.import_module(f"rllib.tune.{module}"), name)


def test_trainables_and_analyses_explain_absent_names():
    with pytest.raises(AttributeError, match=r"'Stepper' object .* 'get_config': use the attribute config"):
        Stepper({"x": 1.0}).get_config()
    analysis = tune.run(Stepper, config={"x": 1.0}, verbose=0)
    with pytest.raises(AttributeError, match="'runner_data': use trials"):
        analysis.runner_data()
    assert list(analysis.results_df["loss"]) == [1.0]


def test_a_trial_is_one_process():
    context = TrialContext("x_0", "x", "directory")
    assert context.get_world_size() == context.get_local_world_size() == 1
    assert context.get_world_rank() == context.get_local_rank() == context.get_node_rank() == 0
    for name, advice in (("get_storage", "get_trial_dir"), ("get_metadata", "with_parameters")):
        with pytest.raises(AttributeError, match=advice):
            getattr(context, name)
