"""The API functions of the runtime: they check arguments and call the engine."""

from __future__ import annotations

import inspect
import json
import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, overload

from . import context
from .calls.options import ActorOptions, TaskOptions, default_num_returns, updated
from .errors import GetTimeoutError, SessionClosedError
from .remote.actors import ActorHandle, RemoteClass
from .remote.functions import RemoteFunction
from .remote.generators import ObjectRefGenerator
from .remote.refs import ObjectRef
from .runtime_context import RuntimeContext
from .session import engine

if TYPE_CHECKING:
    import numpy as np

T = TypeVar("T")


class _Decorator(Protocol):
    """`remote` with options, for type checkers."""

    @overload
    def __call__(self, target: type, /) -> RemoteClass: ...
    @overload
    def __call__(self, target: Callable, /) -> RemoteFunction[Any]: ...


@overload
def remote(target: type, /) -> RemoteClass: ...
@overload
def remote(target: Callable[..., T], /) -> RemoteFunction[ObjectRef[T]]: ...
@overload
def remote(**options) -> _Decorator: ...
def remote(target=None, /, **options):
    """Makes a function a task, or a class an actor: `@remote`, or with options `@remote(num_cpus=2)`.

    Args:
        target: the function or class.
        options: see `options.TaskOptions` and `options.ActorOptions`.
    """
    if target is None:
        if not options:
            raise TypeError("remote() has neither a target nor options; write @remote, or @remote(num_cpus=2)")
        return lambda target: _remote(target, options)
    if options:
        raise TypeError("give options alone, as @remote(num_cpus=2), or later by .options(num_cpus=2)")
    return _remote(target, options)


def _remote(target, options):
    if isinstance(target, RemoteFunction | RemoteClass):
        raise TypeError(f"{target!r} is remote already; change its options with .options(...)")
    if inspect.isclass(target):
        return RemoteClass(target, updated(ActorOptions(), options))
    if callable(target) and hasattr(target, "__qualname__"):
        if options.get("num_returns") is None:
            options = {**options, "num_returns": default_num_returns(target)}
        return RemoteFunction(target, updated(TaskOptions(), options))
    raise TypeError(f"@remote is for functions and classes, got {target!r}")


def put(value: T, *, _owner: Any = None) -> ObjectRef[T]:
    """Stores a copy of a value for tasks and actors; large arrays are copied once, into shared memory.

    Args:
        value: what to store.
        _owner: for programs written for Ray, the handle of an actor whose end ends the value; without effect here,
            since a value stays as long as there are references to it, whichever process has stored it.

    Raises:
        TypeError: it cannot be pickled, or it is a reference already; the owner is no actor's handle.
        ValueError: with an owner on the engine "ray", where a value ends with the process that has stored it.
        ObjectStoreFullError: it does not fit.
    """
    if _owner is not None:
        if not isinstance(_owner, ActorHandle):
            raise TypeError(f"_owner must be an actor's handle, got {_what(_owner)}")
        if engine().name == "ray":
            raise ValueError(
                "put(_owner=...) is not available with the engine 'ray'. Let a method of that actor return the value: "
                "its reference does not depend on this process."
            )
    if isinstance(value, ObjectRef):
        raise TypeError(f"put() takes a value, and {value!r} is a reference already; use it as it is")
    return engine().put(value)


@overload
def get(refs: ObjectRef[T], timeout: float | None = None) -> T: ...
@overload
def get(refs: Sequence[ObjectRef[T]], timeout: float | None = None) -> list[T]: ...
def get(refs=None, timeout: float | None = None, *, object_refs=None):
    """The value of a reference, or a list of values for a list of references; waits until they are there.

    Contiguous arrays of numbers are read-only and share the memory of the object store. Other arrays (with steps, of
    dates or objects, masked) are copies, which may be written.

    Args:
        refs: a reference, or a list of them (order is kept, repetitions are fine).
        timeout: seconds to wait at most; None: as long as it takes.
        object_refs: Ray's name of refs.

    Raises:
        TaskError: user code raised; the exception is also an instance of its original class.
        RuntimeFailure: whatever else prevents the value (see errors.py).
        GetTimeoutError: not there in time.
        TypeError, ValueError: not a reference; a negative timeout.
    """
    if refs is None:
        refs = object_refs
    if timeout is not None:
        check_timeout(timeout)
    if isinstance(refs, ObjectRef):
        return _session(refs).get([refs], timeout)[0]
    if not isinstance(refs, list | tuple):
        raise TypeError(f"get() takes a reference or a list of them, got {_what(refs)}")
    _check_types(refs, "get")
    return _session(refs[0]).get(list(refs), timeout) if refs else []


def wait(
    refs: Sequence[ObjectRef[T]] | None = None,
    num_returns: int = 1,
    timeout: float | None = None,
    fetch_local: bool = True,
    *,
    ray_waitables: Sequence[ObjectRef[T]] | None = None,
    object_refs: Sequence[ObjectRef[T]] | None = None,
) -> tuple[list[ObjectRef[T]], list[ObjectRef[T]]]:
    """Waits until `num_returns` of the references are done (with a value or an error), or the time is over.

    Args:
        refs: a list of different references; of an ObjectRefGenerator, its next value is waited for.
        num_returns: how many to wait for, 1 to len(refs).
        timeout: seconds to wait at most; None: as long as it takes.
        fetch_local: for programs written for Ray; without effect, since every value is on this machine.
        ray_waitables, object_refs: names of refs in Ray.

    Returns:
        The done ones (at most `num_returns`) and all others, each in the order given; of no references, two empty
        lists.

    Raises:
        TypeError, ValueError: not a list of references, repetitions, num_returns or timeout out of range.
    """
    if refs is None:
        refs = object_refs if ray_waitables is None else ray_waitables
    if not isinstance(refs, list | tuple):
        raise TypeError(f"wait() takes a list of references, got {_what(refs)}")
    has_generators = _check_references(refs, "wait", (ObjectRef, ObjectRefGenerator))
    if isinstance(num_returns, bool) or not isinstance(num_returns, Integral):  # numpy's, too
        raise TypeError(f"num_returns must be an integer, got {num_returns!r}")
    if not refs:
        return [], []
    if not 1 <= num_returns <= len(refs):
        raise ValueError(f"num_returns={num_returns} must lie between 1 and the number of references, {len(refs)}")
    if timeout is not None:
        check_timeout(timeout)
    if has_generators:
        return _wait_with_generators(refs, int(num_returns), timeout)
    return _session(refs[0]).wait(list(refs), int(num_returns), timeout)


def _wait_with_generators(waitables, num_returns, timeout):
    refs = [w._stream.next_reference() if isinstance(w, ObjectRefGenerator) else w for w in waitables]
    given = dict(zip(refs, waitables))
    done, pending = _session(refs[0]).wait(refs, num_returns, timeout)
    return [given[ref] for ref in done], [given[ref] for ref in pending]


def as_completed(refs: Iterable[ObjectRef[T]], timeout: float | None = None) -> Iterator[ObjectRef[T]]:
    """Yields the references as they are done, in the order given where several are done at once.

    Args:
        refs: different references.
        timeout: seconds for all of them together; None: as long as it takes.

    Raises:
        GetTimeoutError: not all were done in time.
        TypeError, ValueError: as for `wait`.
    """
    refs = list(refs)
    _check_references(refs, "as_completed")
    if timeout is not None:
        check_timeout(timeout)
    return _completed(refs, math.inf if timeout is None else time.monotonic() + timeout)


def _completed(refs, deadline):
    if not refs:
        return
    places, arrivals = {ref: place for place, ref in enumerate(refs)}, _session(refs[0]).arrivals()
    for ref in refs:
        arrivals.add(ref)
    while arrivals:
        left = None if deadline == math.inf else max(0.0, deadline - time.monotonic())
        done = arrivals.take(left)
        if not done:
            raise GetTimeoutError(f"{len(arrivals)} references were not done in time")
        yield from sorted(done, key=places.__getitem__)


def kill(actor: ActorHandle, *, no_restart: bool = True) -> None:
    """Ends an actor at once, whatever it does; its calls fail with ActorDiedError. Harmless when it has ended.

    Args:
        actor: its handle.
        no_restart: False has it start again, if its max_restarts allow that.

    Raises:
        TypeError: not a handle; no_restart is neither True nor False.
    """
    if not isinstance(actor, ActorHandle):
        raise TypeError(f"kill() takes the handle of an actor, got {_what(actor)}")
    if not isinstance(no_restart, bool):
        raise TypeError(f"no_restart must be True or False, got {no_restart!r}")
    actor._lease.engine.kill(actor._lease.actor_id, no_restart)


def cancel(
    ref: ObjectRef | ObjectRefGenerator | None = None,
    *,
    force: bool = False,
    recursive: bool = True,
    ray_waitable: ObjectRef | ObjectRefGenerator | None = None,
    object_ref: ObjectRef | None = None,
) -> None:
    """Cancels the task or the actor call whose result this is. Harmless when it is done, and when repeated.

    One that has not begun never runs. A task that runs gets KeyboardInterrupt in its own code, once; if it catches that
    and returns, its value counts. A coroutine of an actor gets asyncio.CancelledError likewise. Other calls of
    actors are not interrupted, since the actor has a state. `get` raises TaskCancelledError; a cancelled task is not
    retried.

    Args:
        ref: its reference, or one of several; or an ObjectRefGenerator.
        force: end the process of a running task instead; `get` then raises TaskKilledError, which is also a
            WorkerCrashedError, as in Ray.
        recursive: cancel the tasks and calls that it has made as well.
        ray_waitable, object_ref: names of ref in Ray.

    Raises:
        TypeError: not a reference.
        ValueError: force=True for the call of an actor.
    """
    if ref is None:
        ref = object_ref if ray_waitable is None else ray_waitable
    if isinstance(ref, ObjectRefGenerator):
        ref = ref.completed()
    if not isinstance(ref, ObjectRef):
        raise TypeError(f"cancel() takes the reference of a task or of an actor call, got {_what(ref)}")
    _session(ref).cancel(ref, bool(force), bool(recursive))


def empty(shape: int | Sequence[int], dtype="float32") -> np.ndarray:
    """An uninitialised array in shared memory: filled in place, then put or returned without a copy.

    Values of at most 64 KiB are copied all the same: they travel in the message, which is faster.

    It can be written until it (or a view of it) is put, returned or passed on. The stored array does not change any
    more: the array becomes read-only, and writing through an earlier view, a tensor or a memoryview changes only what
    this process sees there.

    Args:
        shape: an int or a tuple of ints.
        dtype: anything numpy takes, without Python objects inside.

    Returns:
        numpy array.

    Raises:
        ValueError, TypeError: a negative, wrong or too large shape, an object dtype.
        ObjectStoreFullError: it does not fit.
    """
    import numpy as np  # numpy takes longer to import than the whole runtime

    dtype = np.dtype(dtype)
    if dtype.hasobject:
        raise TypeError(f"empty() needs a dtype of plain numbers, got {dtype}")
    sizes = shape if isinstance(shape, tuple | list) else (shape,)
    if not all(isinstance(n, int | np.integer) and not isinstance(n, bool) for n in sizes):
        raise TypeError(f"shape must be an int or a tuple of ints, got {shape!r}")
    if any(n < 0 for n in sizes):
        raise ValueError(f"shape must not be negative, got {shape!r}")
    if math.prod(max(1, int(n)) for n in sizes) * max(1, dtype.itemsize) > sys.maxsize:
        raise ValueError(f"shape={shape!r} of {dtype} has more bytes than a process can address")
    return engine().empty(tuple(int(n) for n in sizes), dtype)


def cluster_resources() -> dict[str, float]:
    """All resources of the session by name."""
    return dict(engine().resources()[0])


def available_resources() -> dict[str, float]:
    """The resources that are free now; those used up are left out."""
    return {name: quantity for name, quantity in engine().resources()[1].items() if quantity > 0}


def nodes() -> list[dict]:
    """The machines of the session, each a dict with Ray's keys: "NodeID", "Alive", "NodeManagerAddress" (its address),
    "NodeManagerHostname", "NodeName", "Resources" (totals by name) and "Labels".
    """
    return engine().nodes()


def get_gpu_ids() -> list[int | str]:
    """The GPUs that the calling task or actor holds: their indices, or the ids that CUDA_VISIBLE_DEVICES has."""
    return [int(gpu) if gpu.isdigit() else gpu for gpu in engine().context().gpu_ids]


def timeline(filename: str | None = None) -> list[dict] | None:
    """Times of tasks, constructors and methods in each process, as the events of a Chrome trace.

    They are written down by sessions that were started with the environment variable RUNTIME_TIMELINE=1; a worker
    writes its own when it is idle.

    Args:
        filename: where to write them as JSON; None: they are returned.
    """
    events = engine().timeline()
    if filename is None:
        return events
    with open(filename, "w") as file:
        json.dump(events, file)
    return None


def get_runtime_context() -> RuntimeContext:
    """The place where the calling code runs: ids of session, process, actor and task, GPUs, resources."""
    return engine().context()


def check_timeout(timeout) -> None:
    """Refuses anything but a number of seconds >= 0.

    Raises:
        TypeError, ValueError: otherwise.
    """
    if isinstance(timeout, bool) or not isinstance(timeout, Real):
        raise TypeError(f"timeout must be a number of seconds or None, got {timeout!r}")
    if not timeout >= 0:
        raise ValueError(f"timeout must be >= 0 seconds, or None to wait as long as it takes; got {timeout!r}")


def _check_types(refs, function, allowed=ObjectRef):
    """Whether there are generators among them; raises if something else is."""
    kinds = set(map(type, refs))  # lists may be long: no loop over them here
    if all(issubclass(kind, allowed) for kind in kinds):
        return ObjectRefGenerator in kinds
    index, wrong = next((i, ref) for i, ref in enumerate(refs) if not isinstance(ref, allowed))
    raise TypeError(f"{function}() takes a list of references, but element {index} is {_what(wrong)}")


def _check_references(refs, function, allowed=ObjectRef):
    has_generators = _check_types(refs, function, allowed)
    if len(set(refs)) != len(refs):
        raise ValueError(f"{function}() takes different references, but some of the {len(refs)} given are the same")
    return has_generators


def _session(ref):
    """The engine; a reference can only exist where there was one, so none is started for it."""
    current = context.current_engine()
    if current is None:
        raise SessionClosedError(f"{ref!r} belongs to a session that has been shut down")
    return current


def _what(value) -> str:
    if isinstance(value, ActorHandle):
        return f"the actor handle {value!r}; call one of its methods with .remote() to get a reference"
    if isinstance(value, ObjectRefGenerator):
        return f"{value!r}; iterate over it to get references"
    return f"{value!r:.100} ({type(value).__qualname__})"
