"""Policy and value by networks of different sizes or inputs: two networks of one tower each, on one flat vector."""

from itertools import accumulate, pairwise

import numpy as np

from rllib.models.arithmetic.buffers import BuffersByRows
from rllib.models.dense.in_numpy import NumpyNetwork
from rllib.models.dense.layout import LayersLayout, Layout

Columns = tuple[tuple[int, int], ...]


class SeparateLayout(Layout):
    """Layout of the policy's layers, then of the value's, which read all inputs.

    Args:
        policy: the layers with the head "policy".
        value: the layers with the head "value".
        policy_columns: columns (start, stop) of the inputs that the policy's layers read; None: all.
    """

    torso = None

    def __init__(self, policy: LayersLayout, value: LayersLayout, policy_columns: Columns | None = None):
        super().__init__({"policy": (policy.size,), "value": (value.size,)})
        self.policy, self.value, self.policy_columns = policy, value, policy_columns

    def parts(self, flat) -> tuple:
        """The policy's and the value's views of `flat` [size]."""
        return flat[self.slices["policy"]], flat[self.slices["value"]]

    def named_parameters(self, flat) -> dict:
        """Parameter name -> view of `flat`, as in LayersLayout."""
        policy, value = self.parts(flat)
        return self.policy.named_parameters(policy) | self.value.named_parameters(value)


class SeparateNetwork:
    """Both networks in numpy; methods as in NumpyNetwork.

    Args:
        layout: where the parameters lie.
        activations: activation function of each hidden layer of the policy, and of the value.
        weights: flat float32 [layout.size]; the network reads this very memory.
        gradient: float32 [layout.size], where `backward` writes; by default new memory.
    """

    closed_form = True
    gives_values = False

    def __init__(
        self,
        layout: SeparateLayout,
        activations: tuple[tuple[str, ...], tuple[str, ...]],
        weights: np.ndarray,
        gradient: np.ndarray | None = None,
    ):
        self.layout = layout
        self.gradient = np.zeros(layout.size, np.float32) if gradient is None else gradient
        # Columns that the policy reads, and where it reads them; None: it reads all.
        columns = layout.policy_columns
        ends = [0, *accumulate(stop - start for start, stop in columns or ())]
        self._copied = columns and [(slice(*each), slice(*place)) for each, place in zip(columns, pairwise(ends))]
        self._read = BuffersByRows(lambda rows: np.ones((rows, layout.policy.num_inputs + 1), np.float32))
        towers = zip((layout.policy, layout.value), activations, layout.parts(weights), layout.parts(self.gradient))
        self._policy, self._value = (NumpyNetwork(*tower) for tower in towers)

    def forward(self, inputs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return self._policy.forward(self._of_policy(inputs))[0], self._value.forward(inputs)[1]

    def _of_policy(self, inputs: np.ndarray) -> np.ndarray:
        """The inputs that the policy reads, with the column of ones."""
        if self._copied is None:
            return inputs
        read = self._read[len(inputs)]
        for columns, place in self._copied:
            read[:, place] = inputs[:, columns]
        return read

    def backward(self, gradients: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
        d_dist_inputs, d_values = gradients
        self._policy.backward((d_dist_inputs, d_values[:0]))
        self._value.backward((d_dist_inputs[:, :0], d_values))
        return self.gradient

    def forward_policy(self, inputs: np.ndarray, values: np.ndarray | None = None) -> np.ndarray:
        return self._policy.forward_policy(self._of_policy(inputs))

    def forward_value(self, inputs: np.ndarray) -> np.ndarray:
        return self._value.forward_value(inputs)

    def policy_features(self, rows: int) -> np.ndarray:
        return self._policy.policy_features(rows)

    def acting_features(self, rows: int) -> np.ndarray:
        return self._policy.acting_features(rows)
