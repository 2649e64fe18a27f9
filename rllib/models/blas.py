"""One BLAS thread for small matrices.

Products of 64 columns are over before a second thread has been woken; with OpenBLAS's default they take up to four
times as long, and a helper thread goes on spinning for milliseconds on a core that the rollout workers need.
"""

import ctypes
import functools
import logging
import os
from pathlib import Path

import numpy as np

logger = logging.getLogger(__name__)

SYMBOLS = ("scipy_openblas_set_num_threads64_", "scipy_openblas_set_num_threads", "openblas_set_num_threads")


@functools.cache
def use_one_blas_thread() -> None:
    """From now on numpy's matrix products in this process use one thread.

    The environment variable OPENBLAS_NUM_THREADS asks for another number. Does nothing where numpy was built with
    another library than its wheels' OpenBLAS.
    """
    asked = os.environ.get("OPENBLAS_NUM_THREADS", "")
    threads = int(asked) if asked.isdigit() and int(asked) else 1
    package = Path(np.__file__).parent
    for path in (*package.parent.glob("numpy.libs/*openblas*"), *package.glob(".dylibs/*openblas*")):
        library = ctypes.CDLL(str(path))
        for symbol in SYMBOLS:
            if hasattr(library, symbol):
                getattr(library, symbol)(threads)
                logger.debug("numpy's matrix products use %d thread(s); OPENBLAS_NUM_THREADS sets this", threads)
                return
