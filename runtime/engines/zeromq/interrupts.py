"""Signals, kept out of the runtime's bookkeeping, where an exception would lose a message or leave a process behind.

In the driver, Ctrl-C raises KeyboardInterrupt where the runtime waits or user code runs; elsewhere the handler tries
again a little later. In workers, what any handler raises reaches user code alone; elsewhere it is printed. A task that
is cancelled gets KeyboardInterrupt, too, and no other task does.
"""

from __future__ import annotations

import _thread
import functools
import os
import signal
import sys
import threading
from collections.abc import Callable
from time import sleep

from ... import actors, functions, session

RETRY_S = 0.003
ATTEMPTS = 10  # to interrupt a task that does not run: it is about to begin, or has just ended
POKE_SIGNAL = signal.SIGURG  # has a worker read its mailbox though user code runs; ignored by default

_ENGINE = os.path.dirname(os.path.abspath(__file__)) + os.sep
_SERIALIZER = _ENGINE + "serializer.py"
_CALLERS = frozenset(module.__file__ for module in (actors, functions, session))
_waits: set = set()  # code objects that only wait
_callers_of_user_code: set = set()
_loops: set = set()  # code objects that call user code through those above alone
_defaults: dict = {}  # what stands for a default handler in a worker


def interruptible(function):
    """Marks a function of the runtime that only waits: an exception may leave it at any point."""
    _waits.add(function.__code__)
    return function


def runs_user_code(function):
    """Marks a function of a worker: what it calls outside of the runtime is user code."""
    _callers_of_user_code.add(function.__code__)
    return function


def runs_no_user_code(function):
    """Marks the loop of a worker: a wait in here, not in a function that `runs_user_code`, may not be interrupted."""
    _loops.add(function.__code__)
    return function


def confine_handlers_to_user_code() -> None:
    """Has what signal handlers raise outside of user code printed, for the rest of this process's life.

    `signal.signal` is replaced by a function that wraps the handlers it is given. SystemExit always passes.
    """
    install, installed = signal.signal, signal.getsignal

    @functools.wraps(installed)
    def getsignal(signalnum):
        handler = installed(signalnum)
        return handler.handler if isinstance(handler, _Confined) else handler

    @functools.wraps(install)
    def replacement(signalnum, handler):
        before = getsignal(signalnum)
        install(signalnum, (_defaults.get(handler) or _Confined(handler)) if callable(handler) else handler)
        return before

    signal.signal, signal.getsignal = replacement, getsignal


class _Confined:
    """A signal handler whose exceptions reach user code alone."""

    def __init__(self, handler):
        self.handler = handler

    def __call__(self, number, frame):
        try:
            self.handler(number, frame)
        except BaseException as error:
            if isinstance(error, SystemExit) or _may_raise(frame):
                raise
            if not isinstance(error, KeyboardInterrupt):  # there is nothing that Ctrl-C could interrupt
                sys.excepthook(type(error), error, error.__traceback__)


class TaskInterrupts(_Confined):
    """The handler of SIGINT in a worker, where user code has no other: it interrupts the task that is cancelled.

    User code sees it as the default handler, for which it stands.

    Args:
        running: () -> (kind, serial, source, ...) of what the worker runs, or None.
    """

    def __init__(self, running: Callable[[], tuple | None]):
        super().__init__(signal.default_int_handler)
        self._running = running
        self._wanted: tuple[int, int] | None = None  # (serial, source)
        self._attempts = 0
        _defaults[signal.default_int_handler] = self
        signal.signal(signal.SIGINT, signal.default_int_handler)

    def interrupt(self, task: tuple[int, int]) -> None:
        """Raises KeyboardInterrupt once in a task (serial, source), as soon as its own code runs; from any thread."""
        self._wanted, self._attempts = task, ATTEMPTS
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    def __call__(self, number, frame):
        if self._wanted is None:
            super().__call__(number, frame)
            return
        running = self._running()
        if running is not None and running[1:3] == self._wanted:
            if _may_raise(frame):
                self._wanted = None
                raise KeyboardInterrupt
        else:
            self._attempts -= 1
            if not self._attempts:
                self._wanted = None
                return
        _thread.start_new_thread(_again, ())


class Interrupts:
    """The handler of SIGINT during a session; a handler that the user has installed stays."""

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
    top, interruptible = frame, False
    while frame is not None:
        code = frame.f_code
        if code in _callers_of_user_code:
            return interruptible or frame is not top
        if code in _loops:
            return False
        # What pickles or unpickles runs user code, which may take long, and nothing depends on it.
        if code in _waits or code.co_filename == _SERIALIZER:
            interruptible = True
        elif not interruptible and (code.co_filename.startswith(_ENGINE) or code.co_filename in _CALLERS):
            return False
        frame = frame.f_back
    return True


def _again():
    sleep(RETRY_S)
    # A real signal, since the main thread may wait in a system call by now.
    signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
