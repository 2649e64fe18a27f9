"""Observations of several environments in one: arrays with a further first axis, as vector environments give them."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium.vector.utils import concatenate, create_empty_array

from rllib.models.observations.flat_spaces import parts


def rows_of(space, observation) -> Sequence | None:
    """The single observations of a batch of N; None for one observation, and for what is neither.

    Args:
        space: space of one observation.
        observation: an array [N, ...], or for Dict and Tuple spaces a dict or tuple of these; further keys of a dict
            are left out.
    """
    if (inner := parts(space)) is not None:
        return _rows_of_structure(inner, observation)
    try:
        array = np.asarray(observation)
    except ValueError:  # of different shapes
        return None
    shape = space.shape or ()
    return array if array.dtype.kind in "biuf" and array.shape[1:] == shape and array.ndim == len(shape) + 1 else None


def _rows_of_structure(inner: Sequence[tuple], observation) -> list | None:
    is_dict = isinstance(observation, Mapping)
    if not is_dict and not (isinstance(observation, tuple) and len(observation) == len(inner)):
        return None
    if is_dict and not observation.keys() >= {key for key, _ in inner}:
        return None
    columns = [rows_of(part, observation[key]) for key, part in inner]
    if any(column is None for column in columns) or len(set(map(len, columns))) != 1:
        return None
    keys = [key for key, _ in inner]
    return [dict(zip(keys, row)) if is_dict else tuple(row) for row in zip(*columns)]


def batch_of(space, observations: Sequence) -> Any:
    """A batch of single observations, in its own arrays: [N, ...] in the structure of the space."""
    return concatenate(space, observations, create_empty_array(space, len(observations)))
