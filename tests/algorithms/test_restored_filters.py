"""A restored run with an observation filter: docs/project/architecture.md, "How a restored run continues"."""

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box

from rllib import PPOConfig, SACConfig

ENVIRONMENTS = 2


class TenSteps(gymnasium.Env):
    """Episodes of 10 steps that all begin at 0: they end where fragments do, and do not depend on the seed."""

    observation_space, action_space = Box(-50.0, 50.0, (1,)), Box(-1.0, 1.0, (1,))

    def __init__(self, config=None):
        self.t, self.place = 0, np.zeros(1, np.float32)

    def reset(self, *, seed=None, options=None):
        self.t, self.place = 0, np.zeros(1, np.float32)
        return self.place, {}

    def step(self, action):
        self.t += 1
        self.place = self.place + np.float32(action)
        return self.place, float(-abs(self.place[0] - 3)), False, self.t == 10, {}


def config(kind, observation_filter):
    made = {
        PPOConfig: PPOConfig().training(train_batch_size=40, sgd_minibatch_size=20, num_sgd_iter=2),
        SACConfig: SACConfig().training(
            train_batch_size=8, num_steps_sampled_before_learning_starts=20, store_buffer_in_checkpoints=True
        ),
    }[kind]
    made.environment(TenSteps).training(model={"fcnet_hiddens": [8]}).debugging(seed=3)
    made.rollouts(num_rollout_workers=0, num_envs_per_worker=ENVIRONMENTS, rollout_fragment_length=10)
    made.rollouts(observation_filter=observation_filter)
    return made.reporting(min_sample_timesteps_per_iteration=40, min_time_s_per_iteration=None)


@pytest.mark.parametrize("observation_filter", ["NoFilter", "MeanStdFilter"])
@pytest.mark.parametrize("kind", [PPOConfig, SACConfig])
def test_a_restored_run_counts_the_first_observation_of_each_environment_again(kind, observation_filter, tmp_path):
    """Without a filter it is the run that went on, to the bit."""
    with config(kind, observation_filter).build() as algo:
        algo.train()
        with kind.algo_class.from_checkpoint(algo.save(tmp_path / "saved")) as other:
            for each in (algo, other):
                each.train()
            if observation_filter == "NoFilter":
                np.testing.assert_array_equal(algo.policy.weights, other.policy.weights)
            else:
                assert algo.timesteps == other.timesteps
                assert algo.policy.filter.count == algo.timesteps + ENVIRONMENTS
                assert other.policy.filter.count == algo.policy.filter.count + ENVIRONMENTS
