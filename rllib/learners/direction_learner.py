"""Moves weights along random directions, as evolution strategies do: no loss, no gradient of a network."""

from collections.abc import Mapping

import numpy as np

from rllib.errors import LearnerError
from rllib.learners.optimizers import SGD, Adam, global_norm
from rllib.models.noise_table import NoiseTable


class DirectionLearner:
    """Ascends along a combination of directions of a noise table. Its cost does not depend on who played what.

    Args:
        weights: flat float32 vector, moved in place.
        noise: the table that the directions are in.
        optimizer: steps on the flat vector.
    """

    def __init__(self, weights: np.ndarray, noise: NoiseTable, optimizer: Adam | SGD):
        self.weights = weights
        self._noise = noise
        self._optimizer = optimizer

    def update(self, indices: np.ndarray, coefficients: np.ndarray, *, lr: float, decay: float) -> dict[str, float]:
        """One step up the gradient sum_k coefficients[k] * direction(indices[k]) - decay * weights.

        Args:
            indices: int [n], where the directions begin.
            coefficients: [n].
            lr: step size.
            decay: coefficient of the L2 penalty decay / 2 * |weights|^2.

        Returns:
            weights_norm, grad_norm (penalty included) and update_ratio (length of the step by that of the weights).

        Raises:
            LearnerError: if the gradient is not finite; the weights are left as they were.
        """
        gradient = self._noise.combination(coefficients, indices, len(self.weights))
        # Optimizers descend.
        np.negative(gradient, out=gradient)
        gradient += np.float32(decay) * self.weights
        grad_norm = global_norm(gradient)
        if not np.isfinite(grad_norm):
            raise LearnerError("the gradient is not finite; the returns of the episodes are too large or not finite")
        before = self.weights.copy()
        self._optimizer.step(self.weights, gradient, lr)
        weights_norm = global_norm(self.weights)
        return {
            "weights_norm": weights_norm,
            "grad_norm": grad_norm,
            "update_ratio": global_norm(self.weights - before) / max(weights_norm, 1e-12),
        }

    def get_state(self) -> dict[str, np.ndarray]:
        """Copies of the optimizer's arrays by name."""
        return {name: np.array(array) for name, array in self._optimizer.state.items()}

    def set_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Takes over what `get_state` gave.

        Raises:
            ValueError: if it belongs to another optimizer or network.
        """
        own = self._optimizer.state
        if {name: array.shape for name, array in own.items()} != {n: np.shape(a) for n, a in state.items()}:
            raise ValueError(
                f"the optimizer's state has {sorted(own)}, but the given one {sorted(state)}, or their sizes differ"
            )
        for name, array in own.items():
            array[...] = state[name]
