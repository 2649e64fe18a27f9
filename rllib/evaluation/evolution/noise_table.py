"""One long vector of normal numbers, shared by all processes: a direction in weight space is an index into it.

Workers and driver read the same memory, so only indices are sent between them (arXiv:1703.03864, section 2.1).
"""

from collections.abc import Callable

import numpy as np

CHUNK = 64  # directions that one product sums up; their vectors are gathered side by side first


class NoiseTable:
    """Directions of any dimension, each a slice of the table.

    Args:
        values: float32 [size], standard normal numbers; never written.
    """

    def __init__(self, values: np.ndarray):
        self.values = values

    @classmethod
    def draw(cls, size: int, rng: np.random.Generator, allocate: Callable[..., np.ndarray] = np.empty) -> "NoiseTable":
        """A new table, in memory from `allocate(shape, dtype)`."""
        values = allocate((size,), np.float32)
        rng.standard_normal(dtype=np.float32, out=values)
        return cls(values)

    @property
    def size(self) -> int:
        """Numbers in the table."""
        return len(self.values)

    def direction(self, index: int, dimension: int) -> np.ndarray:
        """The vector [dimension] that begins at index; a view.

        Raises:
            ValueError: if the vector does not lie within the table.
        """
        if not 0 <= index <= self.size - dimension:
            raise ValueError(
                f"a direction of {dimension} numbers at index {index} does not lie within a noise table of {self.size}"
            )
        return self.values[index : index + dimension]

    def draw_indices(self, rng: np.random.Generator, count: int, dimension: int) -> np.ndarray:
        """Draws the first indices of `count` directions, int64 [count]; each direction lies within the table.

        Raises:
            ValueError: if the table is shorter than one direction.
        """
        if dimension > self.size:
            raise ValueError(
                f"noise_size={self.size} must be at least the number of weights, which is {dimension}; "
                "100 times as much keeps directions apart"
            )
        return rng.integers(0, self.size - dimension + 1, count)

    def combination(self, coefficients: np.ndarray, indices: np.ndarray, dimension: int) -> np.ndarray:
        """sum_k coefficients[k] * direction(indices[k]), float32 [dimension]."""
        total = np.zeros(dimension, np.float32)
        coefficients = np.asarray(coefficients, np.float32)
        used = np.flatnonzero(coefficients)
        rows = np.empty((min(CHUNK, len(used)), dimension), np.float32)
        for start in range(0, len(used), CHUNK):
            part = used[start : start + CHUNK]
            for row, index in zip(rows, indices[part].tolist()):
                row[:] = self.direction(index, dimension)
            total += coefficients[part] @ rows[: len(part)]
        return total
