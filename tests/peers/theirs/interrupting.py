"""An answer that nobody waits for any more."""

import os
import signal

import numpy as np


def caller(settings):
    """Sends SIGUSR1 to the process that has called, and then answers."""
    os.kill(os.getppid(), signal.SIGUSR1)
    return {"late": np.array(True)}
