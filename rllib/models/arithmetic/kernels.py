"""Arithmetic kernels of updates: numpy on one core, torch on several.

Both work on the same numpy arrays, in place. OpenBLAS, which numpy's wheels bring, gains less than torch from several
cores, and numpy computes everything but products on one.
"""

import contextlib
import ctypes
import functools
import logging
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import numpy as np

from rllib.models.arithmetic.shared_products import SYMBOL, Library, SharedProducts

logger = logging.getLogger(__name__)

SYMBOLS = ("scipy_openblas_set_num_threads64_", "scipy_openblas_set_num_threads", "openblas_set_num_threads")
# Arrays instead of Python numbers: numpy computes faster with them.
ZERO, ONE = np.zeros((), np.float32), np.ones((), np.float32)

# Numbers that one pass of numpy's optimizer touches: five arrays of this many stay in the second-level cache.
CHUNK = 32768

# Sizes of arrays up to which numpy is faster than torch, whose calls take longer to begin.
FEW = 4096

# A step of Adam so late that beta to this power is 0.
_LATE_STEP = 1e9

_UNCHANGED = contextlib.nullcontext()


class _Here(threading.local):
    """State of a thread.

    Attributes:
        torch: the module inside `on_cores` with several cores, else None.
        shared: computes large products inside `in_blocks`, else None.
    """

    torch: ModuleType | None = None
    shared: SharedProducts | None = None


_here = _Here()


@functools.cache
def _openblas() -> tuple[ctypes.CDLL, Callable[[int], object]] | None:
    """OpenBLAS as numpy has loaded it, and its function that sets the number of threads; None with another library."""
    package = Path(np.__file__).parent
    for path in (*package.parent.glob("numpy.libs/*openblas*"), *package.glob(".dylibs/*openblas*")):
        library = ctypes.CDLL(str(path))
        for symbol in SYMBOLS:
            if hasattr(library, symbol):
                return library, getattr(library, symbol)
    return None


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
        _, set_threads = found
        set_threads(threads)
        logger.debug("numpy's matrix products use %d thread(s); OPENBLAS_NUM_THREADS sets this", threads)


def shared_products(most_cores: int) -> SharedProducts | None:
    """Products for `in_blocks`, on up to this number of cores.

    Returns:
        None if numpy's library has none, or the environment variable OPENBLAS_NUM_THREADS sets its threads.
    """
    if (found := _openblas()) is None or _asked_for():
        return None
    library, set_threads = found
    if not hasattr(library, SYMBOL):
        return None
    return SharedProducts(Library(getattr(library, SYMBOL), set_threads), most_cores)


@contextlib.contextmanager
def in_blocks(products: SharedProducts, cores: int) -> Iterator[None]:
    """Context in which this thread's large `matmul` calls share this number of cores, with the same bits on any."""
    before, _here.shared, products.cores = _here.shared, products, cores
    try:
        yield
    finally:
        _here.shared = before


def load() -> ModuleType:
    """Imports torch, which takes a second, ahead of `on_cores`."""
    import torch

    return torch


def on_cores(count: int) -> contextlib.AbstractContextManager:
    """Context in which this thread's calls of these functions use `count` cores.

    With more than one, torch computes; one changes nothing.
    """
    return _UNCHANGED if count == 1 else _by_torch(count)


@contextlib.contextmanager
def _by_torch(count: int) -> Iterator[None]:
    torch, outer = load(), _here.torch
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    _here.torch = torch
    try:
        yield
    finally:
        _here.torch = outer
        torch.set_num_threads(before)


def _tensor(array: np.ndarray):
    """A tensor on the array's memory, to be read; read-only arrays, which torch refuses, are copied."""
    return _here.torch.from_numpy(array if array.flags.writeable else array.copy())


def _written(array: np.ndarray):
    """A tensor on the array's memory, to be written."""
    if not array.flags.writeable:
        raise ValueError("output array is read-only")  # as numpy says
    return _here.torch.from_numpy(array)


def matmul(a: np.ndarray, b: np.ndarray, out: np.ndarray, plus: np.ndarray | None = None) -> None:
    """Writes the product of matrices, or of stacks of matrices, into out; all float32, a single out C-contiguous.

    `plus` is added to stacks of products; it has their shape, or length 1 where it is repeated.
    """
    if _here.torch is None:
        if _here.shared is None or not _here.shared.multiply(a, b, out):
            (np.dot if out.ndim == 2 else np.matmul)(a, b, out=out)
        if plus is not None:
            np.add(out, plus, out=out)
    elif plus is None:
        _here.torch.matmul(_tensor(a), _tensor(b), out=_written(out))
    else:
        _here.torch.baddbmm(_tensor(plus), _tensor(a), _tensor(b), out=_written(out))


def relu(z: np.ndarray, out: np.ndarray) -> None:
    """Writes max(z, 0) into out."""
    if _here.torch is None:
        np.maximum(z, ZERO, out=out)
    else:
        _here.torch.clamp(_tensor(z), min=0, out=_written(out))


def relu_derivative(gradient: np.ndarray, h: np.ndarray) -> None:
    """Multiplies gradient by 1 where h, which `relu` wrote, is positive, and by 0 elsewhere."""
    if _here.torch is None:
        np.multiply(gradient, h > ZERO, out=gradient)
    else:
        tensor = _written(gradient)
        _here.torch.ops.aten.threshold_backward.grad_input(tensor, _tensor(h), 0, grad_input=tensor)


def scale_rows(x: np.ndarray, slopes: np.ndarray, out: np.ndarray) -> None:
    """Writes x * slopes, one for each row [..., 1], into out; axes of length 1 in x are repeated."""
    if _is_for_numpy(out):
        np.multiply(x, slopes, out=out)
    else:
        # torch does not broadcast results along axes that only out has.
        read = _tensor(x) if x.shape == out.shape else _tensor(x).expand(out.shape)
        _here.torch.mul(read, _tensor(slopes), out=_written(out))


def add_scaled_rows(x: np.ndarray, slopes: np.ndarray, out: np.ndarray, scratch: np.ndarray) -> None:
    """Adds x * slopes, as in `scale_rows`, to out; scratch has out's shape."""
    if _is_for_numpy(out):
        np.add(out, np.multiply(x, slopes, out=scratch), out=out)
    else:
        _written(out).addcmul_(_tensor(x), _tensor(slopes))


def subtract_from_rows(x: np.ndarray, subtracted: np.ndarray, out: np.ndarray) -> None:
    """Writes x - subtracted, one for each row [..., 1], into out of x's shape."""
    if _is_for_numpy(out):
        np.subtract(x, subtracted, out=out)
    else:
        _here.torch.sub(_tensor(x), _tensor(subtracted), out=_written(out))


def row_sums(x: np.ndarray) -> np.ndarray:
    """Sums over the last axis, which is kept with length 1."""
    if _is_for_numpy(x):
        return np.add.reduce(x, axis=-1, keepdims=True)
    return _tensor(x).sum(-1, keepdim=True).numpy()


def row_squares(x: np.ndarray) -> np.ndarray:
    """Sums of x * x over the last axis, which is kept with length 1."""
    if _is_for_numpy(x):
        return np.einsum("...b,...b->...", x, x)[..., None]
    return _here.torch.linalg.vector_norm(_tensor(x), dim=-1, keepdim=True).square_().numpy()


def row_products(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Sums of a * b over the last axis, which is kept with length 1."""
    # On one core in any case: torch would write the products first, which takes longer.
    return np.einsum("...b,...b->...", a, b)[..., None]


def _is_for_numpy(array: np.ndarray) -> bool:
    return _here.torch is None or array.size <= FEW


def chunks(size: int) -> list[slice]:
    """Slices of CHUNK numbers that cover a vector of this size."""
    return [slice(start, start + CHUNK) for start in range(0, size, CHUNK)]


def move_towards(weights: np.ndarray, goal: np.ndarray, share: float) -> None:
    """Moves weights [size] by `share` of the way to goal."""
    if _here.torch is not None:
        _written(weights).lerp_(_tensor(goal), share)
        return
    share, scratch = np.float32(share), np.empty(min(len(weights), CHUNK), np.float32)
    for part in chunks(len(weights)):
        moved = weights[part]
        moved *= 1 - share
        moved += np.multiply(goal[part], share, out=scratch[: len(moved)])


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
    if _here.torch is None:
        for part in chunks(len(weights)):
            arrays = weights[part], m[part], v[part], gradient[part], scratch[part]
            _adam_in_numpy(*arrays, betas=betas, step_size=step_size, epsilon=epsilon)
        return
    if epsilon is None:
        its_m, its_gradient = _written(m), _tensor(gradient)
        _written(v).mul_(betas[1]).addcmul_(its_gradient, its_gradient, value=1 - betas[1])
        _written(weights).sub_(its_m.lerp_(its_gradient, 1 - betas[0]), alpha=step_size)
        return
    # What torch.optim.Adam(fused=True) calls: one pass over the memory instead of seven. It corrects the biases of the
    # means by the number of steps. step_size and epsilon include that already, and after many steps it is nothing.
    torch = _here.torch
    means = [_written(m)], [_written(v)], []
    torch._fused_adam_(
        [_written(weights)], [_tensor(gradient)], *means, [torch.tensor(_LATE_STEP)],
        lr=step_size, beta1=betas[0], beta2=betas[1], eps=epsilon, weight_decay=0.0, amsgrad=False, maximize=False,
    )  # fmt: skip


def _adam_in_numpy(weights, m, v, gradient, scratch, betas, step_size, epsilon):
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
