"""Calls of an actor that run at the same time: in threads, or as coroutines on one event loop."""

from __future__ import annotations

import inspect
import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue

from . import wire
from .received_calls import ReceivedCall, received_call
from .running import of_this_thread


class ConcurrentCalls:
    """Runs the calls of one actor, while the worker's main thread reads the mailbox.

    Each concurrency group, and the methods without one (group ""), have threads of their own, which are started when
    they are needed. Coroutine functions run on an event loop in a further thread; then an ordinary method without a
    group has one thread, so that it does not stop the loop.

    Args:
        limits: group -> number of calls at a time.
        method: name -> the bound method.
        load: (frame, start, count) -> arguments.
        finish: (call, value of the method or None, what it raised or None, whether the reply may wait for `send`);
            answers the caller, never raises.
        send: sends the replies that wait.
        has_loop: whether one of the methods is a coroutine function.

    Attributes:
        loop_thread: its ident, None without a loop.
    """

    def __init__(
        self,
        limits: dict[str, int],
        method: Callable,
        load: Callable,
        finish: Callable,
        send: Callable[[], None],
        has_loop: bool,
    ):
        self._method, self._load, self._finish, self._send = method, load, finish, send
        self._limits = {**limits, "": 1} if has_loop else limits
        self._queues: dict[str, SimpleQueue] = {group: SimpleQueue() for group in limits}
        self._threads = dict.fromkeys(limits, 0)
        self._open, self._lock = 0, threading.Lock()
        self.loop_thread: int | None = None
        if has_loop:
            import asyncio  # takes long, and few actors need it

            self._loop = asyncio.new_event_loop()
            self._slots = {group: asyncio.Semaphore(limit) for group, limit in limits.items()}
            self._tasks: set = set()
            self._coroutines: dict[str, bool] = {}  # method -> whether it is a coroutine function
            self._arrived: deque[tuple[ReceivedCall, str]] = deque()  # calls that are not on the loop yet, their groups
            self._send_due = False
            thread = threading.Thread(target=self._loop.run_forever, name="runtime-loop", daemon=True)
            thread.start()
            self.loop_thread = thread.ident

    @property
    def idle(self) -> bool:
        """Whether no call waits or runs."""
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
        self._queues[group].put(call)
        if self._threads[group] < min(self._limits[group], self._open):
            self._threads[group] += 1
            threading.Thread(target=self._work, args=(group,), name=f"runtime-calls {group}", daemon=True).start()

    def _work(self, group):
        while True:
            call = self._queues[group].get()
            of_this_thread.set((wire.CALL, call.serial, call.source, call.method, 0))
            attempts = call.retries
            value = raised = None
            while True:
                try:
                    args, kwargs = self._load(call.frame, call.start, call.count)
                    value = self._method(call.method)(*args, **kwargs)
                except BaseException as error:
                    if attempts != 0 and call.worth_retrying(error):
                        attempts -= 1
                        continue
                    raised = error
                break
            args = kwargs = None
            with self._lock:
                self._open -= 1
            self._finish(call, value, raised, False)
            value = raised = None

    # -- the loop -----------------------------------------------------------------------------------------------------

    def _is_coroutine(self, method):
        known = self._coroutines.get(method)
        if known is None:
            known = self._coroutines[method] = inspect.iscoroutinefunction(self._method(method))
        return known

    def _start_coroutines(self):
        while self._arrived:
            task = self._loop.create_task(self._run_coroutine(*self._arrived.popleft()))
            self._tasks.add(task)  # the loop itself would not keep it
            task.add_done_callback(self._tasks.discard)

    async def _run_coroutine(self, call: ReceivedCall, group: str):
        async with self._slots[group]:
            of_this_thread.set((wire.CALL, call.serial, call.source, call.method, 0))
            attempts = call.retries
            value = raised = None
            while True:
                try:
                    args, kwargs = self._load(call.frame, call.start, call.count)
                    value = await self._method(call.method)(*args, **kwargs)
                except BaseException as error:
                    if attempts != 0 and call.worth_retrying(error):
                        attempts -= 1
                        continue
                    raised = error
                break
            with self._lock:
                self._open -= 1
                alone = not self._open
            # While others run, more may end in this round of the loop: their replies go together at its end.
            if not alone and not self._send_due:
                self._send_due = True
                self._loop.call_soon(self._send_replies)
            self._finish(call, value, raised, not alone)

    def _send_replies(self):
        self._send_due = False
        self._send()
