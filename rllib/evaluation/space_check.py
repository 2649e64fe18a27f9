"""Observations that leave their space while a policy is evaluated."""

import logging

import gymnasium
import numpy as np

from rllib.env.spaces import mismatch
from rllib.env.stream import EnvironmentStream

logger = logging.getLogger(__name__)


class SpaceCheck:
    """Checks every observation that the policy receives against its space.

    One that is not finite, or no number of a Discrete space, is an error: the policy's answer would mean nothing. One
    beyond the bounds of a Box is logged once: training goes on with such observations, too.

    Args:
        stream: whose observations.
        worker_index: for messages.
    """

    def __init__(self, stream: EnvironmentStream, worker_index: int):
        self._space = space = stream.observation_space
        if not isinstance(space, gymnasium.spaces.Box | gymnasium.spaces.Discrete):
            self._space = space = gymnasium.spaces.flatten_space(space)  # they are stored flat
        self._worker_index = worker_index
        self._is_float = stream.observation_dtype.kind == "f"
        self._is_box = isinstance(space, gymnasium.spaces.Box)
        if self._is_box:
            self._low, self._high = (bound.astype(stream.observation_dtype) for bound in (space.low, space.high))
        else:
            self._low, self._high = space.start, space.start + space.n - 1
        # Pixels cannot leave their bounds.
        self._has_told = stream.observation_dtype == np.uint8 and (self._low == 0).all() and (self._high == 255).all()

    def __call__(self, observations: np.ndarray, steps: int) -> None:
        """Checks observations [N, *shape] as stored.

        Args:
            observations: see above.
            steps: how many were made before.

        Raises:
            ValueError: naming the environment and the step.
        """
        if self._is_float and not np.isfinite(observations.sum(dtype=np.float64)):
            raise ValueError(self._problem(observations, ~np.isfinite(observations), steps))
        if self._has_told:
            return
        outside = (observations < self._low) | (observations > self._high)
        if not outside.any():
            return
        problem = self._problem(observations, outside, steps)
        if not self._is_box:
            raise ValueError(problem)
        self._has_told = True
        logger.warning("%s; the evaluation goes on, and tells no more of these", problem)

    def _problem(self, observations: np.ndarray, is_bad: np.ndarray, steps: int) -> str:
        index = int(np.argwhere(is_bad)[0][0])
        row = observations[index]
        problem = mismatch(self._space, row) or f"observation {row.tolist()} is not finite"
        return f"environment {index} of evaluation worker {self._worker_index}: the {problem}, after {steps} steps"
