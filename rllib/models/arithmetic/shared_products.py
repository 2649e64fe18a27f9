"""Matrix products shared among cores, with the same bits on any number of them.

A product of OpenBLAS on two threads rounds differently from one on a single thread: the share of each thread begins
elsewhere, and rows at the edges of a share are added up in another order. Here a product is divided into the same
blocks of rows on any number of cores, and OpenBLAS computes the blocks as a batch, each on one thread.
"""

import ctypes
import functools
import itertools
import logging
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

logger = logging.getLogger(__name__)

# Of the OpenBLAS in numpy's wheels, whose integers have 64 bits.
SYMBOL = "scipy_cblas_sgemm_batch64_"
# Multiplications of a block, at least: a thread that is woken up for less comes too late. Beware: batches of OpenBLAS
# 0.3.31 crash with blocks of up to a million, for which it has other kernels.
BLOCK = 2**22
# Every block packs the right factor anew, so that there are few.
MOST_BLOCKS = 4
FEWEST_ROWS = 16

_ROW_MAJOR, _PLAIN, _TRANSPOSED = 101, 111, 112
_ITEM = np.dtype(np.float32).itemsize


class Library(NamedTuple):
    """Functions of OpenBLAS: a batch of products, and the number of threads of this process."""

    multiply_batch: Callable
    set_threads: Callable[[int], object]


class SharedProducts:
    """Products of float32 matrices in blocks, on a number of cores.

    Args:
        library: computes them.
        most_cores: largest number of cores that will be used.

    Attributes:
        cores: number of cores of the next product. Results do not depend on it.
    """

    def __init__(self, library: Library, most_cores: int):
        self._library, self._most_cores, self.cores = library, most_cores, 1
        self._arguments = functools.lru_cache(maxsize=512)(_arguments)
        self._is_sound = functools.lru_cache(maxsize=512)(self._examine)

    def multiply(self, a: np.ndarray, b: np.ndarray, out: np.ndarray) -> bool:
        """Writes the product of matrices, or of stacks of matrices, into out, if it is large enough for blocks.

        Returns:
            whether it has.
        """
        layout = (a.shape, a.strides, b.shape, b.strides, out.shape, out.strides)
        if not (_fits(*layout) and out.flags.writeable and self._is_sound(*layout)):
            return False
        places = (_address(a), _address(b), _address(out))
        self._compute(self._arguments(*places, *layout), self.cores)
        return True

    def _compute(self, arguments: tuple, cores: int) -> None:
        if cores == 1:
            self._library.multiply_batch(*arguments)
            return
        self._library.set_threads(cores)
        try:
            self._library.multiply_batch(*arguments)
        finally:
            self._library.set_threads(1)

    def _examine(self, *layout) -> bool:
        """Whether products in this layout are right, and have the same bits on one core and on all.

        The order of additions does not depend on the numbers, so random ones show it.
        """
        rng = np.random.default_rng(0)
        a, b, out = (_random(shape, strides, rng) for shape, strides in zip(layout[::2], layout[1::2]))
        found = []
        for cores in (1, self._most_cores):
            out[...] = np.nan
            self._compute(_arguments(_address(a), _address(b), _address(out), *layout), cores)
            found.append(out.copy())
        if (found[0] == found[1]).all() and np.allclose(found[0], np.matmul(a, b), rtol=1e-3, atol=1e-3):
            return True
        logger.debug("products of %s and %s are not shared: their bits depend on the number of cores", *layout[:3:2])
        return False


@functools.lru_cache(maxsize=512)
def _fits(a_shape, a_strides, b_shape, b_strides, shape, strides) -> bool:
    """Whether a product is large enough for blocks, and laid out as OpenBLAS reads and writes it."""
    if not (len(a_shape) == len(b_shape) == len(shape) <= 3) or _num_blocks(a_shape, b_shape) < 2:
        return False
    stack = np.broadcast_shapes(a_shape[:-2], b_shape[:-2])
    if a_shape[-1] != b_shape[-2] or shape != (*stack, a_shape[-2], b_shape[-1]):
        return False  # numpy says what is wrong
    rows_of = ((a_shape, a_strides), (b_shape, b_strides))
    return min(*a_strides, *b_strides, *strides) >= 0 and (
        strides[-1] == _ITEM and strides[-2] >= _ITEM * shape[-1] and all(_leading(*each) for each in rows_of)
    )


def _num_blocks(a_shape: tuple, b_shape: tuple) -> int:
    rows, inner, columns = *a_shape[-2:], b_shape[-1]
    if min(inner, columns) < FEWEST_ROWS:
        return 0
    return min(MOST_BLOCKS, rows // FEWEST_ROWS, rows * inner * columns // BLOCK)


def _leading(shape: tuple, strides: tuple) -> tuple[int, int] | None:
    """Whether a matrix lies by rows or by columns, as OpenBLAS says it, and the numbers from one to the next."""
    if strides[-1] == _ITEM and strides[-2] >= _ITEM * shape[-1]:
        return _PLAIN, strides[-2] // _ITEM
    if strides[-2] == _ITEM and strides[-1] >= _ITEM * shape[-2]:
        return _TRANSPOSED, strides[-1] // _ITEM
    return None


def _arguments(a_at: int, b_at: int, out_at: int, a_shape, a_strides, b_shape, b_strides, shape, strides) -> tuple:
    """Arguments of cblas_sgemm_batch for the blocks of a product; each block is a group of one product."""
    (a_order, a_leading), (b_order, b_leading) = _leading(a_shape, a_strides), _leading(b_shape, b_strides)
    num_blocks, num_rows = _num_blocks(a_shape, b_shape), a_shape[-2]
    edges = [number * num_rows // num_blocks for number in range(num_blocks + 1)]
    stack = range(shape[0]) if len(shape) == 3 else (0,)
    rows, places = [], []
    for index in stack:
        of_a, of_b = _place(a_at, a_shape, a_strides, index), _place(b_at, b_shape, b_strides, index)
        of_out = _place(out_at, shape, strides, index)
        for begin, end in itertools.pairwise(edges):
            rows.append(end - begin)
            places.append((of_a + begin * a_strides[-2], of_b, of_out + begin * strides[-2]))
    count = len(rows)
    integers, floats = ctypes.c_int64 * count, ctypes.c_float * count
    pointers, orders = ctypes.c_void_p * count, ctypes.c_int * count
    a_places, b_places, out_places = (pointers(*column) for column in zip(*places))
    return (
        ctypes.c_int(_ROW_MAJOR), orders(*[a_order] * count), orders(*[b_order] * count),
        integers(*rows), integers(*[b_shape[-1]] * count), integers(*[a_shape[-1]] * count),
        floats(*[1.0] * count), a_places, integers(*[a_leading] * count), b_places, integers(*[b_leading] * count),
        floats(*[0.0] * count), out_places, integers(*[strides[-2] // _ITEM] * count),
        ctypes.c_int64(count), integers(*[1] * count),
    )  # fmt: skip


def _place(at: int, shape: tuple, strides: tuple, index: int) -> int:
    """Address of a matrix of a stack; a single one is repeated."""
    return at + (index * strides[0] if len(shape) == 3 and shape[0] > 1 else 0)


def _address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


def _random(shape: tuple, strides: tuple, rng: np.random.Generator) -> np.ndarray:
    """A float32 array of this layout in memory with random numbers."""
    size = 1 + sum((length - 1) * stride for length, stride in zip(shape, strides)) // _ITEM
    return np.lib.stride_tricks.as_strided(rng.standard_normal(size, np.float32), shape, strides)
