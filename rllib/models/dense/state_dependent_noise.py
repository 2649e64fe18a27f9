"""Networks whose exploration noise depends on the state: gSDE (Raffin et al., arXiv:2005.05719).

The noise of an action is linear in phi, what the policy's head reads: noise = phi Theta, with one random matrix Theta
[width, actions] for several steps, each entry normal with its own learned standard deviation sigma. So an action is
normal with

    std(s)^2 = sum_j phi_j^2 sigma_j^2 + 1e-6

The network gives [mean, log std(s)], so losses and statistics of a Gaussian apply. As in Stable-Baselines3, no
gradient flows from std(s) into phi, except in SAC and its relatives (`trains_features`). The explorer draws Theta
(exploration/network_noise.py: StateDependentNoise).
"""

import numpy as np

from rllib.models.arithmetic.buffers import BuffersByRows
from rllib.models.dense.layout import Layout

EPSILON = np.float32(1e-6)


class StateDependentLayout(Layout):
    """Layout of the network of the means, then of the logarithms of sigma.

    Args:
        plain: layout of the network of the means.
        width: of phi.
        num_actions: components of an action.
        trains_features: whether gradients flow from std(s) into phi.
    """

    torso = None

    def __init__(self, plain: Layout, width: int, num_actions: int, trains_features: bool = False):
        super().__init__({"plain": (plain.size,), "log_std": (width, num_actions)})
        self.plain, self.trains_features = plain, trains_features

    def named_parameters(self, flat) -> dict:
        """Parameter name -> view of `flat`: of the network's parameters, and "policy.log_std" [width, actions]."""
        blocks = self.blocks(flat)
        return self.plain.named_parameters(blocks["plain"]) | {"policy.log_std": blocks["log_std"]}


class StateDependentNetwork:
    """Means and log standard deviations in numpy; methods as in NumpyNetwork.

    Args:
        layout: where the parameters lie.
        plain: (weights, gradient) -> the network of the means on these parts of the memory.
        weights: flat float32 [layout.size]; the network reads this very memory.
    """

    closed_form = True

    def __init__(self, layout: StateDependentLayout, plain, weights: np.ndarray):
        self.layout, self.gradient = layout, np.zeros(layout.size, np.float32)
        blocks, gradients = layout.blocks(weights), layout.blocks(self.gradient)
        self._plain = plain(blocks["plain"], gradients["plain"])
        self._log_std, self._d_log_std = blocks["log_std"], gradients["log_std"]
        self._num_actions = self._log_std.shape[1]
        self.gives_values = self._plain.gives_values
        self._results = BuffersByRows(lambda rows: np.empty((2 * self._num_actions, rows), np.float32))
        self._features = self._squares = self._variance = None

    def forward(self, inputs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        means, values = self._plain.forward(inputs)
        self._features = self._plain.policy_features(len(inputs))
        self._squares = np.square(self._features)
        self._variance = self._variance_of(self._squares)
        result = np.empty((2 * self._num_actions, len(inputs)), np.float32)
        result[: self._num_actions] = means.T
        np.log(self._variance, out=result[self._num_actions :])
        result[self._num_actions :] *= np.float32(0.5)
        return result.T, values

    def backward(self, gradients: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
        d_dist_inputs, d_values = gradients
        # d log std(s) / d log sigma_j = phi_j^2 sigma_j^2 / std(s)^2, and by phi_j it is phi_j sigma_j^2 / std(s)^2.
        weighted = d_dist_inputs[:, self._num_actions :].T / self._variance
        sigma_squared = np.exp(np.float32(2) * self._log_std)
        np.dot(self._squares, weighted.T, out=self._d_log_std)
        self._d_log_std *= sigma_squared
        into_features = (np.dot(sigma_squared, weighted) * self._features,) if self.layout.trains_features else ()
        self._plain.backward((d_dist_inputs[:, : self._num_actions], d_values), *into_features)
        return self.gradient

    def forward_policy(self, inputs: np.ndarray, values: np.ndarray | None = None) -> np.ndarray:
        means, result = self._plain.forward_policy(inputs, values), self._results[len(inputs)]
        result[: self._num_actions] = means.T
        variance = self._variance_of(np.square(self._plain.acting_features(len(inputs))))
        np.log(variance, out=result[self._num_actions :])
        result[self._num_actions :] *= np.float32(0.5)
        return result.T

    def forward_value(self, inputs: np.ndarray) -> np.ndarray:
        return self._plain.forward_value(inputs)

    def acting_features(self, rows: int) -> np.ndarray:
        """phi [width, B] of the last `forward_policy` with this number of rows."""
        return self._plain.acting_features(rows)

    @property
    def sigma(self) -> np.ndarray:
        """Standard deviations of the entries of Theta, float32 [width, actions]."""
        return np.exp(self._log_std)

    def _variance_of(self, squares: np.ndarray) -> np.ndarray:
        """std(s)^2 [actions, B] of phi^2 [width, B]."""
        variance = np.dot(np.exp(np.float32(2) * self._log_std).T, squares)
        variance += EPSILON
        return variance
