"""Settings that are the first value of a number which adapts: a run restored with another one begins there.

Which settings these are is found by building runs: where another value of a setting makes a number of a new run
another one, the number has to be that of the new run after a restore as well.
"""

import math
from collections.abc import Mapping

import gymnasium as gym
import numpy as np
import pytest

from rllib import Algorithm, PPOConfig
from rllib.algorithms.base.config import AlgorithmConfig
from rllib.algorithms.base.registry import get_algorithm_config
from rllib.policies import PolicySpec
from tests.multi_agent import NameTheSignal

RATE = {"type": "kl_adaptive", "initial": 1e-3, "desired_kl": 0.01}
STEPS = {
    "obs": np.zeros((20, 2), np.float32),
    "actions": np.zeros(20, np.int64),
    "rewards": np.ones(20, np.float32),
    "terminateds": np.arange(20) % 5 == 4,
}
# Settings of all algorithms, from which no number follows.
SHARED = AlgorithmConfig.sections["training"].names
# Of each kind of policies in training, settings with which it has all its numbers.
RUNS = {
    "PPO": [{}, {"cost_limit": 1.0}, {"lr": RATE}],
    "APPO": [{"use_kl_loss": True}],
    "SAC": [{}, {"cost_limit": 1.0}],
    "MARWIL": [{"input_": STEPS}],
}
# Further values of settings, which are no single numbers, or have a meaning of their own.
OTHERS = {"lr": [{**RATE, "initial": 2e-3}], "kl_coeff": [0.0, [[0, 3.0], [1000, 2.0]]]}


class Costly(gym.Env):
    observation_space = gym.spaces.Box(-1, 1, (2,))
    action_space = gym.spaces.Discrete(2)

    def __init__(self, config=None):
        pass

    def reset(self, *, seed=None, options=None):
        return np.zeros(2, np.float32), {"cost": 0.0}

    def step(self, action):
        return np.zeros(2, np.float32), 1.0, False, False, {"cost": 0.5}


def config_of(name, settings):
    config = get_algorithm_config(name).environment(Costly).rollouts(num_rollout_workers=0)
    if "input_" in settings:
        config.environment(None, observation_space=Costly.observation_space, action_space=Costly.action_space)
    return config.training(model={"fcnet_hiddens": [4]}).update_from_dict({**settings, "seed": 1})


def values_of(setting, value):
    """Other values of a setting that is a number, or says yes or no."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, float) and math.isfinite(value):
        return [value / 2 + 0.25]
    return []


def numbers_of(algorithm) -> dict:
    """All single numbers of a run's state, by their place."""

    def leaves(place, value):
        if isinstance(value, Mapping):
            for key, item in value.items():
                yield from leaves(f"{place}/{key}", item)
        elif isinstance(value, int | float | np.ndarray) and np.size(value) == 1:
            yield place, np.asarray(value).item()

    arrays = {name: of for name, of in algorithm.get_state().items() if name.endswith(".safetensors")}
    return dict(leaves("", {**algorithm.numbers(), **arrays}))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "settings"), [(name, each) for name, runs in RUNS.items() for each in runs])
def test_numbers_begin_at_settings_that_differ_from_the_saved_ones(name, settings, tmp_path):
    with config_of(name, settings).build() as saving:
        path, of_saved = saving.save(tmp_path / "run"), numbers_of(saving)
    config, first_values = config_of(name, settings), set()
    for setting in (each for each in config.sections["training"].names if each == "lr" or each not in SHARED):
        for value in [*values_of(setting, config[setting]), *OTHERS.get(setting, ())]:
            try:
                algorithm = config_of(name, {**settings, setting: value}).build()
            except ValueError:  # it does not go with the other settings
                continue
            with algorithm:
                first = {place: own for place, own in numbers_of(algorithm).items() if of_saved.get(place, own) != own}
                if first:
                    algorithm.restore(path)
                    restored = numbers_of(algorithm)
                    assert {place: restored[place] for place in first} == first, (setting, value)
                    first_values.add(setting)
    expected = {"PPO": {"kl_coeff", "use_kl_loss"}, "APPO": {"kl_coeff", "use_kl_loss"}, "SAC": {"initial_alpha"}}
    assert first_values >= expected.get(name, set())


FORMS = {
    "a tuple": (None, None, None, {"kl_coeff": 3.0}),
    "a dict": {"kl_coeff": 3.0},
    "a spec": PolicySpec(config={"kl_coeff": 3.0}),
    "a config": PolicySpec(config=PPOConfig.overrides(kl_coeff=3.0)),
}


@pytest.mark.parametrize("form", FORMS)
def test_numbers_continue_where_a_policy_has_the_saved_settings(form, tmp_path):
    def built(policy):
        config = PPOConfig().environment(NameTheSignal, env_config={"sizes": (3, 3)}).rollouts(num_rollout_workers=0)
        config.training(train_batch_size=40, sgd_minibatch_size=20, num_sgd_iter=1, model={"fcnet_hiddens": [4]})
        return config.multi_agent(policies={"one": policy}, policy_mapping_fn="one").build()

    with built(FORMS[form]) as saving:
        saving.train()
        path, saved = saving.save(tmp_path / "run"), saving.numbers()["kl_coeff"]
    assert saved != {"one": 3.0}
    with Algorithm.from_checkpoint(path) as restored:
        assert restored.numbers()["kl_coeff"] == saved
    with built({"kl_coeff": 5.0}) as other:
        other.restore(path)
        assert other.numbers()["kl_coeff"] == {"one": 5.0}
