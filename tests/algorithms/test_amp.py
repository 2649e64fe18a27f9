"""AMP: a task's reward and a motion's, in their shares."""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from rllib import sample_batch as sb
from rllib.algorithms.amp import AMPConfig
from rllib.offline.dataset import Dataset
from tests.algorithms.algorithm_support import train
from tests.algorithms.test_gail import LEFT, first_batch, make


def test_both_rewards_are_within_their_shares():
    batch, _ = first_batch(LEFT, config=AMPConfig)
    motion = (batch[sb.REWARDS] - 0.5 * batch[sb.ENV_REWARDS]) / 0.5
    assert (motion >= 0).all() and (motion <= 1).all() and np.std(motion) > 0
    assert abs(motion.mean() - 0.75) < 0.2  # 1 - 1 / 4: nothing is told apart yet


class Robot(gym.Env):
    """Joints move by themselves towards a goal; an episode has ten steps."""

    observation_space = spaces.Dict(
        {"goal": spaces.Box(-1, 1, (2,)), "joints": spaces.Box(-1, 1, (3,)), "mode": spaces.Discrete(3)}
    )
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self.observation_space.sample(), {}

    def step(self, action):
        self.steps += 1
        return self.observation_space.sample(), 1.0, False, self.steps == 10, {}


# A motion that was captured: joints alone, and no actions.
JOINTS = np.random.default_rng(0).uniform(-1, 1, (21, 3)).astype(np.float32)
MOTION = {"obs": {"joints": JOINTS[:-1]}, "new_obs": {"joints": JOINTS[1:]}, "truncateds": np.arange(20) == 19}


def saved(directory):
    """The motion in a file of this library, which says the space."""
    joints = spaces.Dict({"joints": Robot.observation_space["joints"]})
    motion = MOTION | {"actions": np.zeros(20, np.int64)}
    path = str(directory / "motion.npz")
    Dataset.from_columns(motion, observation_space=joints, action_space=Robot.action_space).save(path)
    return path


@pytest.mark.parametrize("from_file", [False, True])
def test_motions_need_the_parts_that_are_read_alone(from_file, tmp_path):
    data = saved(tmp_path) if from_file else MOTION
    with make(data, Robot, config=AMPConfig, discriminator_observation_keys=["joints"]).build() as algo:
        train(algo, 2)
        expert = algo.trainee.reward._expert.observations
        np.testing.assert_array_equal(expert[:, 2:5], MOTION["obs"]["joints"])  # behind the goal
        asked = algo.learned_reward(MOTION["obs"], next_observations=MOTION["new_obs"])
    assert asked.shape == (20,) and np.std(asked) > 0


@pytest.mark.parametrize("more", [{"discriminator_observation_keys": ["goal"]}, {}])
def test_parts_that_are_read_are_needed(more):
    with pytest.raises(ValueError, match=r"has no obs\.goal"):
        make(MOTION, Robot, config=AMPConfig, **more).build()
