"""A policy keeps numpy's matrix products on one thread, unless the environment asks for more."""

import os
import subprocess
import sys

import pytest

from rllib.models.numpy_network import SYMBOLS

# Prints the number of threads before and after a policy was made; numpy is imported first, as users do.
CODE = """
import numpy as np
import ctypes
from pathlib import Path
package = Path(np.__file__).parent
paths = [*package.parent.glob("numpy.libs/*openblas*"), *package.glob(".dylibs/*openblas*")]
if not paths:
    raise SystemExit(77)
library = ctypes.CDLL(str(paths[0]))
names = [name.replace("_set_", "_get_") for name in SYMBOLS]
threads = next(getattr(library, name) for name in names if hasattr(library, name))
import gymnasium as gym
from rllib.models.catalog import policy_spec
from rllib.policy import Policy
import os
if ASKED:
    os.environ["OPENBLAS_NUM_THREADS"] = ASKED
Policy(policy_spec(gym.spaces.Discrete(2), gym.spaces.Discrete(2)))
print(threads())
"""


@pytest.mark.parametrize(("asked", "threads"), [("", 1), ("2", 2)])
def test_number_of_threads(asked, threads):
    environment = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    code = f"SYMBOLS = {SYMBOLS!r}; ASKED = {asked!r}\n{CODE}"
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    if done.returncode == 77:
        pytest.skip("this numpy does not bring its own OpenBLAS")
    assert done.returncode == 0, done.stderr
    if asked and (os.cpu_count() or 1) < 2:
        pytest.skip("one core cannot show two threads")
    assert int(done.stdout) == threads
