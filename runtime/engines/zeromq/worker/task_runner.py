"""The tasks that a worker runs, one after the other."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from functools import partial
from time import sleep

from ....calls.retries import Attempts
from ....errors import TaskCancelledError
from ...placement_groups import Placements
from ..client.cancellation import Cancellations, cancelled_reply
from ..system.interrupts import runs_user_code
from ..transport import structs, wire
from ..transport.mailbox import Mailbox
from .received_calls import ReceivedValues
from .results import Results
from .running import Running, left


class TaskRunner:
    """Runs tasks and answers their owners.

    Args:
        mailbox: mailbox of this process.
        received, results: arguments and results of tasks.
        running: calls that this process runs.
        cancellations: cancelled tasks among them.
        next_serial: a new number for a call.
        placements: where the calls of a task are placed.
        placement_changed: called when that is another place than before.
    """

    def __init__(
        self,
        mailbox: Mailbox,
        received: ReceivedValues,
        results: Results,
        running: Running,
        cancellations: Cancellations,
        next_serial: Callable[[], int],
        placements: Placements,
        placement_changed: Callable[[], None],
    ):
        self._mailbox, self._received, self._results, self._running = mailbox, received, results, running
        self._cancellations, self._next_serial = cancellations, next_serial
        self._placements, self._placement_changed = placements, placement_changed

    @runs_user_code
    def run(self, frame: bytes) -> None:
        """Runs the task in a message.

        Raises:
            Leave: user code has asked for the end of the process.
        """
        _, _, _, source, serial, size, num_returns, count = wire.HEADER.unpack_from(frame)
        task = structs.task(frame, size)
        running = self._running
        running.work = (wire.SUBMIT, serial, source, task.name, self._next_serial())
        running.request = task.request
        if task.placement != self._placements.current:
            self._placements.current = task.placement
            self._placement_changed()
        start = wire.HEADER_BYTES + size + -size % wire.ALIGNMENT
        attempts = Attempts(task.max_retries, partial(self._is_worth_it, task)) if task.retry_on else None
        while True:
            try:
                function = self._received.definition(task.digest)
                args, kwargs = self._received.arguments(frame, start, count)
                value = function(*args, **kwargs)
                args = kwargs = None
                reply = self._results.reply(source, serial, num_returns, value)
            except SystemExit as error:
                raise left(error) from None
            except BaseException as error:
                cancelled = self._cancellations.includes(serial, source)
                if cancelled and isinstance(error, KeyboardInterrupt | TaskCancelledError):
                    self._cancellations.cancel_children(serial, source)
                    reply = cancelled_reply(self._mailbox.process, serial, f"task {task.name}()")
                elif not cancelled and attempts is not None and (pause_s := attempts.pause_s(error)) is not None:
                    sleep(pause_s)
                    continue
                else:
                    reply = self._results.failure(serial, error, f"task {task.name}()")
            break
        value = None
        with self._mailbox.lock:
            self._mailbox.send(source, reply)
            self._mailbox.send(wire.NODE, wire.message(wire.DONE, self._mailbox.process, serial, source))
        running.work, running.request = None, ()

    def _is_worth_it(self, task, error):
        self._running.end_if_forked(error)
        return pickle.loads(task.retry_on).retries_on(error)
