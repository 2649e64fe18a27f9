"""Waits for the next values of generators, of which Ray has no futures."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable

import ray

# Seconds between two looks at whether the session is over. A thread that is inside of Ray when the connection ends
# brings the process down.
_LOOK_S = 0.1
_END_S = 10.0


class Turns:
    """Calls back when generators have their next values, each from a thread."""

    def __init__(self):
        self._threads: set[threading.Thread] = set()
        self._is_over = threading.Event()

    def when_done(self, generator: ray.ObjectRefGenerator, callback: Callable[[], None]) -> None:
        """Calls `callback` once, when the generator has its next value, has ended, or the session is over."""
        thread = threading.Thread(target=self._wait, args=(generator, callback), name="runtime-turn", daemon=True)
        self._threads.add(thread)
        thread.start()

    def stop(self) -> None:
        """Ends all waits, before the connection to Ray ends."""
        self._is_over.set()
        for thread in self._threads.copy() - {threading.current_thread()}:
            thread.join(_END_S)

    def forked(self) -> None:
        """Forgets the threads, which a child process does not have."""
        self._threads.clear()

    def _wait(self, generator, callback):
        try:
            with contextlib.suppress(Exception):  # the connection may have been ended by others
                while not self._is_over.is_set() and not ray.wait([generator], num_returns=1, timeout=_LOOK_S)[0]:
                    pass
            callback()
        finally:
            self._threads.discard(threading.current_thread())
