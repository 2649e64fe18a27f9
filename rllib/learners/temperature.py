"""The temperature of soft actor-critic: learned so that the policy's entropy stays near a target."""

import math
from collections.abc import Mapping

import numpy as np

from rllib.learners.updates.optimizers import OptimizerSettings


class Temperature:
    """Alpha, the price of a nat of entropy in the unit of rewards (arXiv:1812.05905, equation 18).

    Its logarithm is learned, as in the authors' code: J = mean -log(alpha) (log p(a | s) + target entropy).

    Args:
        initial: alpha at the beginning, positive.
        target_entropy: entropy that the policy is kept near (nats).
        optimizer: name and constants of the optimizer.
    """

    def __init__(self, initial: float, target_entropy: float, optimizer: OptimizerSettings):
        self.target_entropy = target_entropy
        self._log = np.array([math.log(initial)], np.float32)
        self._optimizer = optimizer.make(1)

    @property
    def alpha(self) -> float:
        """The present temperature."""
        return math.exp(self._log[0])

    def update(self, entropy: float, lr: float) -> float:
        """One step, which raises alpha if this entropy (nats, mean of a batch) is below the target.

        Returns:
            the loss before it.
        """
        gradient = entropy - self.target_entropy
        loss = float(self._log[0]) * gradient
        self._optimizer.step(self._log, np.array([gradient], np.float32), lr)
        return loss

    def get_state(self) -> dict[str, np.ndarray]:
        """Copies of the logarithm and of the optimizer's memory, by name."""
        return {"log_alpha": self._log.copy(), **{name: np.array(each) for name, each in self._optimizer.state.items()}}

    def set_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Restores a state of `get_state`."""
        self._log[:] = state["log_alpha"]
        for name, array in self._optimizer.state.items():
            array[...] = state[name]
