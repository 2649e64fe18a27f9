"""Storage of observations and mapping of actions for environments of torch tensors."""

import math

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from rllib.env.spaces.actions import ActionMapper, SquashedActionMapper, action_mapper
from rllib.env.spaces.observations import observation_column
from rllib.models.observations.flat_spaces import Leaf, flat_leaves, values_of_leaves


class TensorColumn:
    """The storage of a space's observations as rows of a tensor, as env/spaces/observations.py: ObservationColumn
    stores them.

    Args:
        space: space of a single observation.

    Attributes:
        shape, dtype: shape and dtype of one stored observation; the latter by its name.
    """

    def __init__(self, space: spaces.Space):
        stored = observation_column(space)
        self.shape, self.dtype = stored.shape, stored.dtype.name
        self._space, self._is_flat = space, not isinstance(space, spaces.Box | spaces.Discrete)
        self._leaves = flat_leaves(space) if self._is_flat else []
        self._first_columns: list[Tensor | None] = []  # of each leaf that is stored one-hot; made by the first write

    def write(self, batch, out: Tensor) -> None:
        """Writes a batched observation, tensors in the structure of the space, into out [N, *shape]."""
        if not self._is_flat:
            out.copy_(batch)
            return
        if not self._first_columns:
            self._first_columns = [_first_columns(leaf, out.device) for leaf in self._leaves]
        parts = values_of_leaves(self._space, batch)
        for leaf, first, values in zip(self._leaves, self._first_columns, parts, strict=True):
            columns = out[:, leaf.start : leaf.stop]
            if first is None:
                columns.copy_(values.reshape(columns.shape))
            else:
                columns.zero_().scatter_(1, values.reshape(values.shape[0], -1).long() + first, 1)


def _first_columns(leaf: Leaf, device: torch.device) -> Tensor | None:
    """Column of value 0 for each number of a leaf, int64 [numbers]; None unless they are choices."""
    if leaf.choices is None:
        return None
    return torch.as_tensor(np.cumsum(leaf.choices) - leaf.choices - np.ravel(leaf.space.start), device=device)


class TensorActionMapper:
    """ActionMapper.to_env for tensors.

    Args:
        mapper: the mapping of arrays.
        device: device of the actions.
    """

    def __init__(self, mapper: ActionMapper, device: str | torch.device):
        space = mapper.space
        self._is_box, self._is_squashed = isinstance(space, spaces.Box), isinstance(mapper, SquashedActionMapper)
        self._dtype = getattr(torch, np.dtype(space.dtype).name)
        self._start = torch.as_tensor(np.asarray(getattr(space, "start", 0)), device=device)
        self._shifted = bool(np.any(getattr(space, "start", 0)))
        if self._is_box:
            numbers = mapper.low, mapper.high, mapper.half_range, mapper.middle
            self._low, self._high, self._half_range, self._middle = (
                torch.as_tensor(each, dtype=torch.float64, device=device) for each in numbers
            )
            self._clips = mapper.clips

    def to_env(self, actions: Tensor) -> Tensor:
        """Actions [N, ...] of the policy as actions of the environment; its memory is new, environments may keep it."""
        if not self._is_box:
            return (actions + self._start if self._shifted else actions).to(self._dtype, copy=True)
        if self._is_squashed:
            actions = actions.tanh()
        if not self._clips:
            return actions.to(self._dtype, copy=True)
        # float64 holds every bound exactly, and rounding to the dtype is monotonic: it cannot leave them.
        stretched = actions.double() * self._half_range + self._middle
        return stretched.clamp_(self._low, self._high).to(self._dtype)


def tensor_action_mapper(
    space: spaces.Space, distribution, normalize_actions: bool, clip_actions: bool, device: str | torch.device
) -> TensorActionMapper:
    """`action_mapper` for tensors; `maps_tensors` says for which spaces there is one."""
    return TensorActionMapper(action_mapper(space, distribution, normalize_actions, clip_actions), device)


def maps_tensors(space: spaces.Space) -> bool:
    """Whether actions of this space can be mapped as tensors."""
    if isinstance(space, spaces.Box):
        return space.dtype.kind == "f" and math.prod(space.shape) > 0
    return isinstance(space, spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary)
