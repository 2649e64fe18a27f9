"""The interface of an engine. Everything above it (decorators, handles, options, errors) is shared by all engines.

The contract in words:

- Calls are validated above: options are checked, timeouts are None or >= 0, lists for `wait` unique and long enough.
- An argument that is itself an `ObjectRef` is replaced by its value before the function runs; one inside a container
  stays a reference. If its value is an error, the call does not run and has the same error as its own result.
- A failing call does not raise in `submit` or `call`: its references raise in `get`. Raised at once are only an
  argument that cannot be pickled (TypeError, see `unpicklable.explain`), resources that can never fit
  (`options.check_feasible`), and use after `stop()` (SessionClosedError) or in a forked child (ForkedProcessError).
- With num_returns == 1 the value is the function's; with n > 1 it must return an iterable of n values
  (else every reference gets a ValueError as a TaskError); with 0 there is no reference, and errors of such a call are
  only logged.
- Exceptions of user code become `failures.RemoteFailure` where they are raised and `.error()` where they are got.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from .. import errors

if TYPE_CHECKING:
    import numpy as np

    from ..calls.options import ActorOptions, TaskOptions
    from ..remote.refs import ObjectRef
    from ..runtime_context import RuntimeContext
    from ..scheduling import GroupInfo, PlacementGroup
    from .arrivals import Arrivals
    from .definitions import CallOptions, ClassDefinition, Definition, Method


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """Settings of a session; complete, nothing left for the engine to guess.

    Attributes:
        resources: totals by name: CPU, GPU, memory (bytes) and the user's.
        gpu_ids: what CUDA_VISIBLE_DEVICES may be filled with, one per GPU (indices, UUIDs).
        object_store_memory: bytes of shared memory the session may use.
        spilling_directory: where objects go when the shared memory is full; None: where the engine finds a disk.
        spilling_bytes: of disk that objects may take; None: as much as there is.
        memory_usage_threshold: share of the machine's memory beyond which processes are ended; 1: none is.
        preload: modules that the worker processes share from their birth.
        log_to_driver: whether the output of workers is shown in the driver.
        environment: environment of all tasks and actors; see runtime_env.py. It is theirs unless their options say
            otherwise.
        dedup_logs: whether lines that several workers print alike are shown once, and counted.
        timeline: whether it is written down when what ran where.
        address: address of a session (or cluster) that runs already, to be joined; None: a new one is started. If it is
            given, what else describes the session has no meaning.
        given: arguments of init() that were given, for an engine that hands them on.
        namespace: namespace of the names of actors that are created or looked up without one.
    """

    resources: dict[str, float]
    gpu_ids: tuple[str, ...] = ()
    object_store_memory: int = 2**30
    spilling_directory: str | None = None
    spilling_bytes: int | None = None
    memory_usage_threshold: float = 1.0
    preload: tuple[str, ...] = ()
    log_to_driver: bool = True
    environment: str = ""
    dedup_logs: bool = True
    timeline: bool = False
    address: str | None = None
    given: dict[str, Any] = field(default_factory=dict)
    namespace: str = ""


def split_returns(value, num_returns: int, name: str) -> list:
    """The values of a call that returned `value`; with num_returns > 1 it is unpacked as in `a, b = value`.

    Raises:
        TypeError, ValueError: num_returns > 1 and it is no iterable of as many values.
        Whatever a generator raises.
    """
    if num_returns <= 1:
        return [value][:num_returns]
    try:
        iterator = iter(value)
    except TypeError:
        raise TypeError(
            f"{name} has num_returns={num_returns} and must return an iterable of {num_returns} values, got "
            f"a {type(value).__qualname__}"
        ) from None
    values = list(itertools.islice(iterator, num_returns + 1))  # a generator may have no end
    if len(values) != num_returns:
        count = f"more than {num_returns}" if len(values) > num_returns else len(values)
        raise ValueError(f"{name} has num_returns={num_returns}, but returned {count} values")
    return values


_REFUSALS = {
    errors.SessionClosedError: "this session has been shut down; runtime.init() starts another one",
    errors.ForkedProcessError: (
        "this process was forked from one that has a session (by os.fork, or by multiprocessing's 'fork'), and the "
        "session belongs to the parent. Use the runtime in the parent alone, or start the child by multiprocessing's "
        "'spawn'. A child of the driver may also call runtime.shutdown(), and then runtime.init() for a session of its "
        "own, or init(address=session_dir) to join its parent's"
    ),
}


def refusal(kind: Callable[[str], errors.RuntimeFailure]) -> errors.RuntimeFailure:
    """Returns the error that every method of an engine raises after shutdown or in a fork; `kind`: class or factory."""
    return kind(_REFUSALS.get(kind, ""))


def iterate(value, name: str):
    """An iterator over what a call with num_returns="streaming" or "dynamic" has returned.

    Raises:
        TypeError: it cannot be iterated over.
    """
    try:
        return iter(value)
    except TypeError:
        raise TypeError(
            f"{name} is to be a generator, or to return another iterable, but returned a {type(value).__qualname__}; "
            "leave num_returns='streaming' or 'dynamic' out for an ordinary function"
        ) from None


class Stream(Protocol):
    """The results of a call with num_returns="streaming", in the process that made it.

    Attributes:
        completed: reference that is done when the generator has ended: its value is None, or the error. `cancel` of it
            cancels the call.
    """

    completed: ObjectRef

    def next_reference(self) -> ObjectRef:
        """A reference that is done when `take` may be called; not for users."""

    def take(self) -> ObjectRef | None:
        """The next value's reference, which is done, and which the caller has from now on; None at the end.

        An error of the generator is the value of the last one.
        """

    @property
    def is_finished(self) -> bool:
        """Whether the generator has ended and everything was taken."""

    def close(self) -> None:
        """Ends the generator at its next `yield`. Called from `__del__`: only sets a flag."""


class Engine(Protocol):
    """The API functions; see the module's docstring for what holds for all of them. Thread-safe.

    An engine's module has `start(config: EngineConfig) -> Engine`; when it raises, nothing is left running.
    """

    name: str
    session_id: str
    totals: dict[str, float]  # all resources of the session

    def stop(self) -> None:
        """Ends the session and everything in it; harmless when called twice. No process or memory remains."""

    def forked(self) -> None:
        """Called in a child that user code forked: from now on every API function raises ForkedProcessError here."""

    def submit(self, function: Definition, args: tuple, kwargs: dict, options: TaskOptions) -> list[ObjectRef]:
        """Runs a task; one reference per return value. How many, `options.returns` says: see options.return_code.

        With DYNAMIC it is one reference; its value is a generators.DynamicObjectRefGenerator, with an error of the
        generator as the last of its references. With STREAMING or more the list holds a `Stream` instead.
        """

    def create_actor(self, cls: ClassDefinition, args: tuple, kwargs: dict, options: ActorOptions) -> bytes:
        """Starts an actor and returns its id at once; errors of its constructor come with the first call.

        With `options.name` the name is taken from now on, in `options.namespace` or else in the session's; it is
        free again when the actor has ended. If a living actor has it, of which other processes may know: with
        `get_if_exists` the id of that actor is returned, and nothing is started.

        An actor whose process dies otherwise than by its own exit or by `kill` is started again up to `max_restarts`
        times, with growing pauses while it dies soon after each start; its id stays.

        Raises:
            ValueError: a living actor has the name.
        """

    def get_actor(self, name: str, namespace: str | None) -> tuple[bytes, str, dict[str, Method]]:
        """Actor id, class name and methods of the living actor with this name, of which a handle is about to be made.

        Raises:
            LookupError: there is none.
        """

    def list_named_actors(self) -> list[tuple[str, str]]:
        """Namespace and name of all living actors that have a name, sorted."""

    def call(
        self,
        actor_id: bytes,
        method: str,
        args: tuple,
        kwargs: dict,
        num_returns: int,
        options: CallOptions | None = None,
    ) -> list[ObjectRef]:
        """Calls a method of an actor. Calls of one process to one actor run in the order they were made.

        That holds for actors that run one call at a time; of others, only the calls start in order.

        Args:
            num_returns: see `submit`, also for the result.
            options: None for a plain call: made once, in the default group. A plain call of an actor that is being
                restarted, and one that its death interrupts, has ActorUnavailableError as its result; after the last
                death it is ActorDiedError. Calls with `max_task_retries` are made again, in their order and before
                newer ones, as soon as the actor lives. A call that waits for that uses up no retry.

        Raises:
            PendingCallsLimitExceeded: `options.max_pending_calls` calls of this process are not done.
        """

    def put(self, value: Any) -> ObjectRef:
        """Stores a copy of the value."""

    def get(self, refs: list[ObjectRef], timeout_s: float | None) -> list:
        """The values in order; the first error among them is raised, once it is known."""

    def wait(self, refs: list[ObjectRef], num_returns: int, timeout_s: float | None) -> tuple[list, list]:
        """Done (at most num_returns) and other references, each in the order given; errors count as done."""

    def arrivals(self) -> Arrivals:
        """References that are waited for together, to which others are added meanwhile; at first none."""

    def when_done(self, ref: ObjectRef, callback: Callable[[], None]) -> None:
        """Has `callback()` called once, when a `get` of the reference would not wait: it is done, or the session ended.

        It is called in any thread, perhaps before this returns, and must neither take long, raise, nor call an API
        function.
        """

    def kill(self, actor_id: bytes, no_restart: bool = True) -> None:
        """Ends an actor now; its calls fail with ActorDiedError.

        Args:
            no_restart: False lets it start again, if its max_restarts allow it, as after any other death.
        """

    def cancel(self, ref: ObjectRef, force: bool, recursive: bool) -> None:
        """Cancels the task or call that the reference is of; see api.cancel, which has checked the types.

        Raises:
            ValueError: `force` for the call of an actor.
        """

    def empty(self, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        """An array to be filled and then put or returned without a copy; read-only from then on."""

    def handle_added(self, actor_id: bytes) -> None:
        """One more handle in this process."""

    def handle_dropped(self, actor_id: bytes) -> None:
        """One handle less. Called from `__del__`: it only appends to a queue. The actor ends with its last handle."""

    def export_reference(self, ref: ObjectRef) -> str:
        """A reference goes into a pickle that is not the engine's: it is kept until the session ends; the session's id.

        After the end of the session nothing is kept.
        """

    def export_actor(self, lease: Any) -> str:
        """The same for an `actors.Lease`."""

    def find_reference(self, id_: bytes) -> ObjectRef:
        """The reference with this id, which a process of this session has exported."""

    def find_actor(self, actor_id: bytes) -> None:
        """A handle of this actor, which a process of this session has exported, is about to be made."""

    def create_placement_group(
        self, bundles: list[dict[str, float]], strategy: str, name: str, detached: bool
    ) -> bytes:
        """A new placement group: its id, as bytes. The bundles are checked and not empty; the group need not be booked.

        Raises:
            UnschedulableError: the engine knows that it never will be.
            ValueError: another group of the caller's namespace has the name.
        """

    def remove_placement_group(self, group_id: bytes) -> None:
        """Removes a group with all that runs in it; harmless if it has gone."""

    def placement_groups(self) -> list[GroupInfo]:
        """All groups, and some removed ones."""

    def find_placement_group(self, name: str) -> GroupInfo | None:
        """The group that has this name in the caller's namespace; None if there is none."""

    def placement_group_ready(self, group: PlacementGroup) -> ObjectRef:
        """A reference to the group itself, done when it is booked; TaskPlacementGroupRemoved if it never will be."""

    def resources(self) -> tuple[dict[str, float], dict[str, float]]:
        """Total and free resources."""

    def can_grow(self) -> bool:
        """Whether the totals may become more for what waits, as by an autoscaler."""

    def address_info(self) -> dict[str, str]:
        """ "address", "session_dir", "session_id", "node_id" and "node_ip_address", for what `init` returns."""

    def nodes(self) -> list[dict]:
        """The machines: dicts with Ray's keys, see `api.nodes`."""

    def timeline(self) -> list[dict]:
        """The events of a Chrome trace, if the session writes them down."""

    def context(self) -> RuntimeContext:
        """Context of the calling thread: its task, actor and process."""
