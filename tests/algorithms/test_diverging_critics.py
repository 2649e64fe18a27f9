"""A critic without a finite gradient: the error names module, parameter and rows, and a run keeps its batch."""

import re

import gymnasium as gym
import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from rllib import CrossQConfig, SACConfig, TD3Config, TQCConfig
from rllib import sample_batch as sb
from rllib.errors import LearnerError, NotFiniteError

torch.set_num_threads(1)


class Spike(gym.Env):
    """Episodes of one step; that of number `spike` ends in an observation near the end of float32.

    Its value times a discount of 0 is NaN where it overflows. TD3's does not, so there episodes are cut off instead.
    """

    observation_space = gym.spaces.Box(-np.inf, np.inf, (2,))
    action_space = gym.spaces.Box(-1, 1, (1,))

    def __init__(self, config):
        self._episode, self._spike, self._is_cut = 0, config["spike"], config["is_cut"]

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.np_random.standard_normal(2).astype(np.float32), {}

    def step(self, action):
        self._episode += 1
        last = np.full(2, 3e38 if self._episode == self._spike else 0.5, np.float32)
        return last, -float(action[0] ** 2), not self._is_cut, self._is_cut, {}


def made(kind, learner, **reporting):
    return (
        kind()
        .environment(Spike, env_config={"spike": 120, "is_cut": kind is TD3Config})
        .rollouts(num_rollout_workers=0)
        .training(
            learner=learner, model={"fcnet_hiddens": [16]}, q_model_config={"fcnet_hiddens": [16]}, train_batch_size=64,
            num_steps_sampled_before_learning_starts=50,
            replay_buffer_config={"type": "ReplayBuffer", "capacity": 1000},
        )
        .reporting(min_time_s_per_iteration=None, min_sample_timesteps_per_iteration=100, **reporting)
        .debugging(seed=3)
    )  # fmt: skip


@pytest.mark.parametrize("learner", ["numpy", "torch"])
@pytest.mark.parametrize("kind", [SACConfig, TD3Config, TQCConfig, CrossQConfig])
def test_the_rows_are_named_and_kept_with_the_checkpoint_before(kind, learner, tmp_path):
    with made(kind, learner, log_dir=str(tmp_path / "run")).build() as algo:
        algo.train()
        checkpoint = algo.save()
        with pytest.raises(NotFiniteError) as failure:
            for _ in range(3):
                algo.train()
        # The step was not taken. (CrossQ's running statistics have taken the batch in.)
        assert kind is CrossQConfig or np.isfinite(algo.learner.weights).all()
    message, batch = str(failure.value), load_file(tmp_path / "run" / "failing_batch.safetensors")
    assert isinstance(failure.value, LearnerError)
    place = r"(not finite in|too large for float32: the gradient of) critics\."
    assert re.search(f"the gradient of critics is {place}", message)
    (row,) = np.flatnonzero(np.abs(batch[sb.NEXT_OBS]).max(1) > 1e38)[:1]
    assert batch[sb.INDICES][row] == 119
    assert f"Rows with the largest numbers, of 64: {row} (batch_indexes 119): new_obs 3e+38" in message
    assert f"The newest checkpoint is {checkpoint}." in message


def test_without_a_directory_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with made(SACConfig, "numpy").build() as algo, pytest.raises(NotFiniteError) as failure:
        for _ in range(4):
            algo.train()
    assert failure.value.batch[sb.NEXT_OBS].max() > 1e38 and not list(tmp_path.iterdir())


def test_numbers_that_are_not_finite_are_named_with_their_rows():
    with made(SACConfig, "numpy").build() as algo:
        algo.train()
        batch = algo.replay.sample(32, np.random.default_rng(0), 1.0)
        batch[sb.REWARDS][[4, 9]] = np.nan, np.inf
        with pytest.raises(NotFiniteError) as failure:
            algo.trainee.learn_from(batch, actor_lr=1e-3, critic_lr=1e-3, alpha_lr=1e-3)
    assert "Columns with NaN or infinity: rewards." in str(failure.value)
    indices = batch[sb.INDICES]
    expected = f"4 (batch_indexes {indices[4]}): rewards nan; 9 (batch_indexes {indices[9]}): rewards inf."
    assert f"Rows with NaN or infinity, of 32: {expected}" in str(failure.value)
