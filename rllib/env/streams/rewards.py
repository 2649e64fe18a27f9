"""Writes rewards into a float32 column and checks that they are finite numbers."""

import functools
import math

import numpy as np

FLOAT32_MAX = float(np.finfo(np.float32).max)


def write_rewards(given, out: np.ndarray, first_index: int = 0) -> None:
    """Writes N rewards into out [N]; arrays of one element count as numbers.

    Args:
        given: list or array of N rewards.
        out: [N] float32.
        first_index: index of the first reward's environment, for messages.

    Raises:
        ValueError: naming the environment whose reward is no finite number.
    """
    try:
        # One check for all: a single nan or inf shows in the sum, or makes nan of zeros.
        if isinstance(given, np.ndarray):
            with np.errstate(over="ignore", invalid="ignore"):  # the error below says more than numpy's warnings
                out[:] = given
                is_finite = given.dtype.kind in "biuf" and np.dot(out, _zeros(len(out))) == 0
        else:
            out[:] = given
            is_finite = math.isfinite(math.fsum(given))
        if is_finite:
            return
    # Some reward is not a number, or too large for a float32: reported, or taken from its array, below.
    except (TypeError, ValueError, ArithmeticError):
        pass
    for index, reward in enumerate(given):
        if problem := reward_problem(reward):
            raise ValueError(f"environment {first_index + index}: {problem}")
        out[index] = np.asarray(reward).item()


@functools.lru_cache(maxsize=16)
def _zeros(count: int) -> np.ndarray:
    return np.zeros(count, np.float32)


def reward_problem(reward) -> str | None:
    """Explains why a reward is invalid; None if it is valid."""
    array = np.asarray(reward)
    if array.dtype.kind not in "biuf" or array.size != 1:
        return f"the reward must be a number, but step() returned {reward!r} ({type(reward).__name__})"
    if not abs(float(array.item())) <= FLOAT32_MAX:
        return f"the reward must be finite, in float32 as well, but step() returned {array.item()}"
    return None
