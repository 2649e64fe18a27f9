"""Ctrl-C as a flag."""

import signal
import threading


class Interrupts:
    """Inside it the first Ctrl-C sets `seen`, and only the second raises KeyboardInterrupt.

    Only in the main thread, where Python handles signals, and where SIGINT is not ignored.
    """

    def __init__(self):
        self.seen = False

    def __enter__(self):
        self._before = None
        is_main = threading.current_thread() is threading.main_thread()
        if is_main and signal.getsignal(signal.SIGINT) != signal.SIG_IGN:
            self._before = signal.signal(signal.SIGINT, self._handle)
        return self

    def __exit__(self, *exc_info) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def _handle(self, number: int, frame) -> None:
        if self.seen:
            raise KeyboardInterrupt
        self.seen = True
