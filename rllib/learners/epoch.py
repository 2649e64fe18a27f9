"""A batch on its way to the device, and there in the order in which an epoch walks over it."""

from collections.abc import Iterable, Mapping

import numpy as np
import torch
from torch import Tensor

from rllib.learners.numpy_learner import parts_of
from rllib.sample_batch import PER_SEQUENCE, rows_of_sequences


class Epoch:
    """Rows, each of which stands for itself.

    Args:
        columns: name -> [B, ...].
    """

    def __init__(self, columns: Mapping[str, Tensor]):
        self._columns = columns

    def reordered(self, order: Tensor | None) -> "Epoch":
        """These rows in another order [B]."""
        if order is None:
            return self
        return Epoch({name: column.index_select(0, order) for name, column in self._columns.items()})

    def parts(self, start: int, stop: int, size: int) -> list[slice]:
        """The rows from `start` to `stop` in parts of `size` rows; the last takes what is left."""
        return parts_of(start, stop, size)

    def __getitem__(self, rows: slice) -> dict[str, Tensor]:
        """Views of some rows by column."""
        return {name: column[rows] for name, column in self._columns.items()}


class EpochOfSequences(Epoch):
    """Rows that stand in sequences, which stay together.

    Args:
        columns: with those PER_SEQUENCE.
        seq_lens: int [S], the column of that name, in this process's memory.
    """

    def __init__(self, columns: Mapping[str, Tensor], seq_lens: np.ndarray):
        super().__init__(columns)
        self._seq_lens, self._ends = seq_lens, np.cumsum(seq_lens)

    def reordered(self, order: Tensor | None) -> "EpochOfSequences":
        """These sequences in another order [S]."""
        if order is None:
            return self
        by_sequence = order.cpu().numpy()
        rows = torch.from_numpy(rows_of_sequences(self._seq_lens, by_sequence)).to(order.device)
        columns = {
            name: column.index_select(0, order if name in PER_SEQUENCE else rows)
            for name, column in self._columns.items()
        }
        return EpochOfSequences(columns, self._seq_lens[by_sequence])

    def parts(self, start: int, stop: int, size: int) -> list[slice]:
        """The rows from `start` to `stop` in parts of whole sequences, as few as have `size` rows."""
        parts = []
        for end in self._ends[(self._ends > start) & (self._ends <= stop)].tolist():
            if end - start >= size or end == stop:
                parts.append(slice(start, end))
                start = end
        return parts

    def __getitem__(self, rows: slice) -> dict[str, Tensor]:
        first, last = np.searchsorted(self._ends, (rows.start, rows.stop - 1), side="right")
        sequences = slice(int(first), int(last) + 1)
        return {
            name: column[sequences if name in PER_SEQUENCE else rows] for name, column in self._columns.items()
        }


def epoch_of(columns: Mapping[str, Tensor], seq_lens: np.ndarray | None) -> Epoch:
    """The batch as it stands; `seq_lens` where its rows stand in sequences."""
    return Epoch(columns) if seq_lens is None else EpochOfSequences(columns, seq_lens)


class InPlace:
    """On the CPU: tensors are the arrays' own memory."""

    def stage(self, arrays: Iterable[np.ndarray]) -> None:
        """Nothing has to be sent."""

    def take(self, array: np.ndarray) -> Tensor:
        """The array as a tensor; a copy where it is read-only, as in shared memory, which torch does not take."""
        return torch.from_numpy(np.require(array, requirements=("C", "W")))


class PinnedTransfers:
    """To a CUDA device through page-locked memory, on a separate stream beside the one that computes.

    A copy from page-locked memory neither blocks this process nor the kernels that run meanwhile. torch keeps the
    page-locked block from being used again until the device has read it.

    Args:
        device: of CUDA.
    """

    def __init__(self, device: torch.device):
        self._device = device
        self._stream = torch.cuda.Stream(device)
        # id of an array -> the array, which keeps the id its own, its tensor there, and when that is complete.
        self._staged: dict[int, tuple[np.ndarray, Tensor, torch.cuda.Event]] = {}

    def stage(self, arrays: Iterable[np.ndarray]) -> None:
        """Begins to send arrays; those staged before and not taken are forgotten."""
        self._staged = {id(array): (array, *self._send(array)) for array in arrays}

    def take(self, array: np.ndarray) -> Tensor:
        """The array on the device, for the current stream: as it was staged, or sent now."""
        _, tensor, complete = self._staged.pop(id(array), None) or (array, *self._send(array))
        computing = torch.cuda.current_stream(self._device)
        computing.wait_event(complete)
        # The memory belongs to the stream that allocated it; the other one has to be done with it, too.
        tensor.record_stream(computing)
        return tensor

    def _send(self, array: np.ndarray) -> tuple[Tensor, torch.cuda.Event]:
        dtype = torch.from_numpy(np.empty(0, array.dtype)).dtype
        pinned = torch.empty(array.shape, dtype=dtype, pin_memory=True)
        np.copyto(pinned.numpy(), array)
        with torch.cuda.stream(self._stream):
            tensor = pinned.to(self._device, non_blocking=True)
            complete = self._stream.record_event()
        return tensor, complete
