"""The lock of the runtime's bookkeeping."""

from __future__ import annotations

import gc
import threading


class Lock:
    """A lock; while a thread holds it, the garbage collector waits.

    Finalizers are user code, which may use any verb. One that the collector ran here would wait for the lock that its
    own thread holds. Signal handlers are kept away by interrupts.py.

    Attributes:
        bare: the lock alone, for what is on the way of every call and allocates nothing that the collector counts (in
            CPython: containers, functions, bound methods).
    """

    __slots__ = ("_collects", "bare")

    def __init__(self):
        self.bare, self._collects = threading.Lock(), False

    def __enter__(self):
        self.bare.acquire()
        if gc.isenabled():
            gc.disable()
            self._collects = True

    def __exit__(self, *exception):
        if self._collects:
            self._collects = False
            gc.enable()
        self.bare.release()
