"""Video files, and what drawing does to the process that draws."""

import signal
import subprocess
import sys

import pytest

DRAWING = """
import signal
import gymnasium
from rllib.runs.video import draw_without_display

draw_without_display()
env = gymnasium.make("CartPole-v1", render_mode="rgb_array")
env.reset()
env.render()
print("drawn", flush=True)
signal.pause()
"""


def test_a_process_that_draws_by_pygame_ends_by_sigterm():
    """SDL would take the signal, and hold it as an event that is read only by programs with a window."""
    pytest.importorskip("pygame", reason="pygame is not installed, which is of the extra video")
    with subprocess.Popen([sys.executable, "-c", DRAWING], stdout=subprocess.PIPE, text=True) as process:
        assert any(line == "drawn\n" for line in process.stdout)  # pygame greets before it
        process.send_signal(signal.SIGTERM)
    assert process.returncode == -signal.SIGTERM
