"""The call that a worker runs at this moment, and the end of its process that it may bring about."""

from __future__ import annotations

import atexit
import sys
from contextvars import ContextVar
from typing import NoReturn

from ....host.linux import end_process
from ...definitions import describe_exit

# As Running.work: the call of this thread or coroutine, in an actor whose calls run at the same time.
of_this_thread: ContextVar[tuple | None] = ContextVar("of_this_thread", default=None)


class Leave(Exception):
    """The process is to end, with exit code `code`, and reports `text` to the node."""

    def __init__(self, code: int, text: str):
        super().__init__(text)
        self.code, self.text = code, text


def left(error: SystemExit) -> Leave:
    """The end of the process for which user code has asked."""
    code = error.code
    if code is not None and not isinstance(code, int):
        print(code, file=sys.stderr)
    number = 0 if code is None else code if isinstance(code, int) else 1
    return Leave(number & 0xFF, describe_exit(error))


class Running:
    """The calls that a worker runs.

    Args:
        name: name of the worker, or of its actor.

    Attributes:
        work: (kind, serial, source, name, first serial of the calls that it makes); None while nothing runs, or calls
            run at the same time.
        request: the resources that are held for it.
        actor: key of the actor that this worker is, or None.
        loop_thread: the thread of the actor's event loop, or None.
        forked: whether this process is a child that user code has forked in a worker.
    """

    __slots__ = ("actor", "forked", "loop_thread", "name", "request", "work")

    def __init__(self, name: str):
        self.name = name
        self.work: tuple | None = None
        self.request: tuple = ()
        self.actor: bytes | None = None
        self.loop_thread: int | None = None
        self.forked = False

    def now(self) -> tuple | None:
        """The call that the calling thread runs; see `work`."""
        return self.work or of_this_thread.get()

    def call_name(self) -> str:
        """Name of the call that the calling thread runs, for messages."""
        name = self.now()[3]
        return f"{self.name}.{name}()" if self.actor is not None else f"{name}()"

    def end_if_forked(self, error: BaseException | None = None) -> None:
        """Ends a child that user code has forked when it returns or raises there: the call belongs to the parent.

        Raises:
            SystemExit: in a child, after its call has returned.
            Leave: in a child, after its call has raised `error`.
        """
        if not self.forked:
            return
        if error is None:
            raise SystemExit(0)
        sys.excepthook(type(error), error, error.__traceback__)
        raise Leave(1, "raised in a forked child")

    def end_child(self, error: BaseException | None) -> NoReturn:
        """The same for a call in a thread or a coroutine, where nothing catches its exception."""
        if error is None or isinstance(error, SystemExit | Leave):
            code = 0 if error is None else (error if isinstance(error, Leave) else left(error)).code
        else:
            sys.excepthook(type(error), error, error.__traceback__)
            code = 1
        atexit._run_exitfuncs()
        end_process(code)
