"""An orderly end of actors that hold something: environments, files, connections, processes of their own.

    class Worker(ClosingActor):
        @ends_early
        def work(self): ...             # may take any time

        def close(self): ...            # closes what the actor holds

    workers = {"worker 1": Closable(runtime.remote(Worker).remote())}
    close_and_kill(workers, within_s=10.0)

`close` is called after the call that the actor is running, which is ended early by KeyboardInterrupt if the actor has
its own process on this machine. An actor that has not closed in time is killed, and a warning says so.
"""

from __future__ import annotations

import functools
import logging
import os
import signal
import threading
from collections.abc import Callable, Mapping
from time import monotonic
from typing import Any

from ..api import get, kill, wait
from ..errors import ActorError, ObjectLostError, RuntimeFailure
from ..host.living_process import LivingProcess
from ..remote.actors import ActorHandle
from ..remote.refs import ObjectRef

logger = logging.getLogger(__name__)

# Longest time that a rollout worker has for closing what it holds (seconds). What closes actors in turn has more.
CLOSE_S = 10.0
# A signal that comes right before a system call does not end it; a further one does.
_AGAIN_S = 0.1
# No library is known to use it. Other systems than Linux have no processes of ours.
_END_SIGNAL = getattr(signal, "SIGRTMIN", 0) + 7


def ends_early(method: Callable) -> Callable:
    """Makes a method of a ClosingActor end early, with None, when the actor is about to be closed."""

    @functools.wraps(method)
    def call(self, *args, **kwargs):
        if self._is_ending:
            return None
        self._is_at_work = True
        try:
            return method(self, *args, **kwargs)
        except KeyboardInterrupt:
            if not self._is_ending:
                raise
            return None
        finally:
            self._is_at_work = False

    return call


class ClosingActor:
    """Base of the classes of actors that `close_and_kill` ends."""

    _is_ending = _is_at_work = False

    def end_by_signal(self, driver: int) -> LivingProcess | None:
        """Has a signal end the methods that are marked by `ends_early`.

        Args:
            driver: pid of the process that sends it.

        Returns:
            this process; None if it is the driver itself (the local engine), or cannot be interrupted.
        """
        if os.getpid() == driver or threading.current_thread() is not threading.main_thread():
            return None
        signal.signal(_END_SIGNAL, self._end_work)
        return LivingProcess.this()

    def _end_work(self, number, frame) -> None:
        was_ending, self._is_ending = self._is_ending, True
        if self._is_at_work and not was_ending:  # once: what follows may tidy up
            raise KeyboardInterrupt

    def close(self):
        """Closes what the actor holds."""


class Closable:
    """The handle of a ClosingActor, with what is needed to end it.

    Args:
        handle: handle of the actor; it may still be in its constructor.
    """

    def __init__(self, handle: ActorHandle):
        self.handle = handle
        self._process = handle.end_by_signal.remote(os.getpid())

    def end_work(self) -> None:
        """Ends what the actor does, if it has been made and can be interrupted; may be repeated."""
        try:
            process = get(self._process, timeout=0)
        except RuntimeFailure:  # it is still in its constructor, or has died
            return
        if process is not None:
            process.send(_END_SIGNAL)


def ask_last(
    actors: Mapping[Any, Closable], request: Callable[[ActorHandle], ObjectRef], within_s: float, work_s: float = 0.0
) -> tuple[dict[Any, ObjectRef], set]:
    """Asks actors for something after what they do, which ends early; they can only be closed and killed afterwards.

    Args:
        actors: by name.
        request: handle -> reference of the answer, of a method without `ends_early`.
        within_s: longest time until the answers (seconds).
        work_s: time in which what they do may come to its own end (seconds).

    Returns:
        name -> reference, and the names of the actors that have not answered in time.
    """
    if not work_s:
        for actor in actors.values():
            actor.end_work()
    asked = {name: request(actor.handle) for name, actor in actors.items()}
    names, until = {reference: name for name, reference in asked.items()}, monotonic() + within_s
    pending, interval_s = list(names), work_s or _AGAIN_S
    while pending and (left_s := until - monotonic()) > 0:
        _, pending = wait(pending, len(pending), min(left_s, interval_s))
        for reference in pending:
            actors[names[reference]].end_work()
        interval_s = _AGAIN_S
    return asked, {names[reference] for reference in pending}


def close_and_kill(actors: Mapping[str, Closable], within_s: float = CLOSE_S, logger: logging.Logger = logger) -> None:
    """Lets actors close what they hold, all at the same time, and kills them.

    Args:
        actors: by their names, for messages.
        within_s: longest time that they have (seconds). What has not closed by then is killed all the same.
        logger: gets a warning for each actor that has raised, or has not closed in time.
    """
    try:
        closing, pending = ask_last(actors, lambda handle: handle.close.remote(), within_s)
        for name, reference in closing.items():
            if name in pending:
                logger.warning(
                    "%s has not closed within %g s and is killed: what it holds (environments, files, connections) is "
                    "not closed",
                    name,
                    within_s,
                )
            else:
                _log_failure(name, reference, logger)
    finally:
        for actor in actors.values():
            kill(actor.handle)


def _log_failure(name, reference, logger):
    try:
        get(reference)
    except (ActorError, ObjectLostError):  # it has died before, which is known
        pass
    except RuntimeFailure as failure:
        logger.warning("%s has raised when it was closed: %s", name, failure)
