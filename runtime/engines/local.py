"""The engine without processes: everything runs in the caller's thread, at once and in order. For debugging and tests.

A task runs inside `.remote()` as soon as its arguments are known. Arguments and results go through pickle all the same,
so that code which relies on shared objects fails here as it would between processes; arrays come out read-only. What
cannot run now (a call of an actor that is in the middle of another, a task whose resources are held by actors) waits,
and runs when it can; a `get` that could only wait for ever raises instead.

What differs from processes: `timeout` never interrupts running code, nor does `cancel`, Ctrl-C stops the caller,
`os._exit` ends everything, and the GPUs of a task are reported by its context, but not set in the environment. A
generator runs up to its next `yield` when its caller asks for a value; meanwhile other calls of its actor may run.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib
import inspect
import io
import itertools
import logging
import os
import pickle
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable

from .. import context, errors, machine
from ..actors import handle_session
from ..failures import describe_exception
from ..generators import DynamicObjectRefGenerator
from ..options import DYNAMIC, STREAMING, TaskOptions, worth_retrying
from ..pickling import Pickler
from ..refs import ObjectRef, SessionBound, Unseen
from ..runtime_context import RuntimeContext
from ..runtime_env import environment_dict, merged
from ..unpicklable import refuse, refuse_call
from .base import EngineConfig, describe_exit, find_method, iterate, split_returns
from .placement_groups import WHEN_BOOKED, Group, PlacementGroups, Placements, check_group, group_info, ready_options
from .resources import Resources, quantities, units
from .writable import empty as writable_array
from .writable import freeze

logger = logging.getLogger("runtime")

NODE_ID = "local"


def start(config: EngineConfig) -> LocalEngine:
    """Starts a session. See base.Engine."""
    return LocalEngine(config)


class Stored:
    """A pickled value: the references and handles inside it are kept as they are, buffers as read-only bytes."""

    __slots__ = ("buffers", "data", "objects")

    def __init__(self, value):
        self.objects, self.buffers, file = [], [], io.BytesIO()
        _LocalPickler(file, self).dump(value)
        self.data = file.getvalue()

    def load(self):
        """A new copy of the value; arrays share the stored memory."""
        unpickler = _LocalUnpickler(io.BytesIO(self.data), buffers=self.buffers)
        unpickler.objects = self.objects
        return unpickler.load()

    def keep_buffer(self, buffer):
        with buffer.raw() as view:
            self.buffers.append(bytes(view))
            freeze(view.obj)


class _LocalPickler(Pickler):
    def __init__(self, file, stored):
        super().__init__(file, protocol=5, buffer_callback=stored.keep_buffer)
        self.stored = stored

    def persistent_id(self, obj):
        if isinstance(obj, SessionBound):
            session_id = obj.session_id if isinstance(obj, ObjectRef) else handle_session(obj)
            if context.engine_of(session_id) is None:
                raise errors.SessionClosedError(f"{obj!r} belongs to another session")
            self.stored.objects.append(obj)
            return len(self.stored.objects) - 1
        return None


class _LocalUnpickler(pickle.Unpickler):
    def persistent_load(self, index):
        return self.objects[index]


def _dumps(value) -> bytes:
    return Stored(value).data


class Reference(ObjectRef):
    """A reference of the local engine: pending, or with a stored value or an error (made anew for each `get`)."""

    __slots__ = ("__weakref__", "engine", "error", "id", "stored", "unseen")

    def __init__(self, engine, id_):
        self.engine, self.id = engine, id_
        self.stored: Stored | None = None
        self.error: Callable[[], BaseException] | None = None
        self.unseen: Unseen | None = None  # of the error

    @property
    def done(self) -> bool:
        return self.stored is not None or self.error is not None

    def __await__(self):
        return self.engine.get([self], None)[0]
        yield  # it is there at once, or never


class Actor:
    """An instance, or the reason why there is none.

    `error` is set once it has ended. `busy` while one of its methods is on the stack, `holds` while it has resources.
    `restarts` counts how often it was started again, by the job `constructor`.
    """

    def __init__(self, actor_id, cls, options):
        self.id, self.cls, self.options = actor_id, cls, options
        self.name = options.label or options.name or cls.name
        self.label = f"actor {self.name}"
        self.instance = self.error = self.unseen = self.constructor = None
        self.alive = self.busy = self.holds = False
        self.handles = self.restarts = 0
        self.gpu_ids = ()
        self.placement = self.pool = None


class Job:
    """A task, an actor's constructor or a call, until it has run.

    Attributes:
        label: "task f()", for messages.
        call: the function or bound method, found when it runs.
        arguments: stored (args, kwargs).
        depends: references that must be done first.
        refs: get its values.
        returns: see options.return_code.
        placement: of a task or constructor, in a placement group.
        options: of a task or an actor; None for calls.
        retries: a `base.CallOptions`, of calls only.
    """

    def __init__(self, label, call, arguments, depends, refs, returns, options=None, placement=None, **of_an_actor):
        self.label, self.call, self.arguments, self.depends, self.refs = label, call, arguments, depends, refs
        self.returns, self.options, self.placement = returns, options, placement
        self.actor: Actor | None = of_an_actor.get("actor")
        self.creates, self.retries = of_an_actor.get("creates", False), of_an_actor.get("retries")
        if self.creates and options.max_restarts:
            self.actor.constructor = self
        self.stream: LocalStream | None = None

    @property
    def name(self) -> str:
        return self.label.split(" ")[-1]


class LocalStream:
    """The results of one generator; see base.Stream. It runs when `next_reference` is called."""

    def __init__(self, engine: LocalEngine, job: Job):
        self._engine, self._job = engine, job
        [self.completed] = job.refs
        self._iterator = self._next = None  # once it runs; what it has yielded and `take` has not given
        self._failed = self._closed = False

    def begin(self, iterator) -> None:
        """The call has returned."""
        self._iterator = iterator

    def next_reference(self) -> Reference:
        if self._next is None and not self.completed.done:
            self._next = self._engine.advance(self._job, self._iterator)
        if self._next is None and self.completed.error is not None and not self._failed:
            self._failed, self._next = True, self.completed
        return self.completed if self._next is None else self._next

    def take(self) -> Reference | None:
        taken, self._next = self._next, None
        return taken

    @property
    def is_finished(self) -> bool:
        return self._next is None and self.completed.done and (self.completed.error is None or self._failed)

    def close(self) -> None:
        if self._iterator is not None:
            getattr(self._iterator, "close", lambda: None)()


class LocalEngine:
    """Implements `base.Engine` in this process."""

    name = "local"

    def __init__(self, config: EngineConfig):
        self._lock = threading.RLock()
        self._ids = itertools.count(1)
        self.session_id = os.urandom(8).hex()
        self._jobs: list[Job] = []  # those that could not run yet, in the order they came
        self._actors: dict[bytes, Actor] = {}
        self._dropped: deque[bytes] = deque()
        self._leaving: list[Actor] = []  # without a handle, but with calls to finish
        self._functions = weakref.WeakKeyDictionary()  # definition -> copy of the function, as a worker would have it
        self._closed: type[errors.RuntimeFailure] | None = None
        self._exported: dict[bytes, object] = {}  # references and leases that were pickled
        self._namespace = config.namespace
        self._names: dict[tuple[str, str], bytes] = {}  # (namespace, name) -> actor
        self.totals = dict(config.resources)
        self._resources = Resources(units(config.resources), tuple(config.gpu_ids))
        self._groups = PlacementGroups(self._resources)
        self._placements = Placements(self.totals, NODE_ID)
        for name in config.preload:
            importlib.import_module(name)
        self._environments = [config.environment]  # of the calls on the stack
        self._contexts = [RuntimeContext(self.session_id, NODE_ID, str(os.getpid()), namespace=config.namespace)]

    def stop(self) -> None:
        with self._lock:
            self._closed = self._closed or errors.SessionClosedError
            self._jobs.clear()
            self._actors.clear()
            self._names.clear()
            self._exported.clear()

    def forked(self) -> None:
        self._lock = threading.RLock()  # another thread of the parent may have held it
        self._closed = errors.ForkedProcessError

    # -- tasks and actors ---------------------------------------------------------------------------------------------

    def submit(self, function, args, kwargs, options):
        with self._entered():
            label = f"task {options.name or function.name}()"
            placement = self._placements.find(options, label)
            if function not in self._functions:
                function.pickled(self.session_id, _dumps)
                self._functions[function] = Stored(function.target).load()
            target = self._functions[function]
            returns, of = options.returns, {"options": options, "placement": placement}
            return self._enqueue(self._job(label, lambda: target, args, kwargs, returns, **of))

    def create_actor(self, cls, args, kwargs, options):
        with self._entered():
            actor_id = self._new_id()
            actor = Actor(actor_id, cls, options)
            actor.placement = placement = self._placements.find(options, actor.label)
            cls.pickled(self.session_id, _dumps)
            constructor = f"the constructor of {actor.label}"
            of = {"options": options, "actor": actor, "placement": placement, "creates": True}
            job = self._job(constructor, lambda: cls.target, args, kwargs, 0, **of)
            if options.name is not None:
                name = self._namespaced(options.name, options.namespace)
                if name in self._names and options.get_if_exists:
                    return self._names[name]
                if name in self._names:
                    raise ValueError(
                        f"a living actor has the name {name[1]!r} in the namespace {name[0]!r} already. Find it with "
                        "runtime.get_actor(), add .options(get_if_exists=True), or take another name"
                    )
                self._names[name] = actor_id
            self._actors[actor_id] = actor
            self._enqueue(job)
            return actor_id

    def get_actor(self, name, namespace):
        with self._entered():
            actor = self._actors[self._names[self._namespaced(name, namespace)]]
            return actor.id, actor.cls.name, actor.cls.methods_of(actor.options)

    def list_named_actors(self):
        with self._entered():
            return sorted(self._names)

    def _namespaced(self, name, namespace):
        return namespace or self._namespace, name

    def call(self, actor_id, method, args, kwargs, num_returns, options=None):
        with self._entered():
            actor = self._actors[actor_id]
            waiting = sum(job.actor is actor for job in self._jobs)
            if options is not None and 0 <= options.max_pending_calls <= waiting:
                raise errors.PendingCallsLimitExceeded(
                    f"{waiting} calls wait for the actor, whose max_pending_calls is {options.max_pending_calls}. "
                    "Get some of their results first"
                )
            label = f"actor method {actor.name}.{method}()"
            return self._enqueue(
                self._job(
                    label,
                    lambda: find_method(actor.instance, method),
                    args,
                    kwargs,
                    num_returns,
                    actor=actor,
                    retries=options,
                )
            )

    def kill(self, actor_id, no_restart=True):
        with self._entered():
            actor = self._actors[actor_id]
            why = f"{actor.label} was killed by runtime.kill()"
            left = actor.options.max_restarts - actor.restarts
            if no_restart or actor.options.max_restarts == 0 or left == 0 or actor.error is not None:
                self._end(actor, why)
            elif actor.alive:
                self._restart(actor, why)
            self._run_jobs()

    def _restart(self, actor, why):
        """The constructor runs again. Calls that wait go on if they have retries."""
        actor.restarts += 1
        self._release(actor)
        for job in [job for job in self._jobs if job.actor is actor and not _has_retries(job)]:
            self._jobs.remove(job)
            self._fail(job, lambda: errors.ActorUnavailableError(why))
        self._jobs.insert(0, actor.constructor)

    def cancel(self, ref, force, recursive):
        with self._entered():
            self._check_own([ref])
            job = next((job for job in self._jobs if ref in job.refs), None)
            if job is None:  # it is done, or runs: nothing can interrupt its caller's thread but its caller
                return
            if force and job.actor is not None:
                raise ValueError("force=True would end the actor; cancel a call without it, or use runtime.kill(actor)")
            self._jobs.remove(job)
            text = f"{job.label} was cancelled before it ran"
            self._fail(job, lambda: errors.TaskCancelledError(text))
            self._run_jobs()

    def handle_added(self, actor_id):
        with self._lock:
            if actor_id in self._actors:
                self._actors[actor_id].handles += 1

    def handle_dropped(self, actor_id):
        self._dropped.append(actor_id)

    # -- objects ------------------------------------------------------------------------------------------------------

    def put(self, value):
        with self._entered():
            ref = Reference(self, self._new_id())
            try:
                ref.stored = Stored(value)
            except Exception as error:
                refuse(value, "the value", error, _dumps)
            return ref

    def get(self, refs, timeout_s):
        with self._entered():
            return [self._value(ref, timeout_s) for ref in refs]

    def wait(self, refs, num_returns, timeout_s):
        with self._entered():
            self._check_own(refs)
            done = [ref for ref in refs if ref.done][:num_returns]
            if len(done) < num_returns and timeout_s is None:
                raise self._never(next(ref for ref in refs if not ref.done))
            chosen = set(done)
            return done, [ref for ref in refs if ref not in chosen]

    def when_done(self, ref, callback):
        with self._entered():
            self._check_own([ref])
            callback()  # it is done now, or `get` raises

    def empty(self, shape, dtype):
        with self._entered():
            return writable_array(shape, dtype)

    # -- pickles that are not the engine's -----------------------------------------------------------------------------

    def export_reference(self, ref):
        with self._lock:
            if self._closed is None:
                self._exported[ref.id] = ref
        return self.session_id

    def export_actor(self, lease):
        with self._lock:
            if self._closed is None:
                self._exported[lease.actor_id] = lease
        return self.session_id

    def find_reference(self, id_):
        return self._exported[id_]

    def find_actor(self, actor_id):
        pass

    # -- placement groups ---------------------------------------------------------------------------------------------

    def create_placement_group(self, bundles, strategy, name, detached):
        with self._entered():
            check_group(bundles, strategy, self.totals)
            group = Group(self._new_id(), name, [units(bundle) for bundle in bundles], strategy, 0)
            refusal = self._groups.create(group)
            if refusal:
                raise ValueError(refusal)
            self._groups.book()
            return group.id

    def remove_placement_group(self, group_id):
        with self._entered():
            if self._groups.remove(group_id):
                for actor in list(self._actors.values()):
                    if actor.placement is not None and actor.placement.group == group_id:
                        self._end(actor, f"{actor.label} ended with its placement group, which was removed")
                self._groups.settle()
                self._run_jobs()

    def placement_groups(self):
        with self._entered():
            return [group_info(group, NODE_ID) for group in self._groups.groups.values()]

    def placement_group_ready(self, group):
        return self.submit(WHEN_BOOKED, (group,), {}, ready_options(group))[0]

    # -- information --------------------------------------------------------------------------------------------------

    def timeline(self):
        return []

    def address_info(self):
        return {
            "address": "local",
            "session_dir": "",
            "session_id": self.session_id,
            "node_id": NODE_ID,
            "node_ip_address": machine.ip_address(),
        }

    def nodes(self):
        with self._entered():
            return [machine.describe(NODE_ID, self.totals)]

    def resources(self):
        with self._entered():
            return dict(self.totals), quantities(self._resources.free)

    def context(self):
        with self._entered():
            return self._contexts[-1]

    # -- running ------------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _entered(self):
        """Every verb: one thread at a time, on an open session, with the handles that went away accounted for."""
        with self._lock:
            if self._closed is not None:
                raise self._closed(
                    "this session has been shut down, or belongs to the process this one was forked from"
                )
            if self._dropped:
                self._drop_handles()
                self._run_jobs()
            yield

    def _job(self, label, call, args, kwargs, returns, **of):
        self._check_own([a for a in (*args, *kwargs.values()) if isinstance(a, ObjectRef)])
        try:
            arguments = Stored((args, kwargs))
        except Exception as error:
            refuse_call(args, kwargs, error, _dumps)
        depends = [a for a in (*args, *kwargs.values()) if isinstance(a, Reference)]
        refs = [Reference(self, self._new_id()) for _ in range(1 if returns >= DYNAMIC else returns)]
        job = Job(label, call, arguments, depends, refs, returns, **of)
        if returns >= STREAMING:
            job.stream = LocalStream(self, job)
        return job

    def _enqueue(self, job):
        self._jobs.append(job)
        self._run_jobs()
        return job.refs if job.stream is None else [job.stream]

    def _run_jobs(self):
        """Runs whatever can run, oldest first; jobs that user code adds meanwhile run inside its own call."""
        if self._groups.waiting:
            self._groups.book()
        while (job := self._next_job()) is not None:
            self._jobs.remove(job)
            failed = next((ref for ref in job.depends if ref.error is not None), None)
            if job.actor is not None and job.actor.error is not None:
                failed = job.actor
            if failed is not None:
                self._fail(job, failed.error, failed.unseen)
            elif job.placement is not None and (refusal := self._refusal(job)) is not None:
                self._fail(job, refusal)
            else:
                self._run(job)
            self._drop_handles()

    def _next_job(self):
        passed = set()  # actors with an older job that has to wait: calls keep their order
        for job in self._jobs:
            if id(job.actor) in passed:
                continue
            if self._can_run(job):
                return job
            if job.actor is not None:
                passed.add(id(job.actor))
        return None

    def _can_run(self, job) -> bool:
        if not all(ref.done for ref in job.depends):
            return False
        if job.actor is not None and job.actor.error is not None:
            return True
        if job.options is None:
            return job.actor.alive and not job.actor.busy
        request, pool = units(job.options.request()), self._resources
        if job.placement is not None:
            if self._groups.refusal(job.placement, request) is not None:
                return True
            pool = self._groups.pool(job.placement, request)
        return pool is not None and pool.fits(request)

    def _refusal(self, job):
        """What makes the error of a job that will never find room in its placement group; None if it has room."""
        refusal = self._groups.refusal(job.placement, units(job.options.request()))
        if refusal is None:
            return None
        name, text = refusal
        if job.creates:
            return lambda: errors.ActorDiedError(f"{job.actor.label} cannot start: {text}")
        return lambda: getattr(errors, name)(f"{job.label}: {text}")

    def _run(self, job):
        attempts, retries_on = _retries(job)
        life = job.actor.restarts if job.actor is not None else 0
        with self._running(job):
            while True:
                try:
                    args, kwargs = job.arguments.load()
                    args = [self._value(a, None) if isinstance(a, Reference) else a for a in args]
                    kwargs = {k: self._value(a, None) if isinstance(a, Reference) else a for k, a in kwargs.items()}
                    value = job.call()(*args, **kwargs)
                    if inspect.iscoroutine(value):
                        value = _run_coroutine(value)
                    if job.actor is not None and job.actor.restarts != life:
                        self._interrupted(job)
                    else:
                        self._finish(job, value)
                    return
                except SystemExit as error:
                    self._exited(job, error)
                    return
                except BaseException as error:
                    if attempts != 0 and retries_on(error):
                        attempts -= 1
                        continue
                    self._raised(job, error)
                    if isinstance(error, KeyboardInterrupt):  # the user's own Ctrl-C, most likely
                        raise
                    return

    def _interrupted(self, job):
        """A method has killed its own actor, which has started again: the call ended with the actor."""
        if _has_retries(job):
            left = job.retries.max_task_retries
            job.retries = job.retries._replace(max_task_retries=left - (left > 0))
            self._jobs.insert(0, job)
        else:
            self._fail(job, lambda: errors.ActorUnavailableError(f"{job.label} has killed its actor"))

    def _finish(self, job, value):
        if job.creates:
            job.actor.instance, job.actor.alive = value, True
            return
        if job.actor is not None and job.actor.error is not None:  # it was killed by its own method
            self._fail(job, job.actor.error)
            return
        if job.stream is not None:
            job.stream.begin(iterate(value, job.name))
            return
        if job.returns == DYNAMIC:
            value = self._collected(job, value)
        for ref, part in zip(job.refs, split_returns(value, len(job.refs), job.name)):
            self._store(ref, part, job)

    def _store(self, ref, value, job):
        try:
            ref.stored = Stored(value)
        except Exception as error:
            refuse(value, f"the result of {job.name}", error, _dumps)

    def _collected(self, job, values):
        """All that a generator yields, and its error if it fails."""
        refs, iterator = [], iterate(values, job.name)
        try:
            for value in iterator:
                refs.append(Reference(self, self._new_id()))
                self._store(refs[-1], value, job)
        except Exception as error:
            failure = describe_exception(error, f"{job.label} in process {os.getpid()}")
            refs.append(Reference(self, self._new_id()))
            refs[-1].error = failure.error
        return DynamicObjectRefGenerator(refs)

    def advance(self, job, iterator):
        """The reference of the next value of a generator, None if it has ended; then the job is done."""
        with self._entered():
            if iterator is None:
                raise self._never(job.refs[0])
            ref = Reference(self, self._new_id())
            try:
                with self._running(job):
                    self._store(ref, next(iterator), job)
                return ref
            except StopIteration:
                job.refs[0].stored = Stored(None)
            except BaseException as error:
                self._raised(job, error)
                if isinstance(error, KeyboardInterrupt):
                    raise
            return None

    def _raised(self, job, error):
        failure = describe_exception(error, f"{job.label} in process {os.getpid()}")
        kind = errors.ActorStartError if job.creates else errors.TaskError
        self._fail(job, lambda: failure.error(kind), Unseen(lambda: self._report(failure.text())))

    def _report(self, text):
        if self._closed is None:
            logger.error("Unhandled error: %s", text)

    def _exited(self, job, error):
        text = f"{job.label} {describe_exit(error)}"
        if job.actor is None:
            self._fail(job, lambda: errors.WorkerExitedError(text), Unseen(lambda: self._report(text)))
        else:
            self._end(job.actor, text)
            self._fail(job, job.actor.error)

    def _fail(self, job, error, unseen=None):
        if job.creates:
            self._end(job.actor, error, unseen)
        for ref in job.refs:
            ref.stored, ref.error, ref.unseen = None, error, unseen

    def _end(self, actor, reason, unseen=None):
        """The actor is gone: its instance is dropped, its resources are free, later calls fail."""
        if actor.error is None:
            actor.unseen = unseen
            actor.error = reason if callable(reason) else lambda: errors.ActorDiedError(reason)
            self._release(actor)
            actor.constructor = None
            if actor.options.name is not None:
                name = self._namespaced(actor.options.name, actor.options.namespace)
                if self._names.get(name) == actor.id:
                    del self._names[name]

    def _release(self, actor):
        """An instance is dropped, and its resources are free."""
        if actor.holds:
            actor.pool.give_back(units(actor.options.held()), actor.gpu_ids)
            self._groups.settle()
        actor.instance, actor.alive, actor.holds = None, False, False

    def _drop_handles(self):
        """Ends the actors whose last handle is gone and which have nothing left to do."""
        while self._dropped:
            actor = self._actors.get(self._dropped.popleft())
            if actor is not None:
                actor.handles -= 1
                if actor.handles == 0 and (actor.error is not None or not actor.options.detached):
                    self._leaving.append(actor)
        for actor in list(self._leaving):
            if not actor.busy and not any(job.actor is actor for job in self._jobs):
                self._leaving.remove(actor)
                del self._actors[actor.id]
                self._end(actor, f"{actor.label} has ended with its last handle")

    # -- resources ----------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _running(self, job):
        """The context in which user code runs. Only actors occupy resources: tasks run one at a time."""
        actor = job.actor
        options = actor.options if actor is not None else job.options
        placement, pool = actor.placement if actor is not None else job.placement, self._resources
        if job.placement is not None:
            pool = self._groups.pool(job.placement, units(options.request()))
        if job.creates:
            actor.pool, actor.gpu_ids, actor.holds = pool, pool.take(units(options.held())), True
        gpu_ids = actor.gpu_ids if actor is not None else pool.choose_gpus(units(options.request()))
        held = options.held() if actor is not None else options.request()
        name = actor.name if actor is not None else options.name or job.label.split(" ")[-1][:-2]
        actor_id = actor.id.hex() if actor is not None else None
        task_id = self._new_id().hex()
        self._contexts.append(
            dataclasses.replace(
                self._contexts[0],
                actor_id=actor_id,
                task_id=task_id,
                name=name,
                gpu_ids=gpu_ids,
                resources=held,
                placement=placement,
                was_current_actor_reconstructed=actor is not None and actor.restarts > 0,
            )
        )
        around, self._placements.current = self._placements.current, placement
        if actor is not None:
            actor.busy = True
        try:
            own = options.environment if actor is not None else options.runtime_env
            self._environments.append(merged(self._environments[-1], own))
            try:
                with _environment(environment_dict(self._environments[-1])):
                    yield
            finally:
                self._environments.pop()
        finally:
            self._contexts.pop()
            self._placements.current = around
            if actor is not None:
                actor.busy = False

    # -- references ---------------------------------------------------------------------------------------------------

    def _value(self, ref, timeout_s):
        self._check_own([ref])
        if ref.error is not None:
            if ref.unseen is not None:
                ref.unseen.seen()
            raise ref.error()
        if ref.stored is None:
            if timeout_s is not None:
                raise errors.GetTimeoutError(f"{ref!r} was not there after {timeout_s:g} s")
            raise self._never(ref)
        return ref.stored.load()

    def _never(self, ref):
        job = next(job for job in self._jobs if ref in job.refs)
        if job.actor is not None and job.actor.busy:
            why = f"{job.label} waits for the actor to finish the call that waits for it"
        else:
            why = f"{job.label} waits for something that waits for it, or for resources that actors hold"
        return errors.ResourceDeadlockError(f"{ref!r} would never be there: {why}")

    def _check_own(self, refs):
        for ref in refs:
            if not isinstance(ref, Reference) or ref.engine is not self:
                raise errors.SessionClosedError(f"{ref!r} belongs to another session")

    def _new_id(self) -> bytes:
        return next(self._ids).to_bytes(16, "big")


def _run_coroutine(coroutine):
    """Runs it to its end, on a loop of its own, though another one may be running further up."""
    import asyncio  # takes long, and few sessions need it

    outer = asyncio._get_running_loop()
    asyncio._set_running_loop(None)
    try:
        return asyncio.run(coroutine)
    finally:
        asyncio._set_running_loop(outer)


def _has_retries(job) -> bool:
    return job.retries is not None and job.retries.max_task_retries != 0


def _retries(job):
    """How often a job is run again after an exception of the user's code (-1: always), and after which exceptions."""
    if isinstance(job.options, TaskOptions):
        return job.options.max_retries, job.options.retries_on
    if job.retries is not None:
        return job.retries.max_task_retries, functools.partial(worth_retrying, job.retries.retry_exceptions)
    return 0, None


@contextlib.contextmanager
def _environment(environment):
    variables, directory = environment.get("env_vars", {}), environment.get("working_dir")
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    if directory:
        cwd = os.getcwd()
        os.chdir(directory)
        sys.path.insert(0, directory)
    try:
        yield
    finally:
        if directory:
            os.chdir(cwd)
            sys.path.remove(directory)
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
