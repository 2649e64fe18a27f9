"""Errors of user code that nobody has seen yet."""

from __future__ import annotations

from collections.abc import Callable


class Unseen:
    """Held by everything through which an error can be seen: the references of the call, a failed actor, dependents.

    When the last of them has gone and `seen()` was not called, the error would be lost: then it is reported, once.

    Args:
        report: called without arguments, in whichever thread and at whatever moment.
    """

    __slots__ = ("_report",)

    def __init__(self, report: Callable[[], None]):
        self._report: Callable[[], None] | None = report

    def seen(self) -> None:
        """Somebody gets the error, or may get it where this process cannot know."""
        self._report = None

    def __del__(self):
        if self._report is not None:
            self._report()
