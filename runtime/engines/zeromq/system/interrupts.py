"""Signal handlers, kept out of the runtime's bookkeeping.

There, an exception would lose a message or leave a process behind, and an API function would wait for a lock that its
own thread holds. So a handler runs where the runtime waits or user code runs; elsewhere the signal comes again a little
later. In workers, what a handler raises reaches user code alone; while the worker waits for work it is printed. A task
that is cancelled gets KeyboardInterrupt, too, and no other task does.
"""

from __future__ import annotations

import _signal
import _thread
import functools
import os
import signal
import sys
import threading
from collections.abc import Callable
from enum import Enum
from time import sleep

from .... import session
from ....remote import actors, functions

RETRY_S = 0.003
ATTEMPTS = 10  # to interrupt a task that does not run: it is about to begin, or has just ended
POKE_SIGNAL = signal.SIGURG  # has a worker read its mailbox though user code runs; ignored by default
# A signal that comes right before a system call does not end it, and Python runs the handler only after the call, which
# may be a long sleep. A further signal ends it.
POKE_AGAIN_S = 0.05

_ENGINE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_SERIALIZER = os.path.join(_ENGINE, "values", "serializer.py")
_CALLERS = frozenset(module.__file__ for module in (actors, functions, session))
_waits: set = set()  # code objects that only wait
_callers_of_user_code: set = set()
_loops: set = set()  # code objects that call user code through those above alone
_defaults: dict = {}  # replacements of default handlers in a worker


def interruptible(function):
    """Marks a function of the runtime that only waits: an exception may leave it at any point."""
    _waits.add(function.__code__)
    return function


def runs_user_code(function):
    """Marks a function of a worker: functions that it calls outside of the runtime are user code."""
    _callers_of_user_code.add(function.__code__)
    return function


def runs_no_user_code(function):
    """Marks the loop of a worker: a wait in here, not in a function that `runs_user_code`, may not be interrupted."""
    _loops.add(function.__code__)
    return function


class _Place(Enum):
    """Place of the main thread when a signal comes: in user code, in a wait of a loop of a worker, or elsewhere."""

    USER_CODE, IDLE, BUSY = range(3)


class _Postponed:
    """A signal handler of the user that does not run in the runtime's bookkeeping."""

    def __init__(self, handler: Callable):
        self.handler = handler

    def __call__(self, number, frame):
        if _place(frame) is _Place.BUSY:
            _thread.start_new_thread(_again, (number, self.handler))
        else:
            self.handler(number, frame)


class _Confined(_Postponed):
    """The same in a worker; its exceptions reach user code alone. SystemExit always passes."""

    def __call__(self, number, frame):
        try:
            super().__call__(number, frame)
        except BaseException as error:
            if isinstance(error, SystemExit) or _place(frame) is _Place.USER_CODE:
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
        _thread.start_new_thread(self._end_system_calls, (task,))

    def __call__(self, number, frame):
        if self._wanted is None:
            super().__call__(number, frame)
            return
        running = self._running()
        if running is not None and running[1:3] == self._wanted:
            if _place(frame) is _Place.USER_CODE:
                self._wanted = None
                raise KeyboardInterrupt
        else:
            self._attempts -= 1
            if not self._attempts:
                self._wanted = None
                return
        _thread.start_new_thread(self._retry, (number, self._wanted))

    def _end_system_calls(self, task):
        """Until the task was interrupted; by a signal that does no harm after that."""
        sleep(POKE_AGAIN_S)
        signal.pthread_kill(threading.main_thread().ident, POKE_SIGNAL)
        while self._wanted == task and signal.getsignal(signal.SIGINT) is self.handler:
            sleep(POKE_AGAIN_S)
            signal.pthread_kill(threading.main_thread().ident, POKE_SIGNAL)

    def _retry(self, number, task):
        """The signal comes again, unless another task is to be interrupted by now: its own signal is on the way.

        One that is left over would be taken for the user's, and interrupt whatever runs.
        """
        sleep(RETRY_S)
        if self._wanted == task and signal.getsignal(number) is self.handler:
            signal.pthread_kill(threading.main_thread().ident, number)


class Handlers:
    """The user's signal handlers, present and future: `signal.signal` wraps every handler.

    Args:
        wrapper: _Postponed, or a subclass of it.
    """

    def __init__(self, wrapper: type[_Postponed]):
        self._wrapper = wrapper
        self._originals = install, installed = signal.signal, signal.getsignal

        @functools.wraps(installed)
        def getsignal(signalnum):
            handler = installed(signalnum)
            return handler.handler if isinstance(handler, _Postponed) else handler

        @functools.wraps(install)
        def replacement(signalnum, handler):
            before = getsignal(signalnum)
            install(signalnum, self._wrapped(handler))
            return before

        self._change(self._wrapped)
        self._replacements = signal.signal, signal.getsignal = replacement, getsignal

    def close(self) -> None:
        """Undoes it, unless user code has replaced `signal.signal` since."""
        if (signal.signal, signal.getsignal) == self._replacements:
            signal.signal, signal.getsignal = self._originals
            self._change(lambda handler: handler.handler if isinstance(handler, _Postponed) else handler)

    def _wrapped(self, handler):
        if not callable(handler) or handler is _on_interrupt or isinstance(handler, _Postponed):
            return handler
        return _defaults.get(handler) or self._wrapper(handler)

    def _change(self, change):
        if threading.current_thread() is not threading.main_thread():  # no other thread may install handlers
            return
        for number in range(1, signal.NSIG):
            before = _signal.getsignal(number)  # signal.getsignal makes enums of numbers: a third of a worker's setup
            after = change(before)
            if after is not before:
                self._originals[0](number, after)


def confine_handlers_to_user_code() -> None:
    """Has what signal handlers raise outside of user code printed, for the rest of this process's life."""
    Handlers(_Confined)


class Interrupts:
    """The driver's signals during a session. Ctrl-C is the runtime's unless the user has installed a handler for it."""

    def __init__(self):
        self._installed = (
            threading.current_thread() is threading.main_thread()
            and signal.getsignal(signal.SIGINT) is signal.default_int_handler
        )
        if self._installed:
            signal.signal(signal.SIGINT, _on_interrupt)
        self._handlers = Handlers(_Postponed)

    def close(self) -> None:
        """Puts the defaults back."""
        self._handlers.close()
        if (
            self._installed
            and threading.current_thread() is threading.main_thread()
            and signal.getsignal(signal.SIGINT) is _on_interrupt
        ):
            signal.signal(signal.SIGINT, signal.default_int_handler)


def _on_interrupt(number, frame):
    if _place(frame) is _Place.USER_CODE:
        signal.default_int_handler(number, frame)
    _thread.start_new_thread(_again, (number, _on_interrupt))


def _place(frame) -> _Place:
    top, waits = frame, False
    while frame is not None:
        code = frame.f_code
        if code in _callers_of_user_code:
            return _Place.USER_CODE if waits or frame is not top else _Place.BUSY
        if code in _loops:
            return _Place.IDLE if waits else _Place.BUSY
        # What pickles or unpickles runs user code, which may take long, and nothing depends on it.
        if code in _waits or code.co_filename == _SERIALIZER:
            waits = True
        elif not waits and (code.co_filename.startswith(_ENGINE) or code.co_filename in _CALLERS):
            return _Place.BUSY
        frame = frame.f_back
    return _Place.USER_CODE


def _again(number, handler):
    sleep(RETRY_S)
    # The session may have ended meanwhile, and put the default back: the same Ctrl-C is for that one then.
    if signal.getsignal(number) in (handler, signal.default_int_handler if handler is _on_interrupt else handler):
        # A real signal, since the main thread may wait in a system call by now.
        signal.pthread_kill(threading.main_thread().ident, number)
