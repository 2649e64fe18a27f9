"""Simulators on an accelerator as gymnasium VectorEnvs of torch tensors.

    .environment(lambda context: AsVectorEnv(make_isaac_env(context.num_envs)))
    .environment(lambda context: from_brax(brax.envs.create("ant", batch_size=context.num_envs), context.num_envs))

Both kinds reset ended episodes within the step. Where they give no final observations, the value of a truncated
episode's end is taken from the observation before its last step (TensorStream).
"""

from collections.abc import Callable
from typing import Any, ClassVar

import gymnasium
import numpy as np
import torch
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from torch import Tensor

from rllib.env.streams.tensors_as_arrays import final_observations


class AsVectorEnv(VectorEnv):
    """A VectorEnv over an object that steps N environments as tensors, as in Isaac Lab, mjlab and ManiSkill.

    Args:
        env: has num_envs, single_observation_space and single_action_space, below wrappers that it may have. Of tensors
            reset(seed=..., options=...) -> (observations, info), and step(actions) -> (observations, rewards,
            terminated, truncated, info). Is closed by close().
        group: key of the observations that the policy gets, where they are a dict of groups; None: all of them.
    """

    metadata: ClassVar[dict] = {"autoreset_mode": AutoresetMode.SAME_STEP}

    def __init__(self, env: Any, group: str | None = "policy"):
        base = getattr(env, "unwrapped", env)  # gymnasium's wrappers do not pass these attributes on
        self._env, self.num_envs = env, base.num_envs
        space = base.single_observation_space
        self._group = group if isinstance(space, gymnasium.spaces.Dict) and group in space.spaces else None
        self.single_observation_space = space if self._group is None else space[self._group]
        self.single_action_space = base.single_action_space
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple:
        observations, info = self._env.reset(seed=seed, options=options)
        return self._seen(observations), info

    def step(self, actions: Tensor) -> tuple:
        observations, rewards, terminated, truncated, info = self._env.step(actions)
        final = final_observations(info)
        if final is not None:
            info = {**info, "final_obs": self._seen(final)}
        return self._seen(observations), rewards, terminated.bool(), truncated.bool(), info

    def _seen(self, observations):
        return observations if self._group is None else observations[self._group]

    def close_extras(self, **kwargs) -> None:
        self._env.close()


class FunctionalVectorEnv(VectorEnv):
    """A VectorEnv over pure functions of a state, whose arrays pass to and from torch by DLPack: no copy is made.

    A state has obs [N, ...], reward [N], done [N] and the dict info, with "truncation" [N] where episodes have a time
    limit, as in Brax, MJX and MuJoCo Playground. It may have info["final_obs"].

    Args:
        reset: seed -> state of N environments.
        step: (state, actions) -> state.
        from_dlpack: makes an array of a tensor, for `step`: jax.numpy.from_dlpack.
        num_envs: N.
        observation_space, action_space: of a single environment.
    """

    metadata: ClassVar[dict] = {"autoreset_mode": AutoresetMode.SAME_STEP}

    def __init__(
        self,
        reset: Callable[[int], Any],
        step: Callable[[Any, Any], Any],
        from_dlpack: Callable[[Tensor], Any],
        num_envs: int,
        observation_space: gymnasium.Space,
        action_space: gymnasium.Space,
    ):
        self._reset, self._step, self._from_dlpack = reset, step, from_dlpack
        self.num_envs, self._state, self._seed = num_envs, None, 0
        self.single_observation_space, self.single_action_space = observation_space, action_space
        self.observation_space = batch_space(observation_space, num_envs)
        self.action_space = batch_space(action_space, num_envs)

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Tensor, dict]:
        self._seed = self._seed + 1 if seed is None else seed
        self._state = self._reset(self._seed)
        return torch.from_dlpack(self._state.obs), {}

    def step(self, actions: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, dict]:
        self._state = state = self._step(self._state, self._from_dlpack(actions))
        done = torch.from_dlpack(state.done) > 0
        truncated = torch.zeros_like(done)
        if "truncation" in state.info:
            truncated = torch.from_dlpack(state.info["truncation"]) > 0
        final = final_observations(state.info)
        info = {} if final is None else {"final_obs": torch.from_dlpack(final)}
        return torch.from_dlpack(state.obs), torch.from_dlpack(state.reward), done & ~truncated, truncated, info


def from_brax(env: Any, num_envs: int) -> FunctionalVectorEnv:
    """A VectorEnv over a batched environment of Brax or MuJoCo Playground, compiled for the device that JAX chooses.

    Args:
        env: as brax.envs.create(name, batch_size=num_envs) makes it, with its wrappers for episodes and resets: it has
            reset(key), step(state, actions), observation_size and action_size. Actions are in [-1, 1].
        num_envs: its batch size.
    """
    import jax

    bound = np.full(env.observation_size, np.inf, np.float32)
    reset = jax.jit(env.reset)
    return FunctionalVectorEnv(
        lambda seed: reset(jax.random.PRNGKey(seed)),
        jax.jit(env.step),
        jax.numpy.from_dlpack,
        num_envs,
        gymnasium.spaces.Box(-bound, bound),
        gymnasium.spaces.Box(-1.0, 1.0, (env.action_size,)),
    )
