"""Arithmetic kernels of updates, in numpy, and how several cores share them.

Large work is divided by its sizes alone: into towers of networks and parts of a minibatch's rows (dense/in_numpy.py), a
large product into blocks, a long vector into slices. On one core they are computed one after the other, on several by a
Crew, each on one core, so that the bits are the same on any number.
"""

import contextlib
import ctypes
import functools
import itertools
import logging
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from rllib.models.arithmetic.crew import Crew, crew

logger = logging.getLogger(__name__)

SYMBOLS = ("scipy_openblas_set_num_threads64_", "scipy_openblas_set_num_threads", "openblas_set_num_threads")
# Arrays instead of Python numbers: numpy computes faster with them.
ZERO, ONE = np.zeros((), np.float32), np.ones((), np.float32)

# Numbers of a slice of a vector that an optimizer passes over, and of a vector that is worth slices, at least: 134,000
# take 243 us on one core and 258 on two, most of which is waking up the second.
SLICE, SLICED = 2**15, 2**19

# Multiplications of a part, at least: waking up a thread takes a tenth of their time.
PART = 2**23
# Rows of a part and columns of a block, at least, and their number, at most: narrow products take longer.
FEWEST_ROWS, MOST_PARTS = 128, 4

# Multiplications of a product, at most, that OpenBLAS's kernels for AVX-512 compute without packing the matrices.
# Narrow matrices take a third less time in blocks of that size, unless these have fewer columns.
UNPACKED, FEWEST_COLUMNS = 10**6, 64
UNPACKING_CORES = (b"SkylakeX", b"Cooperlake", b"SapphireRapids")
# Rows of a block where both factors lie along the inner axis, and columns, at most; it pays for more than half of them.
MOST_ROWS, MOST_COLUMNS = 16, 64
# Inputs of a network up to which it is worth transposing them, or their gradient, for a faster product.
FEW_INPUTS = 64

# Sizes of arrays from which numpy is faster with an array of zeros than with a single one.
MANY = 4096

_UNCHANGED = contextlib.nullcontext()


class _Here(threading.local):
    """State of a thread.

    Attributes:
        crew: helps inside `on_cores` with several cores, else None.
        is_part: this thread computes a part, which is not divided further.
    """

    crew: Crew | None = None
    is_part: bool = False


_here = _Here()


@functools.cache
def _openblas() -> tuple[ctypes.CDLL, str] | None:
    """OpenBLAS as numpy has loaded it, and the name of its function that sets the number of threads.

    None with another library.
    """
    package = Path(np.__file__).parent
    for path in (*package.parent.glob("numpy.libs/*openblas*"), *package.glob(".dylibs/*openblas*")):
        library = ctypes.CDLL(str(path))
        for symbol in SYMBOLS:
            if hasattr(library, symbol):
                return library, symbol
    return None


@functools.cache
def most_unpacked() -> int:
    """Multiplications of a product, at most, that OpenBLAS computes without packing the matrices; 0: it packs all."""
    library, name = _openblas() or (None, "")
    core_name = getattr(library, name.replace("set_num_threads", "get_corename"), None)
    if core_name is None:
        return 0
    core_name.restype = ctypes.c_char_p
    return UNPACKED if core_name() in UNPACKING_CORES else 0


def _asked_for() -> int:
    """Number of threads in the environment variable OPENBLAS_NUM_THREADS; 0 without it."""
    asked = os.environ.get("OPENBLAS_NUM_THREADS", "")
    return int(asked) if asked.isdigit() else 0


@functools.cache
def use_one_blas_thread() -> None:
    """Makes numpy's matrix products in this process use one thread.

    Products of 64 columns end before a second thread wakes up; with OpenBLAS's default they take up to four times as
    long, and a helper thread keeps spinning for milliseconds on a core that the rollout workers need.

    The environment variable OPENBLAS_NUM_THREADS sets another number. Does nothing if numpy was built with another
    library than the OpenBLAS of its wheels.
    """
    threads = _asked_for() or 1
    if (found := _openblas()) is not None:
        library, symbol = found
        getattr(library, symbol)(threads)
        logger.debug("numpy's matrix products use %d thread(s); OPENBLAS_NUM_THREADS sets this", threads)


def can_share() -> bool:
    """Whether several cores can share the work: numpy's own library computes each product on one."""
    return _openblas() is not None and _asked_for() <= 1


def on_cores(count: int) -> contextlib.AbstractContextManager:
    """Context in which this thread's calls of these functions use up to `count` cores, with the same bits on any."""
    return _UNCHANGED if count == 1 or not can_share() else _with(crew(min(count, MOST_PARTS) - 1, _begin_to_help))


def _begin_to_help() -> None:
    _here.is_part = True


@contextlib.contextmanager
def _with(helpers: Crew) -> Iterator[None]:
    before, _here.crew = _here.crew, helpers
    try:
        yield
    finally:
        _here.crew = before


def num_parts(rows: int, weights: int) -> int:
    """Number of parts that a minibatch is worth, computed by networks with this number of weights."""
    return max(1, min(MOST_PARTS, rows * weights // PART))


def together(tasks: Sequence[Callable[[], object]]) -> None:
    """Runs tasks on the cores of `on_cores`. They write into separate memory, and read none that another writes."""
    before, _here.is_part = _here.is_part, True
    try:
        if _here.crew is None or before or len(tasks) == 1:
            for task in tasks:
                task()
        else:
            _here.crew.run(tasks)
    finally:
        _here.is_part = before


def matmul(a: np.ndarray, b: np.ndarray, out: np.ndarray, plus: np.ndarray | None = None) -> None:
    """Writes the product of matrices, or of stacks of matrices, into out; all float32, a single out C-contiguous.

    `plus` is added to stacks of products; it has their shape, or length 1 where it is repeated.
    """
    if out.size * a.shape[-1] >= 2 * PART and not _here.is_part and _fits(a, b, out):
        together(_blocks(a, b, out))
    else:
        (np.dot if out.ndim == 2 else np.matmul)(a, b, out=out)
    if plus is not None:
        np.add(out, plus, out=out)


def product(a: np.ndarray, b: np.ndarray, out: np.ndarray) -> Callable[[], object]:
    """A call that writes the product of these arrays, whose memory stays, into out; arguments as for `matmul`."""
    rows, inner, columns = a.shape[-2], a.shape[-1], b.shape[-1]
    together = unpacked_columns(rows, inner, columns)
    if 0 < together < columns:
        a, b, out = a[..., None, :, :], blocks_of_columns(b, together), blocks_of_columns(out, together)
    elif out.size * inner >= 2 * PART:
        return functools.partial(matmul, a, b, out)
    if inner == 1 and columns >= FEWEST_ROWS:
        return functools.partial(np.multiply, a, b, out=out)
    return functools.partial(np.dot if out.ndim == 2 and out.flags.c_contiguous else np.matmul, a, b, out=out)


def product_along_rows(a: np.ndarray, b: np.ndarray, out: np.ndarray) -> Callable[[], object]:
    """As `product`, where both factors lie in memory along the inner axis, which is long: a gradient of weights."""
    rows, inner, columns = a.shape[-2], a.shape[-1], b.shape[-1]
    at_once = next((count for count in range(MOST_ROWS, MOST_ROWS // 4, -1) if rows % count == 0), 0)
    is_unpacked = rows * inner * columns <= most_unpacked()
    length = unpacked_columns(at_once, columns, inner) if at_once and columns <= MOST_COLUMNS else 0
    if length == 0 or (is_unpacked and columns <= MOST_COLUMNS // 2):
        return product(a, b, out)
    # [..., blocks of the inner axis, blocks of rows, rows or inner, inner or columns]
    a = blocks_of_columns(a, length).reshape(*a.shape[:-2], inner // length, rows // at_once, at_once, length)
    b = blocks_of_columns(b.swapaxes(-1, -2), length).swapaxes(-1, -2)[..., None, :, :]
    if length == inner:
        out = out.reshape(*out.shape[:-2], 1, rows // at_once, at_once, columns)
        return functools.partial(np.matmul, a, b, out=out)
    parts = np.empty((*out.shape[:-2], inner // length, rows, columns), np.float32)
    return functools.partial(_sum_of_products, a, b, parts.reshape(*a.shape[:-1], columns), parts, out)


def _sum_of_products(a: np.ndarray, b: np.ndarray, products: np.ndarray, parts: np.ndarray, out: np.ndarray) -> None:
    np.matmul(a, b, out=products)
    np.add.reduce(parts, axis=-3, out=out)


def unpacked_columns(rows: int, inner: int, columns: int) -> int:
    """Number of columns, a divisor of all, of which OpenBLAS computes a product without packing; 0: it packs anyway.

    Args:
        rows, inner, columns: shapes of the factors are [rows, inner] and [inner, columns].
    """
    most = min(columns, most_unpacked() // (rows * inner))
    return next((count for count in range(most, FEWEST_COLUMNS - 1, -1) if columns % count == 0), 0)


def blocks_of_columns(matrices: np.ndarray, count: int) -> np.ndarray:
    """View [..., blocks, rows, count] of matrices [..., rows, columns]."""
    return matrices.reshape(*matrices.shape[:-1], -1, count).swapaxes(-2, -3)


def _multiply(a: np.ndarray, b: np.ndarray, out: np.ndarray) -> None:
    (np.dot if out.ndim == 2 and out.flags.c_contiguous else np.matmul)(a, b, out=out)


def _fits(a: np.ndarray, b: np.ndarray, out: np.ndarray) -> bool:
    """Whether these are matrices, or stacks of them, whose product fits into out; else numpy says what is wrong."""
    shape = (*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1])
    return a.ndim == b.ndim == out.ndim <= 3 and a.shape[-1] == b.shape[-2] and out.shape == shape


def _blocks(a: np.ndarray, b: np.ndarray, out: np.ndarray) -> list[Callable[[], object]]:
    """Tasks that compute each product of a stack, or a single one in blocks of columns; the shapes alone divide it."""
    if out.ndim == 3 and len(out) > 1:
        return [
            functools.partial(_multiply, a[index % len(a)], b[index % len(b)], its) for index, its in enumerate(out)
        ]
    columns = out.shape[-1]
    count = max(1, min(num_parts(out.size, a.shape[-1]), columns // FEWEST_ROWS))
    edges = [number * columns // count for number in range(count + 1)]
    parts = [slice(start, stop) for start, stop in itertools.pairwise(edges)]
    return [functools.partial(_multiply, a, b[..., part], out[..., part]) for part in parts]


def relu(z: np.ndarray, out: np.ndarray) -> None:
    """Writes max(z, 0) into out."""
    np.maximum(z, ZERO if z.size < MANY else _zeros(z.shape), out=out)


@functools.lru_cache(maxsize=16)
def _zeros(shape: tuple[int, ...]) -> np.ndarray:
    return np.zeros(shape, np.float32)


def relu_derivative(gradient: np.ndarray, h: np.ndarray) -> None:
    """Multiplies gradient by 1 where h, which `relu` wrote, is positive, and by 0 elsewhere."""
    np.multiply(gradient, h > ZERO, out=gradient)


def scale_rows(x: np.ndarray, slopes: np.ndarray, out: np.ndarray) -> None:
    """Writes x * slopes, one for each row [..., 1], into out; axes of length 1 in x are repeated."""
    np.multiply(x, slopes, out=out)


def add_scaled_rows(x: np.ndarray, slopes: np.ndarray, out: np.ndarray, scratch: np.ndarray) -> None:
    """Adds x * slopes, as in `scale_rows`, to out; scratch has out's shape."""
    np.add(out, np.multiply(x, slopes, out=scratch), out=out)


def subtract_from_rows(x: np.ndarray, subtracted: np.ndarray, out: np.ndarray) -> None:
    """Writes x - subtracted, one for each row [..., 1], into out of x's shape."""
    np.subtract(x, subtracted, out=out)


def row_sums(x: np.ndarray) -> np.ndarray:
    """Sums over the last axis, which is kept with length 1."""
    return np.add.reduce(x, axis=-1, keepdims=True)


def row_squares(x: np.ndarray) -> np.ndarray:
    """Sums of x * x over the last axis, which is kept with length 1."""
    return np.einsum("...b,...b->...", x, x)[..., None]


def row_products(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Sums of a * b over the last axis, which is kept with length 1."""
    return np.einsum("...b,...b->...", a, b)[..., None]


def slices(size: int) -> list[slice]:
    """Slices of equal size, about SLICE, that cover a vector of this size; a single one of less than SLICED."""
    count = 1 if size < SLICED else round(size / SLICE)
    edges = [number * size // count for number in range(count + 1)]
    return [slice(*each) for each in itertools.pairwise(edges)]


def move_towards(weights: np.ndarray, goal: np.ndarray, share: float) -> None:
    """Moves weights [size] by `share` of the way to goal."""
    share = np.float32(share)
    together([functools.partial(_move_towards, weights[part], goal[part], share) for part in slices(len(weights))])


def _move_towards(weights: np.ndarray, goal: np.ndarray, share: np.float32) -> None:
    weights *= 1 - share
    weights += goal * share


def adam(
    weights: np.ndarray,
    m: np.ndarray,
    v: np.ndarray,
    gradient: np.ndarray,
    scratch: np.ndarray,
    *,
    betas: tuple[float, float],
    step_size: float,
    epsilon: float | None,
) -> None:
    """Moves the means m of the gradient and v of its square, then weights by -step_size * m / (sqrt(v) + epsilon).

    Args:
        weights, m, v, gradient, scratch: vectors of one length, float32.
        betas: shares of the old means that stay.
        step_size: see above.
        epsilon: see above; None leaves the division out.
    """
    arrays = weights, m, v, gradient, scratch
    together([
        functools.partial(_adam, *(each[part] for each in arrays), betas, step_size, epsilon)
        for part in slices(len(weights))
    ])  # fmt: skip


def _adam(weights, m, v, gradient, scratch, betas, step_size, epsilon):
    np.subtract(gradient, m, out=scratch)
    scratch *= np.float32(1 - betas[0])
    m += scratch
    np.multiply(gradient, gradient, out=scratch)
    scratch *= np.float32(1 - betas[1])
    v *= np.float32(betas[1])
    v += scratch
    if epsilon is None:
        np.multiply(m, np.float32(step_size), out=scratch)
    else:
        np.sqrt(v, out=scratch)
        scratch += np.float32(epsilon)
        np.divide(m, scratch, out=scratch)
        scratch *= np.float32(step_size)
    weights -= scratch
