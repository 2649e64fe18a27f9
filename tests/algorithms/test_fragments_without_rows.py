"""Fragments in which no step is a transition: all environments were reset, or have failed, in each of their steps."""

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from rllib import A2CConfig, A3CConfig, APPOConfig, IMPALAConfig, PGConfig, PPOConfig

pytestmark = pytest.mark.usefixtures("workers_know_the_module")


class Brief(gymnasium.Env):
    """Episodes of one step; every third one fails where `fails` is set."""

    observation_space, action_space = Box(-1, 1, (1,)), Discrete(2)

    def __init__(self, fails=False):
        self.fails, self.resets = fails, 0

    def reset(self, *, seed=None, options=None):
        self.resets += 1
        return np.zeros(1, np.float32), {}

    def step(self, action):
        if self.fails and self.resets % 3 == 2:
            raise RuntimeError("asked to fail")
        return np.zeros(1, np.float32), 1.0, True, False, {}


def next_step(context):
    return SyncVectorEnv([Brief] * context.num_envs, autoreset_mode=AutoresetMode.NEXT_STEP)


def failing(context):
    return Brief(context.worker_index > 0 or (context.num_workers == 0 and context.get("fails", False)))


@pytest.mark.parametrize("cls", [PPOConfig, A2CConfig, PGConfig, A3CConfig, IMPALAConfig, APPOConfig])
@pytest.mark.parametrize("env", [next_step, failing])
@pytest.mark.parametrize("num_workers", [0, 1])
def test_training_goes_on(cls, env, num_workers):
    config = cls().environment(env, disable_env_checking=True)
    config.rollouts(num_rollout_workers=num_workers, num_envs_per_worker=1, rollout_fragment_length=1)
    config.environment(env_config={"fails": True} if env is failing else {})
    config.fault_tolerance(restart_failed_sub_environments=True)
    config.training(model={"fcnet_hiddens": [4]})
    if cls is not A3CConfig:
        config.training(train_batch_size=1)
    if cls is PPOConfig:
        config.training(sgd_minibatch_size=1, num_sgd_iter=1)
    config.reporting(min_time_s_per_iteration=0, min_sample_timesteps_per_iteration=9)
    with config.build() as algo:
        result = algo.train()
    assert result["num_env_steps_sampled"] >= 9
    assert (result["num_faulty_episodes"] > 0) == (env is failing)
