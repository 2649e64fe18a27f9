"""Replays on a GPU: rows that lie where the learner reads them, so that a sampled batch is not sent there."""

import math
from collections.abc import Callable

import numpy as np

from rllib.config.conflicts import Unfit

GPU = "gpu"
# Its name in torch.
DEVICE = "cuda"
# Rows are sent in pieces of this size, so that a whole column that is restored does not lie there twice.
PIECE_BYTES = 2**26
# Share of the free memory that is left for the learner's computations.
KEPT_FREE = 0.1
DTYPES = ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64")


class GpuArray:
    """Rows on the GPU, zeros at first. Sampled rows are tensors; other reads and all writes are numpy arrays.

    It has those parts of an array's interface that replays use.

    Args:
        shape: [rows, ...].
        dtype: one of DTYPES.

    Attributes:
        shape: as given.
        dtype: numpy's.

    Raises:
        ValueError: for another dtype.
    """

    def __init__(self, shape: tuple[int, ...], dtype):
        import torch

        self.shape, self.dtype = tuple(shape), np.dtype(dtype)
        if self.dtype.name not in DTYPES:
            raise Unfit(
                f"a replay on a GPU has rows of {', '.join(DTYPES)}, not of {self.dtype}.",
                "Use .training(replay_buffer_config={'storage': 'memory'}), or another dtype in the observation space.",
                {"replay_buffer_config": {"storage": "memory"}},
            )
        self._rows = torch.zeros(self.shape, dtype=getattr(torch, self.dtype.name), device=DEVICE)

    def __len__(self) -> int:
        return self.shape[0]

    def __setitem__(self, place: int | slice, rows: np.ndarray) -> None:
        if not isinstance(place, slice):
            self._rows[place] = self._sent(np.array(rows, self.dtype))
            return
        start, stop, _ = place.indices(len(self))
        piece = max(PIECE_BYTES * len(self) // max(self._rows.nbytes, 1), 1)
        for first in range(start, stop, piece):
            last = min(first + piece, stop)
            self._rows[first:last] = self._sent(np.array(rows[first - start : last - start], self.dtype))

    def __getitem__(self, place):
        """For a tensor of places [...] the rows there, a tensor [..., *row]; else a copy as an array."""
        import torch

        found = self._rows[place]
        return found if isinstance(place, torch.Tensor) else found.cpu().numpy()

    def take(self, places: np.ndarray, axis: int = 0, out: None = None, mode: str = "clip"):
        """The rows at these places [B], a tensor [B, *row]; arguments as numpy's, of which the places alone count."""
        return self._rows.index_select(axis, self._sent(places))

    def _sent(self, array: np.ndarray):
        import torch

        return torch.from_numpy(array).to(DEVICE)


def check_gpu(rows: int, size_bytes: int, setting_of: Callable[[int], int] = int) -> None:
    """Refuses a replay that the GPU has no room for, before anything is allocated.

    Args:
        rows: number of rows.
        size_bytes: size in bytes of all rows together.
        setting_of: as for `check_memory`.

    Raises:
        Unfit: (a ValueError) with the size, and a capacity that fits.
    """
    free = free_bytes()
    if size_bytes > free * (1 - KEPT_FREE):
        fitting = setting_of(max(math.floor(rows * free / (2 * size_bytes)), 1))
        raise Unfit(
            f"a replay of {rows} rows takes {size_bytes / 2**30:.1f} GiB, but {free / 2**30:.1f} GiB of the "
            f"GPU's memory are free, of which the learner needs a part ({KEPT_FREE:.0%} at least).",
            f"Use .training(replay_buffer_config={{'capacity': {fitting}}}), or {{'storage': 'memory'}}.",
            {"replay_buffer_config": {"capacity": fitting}},
            {"replay_buffer_config": {"storage": "memory"}},
        )


def free_bytes() -> int:
    """Memory of the GPU that no process has taken, and what torch keeps here for its next tensors."""
    import torch

    free, _ = torch.cuda.mem_get_info(DEVICE)
    return free + torch.cuda.memory_reserved(DEVICE) - torch.cuda.memory_allocated(DEVICE)
