"""Configs that stand for their changed settings, weights that no network may have, and names that configs answer to."""

import numpy as np
import pytest

from rllib import DQN, PPO, PolicySpec, PPOConfig, make_vec_env
from rllib.compat.names import aliases
from rllib.core import MetricsLogger, RLModuleSpec, TorchRLModule
from tests.envs import CountingEnv
from tests.multi_agent import NameTheSignal


def several(**policies):
    return (
        PPOConfig()
        .environment(NameTheSignal)
        .rollouts(num_rollout_workers=0)
        .multi_agent(policies={"first": {}, "second": {}, **policies}, policy_mapping_fn=lambda agent, *_, **__: agent)
    )


@pytest.mark.parametrize(
    "given",
    [
        lambda config: PolicySpec(config=config),
        lambda config: (None, None, None, config),
        lambda config: PolicySpec(config=config.changes()),
    ],
    ids=["spec", "tuple", "dict"],
)
def test_a_config_of_a_policy_stands_for_what_is_changed(given):
    with several(first=given(PPOConfig().training(lr=0.5, gamma=0.25))).build() as algo:
        spaces = {name: getattr(algo.get_policy("first"), name) for name in ("observation_space", "action_space")}
        assert (algo.config_of("first").lr, algo.config_of("first").gamma) == (0.5, 0.25)
        algo.add_policy(
            "late", **spaces, config=PPOConfig().training(lr=0.125), policy_mapping_fn=lambda agent, *_, **__: agent
        )
        assert (algo.config_of("late").lr, algo.config_of("late").gamma) == (0.125, 0.99)
    config = PPOConfig().evaluation(evaluation_config=PPOConfig().exploration(explore=False))
    assert config.evaluation_config == {"explore": False}


@pytest.fixture(scope="module")
def model():
    with PPO("MlpPolicy", CountingEnv, n_steps=8, batch_size=8) as algo:
        yield algo


@pytest.mark.parametrize("wrong", [np.nan, np.inf, 1e300], ids=str)
def test_weights_are_finite(model, wrong):
    policy, before = model.get_policy(), model.get_policy().weights.copy()
    named = {name: np.full(value.shape, wrong) for name, value in policy.get_weights().items()}
    for given, take in [
        (named, policy.set_weights),
        (np.full_like(before, wrong, float), policy.set_weights),
        ({"default_policy": named}, model.set_weights),
        ({"default_policy": named}, model.learner_group.set_weights),
        ({"policy": named}, model.set_parameters),
        (named, model.get_module().set_state),
    ]:
        with pytest.raises(ValueError, match="not finite"), np.errstate(over="ignore"):
            take(given)
        np.testing.assert_array_equal(policy.weights, before)


@pytest.mark.parametrize("wrong", [None, [1.0], "weights", 3], ids=str)
def test_weights_are_of_a_network(model, wrong):
    for take in (model.get_policy().set_weights, model.set_weights, model.learner_group.set_weights):
        with pytest.raises(TypeError, match="weights="):
            take(wrong)


def test_dicts_of_settings_are_read_in_every_way():
    config = PPOConfig()
    for name in aliases.READABLE_DICTS:
        assert name in config
        assert config.get(name) == config[name] == getattr(config, name) and isinstance(config[name], dict)
    assert config.get("nothing_like_it", 3) == 3


def test_the_first_learn_keeps_what_a_program_has_set(tmp_path):
    words = {"learning_starts": 4, "buffer_size": 64, "seed": 0}
    path = DQN("MlpPolicy", CountingEnv, **words).learn(20).save_replay_buffer(tmp_path / "rows")
    model = DQN("MlpPolicy", CountingEnv, **words)
    model.load_replay_buffer(path)
    model.mine = 3
    before = len(model.replays["default_policy"])
    model.learn(4)  # whose length makes another schedule of epsilon
    assert model.config.exploration_config["epsilon_timesteps"] == 0
    assert (len(model.replays["default_policy"]), model.mine) == (before + 4, 3)


@pytest.mark.parametrize("value", [0, -1, "2", 1.5, None], ids=str)
def test_numbers_of_environments_and_coefficients(value):
    with pytest.raises(ValueError, match="n_envs="):
        make_vec_env(CountingEnv, n_envs=value)
    for coefficient in (0, -0.5, 2, np.nan):
        with pytest.raises(ValueError, match="ema_coeff="):
            MetricsLogger().log_value("x", 1.0, ema_coeff=coefficient)


def test_a_module_that_is_made_is_no_class():
    module = TorchRLModule(
        observation_space=CountingEnv().observation_space, action_space=CountingEnv().action_space, model_config={}
    )
    with pytest.raises(TypeError, match="is made already"):
        PPOConfig().rl_module(rl_module_spec=RLModuleSpec(module_class=module))
