"""The trials that run: their actors, what they were asked and have not answered, and the resources that they hold."""

import os
import sys
import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import runtime
from rllib.tune.resources import Resources
from rllib.tune.session import TrialContext
from rllib.tune.trainables import Resolved
from rllib.tune.trial import Trial
from rllib.tune.trial_actor import Definition, TrialActor
from rllib.tune.trial_files import TrialFiles

# Idle actors that wait for a trial to take them over.
_MOST_IDLE = 16
_CLOSE_S = 1.0


@dataclass
class Live:
    """A trial that runs.

    Attributes:
        calls: (what, reference) of what it was asked and has not answered, the oldest first.
        asked_at: since when it has been at the oldest, of time.monotonic.
        ending: the status and reason with which it is about to end; None: it goes on.
        deadline: by which it has to have ended, of time.monotonic.
        waits_for: changes of it that wait for another trial's checkpoint.
    """

    trial: Trial
    actor: Any
    held: dict[str, float]
    files: TrialFiles
    calls: deque = field(default_factory=deque)
    asked_at: float = 0.0
    ending: tuple[str, str | None] | None = None
    deadline: float | None = None
    waits_for: int = 0

    def has_answered(self) -> bool:
        """Whether the answer to its oldest question is there."""
        return bool(self.calls) and bool(runtime.wait([self.calls[0][1]], timeout=0)[0])

    def take_answered(self) -> tuple[str, Any]:
        """The oldest question, (what, reference); the trial is at the next one from now on."""
        self.asked_at = time.monotonic()
        return self.calls.popleft()


class TrialPool:
    """Starts trials as actors and asks them.

    Args:
        trainable: what they run.
        experiment_name: for their context.
        log_to_file: whether they print to files; see `tune.run`.
        reuse_actors: an actor whose trial has ended well is kept for a trial of equal resources, if the trainable can
            start over.
        chdir_to_trial_dir: whether each trial's process works in the trial's directory.

    Attributes:
        live: trial id -> what runs.
        total, used: resource -> quantity.
    """

    def __init__(
        self, trainable: Resolved, experiment_name: str, log_to_file, reuse_actors: bool, chdir_to_trial_dir: bool
    ):
        self.live: dict[str, Live] = {}
        self.total = {name: q for name, q in runtime.cluster_resources().items() if name != "memory"}
        self.used: dict[str, float] = {}
        self._class = runtime.remote(TrialActor)
        self._definition = runtime.put(Definition(trainable.cls, _registered_envs(), chdir_to_trial_dir))
        self._experiment_name, self._log_to_file, self.reuses_actors = experiment_name, log_to_file, reuse_actors
        self._idle: list[tuple[Any, Resources]] = []

    def fits(self, resources: Resources) -> bool:
        """Whether so much is free."""
        need = resources.total()
        return all(self.used.get(name, 0) + q <= self.total.get(name, 0) + 1e-6 for name, q in need.items())

    @property
    def is_full(self) -> bool:
        """Whether nothing at all is free."""
        return all(self.used.get(name, 0) >= q for name, q in self.total.items())

    def start(self, trial: Trial, restore: str | None) -> Live:
        """Takes the resources and gives the trial an actor; nothing is asked yet but to start.

        Raises:
            TypeError: if the configuration cannot be pickled.
        """
        held = trial.resources.total()
        for name, quantity in held.items():
            self.used[name] = self.used.get(name, 0) + quantity
        live = self.live[trial.trial_id] = Live(trial, None, held, TrialFiles(Path(trial.logdir)))
        live.actor = self._idle_actor(trial.resources)
        if live.actor is not None:
            self.ask(live, "reset", trial.config, self._context(trial), restore)
        else:
            self.start_anew(live, restore)
        return live

    def start_anew(self, live: Live, restore: str | None) -> None:
        """A new actor for a trial that has none, or one that could not start over."""
        if live.actor is not None:
            runtime.kill(live.actor)
        trial = live.trial
        options = trial.resources.actor_options()
        live.actor = self._class.options(oversubscribe=True, name=trial.name, **options).remote(os.getpid())
        self.ask(live, "start", self._definition, trial.config, self._context(trial), restore, self._log_to_file)

    def _idle_actor(self, resources: Resources):
        for index, (actor, held) in enumerate(self._idle):
            if held == resources:
                del self._idle[index]
                return actor
        return None

    def _context(self, trial: Trial) -> TrialContext:
        return TrialContext(
            trial.trial_id,
            trial.name,
            trial.logdir,
            self._experiment_name,
            trial.experiment_tag,
            dict(trial.resources.own),
        )

    @staticmethod
    def ask(live: Live, what: str, *arguments) -> None:
        """Asks for something; answers come in the order of the questions.

        Raises:
            TypeError: if an argument cannot be pickled.
            RuntimeFailure: if the question cannot be sent.
        """
        if not live.calls:
            live.asked_at = time.monotonic()
        live.calls.append((what, getattr(live.actor, what).remote(*arguments)))

    def wait(self, timeout_s: float) -> list[Live]:
        """Those that have answered their oldest question; waits for the first one."""
        heads = {live.calls[0][1]: live for live in self.live.values() if live.calls}
        if not heads:
            time.sleep(timeout_s if self.live else 0)
            return []
        references = list(heads)
        done, _ = runtime.wait(references, timeout=timeout_s)
        if done and len(references) > 1:
            done, _ = runtime.wait(references, num_returns=len(references), timeout=0)
        return [heads[reference] for reference in done]

    def leave(self, live: Live, in_order: bool = False) -> None:
        """Gives its resources free and ends its actor; one that has ended in order may be kept for another trial."""
        del self.live[live.trial.trial_id]
        live.files.close()
        for name, quantity in live.held.items():
            self.used[name] -= quantity
        if in_order and self.reuses_actors and not live.calls and len(self._idle) < _MOST_IDLE:
            self._idle.append((live.actor, live.trial.resources))
        elif live.actor is not None:
            runtime.kill(live.actor)
        live.calls.clear()

    def close(self) -> None:
        """Ends the idle actors."""
        closed = [actor.close.remote() for actor, _ in self._idle]
        if closed:
            runtime.wait(closed, num_returns=len(closed), timeout=_CLOSE_S)
        for actor, _ in self._idle:
            runtime.kill(actor)
        self._idle.clear()


def _registered_envs() -> list:
    """What `register_env` was given; where nobody has imported it, gymnasium is not imported for it either."""
    registry = sys.modules.get("rllib.env.registry")
    return registry.registered_envs() if registry else []
