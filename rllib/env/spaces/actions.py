"""The mapping between a policy's actions and an environment's."""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from operator import methodcaller
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils import create_empty_array

from rllib.models.distributions.base import ActionUnit
from rllib.models.distributions.choose import distribution_for
from rllib.models.observations.flat_spaces import action_form, flat_leaves, parts, values_of_leaves


class ActionMapper:
    """Maps actions as a policy draws and stores them to what the environment takes, and back.

    | space          | policy                                                   | environment                  |
    |----------------|----------------------------------------------------------|------------------------------|
    | Discrete       | 0 .. n - 1, int64                                        | start .. start + n - 1       |
    | MultiDiscrete  | 0 .. nvec - 1, int64                                     | start .. start + nvec - 1    |
    | MultiBinary    | 0, 1                                                     | 0, 1                         |
    | Box            | float32; where normalised, [-1, 1] spans low to high     | within [low, high], own dtype |
    | Box, squashed  | float32, unbounded, before tanh (SquashedActionMapper)   | within [low, high], own dtype |
    | integer Box    | 0 .. high - low, int64 (IntegerBoxMapper)                | low .. high, own dtype       |
    | Tuple, Dict    | one row (StructuredActionMapper)                         | a tuple or dict              |

    Only components of a Box with two finite bounds are normalised; the others keep their values. Actions
    beyond a bound are clipped for the environment, but stored unclipped: the log-probability belongs to the action that
    was drawn.

    Args:
        space: the action space of a single environment.
        normalize_actions: the policy acts in [-1, 1] (Box only).
        clip_actions: clip to the bounds although nothing is normalised (Box only). Without both, actions of the
            environment are those of the policy, which may lie outside of the space.

    Attributes:
        low, high, half_range, middle: float64, of a Box: actions of the environment are half_range * action + middle.
        clips: whether they are then clipped to low ... high; if not, they are the policy's own.
    """

    def __init__(self, space: spaces.Space, normalize_actions: bool = True, clip_actions: bool = False):
        self.space = space
        self._box = isinstance(space, spaces.Box)
        self._start = np.asarray(getattr(space, "start", 0))
        self._shifted = bool(np.any(self._start))
        if not self._box:
            return
        low, high = space.low.astype(np.float64), space.high.astype(np.float64)
        self.low, self.high = low, high
        bounded = normalize_actions & np.isfinite(low) & np.isfinite(high)  # of shape (), a scalar
        low, high = np.where(bounded, low, -1.0), np.where(bounded, high, 1.0)
        self.half_range = high / 2 - low / 2  # in this form bounds near the largest float do not overflow
        self.middle = high / 2 + low / 2
        self._affine = bool(bounded.any())
        self.clips = normalize_actions or clip_actions
        self._integer = space.dtype.kind != "f"

    @property
    def policy_bounds(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Least and largest actions in the policy's own units, float32 (Box only; else None)."""
        if not self._box:
            return None
        half_range = np.where(self.half_range > 0, self.half_range, 1.0)
        return tuple(((bound - self.middle) / half_range).astype(np.float32) for bound in (self.low, self.high))

    @property
    def log_scale(self) -> float:
        """log |d environment / d policy|: log-densities in units of the policy are larger by it; 0 for choices.

        Densities of squashed actions are of tanh(action), which spans the bounds.
        """
        if not self._box or self._integer:
            return 0.0
        return float(np.log(self.half_range[self.half_range > 0]).sum())

    def to_env(self, actions: np.ndarray) -> np.ndarray:
        """Actions [N, ...] of the policy as actions of the environment, in the dtype of its space.

        Bounds hold exactly, after rounding to that dtype as well. If nothing changes, the same array is returned.
        """
        if not self._box:
            return (actions + self._start if self._shifted else actions).astype(self.space.dtype, copy=False)
        if not self.clips:
            return self._cast(actions)
        if self._affine:
            actions = actions * self.half_range + self.middle
        # float64 holds every bound of the space exactly, and rounding to the dtype is monotonic: it cannot leave them.
        return self._cast(np.minimum(np.maximum(actions, self.low), self.high))

    def clipped(self, actions: np.ndarray) -> np.ndarray:
        """Actions [N, ...] of the policy, in its units, as the environment takes them: within its bounds."""
        return np.clip(actions, *self.policy_bounds) if self._box and self.clips else actions

    def to_policy(self, actions: np.ndarray) -> np.ndarray:
        """The inverse: actions [N, ...] of the environment as the policy would have stored them; for recorded data."""
        if not self._box:
            return actions - self._start if self._shifted else actions
        half_range = np.where(self.half_range > 0, self.half_range, 1.0)  # low == high: any action maps there
        return ((actions - self.middle) / half_range).astype(np.float32)

    def _cast(self, actions):
        actions = np.rint(actions) if self._integer else actions
        return actions.astype(self.space.dtype, copy=False)


def bounded_within(space: spaces.Box) -> str:
    """A Box with finite bounds within one that lacks some, as a user may write it: a range of 1 from a single bound."""
    low, high = (bound.astype(np.float64) for bound in (space.low, space.high))
    below, above = np.isfinite(low), np.isfinite(high)
    least = np.where(below, low, np.where(above, high - 1, -1.0))
    most = np.where(above, high, np.where(below, low + 1, 1.0))
    if (least == least.min()).all() and (most == most.max()).all():
        return f"Box({float(least.min())}, {float(most.max())}, {space.shape})"
    return f"Box(np.array({least.tolist()}, 'float32'), np.array({most.tolist()}, 'float32'))"


class SquashedActionMapper(ActionMapper):
    """The mapping for policies that draw and store actions before tanh: tanh(action) spans the bounds of a Box."""

    def __init__(self, space: spaces.Space):
        super().__init__(space)

    def to_env(self, actions: np.ndarray) -> np.ndarray:
        return super().to_env(ActionUnit.BEFORE_TANH.read(actions))

    def clipped(self, actions: np.ndarray) -> np.ndarray:
        return actions

    def to_policy(self, actions: np.ndarray) -> np.ndarray:
        return ActionUnit.BEFORE_TANH.stored(super().to_policy(actions))


class IntegerBoxMapper(ActionMapper):
    """The mapping for policies that choose among the values of each number of a Box of integers, counted from low."""

    policy_bounds = None

    def to_env(self, actions: np.ndarray) -> np.ndarray:
        return (actions + self.space.low.astype(np.int64)).astype(self.space.dtype)

    def clipped(self, actions: np.ndarray) -> np.ndarray:
        return actions

    def to_policy(self, actions: np.ndarray) -> np.ndarray:
        return actions.astype(np.int64) - self.space.low.astype(np.int64)


class StructuredActionMapper:
    """Maps rows of a policy for Tuple or Dict actions to batches in the form of the space, and back.

    Each leaf is mapped as an action of its space is alone: starts are added, and only numbers of a Box of floats are
    normalised and clipped. A batch is a tuple or dict of arrays [N, ...], as gymnasium's vector environments take them.

    Args:
        space: the Tuple or Dict.
        normalize_actions, clip_actions: as for ActionMapper.
    """

    policy_bounds = None

    def __init__(self, space: spaces.Space, normalize_actions: bool, clip_actions: bool):
        self.space = space
        self._leaves, first = [], 0
        for leaf in flat_leaves(space):
            own, last = distribution_for(leaf.space), first + math.prod(leaf.shape)
            mapper = action_mapper(leaf.space, own, normalize_actions, clip_actions)
            self._leaves.append((slice(first, last), own, mapper))
            first = last
        self._num_numbers, self._dtype = first, action_form(space)[1]
        self._structured = _builder(space)

    @property
    def log_scale(self) -> float:
        """The sum of the leaves', as ActionMapper has it."""
        return sum(mapper.log_scale for _, _, mapper in self._leaves)

    def to_env(self, actions: np.ndarray) -> dict | tuple:
        """Rows [N, numbers] of the policy as a batch of actions; its memory is new, environments may keep it."""
        return self._structured(self._mapped(actions))

    def _mapped(self, actions: np.ndarray) -> Iterator[np.ndarray]:
        for where, own, mapper in self._leaves:
            rows = actions[:, where].reshape(len(actions), *own.action_shape).astype(own.action_dtype)
            yield mapper.to_env(rows).astype(mapper.space.dtype, copy=False)

    def clipped(self, actions: np.ndarray) -> np.ndarray:
        """Rows [N, numbers] of the policy, in its units, within the bounds of their leaves."""
        rows = actions.copy()
        for where, _, mapper in self._leaves:
            if isinstance(mapper.space, spaces.Box):
                columns = rows[:, where]
                columns[:] = mapper.clipped(columns.reshape(len(rows), *mapper.space.shape)).reshape(columns.shape)
        return rows

    def to_policy(self, actions: dict | tuple) -> np.ndarray:
        """The inverse: a batch of N actions as the policy would have stored them, [N, numbers]; for recorded data."""
        given = list(values_of_leaves(self.space, actions))
        rows = np.empty((len(given[0]), self._num_numbers), self._dtype)
        for (where, _, mapper), values in zip(self._leaves, given):
            columns = rows[:, where]
            columns[:] = mapper.to_policy(np.asarray(values)).reshape(columns.shape)
        return rows


def _builder(space: spaces.Space) -> Callable[[Iterator], Any]:
    """Returns a function from an iterator over the values of a space's leaves to their structure."""
    inner = parts(space)
    if inner is None:
        return next
    builders = [(key, _builder(part)) for key, part in inner]
    if isinstance(space, spaces.Tuple):
        return lambda leaves: tuple(build(leaves) for _, build in builders)
    return lambda leaves: {key: build(leaves) for key, build in builders}


def structured_actions(space: spaces.Space, rows: np.ndarray):
    """Recorded actions [N, ...] as a batch in the structure of their space.

    Args:
        space: space of one action.
        rows: in the environment's units, in the form of `action_form`.

    Returns:
        an array [N, ...], or a dict or tuple of arrays.
    """
    if parts(space) is None:
        return rows
    leaves = flat_leaves(space)
    ends = np.cumsum([math.prod(leaf.shape) for leaf in leaves])[:-1]
    values = zip(leaves, np.split(rows, ends, axis=1))
    return _builder(space)(own.reshape(len(rows), *leaf.shape).astype(leaf.space.dtype) for leaf, own in values)


def of_each(space: spaces.Space, actions) -> Sequence:
    """The actions of N environments one by one, from a batch of them; most arrays are such a sequence already."""
    if (inner := parts(space)) is not None:
        each = zip(*(of_each(part, actions[key]) for key, part in inner))
        return [dict(zip(space.spaces, values)) for values in each] if isinstance(space, spaces.Dict) else list(each)
    if not space.shape and not isinstance(space, spaces.Discrete):  # its elements are arrays
        return [np.array(action) for action in actions]
    return actions


def one_by_one(space: spaces.Space) -> Callable[[Any], Sequence]:
    """A function from a batch of N actions of an environment to single ones, which environments may keep or change."""
    if isinstance(space, spaces.Discrete):
        return np.ndarray.tolist
    if isinstance(space, spaces.Tuple | spaces.Dict) or not space.shape:
        return partial(of_each, space)
    return methodcaller("astype", space.dtype)


def zero_action(space: spaces.Space):
    """An action of zeros in the form of the space; it may lie outside."""
    return of_each(space, create_empty_array(space, 1))[0]


def action_mapper(
    space: spaces.Space, distribution, normalize_actions: bool, clip_actions: bool
) -> ActionMapper | StructuredActionMapper:
    """The mapping of the actions that a policy's distribution draws; arguments as for ActionMapper.

    Those of a distribution that `spans_bounds` are stretched in any case.
    """
    if parts(space) is not None:
        return StructuredActionMapper(space, normalize_actions, clip_actions)
    if distribution.unit is ActionUnit.BEFORE_TANH:
        return SquashedActionMapper(space)
    if isinstance(space, spaces.Box) and distribution.action_dtype.kind == "i":
        return IntegerBoxMapper(space)
    return ActionMapper(space, normalize_actions or distribution.spans_bounds, clip_actions)
