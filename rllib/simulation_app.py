"""The application that Isaac Lab needs before its other modules can be imported; a process starts it once.

This module loads neither numpy, torch nor gymnasium: the application is to be there first.
"""

import argparse
import os
import sys
from typing import Any

_running: list[Any] = []


def is_running() -> bool:
    """Whether the application was started here."""
    return bool(_running)


def start(arguments: argparse.Namespace | None = None) -> Any:
    """Starts the application, without a window unless the arguments ask for one; once it runs, gives it back.

    Args:
        arguments: arguments of isaaclab.app.AppLauncher; None: no window.

    Raises:
        ImportError: if Isaac Lab is not installed.
    """
    if not _running:
        from isaaclab.app import AppLauncher

        launcher = AppLauncher(arguments or argparse.Namespace(headless=True))
        _running.append(launcher.app)
    return _running[0]


def close(exit_code: int) -> None:
    """Closes the application, if it was started here. It may end the process with code 0, so after a failure the
    process ends at once, with its own code.
    """
    if not _running:
        return
    sys.stdout.flush()
    sys.stderr.flush()
    if exit_code:
        os._exit(exit_code)
    _running.pop().close()
