"""The API functions of the local engine."""

from __future__ import annotations

import contextlib
import importlib
import os
import threading
import weakref

from ... import errors
from ...calls.options import DYNAMIC, STREAMING
from ...host import machine
from ...remote.refs import ObjectRef
from ...runtime_context import RuntimeContext
from ...unpicklable import refuse, refuse_call
from ..arrivals import ArrivalsByWaiting
from ..base import EngineConfig, refusal
from ..definitions import find_method
from ..placement_groups import (
    WHEN_BOOKED,
    Group,
    PlacementGroups,
    Placements,
    check_group,
    group_info,
    named,
    ready_options,
)
from ..resources import Resources, quantities, units
from ..writable import empty as writable_array
from .actors import Actor, Actors
from .contexts import Contexts
from .jobs import Job, LocalStream
from .runner import Runner
from .values import Reference, References, Stored, dumps

NODE_ID = "local"


class LocalEngine:
    """Implements `base.Engine` in this process."""

    name = "local"

    def __init__(self, config: EngineConfig):
        self._lock = threading.RLock()
        self.session_id = os.urandom(8).hex()
        self._functions = weakref.WeakKeyDictionary()  # definition -> copy of the function, as a worker would have it
        self._closed: type[errors.RuntimeFailure] | None = None
        self._exported: dict[bytes, object] = {}  # references and leases that were pickled
        self.totals = dict(config.resources)
        self._resources = resources = Resources(units(config.resources), tuple(config.gpu_ids))
        self._groups = groups = PlacementGroups(resources)
        self._placements = Placements(self.totals, NODE_ID)
        self._references = references = References(self)
        self._jobs: list[Job] = []  # jobs that could not run yet, in order of arrival
        self._actors = Actors(groups, config.namespace, self._has_calls)
        for name in config.preload:
            importlib.import_module(name)
        context = RuntimeContext(self.session_id, NODE_ID, str(os.getpid()), namespace=config.namespace)
        self._contexts = Contexts(context, config.environment, references, resources, groups, self._placements)
        self._runner = Runner(
            self._jobs, self._actors, references, self._contexts, resources, groups, lambda: self._closed is not None
        )

    def stop(self) -> None:
        with self._lock:
            self._closed = self._closed or errors.SessionClosedError
            self._jobs.clear()
            self._actors.by_id.clear()
            self._actors.names.clear()
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
                function.pickled(self.session_id, dumps)
                self._functions[function] = Stored(function.target).load()
            target = self._functions[function]
            returns, of = options.returns, {"options": options, "placement": placement}
            return self._enqueue(self._job(label, lambda: target, args, kwargs, returns, **of))

    def create_actor(self, cls, args, kwargs, options):
        with self._entered():
            actor_id = self._references.new_id()
            running = self._contexts.current.actor_id
            actor = Actor(actor_id, cls, options, bytes.fromhex(running) if running else None)
            actor.placement = placement = self._placements.find(options, actor.label)
            cls.pickled(self.session_id, dumps)
            constructor = f"the constructor of {actor.label}"
            of = {"options": options, "actor": actor, "placement": placement, "creates": True}
            job = self._job(constructor, lambda: cls.target, args, kwargs, 0, **of)
            if options.name is not None:
                name = self._actors.namespaced(options.name, options.namespace)
                if name in self._actors.names and options.get_if_exists:
                    return self._actors.names[name]
                if name in self._actors.names:
                    raise ValueError(
                        f"a living actor has the name {name[1]!r} in the namespace {name[0]!r} already. Find it with "
                        "runtime.get_actor(), add .options(get_if_exists=True), or take another name"
                    )
                self._actors.names[name] = actor_id
            self._actors.by_id[actor_id] = actor
            self._enqueue(job)
            return actor_id

    def get_actor(self, name, namespace):
        with self._entered():
            actor = self._actors.by_id[self._actors.names[self._actors.namespaced(name, namespace)]]
            return actor.id, actor.cls.name, actor.cls.methods_of(actor.options)

    def list_named_actors(self):
        with self._entered():
            return sorted(self._actors.names)

    def call(self, actor_id, method, args, kwargs, num_returns, options=None):
        with self._entered():
            actor = self._actors.by_id[actor_id]
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
            actor = self._actors.by_id[actor_id]
            why = f"{actor.label} was killed by runtime.kill()"
            left = actor.options.max_restarts - actor.restarts
            if no_restart or actor.options.max_restarts == 0 or left == 0 or actor.error is not None:
                self._actors.end(actor, why)
            elif actor.alive:
                self._runner.restart(actor, why)
            self._runner.run_jobs()

    def cancel(self, ref, force, recursive):
        with self._entered():
            self._references.check_own([ref])
            job = next((job for job in self._jobs if ref in job.refs), None)
            if job is None:  # it is done, or runs: nothing can interrupt its caller's thread but its caller
                return
            if force and job.actor is not None:
                raise ValueError("force=True would end the actor; cancel a call without it, or use runtime.kill(actor)")
            self._jobs.remove(job)
            text = f"{job.label} was cancelled before it ran"
            self._runner.fail(job, lambda: errors.TaskCancelledError(text))
            self._runner.run_jobs()

    def handle_added(self, actor_id):
        with self._lock:
            if actor_id in self._actors.by_id:
                self._actors.by_id[actor_id].handles += 1

    def handle_dropped(self, actor_id):
        self._actors.dropped.append(actor_id)

    # -- objects ------------------------------------------------------------------------------------------------------

    def put(self, value):
        with self._entered():
            ref = self._references.new()
            try:
                ref.stored = Stored(value)
            except Exception as error:
                refuse(value, "the value", error, dumps)
            return ref

    def get(self, refs, timeout_s):
        with self._entered():
            return [self._runner.value(ref, timeout_s) for ref in refs]

    def wait(self, refs, num_returns, timeout_s):
        with self._entered():
            self._references.check_own(refs)
            done = [ref for ref in refs if ref.done][:num_returns]
            if len(done) < num_returns and timeout_s is None:
                raise self._runner.never(next(ref for ref in refs if not ref.done))
            chosen = set(done)
            return done, [ref for ref in refs if ref not in chosen]

    def arrivals(self):
        return ArrivalsByWaiting(self.wait)

    def when_done(self, ref, callback):
        with self._entered():
            self._references.check_own([ref])
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
            requests = [units(bundle) for bundle in bundles]
            group = Group(self._references.new_id(), self._actors.namespace, name, requests, strategy, 0)
            refusal = self._groups.create(group)
            if refusal:
                raise ValueError(refusal)
            self._groups.book()
            return group.id

    def remove_placement_group(self, group_id):
        with self._entered():
            if self._groups.remove(group_id):
                for actor in list(self._actors.by_id.values()):
                    if actor.placement is not None and actor.placement.group == group_id:
                        self._actors.end(actor, f"{actor.label} ended with its placement group, which was removed")
                self._groups.settle()
                self._runner.run_jobs()

    def placement_groups(self):
        with self._entered():
            return [group_info(group, NODE_ID) for group in self._groups.groups.values()]

    def find_placement_group(self, name):
        return named(self.placement_groups(), name, self._actors.namespace)

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

    def can_grow(self):
        return False

    def context(self):
        with self._entered():
            return self._contexts.current

    # -- running ------------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _entered(self):
        """Entered by every API function: one thread at a time, in an open session, dropped handles accounted for."""
        with self._lock:
            if self._closed is not None:
                raise refusal(self._closed)
            if self._actors.dropped:
                self._actors.drop_handles()
                self._runner.run_jobs()
            yield

    def _job(self, label, call, args, kwargs, returns, **of):
        self._references.check_own([a for a in (*args, *kwargs.values()) if isinstance(a, ObjectRef)])
        try:
            arguments = Stored((args, kwargs))
        except Exception as error:
            refuse_call(args, kwargs, error, dumps)
        depends = [a for a in (*args, *kwargs.values()) if isinstance(a, Reference)]
        refs = [self._references.new() for _ in range(1 if returns >= DYNAMIC else returns)]
        job = Job(label, call, arguments, depends, refs, returns, **of)
        if returns >= STREAMING:
            job.stream = LocalStream(self, job)
        return job

    def _enqueue(self, job):
        self._jobs.append(job)
        self._runner.run_jobs()
        return job.refs if job.stream is None else [job.stream]

    def _has_calls(self, actor):
        return any(job.actor is actor for job in self._jobs)

    def advance(self, job: Job, iterator) -> Reference | None:
        """The reference of the next value of a generator, None if it has ended; then the job is done."""
        with self._entered():
            return self._runner.advance(job, iterator)
