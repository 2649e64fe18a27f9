"""Settings that do not fit to the environment or to the data are refused with what ends that: each remedy builds."""

import threading

import numpy as np
import pytest
from gymnasium.spaces import Box
from gymnasium.vector import AutoresetMode

from rllib import BCConfig, DQNConfig, PPOConfig
from rllib.config.conflicts import SettingsError
from rllib.env import make_multi_agent
from tests.algorithms.test_every_algorithm import DATA
from tests.envs import CountingEnv, InfiniteHorizon, in_vector

TWO = {"env": make_multi_agent("CartPole-v1"), "env_config": {"num_agents": 2}}
CARTPOLE = str(DATA / "cartpole_small.json")
LOCK = threading.Lock()
VECTOR = in_vector(CountingEnv, AutoresetMode.NEXT_STEP)


# What does not fit: (config, settings, names in the mistake).
REFUSED = {
    "space": (PPOConfig, {"action_space": Box(-1, 1, (2,))}, "action_space"),
    "policies of one agent": (PPOConfig, {"policies": ["p0"], "policy_mapping_fn": "p0"}, "policies"),
    "centralised critic of one agent": (PPOConfig, {"centralized_critic": True}, "centralized_critic"),
    "networks of policies": (PPOConfig, {"model": {"of_policies": {"p0": {"fcnet_hiddens": [4]}}}}, "model"),
    "infos of agents": (PPOConfig, {**TWO, "info_columns": {"cost": {}}}, "info_columns"),
    "recorded steps of agents": (DQNConfig, {**TWO, "input_": {CARTPOLE: 0.5, "sampler": 0.5}}, "input_"),
    "centralised critic without a value": (DQNConfig, {**TWO, "centralized_critic": True}, "centralized_critic"),
    "steps of agents": (PPOConfig, {**TWO, "output": "somewhere"}, "output"),
    "no policies": (PPOConfig, {**TWO, "policies": []}, "policies"),
    "network of no policy": (PPOConfig, {**TWO, "model": {"of_policies": {"p7": {"fcnet_hiddens": [4]}}}}, "model"),
    "no mapping": (PPOConfig, {**TWO, "policies": ["p0", "p1"]}, "policy_mapping_fn"),
    "mapping that is none": (PPOConfig, {**TWO, "policies": ["p0", "p1"], "policy_mapping_fn": 3}, "policy_mapping_fn"),
    "no such policy to train": (PPOConfig, {**TWO, "policies_to_train": ["p9"]}, "policies_to_train"),
    "setting of the run": (
        PPOConfig,
        {**TWO, "policies": {"p0": {"lr": 0.1, "num_rollout_workers": 1}}, "policy_mapping_fn": "p0"},
        "policies",
    ),
    "mapping that cannot be sent": (
        PPOConfig,
        {**TWO, "policies": ["p0"], "policy_mapping_fn": lambda agent, *_, lock=LOCK, **__: "p0"},
        "num_rollout_workers",
    ),
    "vector environment": (
        PPOConfig,
        {"env": VECTOR, "batch_mode": "complete_episodes", "num_envs_per_worker": 2},
        "batch_mode",
    ),
    "arrays": (PPOConfig, {"tensor_rollouts": True}, "tensor_rollouts"),
    "a URL": (PPOConfig, {"log_dir": "s3://bucket/run"}, "log_dir"),
    "another world to evaluate in": (
        PPOConfig,
        {"evaluation_interval": 1, "evaluation_config": {"env": InfiniteHorizon}},
        "evaluation_config",
    ),
    "no world to evaluate in": (BCConfig, {"env": None, "input_": CARTPOLE, "evaluation_interval": 1}, "env"),
    "ignored parts of data": (
        BCConfig,
        {
            "env": None,
            "input_": {
                "obs": {"a": np.zeros((4, 2), np.float32), "b": np.zeros((4, 1), np.float32)},
                "actions": [0] * 4,
            },
            "ignore_observation_keys": ["b"],
        },
        "ignore_observation_keys",
    ),
    "a reader without end": (
        BCConfig,
        {"env": None, "input_": lambda context: _Endless(), "normalize_observations": True},
        "normalize_observations",
    ),
}


class _Endless:
    def next(self):
        return {"obs": np.zeros((8, 4), np.float32), "actions": np.arange(8) % 2, "rewards": np.ones(8)}


def _config(config_class, settings):
    config = config_class().environment("CartPole-v1").rollouts(num_rollout_workers=0)
    config.update_from_dict(settings)
    if settings.get("policy_mapping_fn") is not None and callable(settings["policy_mapping_fn"]):
        config.rollouts(num_rollout_workers=1)
    return config


@pytest.mark.parametrize(("config_class", "settings", "name"), REFUSED.values(), ids=REFUSED)
def test_what_ends_a_refusal_builds(config_class, settings, name):
    config = _config(config_class, settings)
    with pytest.raises(SettingsError) as raised:
        config.build()
    (mistake,) = raised.value.mistakes
    assert name in mistake.names and mistake.names and mistake.remedies
    for remedy in mistake.remedies:
        changed = config.copy(copy_frozen=False).apply(remedy)
        try:
            changed.build().stop()
        except SettingsError as error:  # of something else that the remedy asks for
            assert mistake.problem not in str(error)
