"""Cancelling: `Canceller` where the calls were made, `Cancellations` where they run.

In a worker the task that runs is interrupted, and what waits is answered without being run.
"""

from __future__ import annotations

from collections.abc import Callable

from ....errors import TaskCancelledError
from ..system.interrupts import TaskInterrupts
from ..transport import wire
from ..transport.mailbox import Mailbox
from ..values.local_refs import LocalRefs
from ..values.refs import SERIAL_STEP
from ..values.serializer import error_value
from .actor_channels import ActorChannels
from .tasks import Tasks

CALLS = wire.CALL, wire.CALL_WITH, wire.PACKED_CALLS


def cancelled_reply(process: int, serial: int, what: str) -> bytes:
    """The reply of a cancelled task or call to its owner.

    Args:
        process: the sender.
        serial: serial number of the call.
        what: "task f()".
    """
    body = error_value(TaskCancelledError(f"{what} was cancelled"))  # without RAISED: it need not be seen
    return wire.message(wire.REPLY, process, serial, 1, body=body)


class Cancellations:
    """The cancelled work of one worker.

    A worker that has none does not look here: while there is some, functions of this class stand in `run`.

    Args:
        mailbox: mailbox of the worker.
        queue: waiting work.
        run: kind of message -> what runs a frame of it, as the worker's loop uses it.
        running: () -> (kind, serial, source, name, first serial of calls that it makes) of the running call, or None.
        cancel_children: called with that first serial when the running task is cancelled together with its calls.
    """

    def __init__(self, mailbox: Mailbox, queue, run: dict[int, Callable], running: Callable, cancel_children: Callable):
        self._mailbox, self._queue, self._run, self._running = mailbox, queue, run, running
        self._cancel_children = cancel_children
        self._work: dict[tuple[int, int], int] = {}  # (serial, owner) -> flags
        self._originals: dict[int, Callable] = {}
        self._interrupts = TaskInterrupts(running)

    def includes(self, serial: int, owner: int) -> bool:
        """Whether a task or call was cancelled."""
        return (serial, owner) in self._work

    def closes(self, serial: int, owner: int) -> bool:
        """Whether the consumer of a generator has closed it."""
        return bool(self._work.get((serial, owner), 0) & wire.CLOSE)

    def cancel_task(self, serial: int, owner: int, flags: int) -> None:
        """Cancels the task that the node assigned last; it may be queued, running or finished.

        With CLOSE it is a generator without a consumer: it is not interrupted, but asks `closes`.
        """
        self._add(wire.SUBMIT, (serial, owner), flags, self._run_task)
        if not flags & wire.CLOSE:
            # Its own calls are cancelled when it ends: earlier, that might end one that it waits for.
            self._interrupts.interrupt((serial, owner))

    def cancel_children(self, serial: int, owner: int) -> None:
        """Cancels what the task has called so far, if it runs and was cancelled with that."""
        running = self._running()
        if running is not None and running[1:3] == (serial, owner) and self._work[serial, owner] & wire.RECURSIVE:
            self._cancel_children(running[4])

    def cancel_call(self, serial: int, caller: int, flags: int) -> bool:
        """A caller says so of a call of this actor: it is dropped if it waits.

        With CLOSE it is a generator without a consumer: it is not interrupted, but asks `closes`.

        Returns:
            Whether that is done; False for a call that has begun.
        """
        work = serial, caller
        for kind in CALLS:  # before looking: from here on it cannot begin
            self._add(kind, work, flags, self._run_call)
        if any(self._is(frame, work) for frame in list(self._queue)):
            self._answer(work, "the call of an actor")
            return True
        if not flags & wire.CLOSE:
            self._remove(work)
        return bool(flags & wire.CLOSE)

    def forget_call(self, serial: int, caller: int) -> None:
        """A generator of this actor has ended."""
        if (serial, caller) in self._work:
            self._remove((serial, caller))

    def _is(self, frame, work):
        kind, serial, source = _work_of(frame)
        return kind in CALLS and (serial, source) == work

    def _add(self, kind, work, flags, run):
        self._work[work] = flags
        self._originals.setdefault(kind, self._run[kind])
        self._run[kind] = run

    def _remove(self, call):
        self._work.pop(call, None)
        if not self._work:
            for kind in CALLS:
                self._run[kind] = self._originals[kind]

    def _answer(self, work, what):
        serial, owner = work
        with self._mailbox.lock:
            self._mailbox.send(owner, cancelled_reply(self._mailbox.process, serial, what))

    def _run_task(self, frame):
        _, _, _, source, serial, *_ = wire.HEADER.unpack_from(frame)
        if self.includes(serial, source):
            self._answer((serial, source), "the task")
            with self._mailbox.lock:
                self._mailbox.send(wire.NODE, wire.message(wire.DONE, self._mailbox.process, serial, source))
        else:  # the cancelled one has ended
            self._work.clear()
            self._run[wire.SUBMIT] = self._originals[wire.SUBMIT]
            self._run[wire.SUBMIT](frame)

    def _run_call(self, frame):
        kind, serial, source = _work_of(frame)
        if self.includes(serial, source):
            self._remove((serial, source))  # it was answered when it was cancelled
        else:
            self._originals[kind](frame)


def _work_of(frame):
    """(kind, serial, source) of what waits in a worker's queue."""
    if type(frame) is tuple:  # a call that came packed with others
        return wire.PACKED_CALLS, frame[1], frame[0]
    _, kind, _, source, serial, *_ = wire.HEADER.unpack_from(frame)
    return kind, serial, source


class Canceller:
    """Cancels what this process has called, and asks the owners of other tasks to do so.

    Args:
        mailbox: mailbox of this process.
        local_refs: its references.
        tasks, actor_channels: calls of this process.
        cancel_call: `ActorCalls.cancel`.
        enter: `Client.enter`.
    """

    def __init__(
        self,
        mailbox: Mailbox,
        local_refs: LocalRefs,
        tasks: Tasks,
        actor_channels: ActorChannels,
        cancel_call: Callable,
        enter: Callable[[], None],
    ):
        self._mailbox, self._local_refs, self._enter = mailbox, local_refs, enter
        self._tasks, self._channels, self._cancel_call = tasks, actor_channels, cancel_call

    def cancel(self, ref, force: bool, recursive: bool) -> None:
        """Cancels a task or call; see base.Engine."""
        self._enter()
        self._local_refs.check_own(ref)
        self._mailbox.drain()  # what has been answered so far
        flags = wire.FORCE * force | wire.RECURSIVE * recursive
        with self._mailbox.lock:
            if ref.frame is not None:
                return
            serial = ref.serial - ref.serial % SERIAL_STEP
            if ref.owner != self._mailbox.process:
                self._mailbox.send_to_node(wire.CANCEL, serial, ref.owner, flags=flags)
            elif force and self._channels.owing(serial) is not None:
                raise ValueError(
                    "force=True would end the actor, with its state and all its other calls; cancel a call without it, "
                    "or end the actor by runtime.kill(actor)"
                )
            else:
                self._cancel_own(serial, flags)

    def _cancel_own(self, serial, flags):
        """Cancels a task or a call of this process. Lock held."""
        channel = self._channels.owing(serial)
        if channel is not None:
            self._cancel_call(channel, serial, flags)
        elif serial in self._tasks.pending:
            self._tasks.cancel(serial, flags)

    def cancel_since(self, first: int) -> None:
        """Cancels what this process has called from the serial `first` on."""
        with self._mailbox.lock:
            for serial in [serial for serial in self._tasks.pending if serial >= first]:
                self._tasks.cancel(serial, wire.RECURSIVE)
            for channel in list(self._channels.by_key.values()):
                for serial in [serial for serial in channel.owed if serial >= first]:
                    self._cancel_call(channel, serial, 0)

    def close_streams(self) -> None:
        """Ends the generators whose consumers were closed."""
        dropped = self._local_refs.streams.dropped
        with self._mailbox.lock:
            while dropped:
                self._cancel_own(dropped.popleft(), wire.CLOSE)

    def on_cancel(self, frame, head):
        with self._mailbox.lock:
            self._cancel_own(head[4], head[2])
