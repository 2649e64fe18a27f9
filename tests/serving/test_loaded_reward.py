"""Learned rewards from checkpoints."""

import numpy as np
import pytest

from rllib import PPOConfig, load_reward
from rllib.algorithms.airl import AIRLConfig
from rllib.algorithms.gail import GAILConfig
from rllib.storage.checkpoint import CheckpointError
from tests.algorithms.algorithm_support import train
from tests.algorithms.test_gail import LEFT, make


@pytest.mark.parametrize("config, inputs", [(AIRLConfig, ["obs"]), (GAILConfig, ["obs", "actions", "next_obs"])])
def test_it_says_what_the_run_has_learned(config, inputs, tmp_path):
    given = LEFT["obs"][:5], LEFT["actions"][:5], LEFT["new_obs"][:5]
    with make(config=config, discriminator_inputs=inputs).build() as algo:
        train(algo, 2)
        expected, path = algo.learned_reward(*given), algo.save(tmp_path / "checkpoint")
    np.testing.assert_array_equal(load_reward(path).ask(*given), expected)
    assert np.std(expected) > 0


def test_checkpoints_without_one_are_refused(tmp_path):
    with PPOConfig().environment("CartPole-v1").rollouts(num_rollout_workers=0).build() as algo:
        path = algo.save(tmp_path / "checkpoint")
    with pytest.raises(CheckpointError, match="PPO on CartPole-v1 has no reward"):
        load_reward(path)
