"""OpenMP's way of waiting is set before torch is loaded, unless the user has chosen one."""

import os
import subprocess
import sys

import pytest


@pytest.mark.parametrize("chosen", [{}, {"GOMP_SPINCOUNT": "7"}, {"OMP_WAIT_POLICY": "ACTIVE"}])
def test_threads_spin_shortly_unless_the_user_says_otherwise(chosen):
    names = "GOMP_SPINCOUNT", "OMP_WAIT_POLICY"
    environment = {key: value for key, value in os.environ.items() if key not in names}
    code = "import rllib, os; print(os.environ.get('GOMP_SPINCOUNT'))"
    command = [sys.executable, "-c", code]
    printed = subprocess.check_output(command, env={**environment, **chosen}, text=True, timeout=60)
    assert printed.strip() == ("2000" if not chosen else str(chosen.get("GOMP_SPINCOUNT")))
