"""Ends of processes that a test cannot bring about with real ones."""

import subprocess
import sys

import pytest

SCRIPT = """
import os, signal, subprocess
from runtime.host import linux as process

process.KILL_S = 0.2
stubborn, other = (subprocess.Popen(["sleep", "1000"]) for _ in range(2))
kill = os.kill

def unable(pid, number):
    if pid != stubborn.pid:
        kill(pid, number)
    elif {refused}:
        raise PermissionError

os.kill = unable
process.kill_children()
assert process._children() == {{stubborn.pid}}  # private: how the process finds its children shows nowhere else
kill(stubborn.pid, signal.SIGKILL)
os.waitid(os.P_PID, stubborn.pid, os.WEXITED | os.WNOWAIT)
process.kill_children()
assert not process._children()
"""


@pytest.mark.parametrize("refused", [True, False])
def test_children_that_cannot_be_killed_stop_nobody(refused):
    subprocess.run([sys.executable, "-c", SCRIPT.format(refused=refused)], timeout=20, check=True)
