"""The API functions on Ray, in the driver and in its worker processes: `RayEngine` is a `base.Engine`."""

from __future__ import annotations

import functools
import logging
import sys
import threading
import weakref
from collections import OrderedDict
from time import monotonic, sleep

import ray
from ray.exceptions import RayError
from ray.util.client import ray as client

from ... import errors
from ...calls.options import DYNAMIC, STREAMING, TaskOptions
from ...failures import unreadable
from ...remote.actors import handle_from_state
from ...remote.refs import ObjectRef
from ...runtime_context import RuntimeContext
from ...scheduling import PlacementGroupSchedulingStrategy
from ...unpicklable import refuse, refuse_call
from ..arrivals import ArrivalsByWaiting
from ..base import refusal
from ..definitions import CallOptions, ClassDefinition, Definition, has_coroutines
from ..placement_groups import WHEN_BOOKED, ready_options
from ..writable import empty
from . import placement
from .failures import error_of
from .options import actor_options, call_options, returned, task_options
from .placement import Cluster, named
from .turns import Turns
from .values import (
    ActorId,
    Argument,
    RayStream,
    Reference,
    Refusal,
    Refused,
    Turn,
    decode,
    dumps,
    encode,
    refuse_plain_pickle,
)
from .worker import Instance, Retried, Session, Shipment, actor_class, here, task_function

logger = logging.getLogger("runtime")

MOST_ENDED = 10_000  # actors or groups that it ended and remembers; later Ray itself says so, or lets calls wait
MOST_VARIANTS = 64  # of the options of one function that are kept as Ray's functions

NAME_S = 5.0  # in which the name of an actor that has ended is expected to be free
NAME_PAUSE_S = 0.005

SUBMISSIONS_S = 10.0  # after which a call is cancelled all the same; on an idle machine it takes a millisecond


class RayEngine:
    """The engine of one process that is connected to Ray.

    Args:
        session: the driver's.
        owns_connection: whether `stop` ends the connection, and with it a cluster that was started for it.
    """

    name = "ray"

    def __init__(self, session: Session, owns_connection: bool = False):
        self.session_id, self._session, self._owns_connection = session.id, session, owns_connection
        self._closed: type[errors.RuntimeFailure] | None = None
        self._functions = weakref.WeakKeyDictionary()  # definition -> {id of options: (options, Ray's function)}
        self._classes = weakref.WeakKeyDictionary()  # definition -> {concurrency groups: Ray's actor class}
        self._exported: dict[bytes, object] = {}  # leases that were pickled
        # Actor -> Ray's handle from its creation here. Ray ends the actor with that one, even if others found it by
        # name.
        self._first_handles = weakref.WeakValueDictionary()
        self._killed = OrderedDict()  # actors, the last ones by this process
        self._removed = OrderedDict()  # placement groups, likewise
        self._cluster = Cluster()
        self._turns = Turns()

    @property
    def totals(self) -> dict[str, float]:
        """All resources of the cluster, when it was last asked."""
        return self._cluster.totals

    def stop(self) -> None:
        if self._closed is None:
            self._closed = errors.SessionClosedError
            self._exported.clear()
            self._turns.stop()
            if self._owns_connection:
                ray.shutdown()

    @property
    def is_open(self) -> bool:
        """Whether API functions may be called."""
        return self._closed is None

    def forked(self) -> None:
        self._closed = errors.ForkedProcessError
        self._turns.forked()

    # -- tasks and actors ---------------------------------------------------------------------------------------------

    def submit(self, function, args, kwargs, options):
        self._enter()
        variants = self._functions.get(function)
        known = variants and variants.get(id(options))
        remote = known[1] if known else self._new_function(function, options)
        if self._removed and self._is_removed(options):
            error = errors.TaskPlacementGroupRemoved(
                f"task {options.name or function.name}() cannot run: its placement group has been removed"
            )
            return self._refused(error, options.returns)
        carried = self._carried(args, kwargs)
        try:
            return self._references(remote, carried, options.returns)
        except ValueError:  # of a group that captures its children
            placement.check_bundles(options, f"task {options.name or function.name}()")
            raise

    def _new_function(self, function: Definition, options: TaskOptions):
        name = options.name or function.name
        self._cluster.check_feasible(options, f"task {name}()")
        self._check_streams(options.returns, f"task {name}()")
        run = task_function(self._shipment(function), dumps(options), options.returns >= DYNAMIC)
        remote = ray.remote(**task_options(options, f"task {name}()"))(run).options(name=name).remote
        variants = self._functions.setdefault(function, {})
        if len(variants) >= MOST_VARIANTS:
            variants.clear()
        variants[id(options)] = options, remote
        return remote

    def create_actor(self, cls, args, kwargs, options):
        self._enter()
        what = f"actor {options.label or options.name or cls.name}"
        self._cluster.check_feasible(options, what)
        if self._removed and self._is_removed(options):
            raise errors.ActorDiedError(f"{what} cannot start: its placement group has been removed")
        remote = self._actor_class(cls, options.concurrency_groups)
        carried = self._carried(args, kwargs)
        node = self._cluster.choose_node(options)
        theirs = actor_options(options, node, what)
        try:
            handle = self._new_actor(remote, theirs, dumps(options), *carried)
        except ValueError as error:
            placement.check_bundles(options, what)
            if options.name is None:
                raise
            namespace = options.namespace or ray.get_runtime_context().namespace
            raise ValueError(
                f"a living actor has the name {options.name!r} in the namespace {namespace!r} already. Find it with "
                "runtime.get_actor(), add .options(get_if_exists=True), or take another name"
            ) from error
        handle = self._first_handles.setdefault(handle._actor_id, handle)
        actor_id = ActorId(handle, self.session_id, cls.name)
        actor_id.may_restart = options.get_if_exists or options.max_restarts != 0
        if node is not None:
            self._cluster.place(actor_id, node)
        return actor_id

    def _new_actor(self, remote, theirs: dict, *arguments):
        """Ray's handle of a new actor; with get_if_exists that of the living one which has its name, if there is one.

        Ray gives the name of an ended actor free in steps, 2.60 in more of them than 2.40: for some milliseconds it is
        listed no more, but finds the ended actor, or is refused to another. So a name without a living actor is asked
        for again.
        """
        name, namespace, until = theirs["name"], theirs["namespace"], monotonic() + NAME_S
        remote = remote.options(**{**theirs, "get_if_exists": False}).remote
        while True:
            if theirs["get_if_exists"] and (living := self._living(name, namespace)) is not None:
                return living
            try:
                return remote(*arguments)
            except ValueError:
                is_taken = not theirs["get_if_exists"] and self._living(name, namespace) is not None
                if name is None or is_taken or monotonic() > until:
                    raise
            sleep(NAME_PAUSE_S)

    def _living(self, name: str, namespace: str | None):
        """Ray's handle of the actor that has a name; None where there is none, or this process has killed it."""
        if (namespace or ray.get_runtime_context().namespace, name) not in self.list_named_actors():
            return None
        try:
            handle = ray.get_actor(name, namespace=namespace)
        except ValueError:
            return None
        return None if handle._actor_id.binary() in self._killed else handle

    def _actor_class(self, cls: ClassDefinition, groups: dict[str, int]):
        """Ray's class for actors of `cls`; the concurrency groups are part of it."""
        variants = self._classes.setdefault(cls, {})
        key = tuple(groups.items())
        if key not in variants:
            theirs = actor_class(self._shipment(cls), has_coroutines(cls.target))
            variants[key] = ray.remote(concurrency_groups=dict(groups))(theirs) if groups else ray.remote(theirs)
        return variants[key]

    def get_actor(self, name, namespace):
        self._enter()
        until = monotonic() + NAME_S
        while (handle := self._living(name, namespace)) is not None:
            try:
                class_name, methods = decode(_asked(ray.get, handle.describe.remote()))
            except errors.ActorUnavailableError:  # it starts again
                if monotonic() > until:
                    raise
                sleep(NAME_PAUSE_S)
                continue
            except errors.ActorDiedError:  # a name that has been given to another may still find it
                if monotonic() > until:
                    break
                sleep(NAME_PAUSE_S)
                continue
            handle = self._first_handles.get(handle._actor_id, handle)
            return ActorId(handle, self.session_id, class_name), class_name, methods
        raise LookupError(name)

    def list_named_actors(self):
        self._enter()
        found = ray.util.list_named_actors(all_namespaces=True)
        return sorted((actor["namespace"], actor["name"]) for actor in found)

    def call(self, actor_id, method, args, kwargs, num_returns, options=None):
        self._enter()
        if self._killed and actor_id in self._killed:
            # Ray would run calls until its message has arrived there.
            error = errors.ActorDiedError(f"the actor {actor_id.class_name} was killed by runtime.kill()")
            return self._refused(error, num_returns)
        remote = actor_id.calls.get((method, num_returns, options))
        if remote is None:
            self._check_streams(num_returns, f"{actor_id.class_name}.{method}()")
            remote = actor_id.calls[method, num_returns, options] = _new_call(actor_id, method, num_returns, options)
        return self._references(remote, self._carried(args, kwargs), num_returns)

    def kill(self, actor_id, no_restart=True):
        self._enter()
        # Ray 2.60 keeps the name of an actor that cannot start again, and is asked to, for more than five seconds.
        no_restart = no_restart or not actor_id.may_restart
        ray.kill(actor_id.handle, no_restart=no_restart)
        if no_restart:
            _remember(self._killed, actor_id)
        if no_restart and actor_id.on_end is not None:
            actor_id.on_end()

    def _refused(self, error, num_returns):
        """References of a call that will never be made, where Ray would let it run, or wait for ever."""
        refs = [Reference(self, ray.put(Refusal(error))) for _ in range(num_returns if num_returns < DYNAMIC else 1)]
        return [Refused(refs[0])] if num_returns >= STREAMING else refs

    def _is_removed(self, options) -> bool:
        """Whether its placement group is one that this process has removed."""
        strategy = options.scheduling_strategy
        return isinstance(strategy, PlacementGroupSchedulingStrategy) and strategy.placement_group.id in self._removed

    def cancel(self, ref, force, recursive):
        self._enter()
        self._check_own(ref)
        if not client.is_connected():  # else another process makes the calls
            _wait_for_submissions()
        try:
            ray.cancel(ref.inner, force=force, recursive=recursive)
        except ValueError:
            raise ValueError(
                "force=True would end the actor; cancel a call without it, or use runtime.kill(actor)"
            ) from None

    def handle_added(self, actor_id):
        """Ray counts its own handle, which the id holds."""

    handle_dropped = handle_added

    def _check_streams(self, num_returns, what):
        if num_returns >= STREAMING and client.is_connected():
            raise ValueError(
                f"{what} is a generator, which Ray Client (an address ray://...) does not have. Return a list, or run "
                "the program in the cluster: on one of its nodes, or by `ray job submit`"
            )

    def _references(self, remote, arguments, num_returns):
        """Makes a call. Without a reference Ray has one all the same: when it is dropped, Ray reports an error."""
        made = _asked(remote, *arguments)
        if num_returns in (1, DYNAMIC):
            return [Reference(self, made)]
        if num_returns >= STREAMING:
            return [RayStream(self, made)]
        return [Reference(self, inner) for inner in made] if num_returns else []

    def _carried(self, args, kwargs) -> tuple:
        """The arguments of a call as `worker` takes them."""
        if not args and not kwargs:
            return ()
        given, inner = (args, kwargs), []
        if any(isinstance(a, ObjectRef) for a in args):
            args = tuple([self._argument(a, inner) if isinstance(a, ObjectRef) else a for a in args])
        if any(isinstance(a, ObjectRef) for a in kwargs.values()):
            kwargs = {k: self._argument(a, inner) if isinstance(a, ObjectRef) else a for k, a in kwargs.items()}
        try:
            return encode((args, kwargs)), *inner
        except Exception as error:
            refuse_call(*given, error, dumps)

    def _argument(self, ref, inner) -> Argument:
        self._check_own(ref)
        inner.append(ref.inner)
        return Argument(len(inner) - 1)

    def _shipment(self, definition: Definition) -> Shipment:
        digest, data = definition.pickled(self.session_id, dumps)
        return Shipment(self._session, digest, data, definition.name)

    # -- objects ------------------------------------------------------------------------------------------------------

    def put(self, value):
        self._enter()
        try:
            encoded = encode(value)
        except Exception as error:
            refuse(value, "the value", error, dumps)
        return Reference(self, _asked(ray.put, encoded))

    def get(self, refs, timeout_s):
        self._enter()
        for ref in refs:
            if type(ref) is not Reference or ref.engine is not self:
                self._check_own(ref)
        stored = _all_of([ref.inner for ref in refs], timeout_s)
        try:
            return [decode(value) for value in stored]
        except errors.RuntimeFailure:
            raise
        except Exception as error:
            raise unreadable(error) from error

    def wait(self, refs, num_returns, timeout_s):
        self._enter()
        for ref in refs:
            self._check_own(ref)
        inner = [ref.inner for ref in refs]
        done, _ = ray.wait(inner, num_returns=num_returns, timeout=timeout_s)
        if done and len(inner) > num_returns:  # older Rays return any of the finished; we return the first
            done, _ = ray.wait(inner, num_returns=len(inner), timeout=0)
        found = set(done)
        chosen = [ref for ref in refs if ref.inner in found][:num_returns]
        found = {ref.inner for ref in chosen}
        return chosen, [ref for ref in refs if ref.inner not in found]

    def arrivals(self):
        return ArrivalsByWaiting(self.wait)

    def when_done(self, ref, callback):
        self._enter()
        self._check_own(ref)
        if isinstance(ref, Turn):
            self._turns.when_done(ref.inner, callback)
        else:
            ref.inner.future().add_done_callback(lambda _: callback())

    def empty(self, shape, dtype):
        self._enter()
        return empty(shape, dtype)

    # -- pickles that are not the engine's -----------------------------------------------------------------------------

    def export_reference(self, ref):
        return self.session_id  # a Reference writes into its pickle what Ray needs

    def export_actor(self, lease):
        refuse_plain_pickle(sys._getframe(2))
        if self._closed is None:
            self._exported.setdefault(lease.actor_id, lease)
        return self.session_id

    def find_reference(self, id_):
        raise errors.ObjectLostError(f"the reference {id_.hex()} was pickled where its session is not known")

    def find_actor(self, actor_id):
        """The id holds Ray's handle."""

    # -- placement groups ---------------------------------------------------------------------------------------------

    def create_placement_group(self, bundles, strategy, name, detached):
        self._enter()
        return placement.create(bundles, strategy, name, detached)

    def remove_placement_group(self, group_id):
        self._enter()
        placement.remove(group_id)
        _remember(self._removed, group_id)

    def placement_groups(self):
        self._enter()
        return placement.table()

    def find_placement_group(self, name):
        self._enter()
        return placement.find(name)

    def placement_group_ready(self, group):
        return self.submit(WHEN_BOOKED, (group,), {}, ready_options(group))[0]

    # -- information --------------------------------------------------------------------------------------------------

    def resources(self):
        self._enter()
        return dict(self._cluster.ask()), named(ray.available_resources())

    def can_grow(self):
        self._enter()
        return placement.cluster_grows()

    def address_info(self):
        theirs = ray.get_runtime_context()
        address = getattr(theirs, "gcs_address", "")
        return {
            "address": address,
            "session_dir": "",
            "session_id": self.session_id,
            "node_id": theirs.get_node_id(),
            "node_ip_address": ray.util.get_node_ip_address(),
        }

    def nodes(self):
        self._enter()
        return [{**node, "Resources": named(node["Resources"])} for node in ray.nodes()]

    def timeline(self):
        self._enter()
        return ray.timeline() or []

    def context(self):
        self._enter()
        theirs = ray.get_runtime_context()
        running = here.get()
        if running.name is None:
            # A driver outside of the cluster is no worker there; older Rays' clients fail when they are asked.
            worker_id = self.session_id if client.is_connected() else theirs.get_worker_id()
            return RuntimeContext(self.session_id, theirs.get_node_id(), worker_id, namespace=theirs.namespace)
        actor_id = theirs.get_actor_id()
        return RuntimeContext(
            session_id=self.session_id,
            node_id=theirs.get_node_id(),
            worker_id=theirs.get_worker_id(),
            actor_id=actor_id,
            task_id=theirs.get_task_id(),
            name=running.name,
            gpu_ids=tuple(map(str, ray.get_gpu_ids())),
            resources=running.resources,
            placement=placement.current(),
            namespace=theirs.namespace,
            was_current_actor_reconstructed=actor_id is not None and _was_restarted(actor_id),
            _make_handle=self._own_handle if actor_id is not None else None,
        )

    def _own_handle(self):
        class_name, methods = decode(Instance.current.describe())
        theirs = ActorId(ray.get_runtime_context().current_actor, self.session_id, class_name)
        return handle_from_state(theirs, class_name, methods)

    # -- refused requests ---------------------------------------------------------------------------------------------

    def _enter(self):
        if self._closed is not None:
            raise refusal(self._closed)

    def _check_own(self, ref):
        if not isinstance(ref, Reference) or ref.engine is not self:
            raise errors.SessionClosedError(f"{ref!r} belongs to another session")


def _remember(ended: OrderedDict, id_: bytes) -> None:
    ended[bytes(id_)] = None
    if len(ended) > MOST_ENDED:
        ended.popitem(last=False)


def _wait_for_submissions() -> None:
    """Waits until Ray's thread has begun all calls of this process that were submitted before.

    A call that is cancelled before Ray watches its arguments ends the process when they come, in Ray 2.40 and 2.60 (see
    its pull request 56123). The thread works in order, and tells a future after what was submitted before it.
    """
    begun = threading.Event()
    ray.put(None).future().add_done_callback(lambda _: begun.set())
    begun.wait(SUBMISSIONS_S)


def _asked(function, *args, **kwargs):
    """Returns the result of a function of Ray; raises its error as ours."""
    try:
        return function(*args, **kwargs)
    except RayError as error:
        failure = error_of(error)
        error.__traceback__ = None  # a frame there holds the error: both would keep all that the callers hold
    try:
        raise failure
    finally:
        del failure


def _all_of(inner: list, timeout_s: float | None) -> list:
    """Values of these references of Ray; raises the error of the first of them that has one.

    Ray raises whichever error comes first, while references before it are still pending.
    """
    deadline = None if timeout_s is None else monotonic() + timeout_s
    try:
        return _asked(ray.get, inner, timeout=timeout_s)
    except errors.GetTimeoutError:
        raise
    except Exception:
        for ref in inner if len(inner) > 1 else ():
            _asked(ray.get, ref, timeout=None if deadline is None else max(0.0, deadline - monotonic()))
        raise


@functools.cache
def _was_restarted(actor_id: str) -> bool:
    """Whether this process is a later one of its actor. It asks the head node, and the answer stays."""
    return bool(ray.get_runtime_context().was_current_actor_reconstructed)


def _new_call(actor_id: ActorId, method: str, num_returns: int, options: CallOptions | None):
    """Ray's function that makes such a call, of the arguments that `worker.Instance.call` takes after the first two."""
    theirs = actor_id.handle.call if num_returns < DYNAMIC else actor_id.handle.stream
    name = f"{actor_id.class_name}.{method}"
    bound = theirs.options(name=name, **returned(num_returns), **call_options(options))
    if options is not None and options.retry_exceptions:
        method = Retried(method, dumps(options.retry_exceptions))
    return functools.partial(bound.remote, method, num_returns)


def report_unseen_errors(engine: RayEngine) -> None:
    """Makes Ray report errors of user code whose references were dropped as the other engines do."""

    def report(error):
        failure = error_of(error)
        if isinstance(failure, errors.TaskError) and engine.is_open:
            logger.error("Unhandled error: %s", failure)

    ray._private.worker._unhandled_error_handler = report  # Ray has no public one
