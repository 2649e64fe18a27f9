"""An environment as pure functions of a state and a key, and the spaces of suites that have classes of their own."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import numpy as np
from gymnasium import spaces

# A time limit that no episode reaches.
NEVER = np.iinfo(np.int32).max


class Transition(NamedTuple):
    """What a step of one environment gives.

    Attributes:
        state: the next state, a tree of arrays.
        observation: true also where the episode has ended.
        reward: a number.
        terminated, truncated: bools.
        info: name -> array.
    """

    state: Any
    observation: Any
    reward: Any
    terminated: Any
    truncated: Any
    info: dict[str, Any]


@dataclass(frozen=True, eq=False)
class Functions:
    """The functions of one environment, which JAX can compile; nothing in them resets an ended episode.

    Attributes:
        reset: key -> (state, observation).
        step: (key, state, action) -> Transition.
        observation_space, action_space: of gymnasium.
    """

    reset: Callable[[Any], tuple[Any, Any]]
    step: Callable[[Any, Any, Any], Transition]
    observation_space: spaces.Space
    action_space: spaces.Space


def limited(functions: Functions, max_episode_steps: int) -> Functions:
    """The functions with a time limit: an episode is truncated after this number of steps."""

    def reset(key):
        state, observation = functions.reset(key)
        return (state, jax.numpy.int32(0)), observation

    def step(key, state, action):
        made = functions.step(key, state[0], action)
        steps = state[1] + 1
        return made._replace(state=(made.state, steps), truncated=made.truncated | (steps >= max_episode_steps))

    return replace(functions, reset=reset, step=step)


def space_of(space: Any) -> spaces.Space:
    """The space of gymnasium for one of gymnax, Craftax or NAVIX."""
    parts = getattr(space, "spaces", None)
    if isinstance(parts, dict):
        return spaces.Dict({key: space_of(part) for key, part in parts.items()})
    if parts is not None:
        return spaces.Tuple([space_of(part) for part in parts])
    shape, dtype = tuple(space.shape), np.dtype(space.dtype)
    if hasattr(space, "n"):
        return spaces.Discrete(int(space.n)) if not shape else spaces.Box(0, int(space.n) - 1, shape, dtype)
    given = (space.low, space.high) if hasattr(space, "low") else (space.minimum, space.maximum)
    low, high = (np.broadcast_to(np.asarray(bound, dtype), shape) for bound in given)
    if dtype.kind == "f":  # gymnax has the largest float where there is no bound
        largest = np.finfo(np.float32).max
        low, high = np.where(low <= -largest, -np.inf, low), np.where(high >= largest, np.inf, high)
    return spaces.Box(low.astype(dtype), high.astype(dtype), dtype=dtype)
