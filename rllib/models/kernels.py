"""The arithmetic in which updates spend their time: numpy's, or torch's on several cores for large updates.

Both work on the same numpy arrays in place. OpenBLAS, which numpy's wheels bring, is 1.5 times as fast with two threads
on matrices of 256 by 256, and numpy computes all else on one core; torch's functions are twice as fast with two.
"""

import contextlib
import ctypes
import functools
import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import numpy as np

logger = logging.getLogger(__name__)

SYMBOLS = ("scipy_openblas_set_num_threads64_", "scipy_openblas_set_num_threads", "openblas_set_num_threads")
# An array: with a number numpy takes 0.1 us longer, and with a row of zeros up to 1.5 times as long.
ZERO = np.zeros((), np.float32)

# Numbers that one pass of numpy's optimizer touches: five arrays of this many stay in the second-level cache.
CHUNK = 32768

_UNCHANGED = contextlib.nullcontext()
# torch, within `on_cores` of several.
_torch: ModuleType | None = None


@functools.cache
def _setter() -> Callable[[int], object] | None:
    """OpenBLAS's function that sets the number of threads; None with another library."""
    package = Path(np.__file__).parent
    for path in (*package.parent.glob("numpy.libs/*openblas*"), *package.glob(".dylibs/*openblas*")):
        library = ctypes.CDLL(str(path))
        for symbol in SYMBOLS:
            if hasattr(library, symbol):
                return getattr(library, symbol)
    return None


def _asked_for() -> int:
    """What the environment variable OPENBLAS_NUM_THREADS asks for; 0 without it."""
    asked = os.environ.get("OPENBLAS_NUM_THREADS", "")
    return int(asked) if asked.isdigit() else 0


@functools.cache
def use_one_blas_thread() -> None:
    """From now on numpy's matrix products in this process use one thread.

    Products of 64 columns are over before a second thread has been woken; with OpenBLAS's default they take up to four
    times as long, and a helper thread goes on spinning for milliseconds on a core that the rollout workers need.

    The environment variable OPENBLAS_NUM_THREADS asks for another number. Does nothing where numpy was built with
    another library than its wheels' OpenBLAS.
    """
    threads = _asked_for() or 1
    if (setter := _setter()) is not None:
        setter(threads)
        logger.debug("numpy's matrix products use %d thread(s); OPENBLAS_NUM_THREADS sets this", threads)


def on_cores(count: int) -> contextlib.AbstractContextManager:
    """A context: within it the functions of this module use this many cores: with more than one they are torch's."""
    return _UNCHANGED if count == 1 else _by_torch(count)


@contextlib.contextmanager
def _by_torch(count: int) -> Iterator[None]:
    global _torch  # which arithmetic a process uses is one fact, like OpenBLAS's number of threads
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(count)
    _torch = torch
    try:
        yield
    finally:
        _torch = None
        torch.set_num_threads(before)


def _tensor(array: np.ndarray):
    return _torch.from_numpy(array if array.flags.writeable else array.copy())


def matmul(a: np.ndarray, b: np.ndarray, out: np.ndarray) -> None:
    """Writes the product of matrices, or of stacks of matrices, into out; all float32."""
    if _torch is None:
        (np.dot if out.ndim == 2 else np.matmul)(a, b, out=out)
    else:
        _torch.matmul(_tensor(a), _tensor(b), out=_tensor(out))


def relu(z: np.ndarray, out: np.ndarray) -> None:
    """Writes max(z, 0) into out."""
    if _torch is not None:
        _torch.clamp(_tensor(z), min=0, out=_tensor(out))
    else:
        np.maximum(z, ZERO, out=out)


def relu_derivative(gradient: np.ndarray, h: np.ndarray, scratch: np.ndarray) -> None:
    """Multiplies gradient by 1 where h, which `relu` wrote, is positive, and by 0 elsewhere."""
    if _torch is None:
        np.multiply(gradient, h > ZERO, out=gradient)
    else:
        _tensor(gradient).mul_(_torch.sign(_tensor(h), out=_tensor(scratch)))


def affine(x: np.ndarray, slopes: np.ndarray, offsets: np.ndarray | None, out: np.ndarray) -> None:
    """Writes x * slopes + offsets, which may have one number for each row of x, [..., 1], into out; None adds none."""
    if _torch is None:
        np.multiply(x, slopes, out=out)
        if offsets is not None:
            np.add(out, offsets, out=out)
        return
    # torch does not repeat what it writes along axes that only out has.
    x_as_out = _tensor(x).expand(out.shape)
    if offsets is None:
        _torch.mul(x_as_out, _tensor(slopes), out=_tensor(out))
    else:
        _torch.addcmul(_tensor(offsets), x_as_out, _tensor(slopes), out=_tensor(out))


def row_sums(x: np.ndarray) -> np.ndarray:
    """The sums over the last axis, which stays with length 1."""
    if _torch is not None:
        return _tensor(x).sum(-1, keepdim=True).numpy()
    return np.add.reduce(x, axis=-1, keepdims=True)


def row_products(a: np.ndarray, b: np.ndarray, scratch: np.ndarray) -> np.ndarray:
    """The sums of a * b over the last axis, which stays with length 1."""
    if _torch is not None:
        return _torch.mul(_tensor(a), _tensor(b), out=_tensor(scratch)).sum(-1, keepdim=True).numpy()
    return np.einsum("...b,...b->...", a, b)[..., None]


def chunks(size: int) -> list[slice]:
    """Parts of a vector of this size."""
    return [slice(start, start + CHUNK) for start in range(0, size, CHUNK)]


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
    rest1, rest2 = 1 - betas[0], 1 - betas[1]
    if _torch is not None:
        its_m, its_v, its_gradient, its_scratch = map(_tensor, (m, v, gradient, scratch))
        its_m.lerp_(its_gradient, rest1)
        its_v.mul_(betas[1]).addcmul_(its_gradient, its_gradient, value=rest2)
        if epsilon is None:
            _tensor(weights).sub_(its_m, alpha=step_size)
        else:
            _tensor(weights).addcdiv_(its_m, _torch.sqrt(its_v, out=its_scratch).add_(epsilon), value=-step_size)
        return
    for part in chunks(len(weights)):
        _adam_in_numpy(weights[part], m[part], v[part], gradient[part], scratch[part], rest1, rest2, step_size, epsilon)


def _adam_in_numpy(weights, m, v, gradient, scratch, rest1, rest2, step_size, epsilon):
    np.subtract(gradient, m, out=scratch)
    scratch *= np.float32(rest1)
    m += scratch
    np.multiply(gradient, gradient, out=scratch)
    scratch *= np.float32(rest2)
    v *= np.float32(1 - rest2)
    v += scratch
    if epsilon is None:
        np.multiply(m, np.float32(step_size), out=scratch)
    else:
        np.sqrt(v, out=scratch)
        scratch += np.float32(epsilon)
        np.divide(m, scratch, out=scratch)
        scratch *= np.float32(step_size)
    weights -= scratch
