"""Several learners that equal one: K processes compute parts of each gradient, sum them, and take the same steps.

The driver's Learner draws the permutations and checks the batch as usual. A LearnerGroup replaces its backend: each
process has its own learner (learner_actor.py), gets the same batch, and computes its part of each minibatch.
learners/updates/collective.py sums the parts.

A learner that dies is replaced in the middle of an update: all learners have the same weights and the same optimizer
state, so the new learner copies them from another one, and all continue with the interrupted step.
"""

import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import runtime
from rllib.config.conflicts import Unfit
from rllib.errors import LearnersLostError
from rllib.learners.group.learner_actor import LearnerActor, Outcome, Recipe, mirrored
from rllib.learners.learner import Learner
from rllib.learners.updates.backend import Backend
from rllib.learners.updates.collective import SharedBlock, SharedSums
from rllib.learners.updates.descent import Update
from rllib.learners.updates.objective import ModuleVector
from rllib.learners.updates.target_copy import TargetCopy
from rllib.processes import ensure_runtime
from runtime.host.machine import cpu_count
from runtime.util.fleet import FaultTolerance, Fleet

logger = logging.getLogger(__name__)

# Numbers in a slot of shared memory, after the gradient, for statistics and row statistics; more need further rounds.
ROOM = 4096
# Attempts to bring all processes into one state and to connect them; each loss of a process meanwhile costs one.
ATTEMPTS = 20


@dataclass(frozen=True)
class GroupSettings:
    """Settings of a group of learners.

    Args:
        num_learners: number of processes.
        options: resources of each process, as for `runtime.remote`.
        tolerance: settings for the death of a process.
        threads: number of torch's threads in each process.
        collective: how gradients are summed; "auto": by nccl if each learner has its own GPU, through shared memory if
            all learners are on this machine's CPUs, else by gloo.
        spans_directory: directory for the processes' time spans (spans.py); None: none are recorded.
    """

    num_learners: int
    options: Mapping[str, Any]
    tolerance: FaultTolerance
    threads: int = 1
    collective: str = "auto"
    spans_directory: str | None = None


def _warn_of_few_cores(num_learners: int) -> None:
    machines = runtime.nodes()
    # On one machine the user chooses the session's number of CPUs; in a cluster the cluster reports it.
    cores = cpu_count() if len(machines) == 1 else int(runtime.cluster_resources().get("CPU", 0))
    if num_learners > cores:
        logger.warning(
            "num_learners=%d learners share %d cores and take turns, which is slower than a core for each. Use "
            ".learners(num_learners=%d).",
            num_learners,
            cores,
            max(1, cores),
        )


class LearnerGroup(Backend):
    """The learners' processes, in the form of a backend of the driver's Learner (updates/in_numpy.py: NumpyBackend).

    Args:
        vector: the driver's vector, whose weights change after each update.
        targets: the driver's target copies.
        make: as for Recipe.
        settings: settings of the group.

    Attributes:
        fleet: the processes.
        logged: values that the user's loss has logged in the processes, for Learner.pop_logged.

    Raises:
        UnschedulableError: if the machine, or the cluster, lacks the resources of a learner.
        ValueError: if sums are impossible: all learners in one process, or shared memory on several machines.
        LearnersLostError: if the processes cannot reach one another.
    """

    def __init__(
        self,
        vector: ModuleVector,
        targets: Sequence[TargetCopy],
        make: Callable[..., Learner],
        settings: GroupSettings,
    ):
        self._vector, self._settings = vector, settings
        self._host = mirrored(vector, targets)
        # The arrays that the processes have, as far as they are known here.
        self._known: list[np.ndarray | None] = [None] * len(self._host)
        self._block: SharedBlock | None = None
        self._is_joined = False
        # Busy seconds of all processes together since the last `usage`, and the time of that call.
        self._busy_s, self._busy_since = 0.0, time.monotonic()
        self._gpus: dict[str, float] = {}
        self.logged: list = []
        ensure_runtime()
        _warn_of_few_cores(settings.num_learners)
        of_targets = [(target.module, target.tau, target.every) for target in targets]
        self._recipe = runtime.put(Recipe(make, vector.policy.spec, of_targets))
        # An exception in a learner's code does not cause a restart: the other learners would raise it, too.
        restart = None if settings.tolerance.restart else settings.tolerance.restart
        self._tolerance = replace(settings.tolerance, ignore=False, delay_s=0.0, restart=restart)
        # Sums time out before the silent process is given up, so that the processes that wait for it are kept.
        self._timeout_s = self._tolerance.silence_s * max(self._tolerance.patience - 1, 0.5)
        self.fleet = self._start()
        try:
            self._mend()
        except BaseException:
            self.fleet.stop()
            raise

    def _start(self) -> Fleet:
        """Starts new processes, all in the initial state."""
        settings, recipe = self._settings, self._recipe
        self._whereabouts: dict[int, str] = {}  # of learners that have begun to join
        actor = runtime.remote(LearnerActor).options(oversubscribe=True, **settings.options)
        fleet = Fleet(
            lambda index, _: actor.options(label=f"learner {index}").remote(
                recipe, index, settings.threads, settings.spans_directory
            ),
            range(settings.num_learners),
            kind="learner",
            tolerance=self._tolerance,
            hint="an update may take long; else a process was stopped, or a GPU hangs",
            ready=lambda handle: handle.process_id.remote(),
            about=lambda index: self._whereabouts.get(index, ""),
            on_lost=lambda index, member: self._lose(index),
            logger=logger,
        )
        # The processes that have the state of the training, and whether all are at the same step.
        self._informed, self._are_alike = set(fleet.members.values()), True
        return fleet

    def stop(self) -> None:
        """Ends the processes."""
        self._break_off()
        self.fleet.stop()

    # ------------------------------------------------------------------ as a backend

    @property
    def states(self) -> list[dict[str, np.ndarray]]:
        """Copies of the arrays of each objective's optimizer."""
        self._mend()
        return self._get_states()

    @property
    def template(self) -> list[dict[str, np.ndarray]]:
        """Arrays with the names and shapes of `states`, also after the group has lost its states."""
        return self._get_states()

    def _get_states(self) -> list[dict[str, np.ndarray]]:
        while self.fleet.members:
            first = min(self.fleet.members)
            answers = self._ask("get_states", indices=[first])
            if answers:
                return answers[first]
        self._restart()
        return self._get_states()

    def load_states(self, states: Iterable[Mapping[str, np.ndarray]]) -> None:
        """Copies arrays of the same names and shapes over the optimizers'; a group that lost its states gets these."""
        if len(self.fleet.members) < self._settings.num_learners:
            self._restart()
        states = runtime.put(list(states))
        self._forget()
        while len(self._ask("set_states", states)) < self._settings.num_learners:
            pass
        self._informed, self._are_alike = set(self.fleet.members.values()), True
        self._mend()

    def _restart(self) -> None:
        """Starts all processes again, after the loss of processes that may not be replaced one by one."""
        self.stop()
        self._forget()
        self.fleet = self._start()
        self._informed.clear()

    def usage(self) -> dict[str, float]:
        """Usage of the processes: learner_util_percent, the share (0 to 1) of the time since the last call that they
        spent in updates, and `gpu_usage` of their GPUs.
        """
        busy_s, since, now = self._busy_s, self._busy_since, time.monotonic()
        self._busy_s, self._busy_since = 0.0, now
        share = min(1.0, busy_s / max(now - since, 1e-9) / self._settings.num_learners)
        return {"learner_util_percent": share, **self._gpus}

    def stage(self, arrays: Iterable[np.ndarray]) -> None:
        """Does nothing: arrays are sent with `train`."""

    def train(
        self,
        update: Update,
        meanwhile: Callable[[], None] | None = None,
        refresh: Callable[[], Mapping[str, np.ndarray]] | None = None,
    ) -> list[tuple[np.ndarray, list[tuple]]]:
        """Takes the steps of an update; as NumpyBackend.train. `meanwhile` is called while the processes compute."""
        if refresh is None:
            return self._update(update, meanwhile)
        # The driver computes new columns after each epoch; the processes continue with these.
        orders, limit = update.orders, update.stop_above
        found = self._update(replace(update, orders=orders[:1]), None)
        for count in range(2, len(orders) + 1):
            if limit is not None and found[0][0][-1][limit[0]] > limit[1]:
                break
            update = replace(update, columns={**update.columns, **refresh()}, orders=orders[:count])
            found = self._update(update, None, resumes=True)
        if meanwhile is not None:
            meanwhile()
        return found

    def compute_gradient(self, update: Update) -> tuple[np.ndarray, np.ndarray]:
        """The gradient of the whole batch; as NumpyBackend.compute_gradient."""
        shared = runtime.put(update)
        for _ in range(self._tolerance.max_consecutive_failures + 1):
            self._mend()
            reporter = min(self.fleet.members)
            answers = self._outcomes("compute_gradient", self._changed(), shared, reporter)
            reasons = [outcome.unfinished for outcome in answers.values() if outcome.unfinished]
            if reporter in answers and not reasons:
                return answers[reporter].found
            self._break_off()
        raise self._lost(f"it was begun several times: {reasons}")

    def apply_gradient(self, gradient: np.ndarray, lr: float) -> float:
        """Clips a copy of a flat gradient and takes a step against it; as NumpyBackend.apply_gradient."""
        self._mend()
        answers = self._outcomes("apply_gradient", self._changed(), runtime.put(gradient), lr)
        if not answers:
            self._mend()  # raises
        outcome = answers[min(answers)]
        self._take_over(outcome.weights)
        return outcome.found

    # ------------------------------------------------------------------ one update

    def _update(
        self, update: Update, meanwhile: Callable[[], None] | None, resumes: bool = False
    ) -> list[tuple[np.ndarray, list[tuple]]]:
        self._mend()
        shared, changed = runtime.put(update), self._changed()
        most, num_fruitless = -1.0, 0
        while True:
            reporter = min(self.fleet.members)
            answers = self._outcomes("train", changed, shared, resumes, reporter, meanwhile=meanwhile)
            reasons = [outcome.unfinished for outcome in answers.values() if outcome.unfinished]
            if reporter in answers and not reasons:
                self._take_over(answers[reporter].weights)
                return answers[reporter].found
            # All learners continue from the step of the most advanced ones.
            farthest = max((outcome.num_done for outcome in answers.values()), default=0)
            num_fruitless = 0 if farthest > most else num_fruitless + 1
            if num_fruitless > self._tolerance.max_consecutive_failures:
                raise self._lost(f"the same step was begun {num_fruitless} times: {reasons}")
            most = farthest
            self._informed &= {self.fleet.members[i] for i, each in answers.items() if each.num_done == most}
            self._break_off()
            self._mend()
            changed, resumes, meanwhile = {}, True, None

    def _changed(self) -> dict[int, np.ndarray]:
        """Arrays that the driver has changed since they were last sent: index in `mirrored` -> copy."""
        changed = {}
        for place, (own, known) in enumerate(zip(self._host, self._known)):
            if known is None or not np.array_equal(own, known):
                changed[place] = self._known[place] = own.copy()
        return changed

    def _take_over(self, weights: np.ndarray) -> None:
        np.copyto(self._vector.flat, weights)
        self._known[0] = weights

    # ------------------------------------------------------------------ processes that come and go

    def _ask(
        self,
        method: str,
        *arguments,
        indices: Iterable[int] | None = None,
        meanwhile: Callable[[], None] | None = None,
    ) -> dict[int, Any]:
        """Calls a method of all processes, or of these indices. Returns index -> answer, without dead processes."""
        asked = {index: self.fleet.members[index] for index in (self.fleet.members if indices is None else indices)}
        answers: dict[int, Any] = {}
        began = time.monotonic()
        try:
            for member in asked.values():
                member.send(getattr(member.handle, method).remote(*arguments))
            if meanwhile is not None:
                meanwhile()
            while any(self.fleet.members.get(i) is member and i not in answers for i, member in asked.items()):
                for answer in self.fleet.take(self._tolerance.silence_s):
                    answers[answer.index] = answer.value
                if time.monotonic() - began > self._timeout_s:
                    self._break_off()  # the processes that live answer, and are asked again
        except BaseException:
            # It is unknown now at which step each process is: they wait for a failed one, or were interrupted.
            self._break_off()
            self._forget()
            raise
        return answers

    def _outcomes(self, method: str, *arguments, meanwhile: Callable[[], None] | None = None) -> dict[int, Outcome]:
        """`_ask` for work that fails in all learners alike: raises its exception."""
        outcomes = self._ask(method, *arguments, meanwhile=meanwhile)
        self._busy_s += sum(outcome.busy_s for outcome in outcomes.values())
        self.logged += [call for outcome in outcomes.values() for call in outcome.logged]
        # Learners that share a GPU report the same for it; of GPUs with the same number on several machines, the most
        # used one counts.
        gpus = [item for outcome in outcomes.values() for item in outcome.gpus.items()]
        self._gpus |= {name: max(value for other, value in gpus if other == name) for name, _ in gpus}
        failures = [outcome.failure for outcome in outcomes.values() if outcome.failure is not None]
        if failures:
            self._break_off()
            self._forget()
            raise failures[0]
        return outcomes

    def _lose(self, index: int) -> None:
        self._whereabouts.pop(index, None)
        self._break_off()

    def _break_off(self) -> None:
        """Ends the running sums; the processes have to join again."""
        self._is_joined = False
        if self._block is not None:
            self._block.interrupt()

    def _forget(self) -> None:
        """Drops running calls and the known states of processes: all get the driver's weights and one state."""
        self.fleet.forget()
        self._known = [None] * len(self._host)
        self._are_alike = False

    def _mend(self) -> None:
        """Brings all processes into one state, and connects them.

        Raises:
            LearnersLostError: if no process is left that has the state, some may not be replaced, or they cannot join.
        """
        reason = ""
        for _ in range(ATTEMPTS):
            members = self.fleet.members
            self._informed &= set(members.values())
            informed = [index for index, member in members.items() if member in self._informed]
            if len(members) < self._settings.num_learners:
                raise self._lost("some have ended that may not be replaced")
            if not informed:
                raise self._lost(f"all {len(members)} have ended")
            others = [index for index in members if index not in informed[: None if self._are_alike else 1]]
            if others:
                self._inform(informed[0], others)
            elif not self._is_joined and len(members) > 1:
                reason = self._join()
            else:
                return
        raise self._lost(f"they cannot join: {reason}")

    def _lost(self, why: str) -> LearnersLostError:
        return LearnersLostError(
            f"the learners cannot continue: {why}. The memory of their optimizers is lost. Continue from the last "
            "checkpoint: algo.restore(path) starts new learners."
        )

    def _inform(self, source: int, others: Sequence[int]) -> None:
        """Copies the state of one process to these processes, as far as they live."""
        for progress in self._ask("get_progress", indices=[source]).values():
            asked = {index: self.fleet.members[index] for index in (source, *others)}
            answers = self._ask("set_progress", runtime.put(progress), indices=others)
            same = self._informed if self._are_alike else {asked[source]}
            self._informed, self._are_alike = same | {asked[index] for index in answers}, True

    def _join(self) -> str:
        """Connects the learners for collective sums. Returns the reason if one has died."""
        self._is_joined = True  # until a process is lost
        kind, num_gpus = self._settings.collective, self._settings.options.get("num_gpus") or 0
        places = self._ask("whereabouts")
        self._whereabouts |= {index: f"process {pid} on {address}" for index, (pid, address) in places.items()}
        if os.getpid() in [pid for pid, _ in places.values()]:
            raise Unfit(
                f'num_learners={self._settings.num_learners} need a process each, but the engine "local" runs all of '
                "them in this one.",
                "Use .learners(num_learners=1), or another engine.",
                {"num_learners": 1},
            )
        if kind in ("auto", "shared_memory") and not num_gpus:
            if self._share_memory():
                return ""
            if kind == "shared_memory":
                raise Unfit(
                    'learner_collective="shared_memory" needs all learners on this machine, with x86-64 processors.',
                    'Use .learners(learner_collective="gloo") or "auto".',
                    {"learner_collective": "auto"},
                )
        if kind == "auto":
            kind = "nccl" if num_gpus >= 1 else "gloo"
        timeout_s, size, reasons = self._timeout_s, self._settings.num_learners, []
        for address in self._ask("open_store", timeout_s, indices=[min(self.fleet.members)]).values():
            reasons = [reason for reason in self._ask("join", kind, address, size, timeout_s).values() if reason]
            self._is_joined = self._is_joined and not reasons
        return "; ".join(reasons) or "one has ended meanwhile"

    def _share_memory(self) -> bool:
        """Connects the live processes through a new block of shared memory; returns whether all can reach it."""
        if not SharedSums.is_available():
            return False
        patient = cpu_count() >= self._settings.num_learners
        self._block = SharedBlock(self._settings.num_learners, len(self._vector.flat) + ROOM)
        try:
            return all(self._ask("share_memory", self._block.place, self._timeout_s, patient).values())
        finally:
            self._block.close()
