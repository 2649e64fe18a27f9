"""Process of one seed: `rllib ARGUMENTS`, which ends in order when the process that started it has ended."""

import os
import signal
import threading

from rllib.cli import main


def _end_with_parent() -> None:
    """Waits for the end of standard input, which the parent holds open, and interrupts the run."""
    while os.read(0, 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    threading.Thread(target=_end_with_parent, daemon=True, name="parent").start()
    main()
