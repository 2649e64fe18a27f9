"""How many threads numpy's matrix products use, where numpy was built with its wheels' OpenBLAS."""

import contextlib
import ctypes
import functools
import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

logger = logging.getLogger(__name__)

SYMBOLS = ("scipy_openblas_set_num_threads64_", "scipy_openblas_set_num_threads", "openblas_set_num_threads")


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


@contextlib.contextmanager
def blas_threads(count: int) -> Iterator[None]:
    """Within it numpy's matrix products use this many threads, and one thread after it.

    Where the environment variable OPENBLAS_NUM_THREADS asks for a number, that one stays.
    """
    setter = _setter()
    if count == 1 or setter is None or _asked_for():
        yield
        return
    setter(count)
    try:
        yield
    finally:
        setter(1)
