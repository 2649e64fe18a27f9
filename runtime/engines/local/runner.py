"""Runs the jobs of the local engine: each in the thread that adds it, or that makes room for it."""

from __future__ import annotations

import inspect
import logging
import os
import time
from collections.abc import Callable

from ... import errors
from ...calls.options import DYNAMIC
from ...failures import describe_exception, unreadable
from ...remote.generators import DynamicObjectRefGenerator
from ...remote.refs import Unseen
from ...unpicklable import refuse
from ..base import iterate, split_returns
from ..definitions import describe_exit
from ..placement_groups import PlacementGroups
from ..resources import Resources, units
from .actors import Actor, Actors
from .contexts import Contexts, run_async_generator, run_coroutine
from .jobs import Job
from .values import Reference, References, Stored, dumps

logger = logging.getLogger("runtime")


class Runner:
    """Runs what can run, and gives the references of a job their values.

    Args:
        jobs: jobs that could not run yet, in order of arrival; an attribute as well.
        actors: of the session.
        references: of the session.
        contexts: what surrounds user code.
        resources, groups: where jobs get what they need.
        is_closed: whether the session is over.
    """

    def __init__(
        self,
        jobs: list[Job],
        actors: Actors,
        references: References,
        contexts: Contexts,
        resources: Resources,
        groups: PlacementGroups,
        is_closed: Callable[[], bool],
    ):
        self.jobs, self._actors, self._references, self._contexts = jobs, actors, references, contexts
        self._resources, self._groups, self._is_closed = resources, groups, is_closed

    def restart(self, actor: Actor, why: str) -> None:
        """Runs the constructor again. Waiting calls with retries are kept."""
        actor.restarts += 1
        self._actors.release(actor)
        for job in [job for job in self.jobs if job.actor is actor and not job.is_made_again]:
            self.jobs.remove(job)
            self.fail(job, lambda: errors.ActorUnavailableError(why))
        self.jobs.insert(0, actor.constructor)

    def run_jobs(self) -> None:
        """Runs whatever can run, oldest first; jobs that user code adds meanwhile run inside its own call."""
        if self._groups.waiting:
            self._groups.book()
        while (job := self._next_job()) is not None:
            self.jobs.remove(job)
            failed = next((ref for ref in job.depends if ref.error is not None), None)
            if job.actor is not None and job.actor.error is not None:
                failed = job.actor
            if failed is not None:
                self.fail(job, failed.error, failed.unseen)
            elif job.placement is not None and (refusal := self._refusal(job)) is not None:
                self.fail(job, refusal)
            else:
                self._run(job)
            self._actors.drop_handles()

    def _next_job(self):
        passed = set()  # actors with an older job that has to wait: calls keep their order
        for job in self.jobs:
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
        """Maker of the error for a job that will never find room in its placement group; None if it has room."""
        refusal = self._groups.refusal(job.placement, units(job.options.request()))
        if refusal is None:
            return None
        name, text = refusal
        if job.creates:
            return lambda: errors.ActorDiedError(f"{job.actor.label} cannot start: {text}")
        return lambda: getattr(errors, name)(f"{job.label}: {text}")

    def _run(self, job):
        attempts = job.attempts()
        life, pid = job.actor.restarts if job.actor is not None else 0, os.getpid()
        with self._contexts.running(job):
            while True:
                try:
                    args, kwargs = job.arguments.load()
                    args = [self.value(a, None) if isinstance(a, Reference) else a for a in args]
                    kwargs = {k: self.value(a, None) if isinstance(a, Reference) else a for k, a in kwargs.items()}
                    value = job.call()(*args, **kwargs)
                    if inspect.iscoroutine(value):
                        value = run_coroutine(value)
                    elif inspect.isasyncgen(value):
                        value = run_async_generator(value)
                    if job.actor is not None and job.actor.restarts != life:
                        self._interrupted(job)
                    else:
                        self._finish(job, value)
                    return
                except SystemExit as error:
                    if os.getpid() != pid:  # a child that the call has forked
                        raise
                    self._exited(job, error)
                    return
                except BaseException as error:
                    if attempts is not None and (pause_s := attempts.pause_s(error)) is not None:
                        time.sleep(pause_s)
                        continue
                    self._raised(job, error)
                    if isinstance(error, KeyboardInterrupt):  # the user's own Ctrl-C, most likely
                        raise
                    return

    def _interrupted(self, job):
        """A method has killed its own actor, which has started again: the call ended with the actor."""
        if job.is_made_again:
            left = job.retries.max_task_retries
            job.retries = job.retries._replace(max_task_retries=left - (left > 0))
            self.jobs.insert(0, job)
        else:
            self.fail(job, lambda: errors.ActorUnavailableError(f"{job.label} has killed its actor"))

    def _finish(self, job, value):
        if job.creates:
            job.actor.instance, job.actor.alive = value, True
            return
        if job.actor is not None and job.actor.error is not None:  # it was killed by its own method
            self.fail(job, job.actor.error)
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
            refuse(value, f"the result of {job.name}", error, dumps)

    def _collected(self, job, values):
        """All that a generator yields, and its error if it fails."""
        refs, iterator = [], iterate(values, job.name)
        try:
            for value in iterator:
                refs.append(self._references.new())
                self._store(refs[-1], value, job)
        except Exception as error:
            failure = describe_exception(error, f"{job.label} in process {os.getpid()}")
            refs.append(self._references.new())
            refs[-1].error = failure.error
        return DynamicObjectRefGenerator(refs)

    def advance(self, job: Job, iterator) -> Reference | None:
        """See LocalEngine.advance."""
        if iterator is None:
            raise self.never(job.refs[0])
        ref = self._references.new()
        try:
            with self._contexts.running(job):
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
        self.fail(job, lambda: failure.error(kind), Unseen(lambda: self._report(failure.text())))

    def _report(self, text):
        if not self._is_closed():
            logger.error("Unhandled error: %s", text)

    def _exited(self, job, error):
        text = f"{job.label} {describe_exit(error)}"
        if job.actor is None:
            self.fail(job, lambda: errors.WorkerExitedError(text), Unseen(lambda: self._report(text)))
        else:
            self._actors.end(job.actor, text)
            self.fail(job, job.actor.error)

    def fail(self, job: Job, error, unseen: Unseen | None = None) -> None:
        """A job has failed: so have its results, and the actor that it was to make."""
        if job.creates:
            self._actors.end(job.actor, error, unseen)
        for ref in job.refs:
            ref.stored, ref.error, ref.unseen = None, error, unseen

    # -- references ---------------------------------------------------------------------------------------------------

    def value(self, ref: Reference, timeout_s: float | None):
        """See base.Engine.get."""
        self._references.check_own([ref])
        if ref.error is not None:
            if ref.unseen is not None:
                ref.unseen.seen()
            raise ref.error()
        if ref.stored is None:
            if timeout_s is not None:
                raise errors.GetTimeoutError(f"{ref!r} was not there after {timeout_s:g} s")
            raise self.never(ref)
        try:
            return ref.stored.load()
        except errors.RuntimeFailure:
            raise
        except Exception as error:
            raise unreadable(error) from error

    def never(self, ref: Reference) -> errors.ResourceDeadlockError:
        """The error of waiting for a reference that is pending: nothing runs while its caller waits."""
        job = next(job for job in self.jobs if ref in job.refs)
        if job.actor is not None and job.actor.busy:
            why = f"{job.label} waits for the actor to finish the call that waits for it"
        else:
            why = f"{job.label} waits for something that waits for it, or for resources that actors hold"
        return errors.ResourceDeadlockError(f"{ref!r} would never be there: {why}")
