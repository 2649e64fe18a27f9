"""Processes of trials: actors that are started, called and ended by the instructions of trials.py."""

import logging
import os
import time
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import runtime
from rllib.registered import REGISTRIES
from rllib.storage.signatures import run_key
from rllib.tune.experiment.spec import ExperimentSpec
from rllib.tune.experiment.trial import Trial
from rllib.tune.running.actor import Definition, TrialActor
from rllib.tune.running.seeds import SEED_CLOSE_S
from rllib.tune.trainables.resources import Resources
from rllib.tune.trainables.session import TrialContext
from runtime.errors import RuntimeFailure, TaskError
from runtime.util.closing import Closable, close_and_kill

logger = logging.getLogger(__name__)

# Number of idle actors that are kept for later trials.
_MOST_IDLE = 16
# Longest time (seconds) that a trial has for ending its trainable: more than each of its seeds and workers has.
_CLOSE_S = SEED_CLOSE_S + 3
# The same of one that has not answered in time already.
_LATE_CLOSE_S = 5.0


@dataclass
class _Process:
    """The actor of a trial.

    Attributes:
        calls: (method, arguments, reference) of the unanswered calls, the oldest first.
        busy_since: time.monotonic at which it began with the oldest call.
        is_closed: whether it has ended its trainable.
        has_raised: whether a call has raised; `close` is the only one that it carries out then.
    """

    trial: Trial
    actor: Closable | None
    restore: str | None
    calls: deque = field(default_factory=deque)
    busy_since: float = 0.0
    is_closed: bool = False
    has_raised: bool = False

    def ask(self, what: str, *arguments) -> None:
        if not self.calls:
            self.busy_since = time.monotonic()
        self.calls.append((what, arguments, getattr(self.actor.handle, what).remote(*arguments)))

    @property
    def awaited(self):
        """Reference of the answer to the oldest call."""
        return self.calls[0][2]

    @property
    def is_busy(self) -> bool:
        """Whether the actor is at a call."""
        return bool(self.calls) and not self.has_raised


class TrialPool:
    """The actors of the running trials; calls of one actor are answered in order.

    Args:
        trainable_class: class that the trials run, derived from Trainable.
        experiment_name: for the trials' context.
        spec: the experiment's settings; read are log_to_file, reuse_actors, chdir_to_trial_dir and load_user_code.
        total: resource -> quantity that all trials can have together.
    """

    def __init__(self, trainable_class: type, experiment_name: str, spec: ExperimentSpec, total: Mapping[str, float]):
        self._processes: dict[str, _Process] = {}
        self._class = runtime.remote(TrialActor)
        registered = [entry for registry in REGISTRIES for entry in registry.entries()]
        self._definition = runtime.put(Definition(trainable_class, registered, spec.chdir_to_trial_dir, run_key()))
        self._experiment_name, self._spec, self._total = experiment_name, spec, total
        self._idle: list[tuple[Closable, Resources]] = []

    def start(self, trial: Trial, restore: str | None) -> None:
        """Gives the trial an actor: an idle one with the same resources, or a new one.

        Raises:
            TypeError: if the configuration cannot be pickled.
        """
        process = self._processes[trial.trial_id] = _Process(trial, None, restore)
        for index, (actor, resources) in enumerate(self._idle):
            if resources == trial.resources:
                process.actor = actor
                del self._idle[index]
                process.ask("reset", trial.config, self._context(trial), restore, self._spec.log_to_file)
                return
        self._make_room()
        self._start_actor(process)

    def _make_room(self) -> None:
        """Ends idle actors, the oldest first, until all trials that have a process fit together with the rest.

        An idle actor holds the resources of its last trial, which Trials counts as free.
        """
        held: Counter[str] = Counter()
        for process in self._processes.values():
            held.update(process.trial.resources.total())
        for _, resources in self._idle:
            held.update(resources.total())
        ended = []
        while self._idle and any(held[name] > quantity + 1e-6 for name, quantity in self._total.items()):
            ended.append(self._idle.pop(0))
            held.subtract(ended[-1][1].total())
        self._end(ended)

    def _start_actor(self, process: _Process) -> None:
        trial = process.trial
        options = trial.resources.actor_options()
        process.actor = Closable(
            self._class.options(oversubscribe=True, label=trial.name, **options).remote(os.getpid())
        )
        context = self._context(trial)
        process.ask("start", self._definition, trial.config, context, process.restore, self._spec.log_to_file)

    def _context(self, trial: Trial) -> TrialContext:
        return TrialContext(
            trial.trial_id,
            trial.name,
            trial.logdir,
            self._experiment_name,
            trial.experiment_tag,
            dict(trial.resources.own),
            self._spec.load_user_code,
        )

    def ask(self, trial: Trial, what: str, arguments: tuple = ()) -> None:
        """Calls a method of the trial's actor; without effect if the trial has none.

        Raises:
            TypeError: if an argument cannot be pickled.
            RuntimeFailure: if the call cannot be sent.
        """
        if process := self._processes.get(trial.trial_id):
            process.ask(what, *arguments)

    def answers(self, timeout_s: float) -> Iterator[tuple[Trial, Any, RuntimeFailure | None]]:
        """(trial, answer, None), or (trial, None, failure), of the oldest calls that have been answered.

        Waits for the first one; trials that leave meanwhile are skipped.
        """
        awaited = {process.awaited: process for process in self._processes.values() if process.calls}
        if not awaited:
            time.sleep(timeout_s)
            return
        done, _ = runtime.wait(list(awaited), timeout=timeout_s)
        if done and len(awaited) > 1:
            done, _ = runtime.wait(list(awaited), num_returns=len(awaited), timeout=0)
        for process in (awaited[reference] for reference in done):
            if self._processes.get(process.trial.trial_id) is not process:
                continue
            what, _, reference = process.calls.popleft()
            process.busy_since = time.monotonic()
            try:
                answer = runtime.get(reference)
            except RuntimeFailure as failure:
                process.has_raised = isinstance(failure, TaskError)
                yield process.trial, None, failure
                continue
            process.is_closed = what == "close"
            if what == "reset" and answer is None:
                self._start_instead(process)
            else:
                yield process.trial, answer, None

    def _start_instead(self, process: _Process) -> None:
        """Replaces an idle actor that could not start over, and has ended its trainable, by one that gets its calls."""
        calls = list(process.calls)
        process.calls.clear()
        runtime.kill(process.actor.handle)
        self._start_actor(process)
        for what, arguments, _ in calls:
            process.ask(what, *arguments)

    def unanswered_s(self) -> dict[str, float]:
        """Trial id -> seconds for which its actor has been at an unanswered call."""
        awaited = {process.awaited: process for process in self._processes.values() if process.calls}
        if not awaited:
            return {}
        now = time.monotonic()
        _, pending = runtime.wait(list(awaited), num_returns=len(awaited), timeout=0)
        return {awaited[ref].trial.trial_id: now - awaited[ref].busy_since for ref in pending}

    def leave(self, trial: Trial, in_order: bool = False) -> None:
        """Ends the trial's actor; with reuse_actors, one that has ended in order is kept.

        One that leaves before it was closed, after an error or in the middle of a step, ends its trainable first if it
        can in time.
        """
        process = self._processes.pop(trial.trial_id, None)
        if process is None or process.actor is None:
            return
        if self._has_nothing_to_close(process, in_order):
            runtime.kill(process.actor.handle)
        elif in_order and not process.is_busy and len(self._idle) < _MOST_IDLE:
            self._idle.append((process.actor, trial.resources))
        else:
            close_and_kill({trial.name: process.actor}, _LATE_CLOSE_S if process.is_busy else _CLOSE_S, logger)

    def _has_nothing_to_close(self, process: _Process, in_order: bool) -> bool:
        """Whether the actor has closed, or a function has returned in it."""
        return process.is_closed or (in_order and not self._spec.reuse_actors)

    def close(self) -> None:
        """Ends all actors, which end their trainables first if they can in time."""
        processes, self._processes = self._processes, {}
        to_close = {}
        for process in processes.values():
            if process.actor is None:
                continue
            if process.is_closed:
                runtime.kill(process.actor.handle)
            else:
                to_close[process.trial.name] = process.actor
        idle, self._idle = self._idle, []
        close_and_kill({**to_close, **_named(idle)}, _CLOSE_S, logger)

    @staticmethod
    def _end(actors: list[tuple[Closable, Resources]]) -> None:
        """Lets idle actors end their trainables, and ends them."""
        close_and_kill(_named(actors), _CLOSE_S, logger)


def _named(idle: list[tuple[Closable, Resources]]) -> dict[str, Closable]:
    return {f"idle process {number} of trials": actor for number, (actor, _) in enumerate(idle)}
