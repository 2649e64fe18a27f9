"""Attempts of tasks and calls that are made again in the same process after exceptions of their own code."""

from __future__ import annotations

from collections.abc import Callable

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.001, 0.1


def worth_retrying(retry_exceptions: bool | tuple, exception: BaseException) -> bool:
    """Whether the option `retry_exceptions` asks for another attempt after this exception."""
    if isinstance(retry_exceptions, tuple):
        return isinstance(exception, retry_exceptions)
    return retry_exceptions and isinstance(exception, Exception)


class Attempts:
    """Number of further attempts, and the pauses before them: 0, then 1 ms, doubled up to 100 ms.

    Without them what fails at once, and may be tried without end, would occupy a CPU.

    Args:
        retries: number of attempts after the first; -1 for no limit.
        is_worth_it: exception -> whether it is worth another attempt.
    """

    __slots__ = ("_is_worth_it", "_left", "_pause_s")

    def __init__(self, retries: int, is_worth_it: Callable[[BaseException], bool]):
        self._left, self._is_worth_it, self._pause_s = retries, is_worth_it, 0.0

    def pause_s(self, error: BaseException) -> float | None:
        """Seconds to wait before the next attempt; None if there is none."""
        if not self._left or not self._is_worth_it(error):
            return None
        self._left -= 1
        pause_s = self._pause_s
        self._pause_s = min(max(2 * pause_s, FIRST_PAUSE_S), LONGEST_PAUSE_S)
        return pause_s
