"""Simulators on an accelerator as gymnasium VectorEnvs of torch tensors.

    .environment(lambda context: AsVectorEnv(make_isaac_env(context.num_envs)))
    .environment(lambda context: from_brax(brax.envs.create("ant", batch_size=context.num_envs), context.num_envs))

Both kinds reset ended episodes within the step. Where they give no final observations, the value of a truncated
episode's end is taken from the observation before its last step (TensorStream).
"""

import contextlib
from collections import defaultdict, deque
from collections.abc import Callable, Iterable
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

    Truncated ends are bootstrapped, unless `cfg.is_finite_horizon` says that the time limit belongs to the task.
    Numbers that the environment logs (info["log"], or info["episode"]) are collected for results (`pop_log`).

    Args:
        env: has num_envs, single_observation_space and single_action_space, below wrappers that it may have. Of tensors
            reset(seed=..., options=...) -> (observations, info), and step(actions) -> (observations, rewards,
            terminated, truncated, info). Is closed by close().
        group: key of the observations that the policy gets, where they are a dict of groups; None: all of them. For
            "policy" also "actor", as rsl_rl 4 and mjlab call it.
        critic_group: key of a group that observations have in addition to the policy's, for
            .environment(critic_observation_keys=[critic_group]); None: none.
        clip_actions: actions are clipped to +- this number, which becomes the bound of their space; None: the
            environment's own space.
        random_ages: the first episodes begin at random ages, so that time limits do not end all of them in one step;
            needs episode_length_buf and max_episode_length.

    Attributes:
        simulator: the environment below its wrappers.

    Raises:
        ValueError: if the observations have no such groups, or actions that are no Box are to be clipped.
    """

    metadata: ClassVar[dict] = {"autoreset_mode": AutoresetMode.SAME_STEP}

    def __init__(
        self,
        env: Any,
        group: str | None = "policy",
        *,
        critic_group: str | None = None,
        clip_actions: float | None = None,
        random_ages: bool = False,
    ):
        base = getattr(env, "unwrapped", env)  # gymnasium's wrappers do not pass these attributes on
        self._env, self.simulator, self.num_envs = env, base, base.num_envs
        self._clip, self._random_ages = clip_actions, random_ages
        self._limit_ends = bool(getattr(getattr(base, "cfg", None), "is_finite_horizon", False))
        self._log: defaultdict[str, deque] = defaultdict(lambda: deque(maxlen=_MOST_LOGGED))
        space = _gymnasium_space(base.single_observation_space)
        self._group = _policy_group(space, group)
        self._critic_group = None if critic_group is None else _critic_group(space, self._group, critic_group)
        if self._critic_group is not None:
            space = gymnasium.spaces.Dict({key: space[key] for key in (self._group, critic_group)})
        elif self._group is not None:
            space = space[self._group]
        self.single_observation_space = space
        self.single_action_space = _clipped(_gymnasium_space(base.single_action_space), clip_actions)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple:
        observations, info = self._env.reset(seed=seed, options=options)
        if self._random_ages:
            ages, longest = self.simulator.episode_length_buf, int(self.simulator.max_episode_length)
            self.simulator.episode_length_buf = torch.randint_like(ages, high=longest)
        return self._seen(observations), info

    def step(self, actions: Tensor) -> tuple:
        if self._clip is not None:
            actions = actions.clamp(-self._clip, self._clip)
        observations, rewards, terminated, truncated, info = self._env.step(actions)
        final = final_observations(info)
        if final is not None:
            info = {**info, "final_obs": self._seen(final)}
        for name, value in (info.get("episode") or info.get("log") or {}).items():
            self._log[name].append(value)
        terminated, truncated = terminated.bool(), truncated.bool()
        if self._limit_ends:
            terminated, truncated = terminated | truncated, torch.zeros_like(truncated)
        return self._seen(observations), rewards, terminated, truncated, info

    def pop_log(self) -> dict[str, float]:
        """Means of what the environment has logged since the last call, over the steps that had a value."""
        means = {name: _mean(values) for name, values in self._log.items()}
        self._log.clear()
        return means

    def resume_at(self, steps: int) -> None:
        """Sets the simulator's count of steps, which its curricula follow, where it has one (common_step_counter)."""
        if hasattr(self.simulator, "common_step_counter"):
            with contextlib.suppress(AttributeError):  # of a property that can only be read
                self.simulator.common_step_counter = steps

    def _seen(self, observations):
        if self._critic_group is not None:
            return {key: observations[key] for key in (self._group, self._critic_group)}
        return observations if self._group is None else observations[self._group]

    def close_extras(self, **kwargs) -> None:
        self._env.close()


def _gymnasium_space(space: Any) -> gymnasium.Space:
    """A space; for one that only looks like gymnasium's Dict or Box, as mjlab's, that of gymnasium."""
    if isinstance(space, gymnasium.Space):
        return space
    if parts := getattr(space, "spaces", None):
        return gymnasium.spaces.Dict({key: _gymnasium_space(part) for key, part in parts.items()})
    return gymnasium.spaces.Box(
        np.broadcast_to(np.float32(space.low), space.shape), np.broadcast_to(np.float32(space.high), space.shape)
    )


def _policy_group(space: gymnasium.Space, group: str | None) -> str | None:
    """The key of the policy's observations; None: they are all that there is."""
    if group is None or not isinstance(space, gymnasium.spaces.Dict):
        return None
    found = next((name for name in (group, *_SAME_GROUP.get(group, ())) if name in space.spaces), None)
    if found is None and set(space.spaces) & _OF_CRITICS:
        raise ValueError(
            f"the observations have the groups {list(space.spaces)}, and the policy's group {group!r} is not among "
            "them. Name it: group=NAME."
        )
    return found


def _critic_group(space: gymnasium.Space, group: str | None, critic_group: str) -> str:
    if group is None or critic_group not in space.spaces or critic_group == group:
        has = f"the groups {list(space.spaces)}" if isinstance(space, gymnasium.spaces.Dict) else f"one part, {space}"
        raise ValueError(
            f"critic_group={critic_group!r} must be a group other than the policy's, but the observations have {has}. "
            "Leave critic_group out, and the value reads what the policy reads."
        )
    return critic_group


def _clipped(space: gymnasium.Space, bound: float | None) -> gymnasium.Space:
    if bound is None:
        return space
    if not isinstance(space, gymnasium.spaces.Box) or not bound > 0:
        raise ValueError(f"clip_actions={bound!r} must be a positive bound of a Box of actions, but they are {space}")
    return gymnasium.spaces.Box(-float(bound), float(bound), space.shape)


def _mean(values: Iterable) -> float:
    """Mean of numbers and of tensors' entries."""
    tensors = [torch.as_tensor(value, dtype=torch.float64).mean().cpu() for value in values]
    return float(torch.stack(tensors).mean())


# What else the groups of observations are called.
_SAME_GROUP = {"policy": ("actor",)}
# Newest values of a name that are kept until they are asked for.
_MOST_LOGGED = 1000
# Groups that only a value or a teacher may read.
_OF_CRITICS = {"critic", "teacher"}


class FunctionalVectorEnv(VectorEnv):
    """A VectorEnv over pure functions of a state, whose arrays pass to and from torch by DLPack: no copy is made.

    A state has obs [N, ...], reward [N], done [N] and the dict info, with "truncation" [N] where episodes have a time
    limit, as in Brax, MJX and MuJoCo Playground. It may have info["final_obs"].

    Args:
        reset: seed -> state of N environments.
        step: (state, actions) -> state.
        from_dlpack: makes an array of a tensor, for `step`: jax.numpy.from_dlpack.
        num_envs: N.
        observation_space, action_space: spaces of a single environment.
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
