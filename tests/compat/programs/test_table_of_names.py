"""The table of Ray's names: every target is here, and nothing is both found and missing."""

import importlib
import importlib.util

import pytest

import rllib
import runtime
from rllib import tune
from rllib.compat.programs import arrays, default_configs
from rllib.compat.programs.lookup import Ours, counterpart, find, modules, present_path, row
from rllib.compat.programs.names import FOUND, MISSING, MOVED, WHERE_BUILT, reason_for


@pytest.mark.parametrize("module", FOUND)
def test_every_name_that_is_served_is_here(module):
    for name, ours in row(module).items():
        if ours.module == "runtime.util.joblib" and importlib.util.find_spec("joblib") is None:
            continue
        assert ours.load() is not None, name


@pytest.mark.parametrize("module", WHERE_BUILT)
def test_rows_of_parts_that_may_be_missing_serve_what_is_there(module):
    for place, names in WHERE_BUILT[module].items():
        if importlib.util.find_spec(place) is None:
            pytest.skip(f"{place} is not built")
        there = importlib.import_module(place)
        for word in there.__all__ if names == "*" else names.split():
            theirs, _, ours = word.partition("=")
            if hasattr(there, ours or theirs):
                assert row(module)[theirs] == Ours(place, ours or theirs)


def test_no_name_is_both_served_and_missing():
    for path in MISSING:
        module, _, name = path.rpartition(".")
        assert name not in row(module), path


@pytest.mark.parametrize(("earlier", "present"), MOVED.items())
def test_folders_that_have_moved_lead_to_rows(earlier, present):
    assert present_path(f"{earlier}.x") == f"{present}.x"
    assert present.startswith("ray.rllib.examples") or any(module.startswith(present) for module in modules())


@pytest.mark.parametrize(
    ("module", "name", "ours"),
    [
        ("ray", "get", runtime.get),
        ("ray.exceptions", "RayTaskError", runtime.exceptions.RayTaskError),
        ("ray.tune", "run", tune.run),
        ("ray.tune.suggest", "ConcurrencyLimiter", tune.search.ConcurrencyLimiter),
        ("ray.tune.suggest.optuna", "OptunaSearch", tune.search.OptunaSearch),
        ("ray.air", "RunConfig", tune.RunConfig),
        ("ray.rllib.algorithms.ppo", "PPOConfig", rllib.PPOConfig),
        ("ray.rllib.algorithms.ppo.ppo", "PPOConfig", rllib.PPOConfig),  # a path that has no row
        ("ray.rllib.algorithms.impala", "ImpalaConfig", rllib.IMPALAConfig),
        ("ray.rllib.agents.ppo", "PPOTrainer", rllib.PPO),
        ("ray.rllib.agents.impala", "ImpalaTrainer", rllib.IMPALA),
        ("ray.rllib.evaluation.sample_batch", "SampleBatch", rllib.SampleBatch),
    ],
)
def test_names_of_all_eras_are_found(module, name, ours):
    assert find(module, name).load() is ours


@pytest.mark.parametrize(
    ("module", "name", "ours"),
    [
        ("ray.tune.search", "grid_search", tune.grid_search),
        ("ray.tune.search.variant_generator", "grid_search", tune.grid_search),
        ("ray.tune.search.sample", "lograndint", tune.lograndint),
        ("ray.tune.trainable.util", "with_parameters", tune.with_parameters),
        ("ray.tune.suggest.nowhere", "with_parameters", tune.with_parameters),
        ("ray.tune.utils.util", "MEAN_ACCURACY", "mean_accuracy"),
        ("ray.rllib.policy", "softmax", arrays.softmax),
        ("ray.rllib.agents.ppo.ppo", "DEFAULT_CONFIG", default_configs.PPO),
        ("ray.rllib.algorithms.dqn.dqn", "DEFAULT_CONFIG", default_configs.DQN),
    ],
)
def test_functions_and_constants_are_found_by_any_path_too(module, name, ours):
    assert find(module, name).load() == ours


@pytest.mark.parametrize(
    ("module", "name", "why"),
    [
        ("ray.rllib.policy", "one_hot", "two rows have it, for numpy and for torch"),
        ("ray.rllib.algorithms", "DEFAULT_CONFIG", "each algorithm has one"),
        ("ray.tune.schedulers", "softmax", "it is of another package"),
        ("ray", "grid_search", "it is of a package within"),
        ("ray.rllib.utils.tf_utils", "explained_variance", "that of TensorFlow is another"),
    ],
)
def test_names_that_may_mean_another_thing_are_not_found(module, name, why):
    assert find(module, name) is None, why


def test_counterparts_of_modules():
    assert counterpart("ray.rllib.agents.ppo") == "rllib.algorithms.ppo"
    assert counterpart("ray.tune") == "rllib.tune"
    assert counterpart("ray.data") is None


def test_missing_names_have_reasons():
    assert "OptunaSearch" in reason_for("ray.tune.search.hyperopt.HyperOptSearch")
    assert "SAC or TD3" in reason_for("ray.rllib.algorithms.dreamerv3.DreamerV3Config")
    assert "SAC or TD3" in reason_for("ray.rllib.algorithms.dreamerv3.torch.utils.something")
    assert reason_for("ray.rllib.something") is None
