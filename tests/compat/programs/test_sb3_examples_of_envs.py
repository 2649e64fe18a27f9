"""Environments of Stable-Baselines3's and sb3-contrib's examples, and their replay as an object of its own."""

import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env

from rllib.compat.programs.sb3 import environments_of_examples as envs
from rllib.compat.programs.sb3.buffers import DictReplayBuffer, ReplayBuffer
from rllib.compat.programs.sb3.environments import make_vec_env
from rllib.compat.programs.sb3.models import DQN, PPO, SAC, MaskablePPO
from rllib.compat.programs.sb3.tokens import HerReplayBuffer
from rllib.env.vec_env.vec_normalize import VecNormalize


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (envs.IdentityEnv, {"dim": 3}),
        (envs.IdentityEnv, {"space": spaces.MultiDiscrete([2, 3])}),
        (envs.IdentityEnvBox, {}),
        (envs.IdentityEnvMultiDiscrete, {"dim": 4}),
        (envs.IdentityEnvMultiBinary, {"dim": 4}),
        (envs.FakeImageEnv, {}),
        (envs.FakeImageEnv, {"channel_first": True, "discrete": False, "n_channels": 3}),
        (envs.SimpleMultiObsEnv, {}),
        (envs.SimpleMultiObsEnv, {"discrete_actions": False, "channel_last": False, "num_col": 3, "num_row": 5}),
        (envs.BitFlippingEnv, {}),
        (envs.BitFlippingEnv, {"continuous": True, "image_obs_space": True, "channel_first": False}),
        (envs.BitFlippingEnv, {"discrete_obs_space": True}),
        (envs.InvalidActionEnvDiscrete, {"dim": 6, "n_invalid_actions": 3}),
        (envs.InvalidActionEnvMultiDiscrete, {"dims": [3, 4], "n_invalid_actions": 5}),
        (envs.InvalidActionEnvMultiBinary, {"dim": 4, "n_invalid_actions": 2}),
    ],
)
def test_they_are_environments(kind, words):
    env = kind(**words)
    env.reset(seed=0)
    for _ in range(250):
        observation, reward, terminated, truncated, _ = env.step(env.action_space.sample())
        assert observation in env.observation_space and isinstance(reward, float)
        if terminated or truncated:
            env.reset()
    if kind is not envs.SimpleMultiObsEnv:  # whose pictures are drawn by numpy
        check_env(kind(**words), skip_render_check=True)


def test_the_right_action_of_an_identity_is_its_observation():
    env = envs.IdentityEnv(dim=4, ep_length=3)
    state, _ = env.reset(seed=0)
    state, reward, _, _, _ = env.step(state)
    assert reward == 1.0 and env.step((state + 1) % 4)[1] == 0.0
    assert env.step(0)[3]
    box = envs.IdentityEnvBox(eps=0.1)
    state, _ = box.reset(seed=0)
    assert box.step(state + 0.05)[1] == 1.0 and box.step(box.state + 0.5)[1] == 0.0
    with pytest.raises(AssertionError, match="both"):
        envs.IdentityEnv(dim=2, space=spaces.Discrete(2))


@pytest.mark.parametrize("words", [{}, {"image_obs_space": True}, {"discrete_obs_space": True}])
def test_bits_are_flipped_to_the_goal(words):
    env = envs.BitFlippingEnv(n_bits=5, **words)
    observation, _ = env.reset(seed=1)
    missing = np.flatnonzero(env.state == 0)
    for index, bit in enumerate(missing):
        observation, reward, terminated, _, info = env.step(bit)
        is_last = index == len(missing) - 1
        assert terminated == info["is_success"] == is_last and reward == (0.0 if is_last else -1.0)
    assert len(missing)
    goals = np.stack([observation["desired_goal"], env.convert_if_needed(np.zeros(5, np.int8))])
    reached = np.stack([observation["achieved_goal"]] * 2)
    np.testing.assert_array_equal(env.compute_reward(reached, goals, None), [0, -1])


def test_the_border_of_the_grid_leads_to_its_end():
    env = envs.SimpleMultiObsEnv(random_start=False)
    observation, _ = env.reset(seed=0)
    assert observation["img"].shape == (64, 64, 1) and observation["vec"].shape == (5,)
    assert env.step(0)[1] == -0.1 and env.state == 0  # left of the border
    for action, state in ((2, 1), (1, 1), (2, 2), (2, 3), (1, 7), (0, 7), (1, 11)):
        _, reward, terminated, _, _ = env.step(action)
        assert (env.state, reward, terminated) == (state, -0.1, False)
    assert env.step(1)[1:3] == (1.0, True)


def test_masks_leave_the_right_action():
    env = envs.InvalidActionEnvMultiDiscrete(dims=[3, 4], n_invalid_actions=5)
    state, _ = env.reset(seed=0)
    for _ in range(20):
        mask = env.action_masks()
        assert len(mask) == 7 and sum(mask) == 2 and mask[state[0]] and mask[3 + state[1]]
        state = env.step(state)[0]
    with pytest.raises(AssertionError, match="at most 5"):
        envs.InvalidActionEnvMultiDiscrete(dims=[3, 4], n_invalid_actions=6)


def test_models_learn_in_them():
    her = {"replay_buffer_class": HerReplayBuffer, "learning_starts": 20, "batch_size": 8}
    for kind, policy, env, words in (
        (PPO, "MultiInputPolicy", envs.SimpleMultiObsEnv(), {"n_steps": 16, "batch_size": 16, "n_epochs": 1}),
        (DQN, "MultiInputPolicy", envs.BitFlippingEnv(4), her),
        (SAC, "MultiInputPolicy", envs.BitFlippingEnv(4, continuous=True), her),
        (MaskablePPO, "MlpPolicy", envs.InvalidActionEnvMultiBinary(3, n_invalid_actions=2), {"n_steps": 16}),
    ):
        with kind(policy, env, **words) as model:
            model.learn(32)


# ---------------------------------------------------------------------- replay


def _filled(buffer, n_envs, steps, of=lambda step: np.full(3, step)):
    for step in range(steps):
        obs, following = ([of(each)] * n_envs for each in (step, step + 1))
        if isinstance(obs[0], dict):
            obs, following = ({"a": np.stack([e["a"] for e in each])} for each in (obs, following))
        done = np.arange(n_envs) == step % 3
        infos = [{"TimeLimit.truncated": index == 0} for index in range(n_envs)]
        buffer.add(obs, following, np.full((n_envs, 1), step % 2), np.full(n_envs, float(step)), done, infos)
    return buffer


def test_a_replay_of_ones_own():
    space, actions = spaces.Box(-99, 99, (3,), np.float32), spaces.Discrete(2)
    buffer = _filled(ReplayBuffer(20, space, actions, "cpu", n_envs=2), 2, 7)
    assert (buffer.size(), buffer.pos, buffer.full, buffer.buffer_size) == (7, 7, False, 10)
    rows = buffer.sample(64)
    assert rows.observations.dtype == torch.float32 and rows.actions.dtype == torch.int64
    assert rows.rewards.shape == rows.dones.shape == rows.actions.shape == (64, 1) and rows.discounts is None
    steps = rows.rewards[:, 0]
    torch.testing.assert_close(rows.observations, steps[:, None].expand(-1, 3))
    torch.testing.assert_close(rows.next_observations, rows.observations + 1)
    torch.testing.assert_close(rows.actions[:, 0].float(), steps % 2)
    assert rows.dones.any() and not rows.dones[steps % 3 != 1].any()  # the first environment's ends are truncations
    _filled(buffer, 2, 15)
    assert buffer.full and buffer.size() == 10 and buffer.pos == 2
    buffer.reset()
    with pytest.raises(ValueError, match="empty"):
        buffer.sample(1)
    with pytest.raises(TypeError, match="spaces"):
        ReplayBuffer(10, None, None)


def test_truncations_count_as_ends_where_they_are_not_told_apart():
    space, actions = spaces.Box(-99, 99, (3,), np.float32), spaces.Discrete(2)
    buffer = _filled(ReplayBuffer(20, space, actions, handle_timeout_termination=False), 1, 3)
    rows = buffer.sample(64)
    torch.testing.assert_close(rows.dones, (rows.rewards == 0).float())


def test_dicts_several_steps_and_statistics():
    space = spaces.Dict(a=spaces.Box(-9, 9, (2,), np.float32))
    buffer = _filled(DictReplayBuffer(9, space, spaces.Box(-1, 1, (1,))), 1, 4, lambda step: {"a": np.full(2, step)})
    rows = buffer.sample(5)
    assert rows.observations["a"].shape == (5, 2) and rows.actions.dtype == torch.float32
    venv = VecNormalize(make_vec_env("Pendulum-v1", 2))
    buffer = ReplayBuffer(10, venv.observation_space, venv.action_space, n_envs=2)
    before = venv.reset()
    after, rewards, dones, infos = venv.step(np.zeros((2, 1), np.float32))
    one = (venv.get_original_obs(), venv.get_original_obs(), np.zeros((2, 1)), venv.get_original_reward(), dones, infos)
    buffer.extend(*([each, each] for each in one))
    assert buffer.size() == 2 and before.shape == after.shape
    found = buffer.sample(20, env=venv)
    assert set(found.rewards[:, 0].tolist()) <= set(rewards.astype(np.float32).tolist())
    known = {tuple(row) for row in after.astype(np.float32).round(4).tolist()}
    assert {tuple(row) for row in found.observations.numpy().astype(np.float32).round(4).tolist()} <= known
