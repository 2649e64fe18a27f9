"""`Pool`, with the methods of `multiprocessing.Pool`: its worker processes are actors.

    with Pool(4) as pool:
        pool.map(square, range(100))

What differs: functions, arguments and initializers may be lambdas and closures; large arrays travel by shared memory;
an exception is an instance of its class and of `runtime.TaskError`, with the remote traceback; a call whose process
has died raises ActorDiedError, where multiprocessing would wait for ever, and another process takes its place.
Functions of a script are sent by value: they see the global variables that the initializer has set or filled, but what
one call sets the next one does not see. Functions of a module share its variables.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import inspect
import itertools
import logging
import multiprocessing
import queue
import sys
import threading
import types
from collections.abc import Callable, Iterable

from ..api import cluster_resources, get, kill, put, remote
from ..calls.options import check_count
from ..errors import ActorDiedError, SessionClosedError
from ..remote.actors import ActorHandle
from ..session import init, is_initialized

TimeoutError = multiprocessing.TimeoutError  # Pool's methods raise it under this name
AHEAD = 2  # chunks per process that `imap` has under way before their results are asked for

logger = logging.getLogger("runtime")

# Types of global variables in which an initializer can change nothing.
_UNCHANGED = (types.FunctionType, types.BuiltinFunctionType, type, types.ModuleType, str, bytes, int, float, type(None))


class _Worker:
    """The actor."""

    def __init__(self, initializer, initargs):
        self._module, self._set_globals = None, {}
        if initializer is None:
            return
        variables = _own_globals(initializer)
        before = dict(variables)
        initializer(*initargs)
        self._module = variables.get("__name__")
        self._set_globals = {
            name: value
            for name, value in variables.items()
            if name not in before or before[name] is not value or (not name.startswith("__") and _can_be_filled(value))
        }

    def run(self, function, calls):
        variables = _own_globals(function)
        if variables.get("__name__") == self._module:
            variables.update(self._set_globals)
        return [function(*args, **kwargs) for args, kwargs in calls]


def _can_be_filled(value) -> bool:
    """Whether an initializer may have changed an object, such as a dict, without setting the variable that has it."""
    return not isinstance(value, _UNCHANGED)


def _own_globals(function) -> dict:
    """Global variables of a function that came by value, which has a copy of those that it names; else {}."""
    while isinstance(function, functools.partial):
        function = function.func
    function = inspect.unwrap(function)
    variables = getattr(function, "__globals__", None) or getattr(type(function).__call__, "__globals__", {})
    module = sys.modules.get(variables.get("__name__"))
    return {} if module is not None and vars(module) is variables else variables


class AsyncResult:
    """Result of a call that may still run, as `multiprocessing.pool.AsyncResult`.

    Args:
        count: number of chunks.
        join: (results of the chunks, each a list) -> what `get` returns.
        callback, error_callback: called with the value or the error, in a thread of the pool, one at a time.
        when_done: called with the result itself.
    """

    def __init__(self, count: int, join: Callable, callback=None, error_callback=None, when_done=None):
        self._parts: list = [None] * count
        self._left, self._join, self._lock = count, join, threading.Lock()
        self._callback, self._error_callback, self._when_done = callback, error_callback, when_done
        self._done, self._value, self._error = threading.Event(), None, None
        self._settled = count == 0  # no other thread may finish it too
        if self._settled:
            self._finish()

    def ready(self) -> bool:
        """Whether the call has ended."""
        return self._done.is_set()

    def successful(self) -> bool:
        """Whether the call has ended without an error.

        Raises:
            ValueError: it has not ended.
        """
        if not self.ready():
            raise ValueError(f"{self!r} is not ready")
        return self._error is None

    def wait(self, timeout: float | None = None) -> None:
        """Waits until the call has ended, or this many seconds."""
        self._done.wait(timeout)

    def get(self, timeout: float | None = None):
        """Result of the call.

        Raises:
            multiprocessing.TimeoutError: it has not ended within this many seconds.
            Whatever it has raised; of several chunks, what the first to fail has raised.
        """
        if not self._done.wait(timeout):
            raise TimeoutError
        if self._error is not None:
            raise self._error
        return self._value

    def part_came(self, index: int, values: list | None, error: BaseException | None) -> None:
        """A chunk has ended."""
        with self._lock:
            if self._settled:
                return
            self._parts[index] = values
            self._left -= 1
            if error is None and self._left:
                return
            self._error, self._settled = error, True
        self._finish()

    def _finish(self):
        if self._error is None:
            self._value, self._parts = self._join(self._parts), []
        self._done.set()
        if self._when_done is not None:
            self._when_done(self)
        report, outcome = self._callback, self._value
        if self._error is not None:
            report, outcome = self._error_callback, self._error
        if report is not None:
            report(outcome)


class IMapIterator:
    """The results of `imap`, as they are asked for; `next` takes a timeout.

    Args:
        start: (what to call with the result when it is there) -> the `AsyncResult` of one more chunk; None: no more.
        ahead: number of chunks that are under way at once.
        ordered: results in the order of the chunks, else as they come.
    """

    def __init__(self, start: Callable[[Callable], AsyncResult | None], ahead: int, ordered: bool):
        self._start, self._ahead, self._ordered = start, ahead, ordered
        self._pending: collections.deque[AsyncResult] = collections.deque()
        self._arrived: queue.SimpleQueue[AsyncResult] = queue.SimpleQueue()
        self._values: collections.deque = collections.deque()
        self._fill()

    def __iter__(self):
        return self

    def __next__(self):
        return self.next()

    def next(self, timeout: float | None = None):
        """The next result.

        Raises:
            multiprocessing.TimeoutError: it is not there within this many seconds.
            StopIteration: there is none.
            Whatever the call has raised; the results after its chunk can still be fetched.
        """
        while not self._values:
            if not self._pending:
                raise StopIteration
            result = self._next_done(timeout)
            self._pending.remove(result)
            self._fill()
            self._values.extend(result.get())
        return self._values.popleft()

    def _next_done(self, timeout):
        if not self._ordered:
            try:
                return self._arrived.get(timeout=timeout)
            except queue.Empty:
                raise TimeoutError from None
        first = self._pending[0]
        first.wait(timeout)
        if not first.ready():
            raise TimeoutError
        return first

    def _fill(self):
        while len(self._pending) < self._ahead and (result := self._start(self._arrived.put)) is not None:
            self._pending.append(result)


class _Process:
    """One process of a pool, and the thread that hands it one chunk after the other.

    Args:
        number: in the pool.
        jobs: (reference to the function, calls, result, index of the chunk in it); None at the end.
        start: starts the actor.
        most_chunks: after which the actor is replaced; None: never.
    """

    def __init__(self, number: int, jobs: queue.SimpleQueue, start: Callable[[], ActorHandle], most_chunks: int | None):
        self._jobs, self._start, self._most_chunks, self._chunks = jobs, start, most_chunks, 0
        self.actor: ActorHandle | None = start()
        self._terminated = False
        self.thread = threading.Thread(target=self._serve, name=f"runtime-pool-{number}", daemon=True)
        self.thread.start()

    def terminate(self) -> None:
        """Ends the actor now."""
        self._terminated = True
        with contextlib.suppress(SessionClosedError):
            if (actor := self.actor) is not None:
                kill(actor)

    def _serve(self):
        while (job := self._jobs.get()) is not None:
            function, calls, result, index = job
            values = error = None
            try:
                values = self._run(function, calls) if calls else []
            except BaseException as raised:
                error = raised
            result.part_came(index, values, error)
            job = function = calls = result = values = error = None  # nothing is kept while it waits
        self._jobs.put(None)  # for the next thread
        self.actor = None

    def _run(self, function, calls):
        if self._terminated:
            raise ActorDiedError("the pool was terminated")
        if self.actor is None or self._chunks == self._most_chunks:
            self.actor, self._chunks = self._start(), 0  # the one before ends with its handle
        self._chunks += 1
        try:
            return get(self.actor.run.remote(function, calls))
        except ActorDiedError:
            self.actor = None
            raise


class Pool:
    """A pool of processes that call functions.

    Args:
        processes: their number; default the CPUs of the session.
        initializer, initargs: called in each process first.
        maxtasksperchild: number of chunks after which a process is replaced; None: never.
        context: for programs written for multiprocessing; without effect.
        ray_address: of a session to join, as `init(address=...)` takes it, if there is none yet.
        ray_remote_args: options of the actors, e.g. {"num_cpus": 1}; by default they hold no CPU and need none.
    """

    def __init__(
        self,
        processes: int | None = None,
        initializer: Callable | None = None,
        initargs: Iterable = (),
        maxtasksperchild: int | None = None,
        context=None,
        ray_address: str | None = None,
        ray_remote_args: dict | None = None,
    ):
        if not is_initialized():
            init(address=ray_address)
        if processes is None:
            processes = max(1, int(cluster_resources().get("CPU", 1)))
        check_count("processes", processes, minimum=1)
        if maxtasksperchild is not None:
            check_count("maxtasksperchild", maxtasksperchild, minimum=1)
        if initializer is not None and not callable(initializer):
            raise TypeError(f"initializer must be callable, got {initializer!r}")
        worker = remote(_Worker).options(**{"num_cpus": 0, **(ray_remote_args or {})})
        start = functools.partial(worker.remote, initializer, tuple(initargs or ()))
        self._jobs: queue.SimpleQueue = queue.SimpleQueue()
        self._callbacks, self._running = threading.Lock(), True
        self._processes = [_Process(number, self._jobs, start, maxtasksperchild) for number in range(processes)]

    # -- calls --------------------------------------------------------------------------------------------------------

    def apply(self, func: Callable, args: Iterable = (), kwds: dict | None = None):
        """`func(*args, **kwds)` in one of the processes."""
        return self.apply_async(func, args, kwds).get()

    def apply_async(
        self, func: Callable, args: Iterable = (), kwds: dict | None = None, callback=None, error_callback=None
    ) -> AsyncResult:
        """`apply` without waiting.

        Args:
            callback, error_callback: called with the value or the error, in a thread of the pool.
        """
        return self._submit(func, [[(tuple(args), kwds or {})]], lambda parts: parts[0][0], callback, error_callback)

    def map(self, func: Callable, iterable: Iterable, chunksize: int | None = None) -> list:
        """`func` of each element, in order.

        Args:
            chunksize: number of calls that one process makes at a time; default a quarter of its share.
        """
        return self.map_async(func, iterable, chunksize).get()

    def map_async(
        self, func: Callable, iterable: Iterable, chunksize: int | None = None, callback=None, error_callback=None
    ) -> AsyncResult:
        """`map` without waiting.

        Args:
            callback: called with the list, in a thread of the pool; also with that of an empty iterable, as Ray's pool
                does, where multiprocessing calls none.
            error_callback: called with the error.
        """
        return self._map([((value,), {}) for value in iterable], func, chunksize, callback, error_callback)

    def starmap(self, func: Callable, iterable: Iterable[Iterable], chunksize: int | None = None) -> list:
        """`func(*arguments)` for each tuple of arguments, in order."""
        return self.starmap_async(func, iterable, chunksize).get()

    def starmap_async(
        self,
        func: Callable,
        iterable: Iterable[Iterable],
        chunksize: int | None = None,
        callback=None,
        error_callback=None,
    ) -> AsyncResult:
        """`starmap` without waiting."""
        return self._map([(tuple(values), {}) for values in iterable], func, chunksize, callback, error_callback)

    def imap(self, func: Callable, iterable: Iterable, chunksize: int = 1) -> IMapIterator:
        """`map` as an iterator. Elements are taken as results are asked for, a few chunks per process ahead."""
        return self._imap(func, iterable, chunksize, ordered=True)

    def imap_unordered(self, func: Callable, iterable: Iterable, chunksize: int = 1) -> IMapIterator:
        """`imap` with the results as they come."""
        return self._imap(func, iterable, chunksize, ordered=False)

    def _map(self, calls, func, chunksize, callback, error_callback):
        if chunksize is None:
            chunksize = max(1, -(-len(calls) // (4 * len(self._processes))))
        chunks = list(_chunks(calls, check_count("chunksize", chunksize, minimum=1)))
        return self._submit(func, chunks, lambda parts: list(itertools.chain(*parts)), callback, error_callback)

    def _imap(self, func, iterable, chunksize, ordered):
        chunks = _chunks((((value,), {}) for value in iterable), check_count("chunksize", chunksize, minimum=1))
        self._check_running()
        function = put(func)

        def start(when_done):
            try:
                chunk = next(chunks, None)
            except Exception as error:  # of the iterable: raised after the results before it
                result = AsyncResult(1, list, when_done=when_done)
                result.part_came(0, None, error)
                return result
            if chunk is None:
                return None
            return self._enqueue(function, [chunk], lambda parts: parts[0], when_done=when_done)

        return IMapIterator(start, AHEAD * len(self._processes), ordered)

    def _submit(self, func, chunks, join, callback=None, error_callback=None):
        self._check_running()
        if not callable(func):
            raise TypeError(f"func must be callable, got {func!r}")
        return self._enqueue(put(func), chunks, join, self._guarded(callback), self._guarded(error_callback))

    def _enqueue(self, function, chunks, join, callback=None, error_callback=None, when_done=None):
        if not chunks and callback is not None:
            # In a thread of the pool: the caller may hold what the callback waits for, or be a callback itself.
            self._jobs.put((None, [], AsyncResult(1, join, callback), 0))
            callback = None
        result = AsyncResult(len(chunks), join, callback, error_callback, when_done)
        for index, chunk in enumerate(chunks):
            self._jobs.put((function, chunk, result, index))
        return result

    def _guarded(self, callback):
        """The callback, one at a time with all others; its exceptions are logged."""
        if callback is None:
            return None

        def guarded(value):
            with self._callbacks:
                try:
                    callback(value)
                except Exception:
                    logger.exception("a callback of a pool raised")

        return guarded

    def _check_running(self):
        if not self._running:
            raise ValueError("Pool not running")

    # -- the end ------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """No more calls; the processes end when they have made those they have."""
        if self._running:
            self._running = False
            self._jobs.put(None)

    def terminate(self) -> None:
        """Ends the processes now; calls that have not ended fail with ActorDiedError."""
        self.close()
        for process in self._processes:
            process.terminate()
        self._join()

    def join(self) -> None:
        """Waits until all processes have ended.

        Raises:
            ValueError: neither `close` nor `terminate` was called.
        """
        if self._running:
            raise ValueError("Pool is still running")
        self._join()

    def _join(self):
        for process in self._processes:
            if process.thread is not threading.current_thread():  # a callback may end the pool
                process.thread.join()

    def __enter__(self) -> Pool:
        self._check_running()
        return self

    def __exit__(self, *exception) -> None:
        self.terminate()

    def __del__(self):
        if getattr(self, "_running", False):
            self.close()

    def __reduce__(self):
        raise NotImplementedError("pool objects cannot be passed between processes or pickled")


def _chunks(calls, size):
    calls = iter(calls)
    while chunk := list(itertools.islice(calls, size)):
        yield chunk
