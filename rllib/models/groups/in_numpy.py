"""The network of a group in numpy, for acting: one product computes a layer for all members of all rows."""

import numpy as np

from rllib.models.arithmetic.buffers import BuffersByRows
from rllib.models.dense.in_numpy import NumpyNetwork
from rllib.models.groups.members import Members
from rllib.models.observations.encoders import columns_of

NO_VALUES = np.empty(0, np.float32)


class GroupNetwork:
    """Computes the distribution inputs of all members by a network that they share; learners train it in torch.

    Args:
        members: divide the observations.
        network: computes one member's outputs from what it reads.
    """

    closed_form = False
    gives_values = False

    def __init__(self, members: Members, network: NumpyNetwork):
        self._members, self._network = members, network
        self._own = columns_of(members.own)
        self._read = BuffersByRows(self._rows_of_members)

    def _rows_of_members(self, rows: int) -> np.ndarray:
        """Memory for what the members read, [rows, members, inputs + 1], with their numbers and the closing 1."""
        members = self._members
        read = np.ones((rows, members.count, members.num_inputs + 1), np.float32)
        if members.ids:
            read[:, :, members.num_own : -1] = np.eye(members.count)
        return read

    def forward(self, inputs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Distribution inputs, and no values."""
        return self.forward_policy(inputs), NO_VALUES

    def forward_policy(self, inputs: np.ndarray, values: np.ndarray | None = None) -> np.ndarray:
        """Distribution inputs [B, members * outputs] of encoded observations [B, members * width + 1], by member."""
        members, rows = self._members, len(inputs)
        read = self._read[rows]
        parts = inputs[:, :-1].reshape(rows, members.count, members.width)
        read[:, :, : members.num_own] = parts[:, :, self._own]
        outputs = self._network.forward_policy(read.reshape(rows * members.count, -1))
        return outputs.reshape(rows, -1)
