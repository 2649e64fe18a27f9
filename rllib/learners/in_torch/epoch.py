"""Batches of updates in torch, in the order of an epoch."""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import numpy as np
from torch import Tensor

from rllib.learners.updates.minibatches import Cuts
from rllib.sample_batch import PER_SEQUENCE, SEQ_LENS, rows_of_sequences


class Order(NamedTuple):
    """The order of an epoch, on the device and on the host, since reading it back would wait for the device.

    Attributes:
        rows, host_rows: permutation of the rows [B]; `host_rows` is None if it was drawn on the device.
        sequences, host_sequences: permutation of the sequences [S], if the rows form sequences.
    """

    rows: Tensor
    host_rows: np.ndarray | None = None
    sequences: Tensor | None = None
    host_sequences: np.ndarray | None = None

    def of(self, mask: np.ndarray | None) -> np.ndarray | None:
        """A mask of the rows in this order."""
        if mask is None:
            return None
        return mask[self.rows.cpu().numpy() if self.host_rows is None else self.host_rows]


def sent_orders(
    orders: Iterable, seq_lens: np.ndarray | None, take: Callable[[np.ndarray], Tensor]
) -> list[Order | None]:
    """Sends the orders of all epochs at once, so that no epoch waits for its order.

    Args:
        orders: permutations of the rows, or of the sequences; tensors if drawn on the device. None: unchanged order.
        seq_lens: int [S], lengths of the sequences that the rows form; None: the rows are independent.
        take: function that sends an array to the device.
    """
    orders = list(orders)
    if orders[0] is None:
        return orders
    if isinstance(orders[0], Tensor):
        return [Order(order) for order in orders]
    rows = orders if seq_lens is None else [rows_of_sequences(seq_lens, order) for order in orders]
    of_rows = take(np.stack(rows))
    of_sequences = of_rows if seq_lens is None else take(np.stack(orders))
    return [Order(*each) for each in zip(of_rows, rows, of_sequences, orders)]


class Epoch:
    """A batch of independent rows.

    Args:
        columns: name -> [B, ...].
        mask: bool [B], the column loss_mask on the host, if there is one.

    Attributes:
        cuts: positions at which the rows may be divided.
    """

    def __init__(self, columns: Mapping[str, Tensor], mask: np.ndarray | None = None):
        self._columns, self._mask = columns, mask
        self.cuts = Cuts(None, mask)

    def reordered(self, order: Order | None) -> "Epoch":
        """The same rows in another order."""
        if order is None:
            return self
        columns = {name: column.index_select(0, order.rows) for name, column in self._columns.items()}
        return Epoch(columns, order.of(self._mask))

    def __getitem__(self, rows: slice) -> dict[str, Tensor]:
        """Views of some rows by column."""
        return {name: column[rows] for name, column in self._columns.items()}


class EpochOfSequences(Epoch):
    """A batch of rows in sequences, which stay whole.

    Args:
        columns, mask: as for Epoch, with the columns PER_SEQUENCE.
        seq_lens: int [S], the column of that name, on the host.
    """

    def __init__(self, columns: Mapping[str, Tensor], seq_lens: np.ndarray, mask: np.ndarray | None = None):
        super().__init__(columns, mask)
        self._seq_lens, self.cuts = seq_lens, Cuts(seq_lens, mask)

    def reordered(self, order: Order | None) -> "EpochOfSequences":
        """The same sequences in another order."""
        if order is None:
            return self
        columns = {
            name: column.index_select(0, order.sequences if name in PER_SEQUENCE else order.rows)
            for name, column in self._columns.items()
        }
        return EpochOfSequences(columns, self._seq_lens[order.host_sequences], order.of(self._mask))

    def __getitem__(self, rows: slice) -> dict[str, Tensor]:
        first, last = np.searchsorted(self.cuts.ends, (rows.start, rows.stop - 1), side="right")
        sequences = slice(int(first), int(last) + 1)
        part = {name: column[sequences if name in PER_SEQUENCE else rows] for name, column in self._columns.items()}
        part[SEQ_LENS].on_host = self._seq_lens[sequences]  # a network that asks the device for them waits
        return part


def epoch_of(columns: Mapping[str, Tensor], seq_lens: np.ndarray | None, mask: np.ndarray | None = None) -> Epoch:
    """The batch in its present order: an EpochOfSequences if `seq_lens` is given. `mask` marks the rows that count."""
    return Epoch(columns, mask) if seq_lens is None else EpochOfSequences(columns, seq_lens, mask)
