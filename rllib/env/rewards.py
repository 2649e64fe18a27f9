"""Writes rewards into a float32 column and checks that they are finite numbers."""

import math

import numpy as np


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
        out[:] = given
        total = given.sum() if isinstance(given, np.ndarray) else sum(given)
        if math.isfinite(total):  # one check for all: a single nan or inf shows in the sum
            return
    except (TypeError, ValueError):  # some reward is not a number: reported, or taken from its array, below
        pass
    for index, reward in enumerate(given):
        if problem := reward_problem(reward):
            raise ValueError(f"environment {first_index + index}: {problem}")
        out[index] = np.asarray(reward).item()


def reward_problem(reward) -> str | None:
    """Why a reward is invalid; None if it is valid."""
    array = np.asarray(reward)
    if array.dtype.kind not in "biuf" or array.size != 1:
        return f"the reward must be a number, but step() returned {reward!r} ({type(reward).__name__})"
    if not np.isfinite(array).all():
        return f"the reward must be finite, but step() returned {array.item()}"
    return None
