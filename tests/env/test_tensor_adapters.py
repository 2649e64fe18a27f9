"""Adapters of simulators, with stand-ins that have their interfaces."""

from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from gymnasium import Env, make_vec
from gymnasium.spaces import Box, Dict, Discrete
from gymnasium.wrappers import OrderEnforcing
from gymnasium.wrappers import vector as wrappers

from rllib import PPOConfig
from rllib.env.streams.tensors_as_arrays import warn_of_lost_finals
from rllib.env.tasks.torch_cartpole import TorchCartPole
from rllib.env.tensors.adapters import AsVectorEnv, FunctionalVectorEnv, from_brax

SHORT = {
    "num_rollout_workers": 0, "num_envs_per_worker": 8, "train_batch_size": 64, "sgd_minibatch_size": 32,
    "num_sgd_iter": 2, "model": {"fcnet_hiddens": [8]}, "seed": 0,
}  # fmt: skip


class Isaac(Env):
    """As isaaclab.envs.ManagerBasedRLEnv: no VectorEnv, observations in groups, no final ones, flags of bytes."""

    def __init__(self, num_envs, finals=False):
        self._env, self.num_envs, self._finals = TorchCartPole(num_envs, max_episode_steps=5), num_envs, finals
        critic = Box(-1, 1, (2,))
        self.single_observation_space = Dict(policy=self._env.single_observation_space, critic=critic)
        self.single_action_space, self.closed = Discrete(2), False
        self.observation_space = self.action_space = Box(-1, 1)  # batched ones, which nothing reads

    def seen(self, observations):
        return {"policy": observations, "critic": torch.zeros(self.num_envs, 2)}

    def reset(self, *, seed=None, options=None):
        return self.seen(self._env.reset(seed=seed)[0]), {}

    def step(self, actions):
        observations, rewards, terminated, truncated, info = self._env.step(actions)
        given = {"final_observation": self.seen(info["final_obs"])} if self._finals else {}
        return self.seen(observations), rewards, terminated.to(torch.uint8), truncated.to(torch.uint8), given

    def close(self):
        self.closed = True


@pytest.mark.parametrize("finals", [True, False])
def test_isaac(finals, caplog):
    made = []
    warn_of_lost_finals.cache_clear()

    def make(context):
        made.append(Isaac(context.num_envs, finals))
        return AsVectorEnv(OrderEnforcing(made[-1]))

    with PPOConfig().environment(make).update_from_dict(SHORT).build() as algo:
        assert algo.rollout_device == "cpu" and algo.observation_space.shape == (4,)
        result = [algo.train() for _ in range(2)][-1]
        assert result["episode_len_mean"] == 5 and algo.evaluate(3)["episode_reward_mean"] == 5
    assert made[-1].closed and all(each.closed for each in made)
    assert any("gives no final observations" in record.message for record in caplog.records) is not finals


class State(NamedTuple):
    """Of Brax, with numpy's arrays for JAX's: both speak DLPack."""

    obs: Any
    reward: Any
    done: Any
    info: dict


class Counting:
    """State: steps so far; an episode is truncated after five, and terminates where the action is below -0.9."""

    observation_size, action_size = 1, 2

    def __init__(self, xp, num_envs):
        self.xp, self.num_envs = xp, num_envs

    def reset(self, key):
        zeros = self.xp.zeros(self.num_envs, self.xp.float32)
        return State(self.xp.zeros((self.num_envs, 1), self.xp.float32), zeros, zeros, {"truncation": zeros})

    def step(self, state, actions):
        xp, counts = self.xp, state.obs + 1
        terminated, truncated = actions[:, 0] < -0.9, counts[:, 0] >= 5
        done = terminated | truncated
        following = xp.where(done[:, None], 0, counts).astype(xp.float32)
        info = {"truncation": (truncated & ~terminated).astype(xp.float32)}
        return State(following, counts[:, 0], done.astype(xp.float32), info)


def test_functions_of_a_state():
    env = Counting(np, 8)
    made = FunctionalVectorEnv(env.reset, env.step, np.from_dlpack, 8, Box(0, 9, (1,)), Box(-1, 1, (2,)))
    first, _ = made.reset(seed=0)
    actions = torch.zeros(8, 2)
    actions[3] = -1
    observations, rewards, terminated, truncated, _ = made.step(actions)
    assert not first.any() and rewards.tolist() == [1.0] * 8 and not truncated.any()
    assert terminated.tolist() == [index == 3 for index in range(8)]
    assert observations[:, 0].tolist() == [0.0 if index == 3 else 1.0 for index in range(8)]
    for _ in range(4):
        *_, terminated, truncated, _ = made.step(torch.zeros(8, 2))
    assert truncated.tolist() == [index != 3 for index in range(8)] and not terminated.any()
    with PPOConfig().environment(lambda context: made).update_from_dict(SHORT).build() as algo:
        assert algo.train()["num_env_steps_sampled"] == 64


@pytest.mark.extras("jax")
def test_brax():
    import jax.numpy as jnp

    make = lambda context: from_brax(Counting(jnp, context.num_envs), context.num_envs)  # noqa: E731
    with PPOConfig().environment(make).update_from_dict(SHORT).build() as algo:
        assert algo.rollout_device is not None and algo.train()["episode_len_mean"] <= 5


@pytest.mark.extras("array_api_compat")  # of gymnasium.wrappers.vector.NumpyToTorch
def test_gymnasiums_wrapper():
    make = lambda context: wrappers.NumpyToTorch(make_vec("CartPole-v1", num_envs=context.num_envs))  # noqa: E731
    with PPOConfig().environment(make).update_from_dict(SHORT).build() as algo:
        assert algo.rollout_device == "cpu"
        batch = algo.sample(64)
        assert isinstance(batch["obs"], torch.Tensor) and batch["rewards"].dtype == torch.float32
        algo.train()
