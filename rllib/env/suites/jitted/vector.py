"""A vector environment over functions of JAX: N states in one compiled step."""

import functools
import logging
import time
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from rllib.env.suites.jitted.functions import Functions

logger = logging.getLogger("rllib.env")


class JittedVector(VectorEnv):
    """N environments in one compiled step; those whose episode has ended are reset within it.

    Each environment has its own random stream, seeded with its seed: its episodes do not depend on the number of other
    environments. The constructor compiles; the same functions compile once in a process for each N.

    Args:
        name: the suite's word and id, for messages.
        functions: of one environment; the same object for the same environment.
        num_envs: N.

    Attributes:
        compile_time_s: time that the constructor has taken to compile (seconds); 0 where that had been done.
    """

    metadata: ClassVar[dict] = {"autoreset_mode": AutoresetMode.SAME_STEP}
    takes_a_seed_each = True

    def __init__(self, name: str, functions: Functions, num_envs: int):
        self.name_in_suite, self.num_envs = name, num_envs
        self.single_observation_space, self.single_action_space = functions.observation_space, functions.action_space
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        started = time.perf_counter()
        before = _compiled.cache_info().misses
        self._program = _compiled(functions, num_envs)
        is_new = _compiled.cache_info().misses > before
        self.compile_time_s = time.perf_counter() - started if is_new else 0.0
        if is_new:
            logger.info("%s: compiled for %d environments in %.1f s", name, num_envs, self.compile_time_s)
        self._seed: Sequence[int] = np.random.SeedSequence().generate_state(num_envs)
        self._keys: Any = None
        self._states: Any = None
        # How arrays leave and enter; `in_tensors` changes it.
        self._shown: Callable[[Any], Any] = np.asarray
        self._taken: Callable[[Any], Any] = np.asarray
        self._is_in_tensors = False

    def in_tensors(self) -> "JittedVector":
        """Hands over torch tensors from now on, by DLPack: nothing is copied, and no step waits for the device."""
        import torch

        def taken(actions):
            # JAX has no numbers of 64 bits, unless they are switched on.
            short = {torch.int64: torch.int32, torch.float64: torch.float32}.get(actions.dtype, actions.dtype)
            return jnp.from_dlpack(actions.to(short).contiguous())

        self._shown, self._taken, self._is_in_tensors = torch.from_dlpack, taken, True
        return self

    def reset(self, *, seed: Sequence[int] | int | None = None, options: dict | None = None) -> tuple:
        """Starts an episode in every environment: observations, and an empty info.

        Args:
            seed: one for each environment, or one of which they are made; None: their streams continue.
            options: none.
        """
        if isinstance(seed, int):
            seed = np.random.SeedSequence(seed).generate_state(self.num_envs)
        if seed is not None or self._keys is None:
            seeds = np.array([int(each) & 0xFFFFFFFF for each in (self._seed if seed is None else seed)], np.uint32)
            self._keys, self._states = jax.vmap(jax.random.PRNGKey)(seeds), _zeros(self._program.states)
        observations, *_ = self._run(_zeros(self._program.actions), begins=True)
        return jax.tree.map(self._shown, observations), {}

    def step(self, actions) -> tuple:
        """Observations, rewards, terminated, truncated, and an info with what the environments give.

        Where episodes have ended, info["final_obs"] has their last observations, and info["final_info"] their infos;
        of tensors, the info has the last observations of all environments alone.
        """
        given = jax.tree.map(lambda each, to: self._taken(each).astype(to.dtype), actions, self._program.actions)
        *results, final, infos = self._run(given, begins=False)
        shown = jax.tree.map(self._shown, results)
        if self._is_in_tensors:
            return *shown, {"final_obs": jax.tree.map(self._shown, final)}
        infos = {name: np.asarray(values) for name, values in infos.items()}
        ended = shown[2] | shown[3]
        if ended.any():
            masks, of_ends = ({f"_{name}": rows for name in infos} for rows in (~ended, ended))
            finals = {"final_obs": jax.tree.map(self._shown, final), "_final_obs": ended}
            infos = {**infos, **masks, **finals, "final_info": {**infos, **of_ends}}
        return *shown, infos

    def _run(self, actions, begins: bool) -> tuple:
        self._keys, self._states, *results = self._program.call(self._keys, self._states, actions, begins)
        return tuple(results)

    def close_extras(self, **kwargs) -> None:
        self._keys = self._states = None


class _Program(NamedTuple):
    """What is compiled for N environments of a kind: one program for steps and resets, since compiling takes longest.

    Attributes:
        call: (keys, states, actions, begins) -> keys, states, observations, rewards, terminated, truncated, final
            observations, infos. With `begins` it makes no step, and resets all.
        states, actions: their shapes and dtypes.
    """

    call: Callable
    states: Any
    actions: Any


@functools.lru_cache(maxsize=16)
def _compiled(functions: Functions, num_envs: int) -> _Program:
    dtypes = _dtypes(functions.observation_space)
    # One after the other on a CPU, where N resets would cost N times one; all at once where they are in parallel.
    chunk = 1 if jax.default_backend() == "cpu" else num_envs

    def observed(observation):
        return jax.tree.map(lambda value, dtype: jnp.asarray(value).astype(dtype), observation, dtypes)

    def first(key):
        key, drawn = jax.random.split(key)
        state, observation = functions.reset(drawn)
        return key, jax.tree.map(jnp.asarray, state), observed(observation)

    def following(key, state, action):
        key, drawn = jax.random.split(key)
        made = functions.step(drawn, state, action)
        state = jax.tree.map(lambda value, old: jnp.asarray(value).astype(old.dtype), made.state, state)
        reward = jnp.asarray(made.reward, jnp.float32).reshape(())
        flags = jnp.asarray(made.terminated, bool), jnp.asarray(made.truncated, bool)
        return key, state, observed(made.observation), reward, *flags, made.info

    def with_resets(ended, keys, states, observations):
        rows_of_ended = jnp.nonzero(ended, size=num_envs, fill_value=num_envs)[0]

        def reset_chunk(index, all_rows):
            rows = jax.lax.dynamic_slice(rows_of_ended, (index * chunk,), (chunk,))
            new = jax.vmap(first)(all_rows[0].at[rows].get(mode="clip"))
            return jax.tree.map(lambda into, some: into.at[rows].set(some, mode="drop"), all_rows, new)

        count = (ended.sum() + chunk - 1) // chunk
        return jax.lax.fori_loop(0, count, reset_chunk, (keys, states, observations))

    def call(keys, states, actions, begins):
        step = jax.vmap(following)
        no_step = lambda: (keys, states, *map(_zeros, jax.eval_shape(step, keys, states, actions)[2:]))  # noqa: E731
        keys, states, final, rewards, terminated, truncated, infos = jax.lax.cond(
            begins, no_step, lambda: step(keys, states, actions)
        )
        keys, states, observations = with_resets(terminated | truncated | begins, keys, states, final)
        return keys, states, observations, rewards, terminated, truncated, final, infos

    key = jax.eval_shape(lambda: jax.random.PRNGKey(0))
    one = *jax.eval_shape(first, key)[:2], jax.tree.map(_action, _parts(functions.action_space))
    keys, states, actions = jax.tree.map(lambda each: jax.ShapeDtypeStruct((num_envs, *each.shape), each.dtype), one)
    lowered = jax.jit(call, donate_argnums=(0, 1)).lower(keys, states, actions, jax.ShapeDtypeStruct((), bool))
    return _Program(lowered.compile(), states, actions)


def _zeros(shapes):
    return jax.tree.map(lambda each: jnp.zeros(each.shape, each.dtype), shapes)


def _dtypes(space: spaces.Space):
    """The dtypes of a space's observations, in its structure."""
    if isinstance(space, spaces.Dict):
        return {key: _dtypes(part) for key, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(_dtypes(part) for part in space.spaces)
    return jax.dtypes.canonicalize_dtype(space.dtype)


def _parts(space: spaces.Space):
    """The spaces of a space's parts, in its structure."""
    if isinstance(space, spaces.Dict):
        return {key: _parts(part) for key, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(_parts(part) for part in space.spaces)
    return space


def _action(space: spaces.Space) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(space.shape, jax.dtypes.canonicalize_dtype(space.dtype))
