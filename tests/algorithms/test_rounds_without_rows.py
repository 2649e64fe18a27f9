"""Rounds of sampling without a single transition, since all environments have failed: the next round goes on."""

import gymnasium
import numpy as np
import pytest

import rllib


class FailsInEverySecondStep(gymnasium.Env):
    """An environment whose episodes never end."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, config=None):
        self._time = 0

    def reset(self, *, seed=None, options=None):
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self._time += 1
        if self._time % 2 == 0:
            raise RuntimeError("as it does in every second step")
        return np.ones(2, np.float32), 1.0, False, False, {}


@pytest.mark.parametrize(
    ("algorithm", "settings", "workers"),
    [
        ("PPO", {"sgd_minibatch_size": 1, "num_sgd_iter": 1}, 0),
        ("PPO", {"sgd_minibatch_size": 1, "num_sgd_iter": 1, "recompute_advantages": True}, 0),
        ("A2C", {}, 0),
        ("PG", {}, 0),
        ("TRPO", {"sgd_minibatch_size": 1}, 0),
        ("A3C", {}, 0),
        ("A3C", {}, 1),
        ("IMPALA", {}, 0),
    ],
)
def test_goes_on(algorithm, settings, workers):
    config = getattr(rllib, f"{algorithm}Config")().environment(FailsInEverySecondStep, disable_env_checking=True)
    config.rollouts(num_rollout_workers=workers, num_envs_per_worker=1, rollout_fragment_length=1)
    config.fault_tolerance(restart_failed_sub_environments=True).debugging(seed=1)
    config.training(train_batch_size=1, model={"fcnet_hiddens": [4]}, **settings)
    config.reporting(min_time_s_per_iteration=0, min_sample_timesteps_per_iteration=6)
    with config.build() as built:
        result = built.train()
        assert result["num_faulty_episodes"] >= 2
        assert result["num_env_steps_trained"] >= 3
        assert np.isfinite(built.get_policy().weights).all()
