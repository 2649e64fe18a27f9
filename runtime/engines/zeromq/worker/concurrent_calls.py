"""Calls of an actor that run at the same time: in threads, or as coroutines on one event loop."""

from __future__ import annotations

import contextlib
import inspect
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from time import sleep
from typing import TYPE_CHECKING

from ....calls.options import STREAMING
from ...definitions import is_coroutine_function
from ..transport import wire
from .received_calls import ReceivedCall, received_call
from .running import of_this_thread

if TYPE_CHECKING:
    import asyncio


class Cancelled(Exception):
    """Error of a cancelled call."""


class Turn:
    """Around code of another thread that belongs on an event loop: the loop stands still meanwhile."""

    def __init__(self, loop: asyncio.AbstractEventLoop):
        self._loop = loop
        self._stands, self._ended = threading.Semaphore(0), threading.Semaphore(0)

    def __enter__(self):
        self._loop.call_soon_threadsafe(self._stand_still)
        self._stands.acquire()

    def __exit__(self, *exception):
        self._ended.release()

    def _stand_still(self):
        self._stands.release()
        self._ended.acquire()


class ConcurrentCalls:
    """Runs the calls of one actor, while the worker's main thread reads the mailbox.

    Each concurrency group, and the methods without one (group ""), have threads of their own, which are started when
    they are needed. Coroutine functions run on an event loop in a further thread. Then an ordinary method without a
    group runs as if it were on the loop, which stands still: objects shared with coroutines (an asyncio.Event, its
    attributes) need no lock. It has its own thread, so that the loop continues while it waits in `get`: its value
    may depend on a coroutine of the same actor.

    Args:
        limits: group -> number of calls at a time.
        method: name -> the bound method.
        load: (frame, start, count) -> arguments.
        finish: (call, value of the method or None, its exception or None, whether the reply may wait for `send`);
            answers the caller, never raises. A cancelled call raises Cancelled.
        send: sends the replies that wait.
        ended: called when calls have ended and their replies were sent: `idle` may be true now.
        has_loop: whether one of the methods is a coroutine function, or an async generator.
        stream: (call, async generator); sends its values. Returns the call to finish.

    Attributes:
        loop_thread: ident of the loop's thread, None without a loop.
    """

    def __init__(
        self,
        limits: dict[str, int],
        method: Callable,
        load: Callable,
        finish: Callable,
        send: Callable[[], None],
        ended: Callable[[], None],
        has_loop: bool,
        stream: Callable | None = None,
    ):
        self._method, self._load, self._finish, self._send, self._ended = method, load, finish, send, ended
        self._stream = stream
        self._limits = {**limits, "": 1} if has_loop else limits
        self._waiting: dict[str, deque[ReceivedCall]] = {group: deque() for group in limits}
        self._turns: dict[str, SimpleQueue] = {group: SimpleQueue() for group in limits}  # as many as wait, or more
        self._threads = dict.fromkeys(limits, 0)
        self._open, self._lock = 0, threading.Lock()  # calls whose replies were not sent yet
        self.loop_thread: int | None = None
        self._beside: int | None = None  # thread of the ordinary methods that belong on the loop
        if has_loop:
            import asyncio  # takes long, and few actors need it

            self._loop = asyncio.new_event_loop()
            self._turn, self._enter_loop = Turn(self._loop), asyncio._set_running_loop
            self._slots = {group: asyncio.Semaphore(limit) for group, limit in limits.items()}
            self._sleep, self._cancelled_error = asyncio.sleep, asyncio.CancelledError
            self._tasks: dict[tuple[int, int], asyncio.Task] = {}  # (serial, caller) -> the coroutine
            self._coroutines: dict[str, bool] = {}  # method -> whether it is a coroutine function
            self._arrived: deque[tuple[ReceivedCall, str]] = deque()  # calls that are not on the loop yet, their groups
            self._send_due, self._finished = False, 0  # calls on the loop that have ended, and are open still
            thread = threading.Thread(target=self._loop.run_forever, name="runtime-loop", daemon=True)
            thread.start()
            self.loop_thread = thread.ident

    @property
    def idle(self) -> bool:
        """Whether no call waits or runs, and all replies were sent."""
        return not self._open

    def start(self, frame: bytes) -> None:
        """A call has arrived."""
        call = received_call(frame)
        group = call.group if call.group in self._limits else ""
        with self._lock:
            self._open += 1
        if self.loop_thread is not None and self._is_coroutine(call.method):
            self._arrived.append((call, group))
            if len(self._arrived) == 1:  # else the loop is to look already
                self._loop.call_soon_threadsafe(self._start_coroutines)
            return
        self._waiting[group].append(call)
        self._turns[group].put(None)
        if self._threads[group] < min(self._limits[group], self._open):
            self._threads[group] += 1
            threading.Thread(target=self._work, args=(group,), name=f"runtime-calls {group}", daemon=True).start()

    def cancel(self, serial: int, caller: int) -> None:
        """Cancels a call that waits, or a coroutine. Any other that runs is left alone, like one that has ended."""
        for waiting in self._waiting.values():
            for call in list(waiting):
                if (call.serial, call.source) == (serial, caller):
                    with contextlib.suppress(ValueError):  # a thread has just taken it
                        waiting.remove(call)
                        self._end(call, None, Cancelled())
                    return
        if self.loop_thread is not None:
            # Not before the coroutine's first step: asyncio would end its task without running it.
            self._loop.call_soon_threadsafe(self._loop.call_soon, self._cancel_coroutine, (serial, caller))

    @contextlib.contextmanager
    def waits(self) -> Iterator[None]:
        """Context of a wait in user code: an ordinary method lets the loop continue meanwhile."""
        if threading.get_ident() != self._beside:
            yield
            return
        self._turn.__exit__()
        try:
            yield
        finally:
            self._turn.__enter__()

    def _work(self, group):
        turn = contextlib.nullcontext()
        if group == "" and self.loop_thread is not None:
            self._beside, turn = threading.get_ident(), self._turn
            self._enter_loop(self._loop)  # for `asyncio.create_task` and its like
        while True:
            self._turns[group].get()
            try:
                call = self._waiting[group].popleft()
            except IndexError:  # a waiting call was cancelled
                continue
            of_this_thread.set((wire.CALL, call.serial, call.source, call.method, 0))
            with turn:
                self._run(call)

    def _run(self, call):
        attempts, pid = call.attempts(), os.getpid()
        value = raised = None
        while True:
            try:
                args, kwargs = self._load(call.frame, call.start, call.count)
                value = self._method(call.method)(*args, **kwargs)
                if inspect.isgenerator(value):
                    value = self._with_pauses(value)
            except BaseException as error:
                own = attempts is not None and os.getpid() == pid  # not in a child that the call has forked
                if own and (pause_s := attempts.pause_s(error)) is not None:
                    with self.waits():
                        sleep(pause_s)
                    continue
                raised = error
            break
        args = kwargs = None
        self._end(call, value, raised)

    def _with_pauses(self, generator):
        for value in generator:
            yield value
            with self.waits():  # coroutines have their turn after each value
                continue

    def _end(self, call, value, raised):
        self._finish(call, value, raised, False)
        self._close(1)

    def _close(self, count):
        """This many replies were sent. Not before: a process that is to end would go, and they would be lost."""
        with self._lock:
            self._open -= count
        self._ended()

    # -- the loop -----------------------------------------------------------------------------------------------------

    def _is_coroutine(self, method):
        known = self._coroutines.get(method)
        if known is None:
            known = self._coroutines[method] = is_coroutine_function(self._method(method))
        return known

    def _start_coroutines(self):
        while self._arrived:
            call, group = self._arrived.popleft()
            self._tasks[call.serial, call.source] = self._loop.create_task(self._run_coroutine(call, group))

    def _cancel_coroutine(self, key):
        if key in self._tasks:
            self._tasks[key].cancel()

    async def _run_coroutine(self, call: ReceivedCall, group: str):
        value = raised = None
        try:
            async with self._slots[group]:
                of_this_thread.set((wire.CALL, call.serial, call.source, call.method, 0))
                attempts, pid = call.attempts(), os.getpid()
                while True:
                    try:
                        args, kwargs = self._load(call.frame, call.start, call.count)
                        value = self._method(call.method)(*args, **kwargs)
                        if not inspect.isasyncgen(value):
                            value = await value
                        elif call.num_returns >= STREAMING:
                            call, value = await self._stream(call, value), None
                        elif call.num_returns != 1:
                            value = [part async for part in value]
                        break
                    except self._cancelled_error:
                        raise
                    except BaseException as error:
                        own = attempts is not None and os.getpid() == pid
                        if not own or (pause_s := attempts.pause_s(error)) is None:
                            raise
                    await self._sleep(pause_s)
        except BaseException as error:
            raised = error
        task = self._tasks.pop((call.serial, call.source))
        if isinstance(raised, self._cancelled_error) and task.cancelling():
            raised = Cancelled()
        # While others run, more may end in this round of the loop: their replies go together at its end.
        hold = self._open > self._finished + 1
        self._finish(call, value, raised, hold)
        self._finished += 1
        if not hold and not self._send_due:
            self._close_finished()
        elif not self._send_due:
            self._send_due = True
            self._loop.call_soon(self._send_replies)

    def _send_replies(self):
        self._send_due = False
        self._send()
        self._close_finished()

    def _close_finished(self):
        count, self._finished = self._finished, 0
        self._close(count)
