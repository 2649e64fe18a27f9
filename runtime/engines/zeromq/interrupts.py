"""Ctrl-C in the driver: KeyboardInterrupt is raised where the runtime waits or user code runs, never in the middle of
its bookkeeping, where it would lose a message or leave a process behind.

The signal handler looks at what the main thread is doing. If that must not be cut short, it tries again a little later.
"""

from __future__ import annotations

import _thread
import os
import signal
import threading
from time import sleep

from ... import actors, functions, session

RETRY_S = 0.003

_ENGINE = os.path.dirname(os.path.abspath(__file__)) + os.sep
_SERIALIZER = _ENGINE + "serializer.py"
_CALLERS = frozenset(module.__file__ for module in (actors, functions, session))
_waits: set = set()  # code objects that only wait


def interruptible(function):
    """Marks a function of the runtime that only waits: an exception may leave it at any point."""
    _waits.add(function.__code__)
    return function


class Interrupts:
    """The handler of SIGINT for the time of a session; it leaves a handler of the user's alone."""

    def __init__(self):
        self._installed = (
            threading.current_thread() is threading.main_thread()
            and signal.getsignal(signal.SIGINT) is signal.default_int_handler
        )
        if self._installed:
            signal.signal(signal.SIGINT, _on_interrupt)

    def close(self) -> None:
        """Puts the default back."""
        if (
            self._installed
            and threading.current_thread() is threading.main_thread()
            and signal.getsignal(signal.SIGINT) is _on_interrupt
        ):
            signal.signal(signal.SIGINT, signal.default_int_handler)


def _on_interrupt(number, frame):
    if _may_raise(frame):
        signal.default_int_handler(number, frame)
    _thread.start_new_thread(_again, ())


def _may_raise(frame):
    while frame is not None:
        code = frame.f_code
        if code in _waits:
            return True
        if code.co_filename == _SERIALIZER:
            return True  # user code is pickled or unpickled: it may take long, and nothing depends on it
        if code.co_filename.startswith(_ENGINE) or code.co_filename in _CALLERS:
            return False
        frame = frame.f_back
    return True


def _again():
    sleep(RETRY_S)
    # A real signal, since the main thread may wait in a system call by now.
    signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
