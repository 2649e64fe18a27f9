"""Helpers of `ray.rllib.utils` on numpy arrays, and on nested structures of them."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

SMALL_NUMBER = 1e-6  # keeps a divisor away from 0
LARGE_INTEGER = 100_000_000
MIN_LOG_NN_OUTPUT, MAX_LOG_NN_OUTPUT = -5, 2  # bounds of log standard deviations


def convert_to_numpy(x: Any, reduce_type: bool = True) -> Any:
    """A structure with numpy arrays in the places of its tensors.

    Args:
        reduce_type: arrays of float64 and int64 become float32 and int32.
    """
    if isinstance(x, Mapping):
        return {key: convert_to_numpy(value, reduce_type) for key, value in x.items()}
    if isinstance(x, (list, tuple)):
        parts = [convert_to_numpy(value, reduce_type) for value in x]
        return type(x)(*parts) if hasattr(x, "_fields") else type(x)(parts)
    if hasattr(x, "detach"):
        x = x.detach().cpu().numpy()
    x = np.asarray(x)
    if reduce_type and x.dtype in (np.float64, np.int64):
        return x.astype(np.float32 if x.dtype == np.float64 else np.int32)
    return x


def convert_numpy_to_python_primitives(value: Any) -> Any:
    """A structure with Python's numbers and lists in the places of numpy's."""
    if isinstance(value, Mapping):
        return {key: convert_numpy_to_python_primitives(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [convert_numpy_to_python_primitives(inner) for inner in value]
    return value.tolist() if isinstance(value, (np.generic, np.ndarray)) else value


def softmax(x: np.ndarray, axis: int = -1, epsilon: float | None = None) -> np.ndarray:
    """Probabilities [..., K] of logits [..., K], along `axis`; none is below `epsilon` where it is given."""
    exponentials = np.exp(x - np.max(x, axis=axis, keepdims=True))
    probabilities = exponentials / exponentials.sum(axis=axis, keepdims=True)
    return probabilities if epsilon is None else np.maximum(probabilities, epsilon)


def sigmoid(x: np.ndarray, derivative: bool = False) -> np.ndarray:
    """1 / (1 + exp(-x)). With `derivative`, x is its value already, and the result x (1 - x)."""
    return x * (1 - x) if derivative else 1 / (1 + np.exp(-x))


def relu(x: np.ndarray, alpha: float = 0.0) -> np.ndarray:
    """x where it is positive, else alpha x."""
    return np.maximum(x, x * alpha)


def one_hot(x: np.ndarray | int, depth: int = 0, on_value: float = 1.0, off_value: float = 0.0) -> np.ndarray:
    """Rows float32 [..., depth] with `on_value` at the index x; depth 0: the largest index and one more."""
    x = np.asarray(x, np.int64)
    return np.where(np.eye(depth or int(x.max()) + 1, dtype=bool)[x], on_value, off_value).astype(np.float32)


def huber_loss(x: np.ndarray, delta: float = 1.0) -> np.ndarray:
    """x^2 / 2 where |x| < delta, else delta (|x| - delta / 2)."""
    size = np.abs(x)
    return np.where(size < delta, x**2 / 2, delta * (size - delta / 2))


def l2_loss(x: np.ndarray) -> np.floating:
    """Half the sum of the squares."""
    return np.sum(np.square(x)) / 2


def batch(list_of_structs: Sequence[Any], *, individual_items_already_have_batch_dim: bool = False) -> Any:
    """One structure whose arrays [N, ...] have the N given ones as rows.

    Args:
        individual_items_already_have_batch_dim: the given arrays are [B, ...] each, and are joined to [sum of B, ...].

    Raises:
        ValueError: if no structure is given.
    """
    if not len(list_of_structs):
        raise ValueError("batch() needs at least one item")
    first = list_of_structs[0]
    again = {"individual_items_already_have_batch_dim": individual_items_already_have_batch_dim}
    if isinstance(first, Mapping):
        return {key: batch([item[key] for item in list_of_structs], **again) for key in first}
    if isinstance(first, tuple):
        return tuple(batch(column, **again) for column in zip(*list_of_structs))
    return np.concatenate(list_of_structs) if individual_items_already_have_batch_dim else np.stack(list_of_structs)


def unbatch(batches_struct: Any) -> list:
    """The rows of a structure of arrays [N, ...], as a list of N structures."""
    if isinstance(batches_struct, Mapping):
        columns = [unbatch(value) for value in batches_struct.values()]
        return [dict(zip(batches_struct, row)) for row in zip(*columns)]
    if isinstance(batches_struct, tuple):
        return list(zip(*map(unbatch, batches_struct)))
    return list(batches_struct)


# ---------------------------------------------------------------------- actions


def _of_boxes(change: Callable[[np.ndarray, spaces.Box], np.ndarray], action: Any, space: Any) -> Any:
    """The action with change(part, its space) in the places of its parts in a Box; all others are unchanged.

    Args:
        space: a space, or nested dicts and tuples of spaces.
    """
    if isinstance(space, (Mapping, spaces.Dict)):
        return {key: _of_boxes(change, action[key], space[key]) for key in action}
    if isinstance(space, (list, tuple, spaces.Tuple)):
        return tuple(_of_boxes(change, part, space[index]) for index, part in enumerate(action))
    return change(np.asarray(action), space) if isinstance(space, spaces.Box) else action


def clip_action(action: Any, action_space: Any) -> Any:
    """The action within the bounds of its Box, or of those in its structure of spaces."""
    return _of_boxes(lambda part, space: np.clip(part, space.low, space.high), action, action_space)


def unsquash_action(action: Any, action_space_struct: Any) -> Any:
    """Parts in -1 ... 1 as those of their bounded Box, whose low is -1 and high 1; others unchanged."""

    def unsquashed(part: np.ndarray, space: spaces.Box) -> np.ndarray:
        if not (space.is_bounded() and np.issubdtype(space.dtype, np.floating)):
            return part
        return np.clip(space.low + (part + 1.0) * (space.high - space.low) / 2.0, space.low, space.high)

    return _of_boxes(unsquashed, action, action_space_struct)


def normalize_action(action: Any, action_space_struct: Any) -> Any:
    """The inverse of `unsquash_action`."""

    def normalized(part: np.ndarray, space: spaces.Box) -> np.ndarray:
        if not (space.is_bounded() and np.issubdtype(space.dtype, np.floating)):
            return part
        return (part - space.low) * 2.0 / (space.high - space.low) - 1.0

    return _of_boxes(normalized, action, action_space_struct)


def flatten_to_single_ndarray(input_: Any) -> np.ndarray:
    """The leaves of a structure, one behind the other in an array of one axis; an array as it is."""
    if not isinstance(input_, (Mapping, list, tuple)):
        return np.asarray(input_)
    parts = input_.values() if isinstance(input_, Mapping) else input_
    return np.concatenate([np.reshape(flatten_to_single_ndarray(part), -1) for part in parts])
