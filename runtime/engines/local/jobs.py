"""Jobs of the local engine until they have run: tasks, constructors, calls and generators."""

from __future__ import annotations

import functools

from ...calls.options import TaskOptions
from ...calls.retries import Attempts, worth_retrying
from .actors import Actor
from .values import Reference


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
        options: options of a task or an actor; None for calls.
        retries: a `CallOptions`, of calls only.
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

    @property
    def is_made_again(self) -> bool:
        """Whether a call is repeated when its actor restarts."""
        return self.retries is not None and self.retries.max_task_retries != 0

    def attempts(self) -> Attempts | None:
        """Attempts after an exception of the user's code; None if there are none."""
        if isinstance(self.options, TaskOptions):
            return Attempts(self.options.max_retries, self.options.retries_on)
        if self.retries is not None:
            is_worth_it = functools.partial(worth_retrying, self.retries.retry_exceptions)
            return Attempts(self.retries.max_task_retries, is_worth_it)
        return None


class LocalStream:
    """The results of one generator; see base.Stream. It runs when `next_reference` is called."""

    def __init__(self, engine, job: Job):
        self._engine, self._job = engine, job
        [self.completed] = job.refs
        self._iterator = self._next = None  # once it runs; the value that was yielded and not taken yet
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
