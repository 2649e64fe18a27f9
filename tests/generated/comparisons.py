"""Whether two runs are the same, whether numbers are finite, and where an exception comes from."""

import math
import os
import traceback
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

import rllib
import runtime
from rllib import Algorithm

HOME = (str(Path(rllib.__file__).parent), str(Path(runtime.__file__).parent))


def weights_of(algorithm: Algorithm) -> dict[str, np.ndarray]:
    """Copies of all weights, by policy."""
    return {
        policy_id: np.array(policy.weights)
        for policy_id, policy in algorithm.policies.items()
        if getattr(policy, "weights", None) is not None
    }


def different(one: Mapping[str, np.ndarray], other: Mapping[str, np.ndarray]) -> list[str]:
    if one.keys() != other.keys():
        return sorted(one.keys() ^ other.keys())
    return [name for name, array in one.items() if not np.array_equal(array, other[name])]


def equal(one, other, close: bool = False) -> bool:
    if isinstance(one, Mapping):
        return (
            isinstance(other, Mapping)
            and one.keys() == other.keys()
            and all(equal(one[k], other[k], close) for k in one)
        )
    if isinstance(one, list | tuple):
        return (
            isinstance(other, list | tuple)
            and len(one) == len(other)
            and all(equal(a, b, close) for a, b in zip(one, other))
        )
    if isinstance(one, np.ndarray | np.generic | float):
        if close:
            return np.allclose(np.asarray(one, float), np.asarray(other, float), atol=1e-5)
        return np.array_equal(one, other, equal_nan=True)
    return one is other or one == other


def not_finite(value, name: str = "") -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from not_finite(item, f"{name}/{key}" if name else str(key))
    elif isinstance(value, float | np.floating) and not math.isfinite(value):
        yield f"{name}={value}"


def place_of(error: BaseException) -> str:
    """File and function of ours in which an exception was raised."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename.startswith(HOME)]
    if not frames:
        return ""
    frame = frames[-1]
    return f"{os.path.relpath(frame.filename, Path(HOME[0]).parent)}:{frame.name}"
