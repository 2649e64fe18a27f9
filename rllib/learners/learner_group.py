"""Several learners that equal one: K processes compute parts of each gradient, sum them up, and all make the same step.

The driver's Learner draws the permutations and checks the batch as ever. A LearnerGroup stands in the place of its
backend: each process has its own learner (LearnerActor), gets the same batch, and takes its part of each
minibatch. Their sums are made by learners/collective.py.

One that dies is replaced in the middle of an update: all learners have the same weights and the same optimizer, so the
new one takes over those of another, and they go on with the step that was interrupted.
"""

import logging
import math
import os
import time
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

import runtime
from rllib import spans
from rllib.errors import LearnersLostError
from rllib.evaluation.worker_set import ensure_runtime
from rllib.learners.collective import SharedBlock, SharedSums, Unfinished
from rllib.learners.learner import Learner
from rllib.learners.numpy_learner import NumpyBackend
from rllib.learners.objective import ModuleVector
from rllib.learners.target_copy import TargetCopy
from rllib.metrics import gpu_usage
from rllib.models.policy_spec import PolicySpec
from rllib.policy import Policy
from runtime.machine import cpu_count, node_ip_address
from runtime.util.fleet import FaultTolerance, Fleet

logger = logging.getLogger(__name__)

COLLECTIVES = ("auto", "shared_memory", "gloo", "nccl")
# Statistics and row statistics have room beside the gradient in a slot of shared memory; more takes further rounds.
ROOM = 4096
# To bring all processes into one state and to join them; each loss of a process meanwhile costs one.
ATTEMPTS = 20


@dataclass(frozen=True)
class GroupSettings:
    """How many learners there are, and what they have.

    Args:
        num_learners: number of processes.
        options: resources of each, as for `runtime.remote`.
        tolerance: what happens when one dies.
        threads: of torch in each.
        collective: how gradients are summed; "auto": by nccl where each learner has its own GPU, through shared
            memory where all are on this machine's CPUs, else by gloo.
        spans_directory: where they record what they do when (spans.py); None: they do not.
    """

    num_learners: int
    options: Mapping[str, Any]
    tolerance: FaultTolerance
    threads: int = 1
    collective: str = "auto"
    spans_directory: str | None = None


class Recipe(NamedTuple):
    """What the learners are made of.

    Attributes:
        make: called with keyword arguments `policy`, `targets` and `rng`.
        spec: of the policy.
        targets: module, tau and every of each target copy.
    """

    make: Callable[..., Learner]
    spec: PolicySpec
    targets: list[tuple]


class Outcome(NamedTuple):
    """What became of a request in one learner.

    Attributes:
        num_done: steps of the update that it has made, counted over all objectives.
        unfinished: why it has stopped, where another learner did not come; empty: it has done all.
        found: what its backend returned, if it was asked for that.
        weights: the flat vector after the update, likewise.
        failure: what its backend raised.
        busy_s: duration of the call (seconds).
        gpus: what `gpu_usage` says there, at most a second old.
    """

    num_done: float
    unfinished: str = ""
    found: Any = None
    weights: np.ndarray | None = None
    failure: Exception | None = None
    busy_s: float = 0.0
    gpus: Mapping[str, float] = {}


class LearnerActor:
    """One of the learners, in a separate process. All its weights come from the driver.

    Args:
        recipe: what it is made of.
        rank: its number among the learners.
        threads: of torch.
        spans_directory: see GroupSettings.
    """

    def __init__(self, recipe: Recipe, rank: int, threads: int, spans_directory: str | None = None):
        spans.start(spans_directory, f"learner {rank}", serves=True)
        targets = [TargetCopy(*arguments) for arguments in recipe.targets]
        self._learner = recipe.make(policy=Policy(recipe.spec), targets=targets, rng=np.random.default_rng(0))
        self._backend, self._rank = self._learner.backend, rank
        if not isinstance(self._backend, NumpyBackend):
            self._backend.use_threads(threads)
        self._mirrored = mirrored(self._learner.vector, targets)
        self._store: Any = None
        self._gpus, self._gpus_read_at = {}, -math.inf

    def process_id(self) -> int:
        """Number of the process."""
        return os.getpid()

    def whereabouts(self) -> tuple[int, str]:
        """Number of the process, and address of its machine."""
        return os.getpid(), node_ip_address()

    # ------------------------------------------------------------------ joining the others

    def share_memory(self, place: tuple, timeout_s: float, patient: bool) -> bool:
        """Sums through this SharedBlock from now on; whether it can be reached from here."""
        self._leave()
        block = SharedBlock.find(*place)
        if block is None:
            return False
        self._backend.collective = SharedSums(block, self._rank, timeout_s, patient)
        return True

    def open_store(self, timeout_s: float) -> tuple[str, int]:
        """Lets the others find this process: host and port of a store of torch.distributed."""
        from rllib.learners.torch_collective import open_store

        self._leave()
        host = node_ip_address()
        self._store = open_store(host, timeout_s)
        return host, self._store.port

    def join(self, kind: str, address: tuple[str, int], size: int, timeout_s: float) -> str:
        """Sums by torch.distributed from now on; returns when all have joined, or why they have not."""
        from rllib.learners.torch_collective import TorchSums

        if self._store is None:
            self._leave()
        store, self._store = self._store, None
        try:
            self._backend.collective = TorchSums(kind, address, self._rank, size, timeout_s, store, node_ip_address())
        except Unfinished as error:
            return str(error) or repr(error.__cause__)
        return ""

    def _leave(self) -> None:
        if self._backend.collective is not None:
            self._backend.collective.close()
        self._backend.collective = self._store = None

    # ------------------------------------------------------------------ updates

    def train(
        self, changed: Mapping[int, np.ndarray], batch: tuple, options: Mapping, resumes: bool, reporter: int
    ) -> Outcome:
        """One update, or the rest of one.

        Args:
            changed: arrays that the driver has changed: place in `mirrored` -> array.
            batch: columns, encoded observations and permutations.
            options: further arguments of the backend's `train`.
            resumes: go on with the update that was interrupted.
            reporter: number of the learner that returns the results.
        """
        with spans.call("update"):
            self._take(changed)
            return self._outcome(
                lambda: self._backend.train(*batch, **options, resumes=resumes), self._rank == reporter
            )

    def compute_gradient(self, changed: Mapping[int, np.ndarray], arguments: tuple, reporter: int) -> Outcome:
        """Finds gradient and statistics of the whole batch."""
        self._take(changed)
        return self._outcome(lambda: self._backend.compute_gradient(*arguments), self._rank == reporter)

    def apply_gradient(self, changed: Mapping[int, np.ndarray], gradient: np.ndarray, lr: float) -> Outcome:
        """Finds the gradient's length, after a step against it."""
        self._take(changed)
        return self._outcome(lambda: self._backend.apply_gradient(gradient, lr), True)

    def _outcome(self, work: Callable, reports: bool) -> Outcome:
        began = time.monotonic()
        outcome = self._outcome_of(work, reports)
        now = time.monotonic()
        if now - self._gpus_read_at >= 1.0:
            self._gpus, self._gpus_read_at = gpu_usage(), now
        return outcome._replace(busy_s=now - began, gpus=self._gpus)

    def _outcome_of(self, work: Callable, reports: bool) -> Outcome:
        try:
            found = work()
        except Unfinished as error:
            # The others need not wait for this one.
            self._leave()
            return Outcome(self._backend.num_done, str(error))
        except Exception as failure:
            self._leave()
            failure.add_note(f"in learner {self._rank}:\n{traceback.format_exc()}")
            return Outcome(self._backend.num_done, failure=failure)
        if not reports:
            return Outcome(self._backend.num_done)
        return Outcome(self._backend.num_done, found=found, weights=self._learner.vector.flat)

    def _take(self, changed: Mapping[int, np.ndarray]) -> None:
        for place, array in changed.items():
            np.copyto(self._mirrored[place], array)

    # ------------------------------------------------------------------ state

    def get_states(self) -> list[dict[str, np.ndarray]]:
        """Of the optimizers."""
        return self._backend.states

    def set_states(self, states: Sequence[Mapping[str, np.ndarray]]) -> None:
        """Takes them over."""
        self._backend.load_states(states)

    def get_progress(self) -> tuple:
        """All that another learner needs to stand where this one stands, in the middle of an update or not."""
        progress = self._backend.get_progress()
        return dict(enumerate(self._mirrored)), self._backend.states, progress

    def set_progress(self, given: tuple) -> None:
        """Takes over what `get_progress` of another learner gave."""
        arrays, states, progress = given
        self._take(arrays)
        self._backend.load_states(states)
        self._backend.set_progress(progress)


def mirrored(vector: ModuleVector, targets: Iterable[TargetCopy]) -> list[np.ndarray]:
    """The arrays that the driver's learner has and those of the group must have, too: weights, target copies, noise."""
    targets = list(targets)
    policies = [vector.policy, *(target.policy for target in targets if target.policy is not None)]
    noises = [policy.layer_noise for policy in policies if policy.is_noisy]
    return [vector.flat, *(target.weights for target in targets), *noises]


def _warn_of_few_cores(num_learners: int) -> None:
    machines = runtime.nodes()
    # What a session on one machine calls its CPUs is up to the user; those of a cluster's machines are the cluster's.
    cores = cpu_count() if len(machines) == 1 else int(runtime.cluster_resources().get("CPU", 0))
    if num_learners > cores:
        logger.warning(
            "num_learners=%d learners share %d cores and take turns, which is slower than a core for each. Use "
            ".learners(num_learners=%d).",
            num_learners,
            cores,
            max(1, cores),
        )


class LearnerGroup:
    """The processes, in the form of a backend of the driver's Learner (numpy_learner.py: NumpyBackend).

    Args:
        vector: the driver's; its weights change after each update.
        targets: the driver's target copies.
        make: as for Recipe.
        settings: of the group.

    Attributes:
        fleet: the processes.

    Raises:
        UnschedulableError: if the machine, or the cluster, lacks the resources of a learner.
        ValueError: if the learners cannot sum: in one process, or by shared memory on several machines.
        LearnersLostError: if they cannot reach one another.
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
        # What the processes have, as far as this one knows.
        self._known: list[np.ndarray | None] = [None] * len(self._host)
        self._block: SharedBlock | None = None
        self._is_joined = False
        # Since the last `usage`: seconds of all processes together, and when that was.
        self._busy_s, self._busy_since = 0.0, time.monotonic()
        self._gpus: dict[str, float] = {}
        ensure_runtime()
        _warn_of_few_cores(settings.num_learners)
        of_targets = [(target.module, target.tau, target.every) for target in targets]
        self._recipe = runtime.put(Recipe(make, vector.policy.spec, of_targets))
        # What a learner's code raises is no fault of its process: the others would raise it, too.
        restart = None if settings.tolerance.restart else settings.tolerance.restart
        self._tolerance = replace(settings.tolerance, ignore=False, delay_s=0.0, restart=restart)
        # A sum ends before the process that it waits for is given up, so that only that one is.
        self._timeout_s = self._tolerance.silence_s * max(self._tolerance.patience - 1, 0.5)
        self.fleet = self._start()
        try:
            self._mend()
        except BaseException:
            self.fleet.stop()
            raise

    def _start(self) -> Fleet:
        """New processes, all in the state of the beginning."""
        settings, recipe = self._settings, self._recipe
        self._whereabouts: dict[int, str] = {}  # of those that have begun to join
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
        # The processes that have the state of the training, and whether they have come equally far.
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
        """Arrays of the names and shapes of `states`, also of a group that has lost them."""
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
        """Copies arrays of the same names and shapes over the optimizers'; a group that has lost its own has these."""
        if len(self.fleet.members) < self._settings.num_learners:
            self._restart()
        states = runtime.put(list(states))
        self._forget()
        while len(self._ask("set_states", states)) < self._settings.num_learners:
            pass
        self._informed, self._are_alike = set(self.fleet.members.values()), True
        self._mend()

    def _restart(self) -> None:
        """Starts all processes anew, where some were lost that may not be replaced."""
        self.stop()
        self._forget()
        self.fleet = self._start()
        self._informed.clear()

    def usage(self) -> dict[str, float]:
        """learner_util_percent, the share (0 to 1) of their time since the last call in which the processes were in
        updates, and what `gpu_usage` says of their GPUs.
        """
        busy_s, since, now = self._busy_s, self._busy_since, time.monotonic()
        self._busy_s, self._busy_since = 0.0, now
        share = min(1.0, busy_s / max(now - since, 1e-9) / self._settings.num_learners)
        return {"learner_util_percent": share, **self._gpus}

    def stage(self, arrays: Iterable[np.ndarray]) -> None:
        """Nothing: arrays are sent with `train`."""

    def train(
        self,
        columns: Mapping,
        inputs: np.ndarray,
        orders: Sequence,
        minibatch_size: int,
        microbatch_size: int,
        lrs: Sequence[float],
        settings: Sequence[Mapping | None],
        meanwhile: Callable[[], None] | None = None,
        stop_above: tuple[int, float] | None = None,
        refresh: Callable[[], Mapping[str, np.ndarray]] | None = None,
    ) -> list[tuple[np.ndarray, list[tuple]]]:
        """Walks over the batch once for each order; as NumpyBackend.train. `meanwhile` is called while they compute."""
        options = {
            "minibatch_size": minibatch_size,
            "microbatch_size": microbatch_size,
            "lrs": lrs,
            "settings": settings,
            "stop_above": stop_above,
        }
        if refresh is None:
            return self._update((columns, inputs, orders), options, meanwhile)
        # The driver computes new columns after each epoch, with which the processes go on.
        found = self._update((columns, inputs, orders[:1]), options, None)
        for count in range(2, len(orders) + 1):
            if stop_above is not None and found[0][0][-1][stop_above[0]] > stop_above[1]:
                break
            columns = {**columns, **refresh()}
            found = self._update((columns, inputs, orders[:count]), options, None, resumes=True)
        if meanwhile is not None:
            meanwhile()
        return found

    def compute_gradient(
        self, columns: Mapping, inputs: np.ndarray, microbatch_size: int, settings: Mapping
    ) -> tuple[np.ndarray, np.ndarray]:
        """The gradient of the whole batch; as NumpyBackend.compute_gradient."""
        arguments = runtime.put((columns, inputs, microbatch_size, settings))
        for _ in range(self._tolerance.max_consecutive_failures + 1):
            self._mend()
            reporter = min(self.fleet.members)
            answers = self._outcomes("compute_gradient", self._changed(), arguments, reporter)
            reasons = [outcome.unfinished for outcome in answers.values() if outcome.unfinished]
            if reporter in answers and not reasons:
                return answers[reporter].found
            self._break_off()
        raise self._lost(f"it was begun several times: {reasons}")

    def apply_gradient(self, gradient: np.ndarray, lr: float) -> float:
        """Clips a flat gradient, which is left as it is, and steps against it; as NumpyBackend.apply_gradient."""
        self._mend()
        answers = self._outcomes("apply_gradient", self._changed(), runtime.put(gradient), lr)
        if not answers:
            self._mend()  # raises
        outcome = answers[min(answers)]
        self._take_over(outcome.weights)
        return outcome.found

    # ------------------------------------------------------------------ one update

    def _update(
        self, batch: tuple, options: Mapping, meanwhile: Callable[[], None] | None, resumes: bool = False
    ) -> list[tuple[np.ndarray, list[tuple]]]:
        self._mend()
        shared, changed = runtime.put(batch), self._changed()
        most, num_fruitless = -1.0, 0
        while True:
            reporter = min(self.fleet.members)
            answers = self._outcomes("train", changed, shared, options, resumes, reporter, meanwhile=meanwhile)
            reasons = [outcome.unfinished for outcome in answers.values() if outcome.unfinished]
            if reporter in answers and not reasons:
                self._take_over(answers[reporter].weights)
                return answers[reporter].found
            # They go on from the step of those that have come farthest.
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
        """What the driver has changed since the processes and it had the same."""
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
        """Calls a method of each process, or of those with these indices: index -> answer of those that live."""
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
                    self._break_off()  # those that can answer, do, and are asked again
        except BaseException:
            # Where the processes are now, nobody knows: they wait for one that has failed, or have been interrupted.
            self._break_off()
            self._forget()
            raise
        return answers

    def _outcomes(self, method: str, *arguments, meanwhile: Callable[[], None] | None = None) -> dict[int, Outcome]:
        """The same for work whose failure is everybody's: it is raised here."""
        outcomes = self._ask(method, *arguments, meanwhile=meanwhile)
        self._busy_s += sum(outcome.busy_s for outcome in outcomes.values())
        # Learners that share a GPU say the same of it; of equal numbers on several machines the fullest counts.
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
        """Ends the sums under way; the processes have to join anew."""
        self._is_joined = False
        if self._block is not None:
            self._block.interrupt()

    def _forget(self) -> None:
        """Drops what is under way and what is known of the processes: they get the driver's weights, and one state."""
        self.fleet.forget()
        self._known = [None] * len(self._host)
        self._are_alike = False

    def _mend(self) -> None:
        """Gives all processes one state, and joins them.

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
            f"the learners cannot go on: {why}. The memory of their optimizers is gone. Go on from the last "
            "checkpoint: algo.restore(path) starts them anew."
        )

    def _inform(self, source: int, others: Sequence[int]) -> None:
        """Gives these processes the state of one, if all live so long."""
        for progress in self._ask("get_progress", indices=[source]).values():
            asked = {index: self.fleet.members[index] for index in (source, *others)}
            answers = self._ask("set_progress", runtime.put(progress), indices=others)
            same = self._informed if self._are_alike else {asked[source]}
            self._informed, self._are_alike = same | {asked[index] for index in answers}, True

    def _join(self) -> str:
        """Lets all processes sum with one another, if all live so long; else says why they cannot."""
        self._is_joined = True  # until one is lost
        kind, num_gpus = self._settings.collective, self._settings.options.get("num_gpus") or 0
        places = self._ask("whereabouts")
        self._whereabouts |= {index: f"process {pid} on {address}" for index, (pid, address) in places.items()}
        if os.getpid() in [pid for pid, _ in places.values()]:
            raise ValueError(
                f"num_learners={self._settings.num_learners} need a process each, but the engine \"local\" runs all of "
                "them in this one. Use .learners(num_learners=1), or another engine."
            )
        if kind in ("auto", "shared_memory") and not num_gpus:
            if self._share_memory():
                return ""
            if kind == "shared_memory":
                raise ValueError(
                    'learner_collective="shared_memory" needs all learners on this machine, with x86-64 processors. '
                    'Use .learners(learner_collective="gloo") or "auto".'
                )
        if kind == "auto":
            kind = "nccl" if num_gpus >= 1 else "gloo"
        timeout_s, size, reasons = self._timeout_s, self._settings.num_learners, []
        for address in self._ask("open_store", timeout_s, indices=[min(self.fleet.members)]).values():
            reasons = [reason for reason in self._ask("join", kind, address, size, timeout_s).values() if reason]
            self._is_joined = self._is_joined and not reasons
        return "; ".join(reasons) or "one has ended meanwhile"

    def _share_memory(self) -> bool:
        """Whether all that live can reach one block of memory."""
        if not SharedSums.is_available():
            return False
        patient = cpu_count() >= self._settings.num_learners
        self._block = SharedBlock(self._settings.num_learners, len(self._vector.flat) + ROOM)
        try:
            return all(self._ask("share_memory", self._block.place, self._timeout_s, patient).values())
        finally:
            self._block.close()
