"""The mapping between the actions of a policy and those of an environment."""

import numpy as np
from gymnasium import spaces


class ActionMapper:
    """Maps actions as a policy draws and stores them to what the environment takes, and back.

    | space          | policy                                                   | environment                  |
    |----------------|----------------------------------------------------------|------------------------------|
    | Discrete       | 0 .. n - 1, int64                                        | start .. start + n - 1       |
    | MultiDiscrete  | 0 .. nvec - 1, int64                                     | start .. start + nvec - 1    |
    | MultiBinary    | 0, 1                                                     | 0, 1                         |
    | Box            | float32; where normalised, [-1, 1] spans low to high     | within [low, high], own dtype |
    | integer Box    | 0 .. high - low, int64 (IntegerBoxMapper)                | low .. high, own dtype       |

    Only components of a Box with two finite bounds are normalised; the others keep their values. Actions
    beyond a bound are clipped for the environment, but stored unclipped: the log-probability belongs to the action that
    was drawn.

    Args:
        space: the action space of a single environment.
        normalize_actions: the policy acts in [-1, 1] (Box only).
        clip_actions: clip to the bounds although nothing is normalised (Box only).
    """

    def __init__(self, space: spaces.Space, normalize_actions: bool = True, clip_actions: bool = False):
        self.space = space
        self._box = isinstance(space, spaces.Box)
        self._start = np.asarray(getattr(space, "start", 0))
        self._shifted = bool(np.any(self._start))
        if not self._box:
            return
        low, high = space.low.astype(np.float64), space.high.astype(np.float64)
        self._low, self._high = low, high
        bounded = np.isfinite(low) & np.isfinite(high)
        if not normalize_actions:
            bounded[...] = False
        low, high = np.where(bounded, low, -1.0), np.where(bounded, high, 1.0)
        self._half_range = high / 2 - low / 2  # in this form bounds near the largest float do not overflow
        self._middle = high / 2 + low / 2
        self._affine = bool(bounded.any())
        self._clip = normalize_actions or clip_actions
        self._integer = space.dtype.kind != "f"

    @property
    def policy_bounds(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Least and largest actions in the policy's own units, float32 (Box only; else None)."""
        if not self._box:
            return None
        half_range = np.where(self._half_range > 0, self._half_range, 1.0)
        return tuple(((bound - self._middle) / half_range).astype(np.float32) for bound in (self._low, self._high))

    def to_env(self, actions: np.ndarray) -> np.ndarray:
        """Actions [N, ...] of the policy as actions of the environment, in the dtype of its space.

        Bounds hold exactly, after rounding to that dtype as well. If nothing changes, the same array is returned.
        """
        if not self._box:
            return actions + self._start if self._shifted else actions
        if not self._clip:
            return self._cast(actions)
        if self._affine:
            actions = actions * self._half_range + self._middle
        # float64 holds every bound of the space exactly, and rounding to the dtype is monotonic: it cannot leave them.
        return self._cast(np.minimum(np.maximum(actions, self._low), self._high))

    def to_policy(self, actions: np.ndarray) -> np.ndarray:
        """The inverse: actions [N, ...] of the environment as the policy would have stored them; for recorded data."""
        if not self._box:
            return actions - self._start if self._shifted else actions
        half_range = np.where(self._half_range > 0, self._half_range, 1.0)  # low == high: any action maps there
        return ((actions - self._middle) / half_range).astype(np.float32)

    def _cast(self, actions):
        actions = np.rint(actions) if self._integer else actions
        return actions.astype(self.space.dtype, copy=False)


class SquashedActionMapper(ActionMapper):
    """The mapping for policies that draw and store actions before tanh: tanh(action) spans the bounds of a Box."""

    def __init__(self, space: spaces.Space):
        super().__init__(space)

    def to_env(self, actions: np.ndarray) -> np.ndarray:
        return super().to_env(np.tanh(actions))

    def to_policy(self, actions: np.ndarray) -> np.ndarray:
        # Actions at a bound would be infinite before tanh.
        limit = np.float32(1 - np.finfo(np.float32).eps)
        return np.arctanh(np.clip(super().to_policy(actions), -limit, limit))


class IntegerBoxMapper(ActionMapper):
    """The mapping for policies that choose among the values of each number of a Box of integers, counted from low."""

    policy_bounds = None

    def to_env(self, actions: np.ndarray) -> np.ndarray:
        return (actions + self.space.low.astype(np.int64)).astype(self.space.dtype)

    def to_policy(self, actions: np.ndarray) -> np.ndarray:
        return actions.astype(np.int64) - self.space.low.astype(np.int64)


def action_mapper(space: spaces.Space, distribution, normalize_actions: bool, clip_actions: bool) -> ActionMapper:
    """The mapping of the actions that a policy's distribution draws; arguments as for ActionMapper."""
    if getattr(distribution, "squashed", False):
        return SquashedActionMapper(space)
    if isinstance(space, spaces.Box) and distribution.action_dtype.kind == "i":
        return IntegerBoxMapper(space)
    return ActionMapper(space, normalize_actions, clip_actions)
