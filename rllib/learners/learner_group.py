"""Several learners that equal one: K processes compute parts of each gradient, sum them up, and all make the same step.

The driver's Learner draws the permutations and checks the batch as ever. A LearnerGroup stands in the place of its
backend: each process has a learner of its own (LearnerActor), gets the same batch, and takes its part of each
minibatch. What they sum by is learners/collective.py.

One that dies is replaced in the middle of an update: all learners have the same weights and the same optimizer, so the
new one takes over those of another, and they go on with the step that was interrupted.
"""

import logging
import os
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

import runtime
from rllib.errors import LearnersLostError
from rllib.evaluation.worker_set import ensure_runtime
from rllib.learners.collective import SharedBlock, SharedSums, Unfinished
from rllib.learners.learner import Learner
from rllib.learners.objective import ModuleVector
from rllib.learners.target_copy import TargetCopy
from rllib.models.policy_spec import PolicySpec
from rllib.policy import Policy
from runtime.machine import cpu_count, ip_address
from runtime.util.fleet import FaultTolerance, Fleet

logger = logging.getLogger(__name__)

COLLECTIVES = ("auto", "shared_memory", "gloo", "nccl")
# Statistics and row statistics have room beside the gradient in a slot of shared memory; more takes further rounds.
ROOM = 4096


@dataclass(frozen=True)
class GroupSettings:
    """How many learners there are, and what they have.

    Args:
        num_learners: number of processes.
        options: resources of each, as for `runtime.remote`.
        tolerance: what happens when one dies.
        threads: of the matrix products in each.
        collective: what they sum by; "auto": nccl where each has a GPU of its own, shared_memory where all run on this
            machine, else gloo.
    """

    num_learners: int
    options: Mapping[str, Any]
    tolerance: FaultTolerance
    threads: int = 1
    collective: str = "auto"


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
        is_finished: False where it waited for another learner in vain.
        found: what its backend returned, if it was asked for that.
        weights: the flat vector after the update, likewise.
        failure: what its backend raised.
    """

    num_done: int
    is_finished: bool
    found: Any = None
    weights: np.ndarray | None = None
    failure: Exception | None = None


class LearnerActor:
    """A learner in a process of its own. All its weights come from the driver.

    Args:
        recipe: what it is made of.
        rank: its number among the learners.
        threads: of matrix products.
    """

    def __init__(self, recipe: Recipe, rank: int, threads: int):
        targets = [TargetCopy(*arguments) for arguments in recipe.targets]
        self._learner = recipe.make(policy=Policy(recipe.spec), targets=targets, rng=np.random.default_rng(0))
        self._backend, self._rank = self._learner.backend, rank
        self._backend.use_threads(threads)
        self._mirrored = mirrored(self._learner.vector, targets)
        self._store: Any = None

    def process_id(self) -> int:
        """Number of the process."""
        return os.getpid()

    # ------------------------------------------------------------------ joining the others

    def share_memory(self, place: tuple, timeout_s: float, patient: bool) -> bool:
        """Sums through this SharedBlock from now on; whether it can be reached from here."""
        self._leave()
        block = SharedBlock.find(*place)
        if block is None or not SharedSums.is_available():
            return False
        self._backend.collective = SharedSums(block, self._rank, timeout_s, patient)
        return True

    def open_store(self, timeout_s: float) -> tuple[str, int]:
        """Lets the others find this process: host and port of a store of torch.distributed."""
        from rllib.learners.torch_collective import open_store

        self._leave()
        host = ip_address()
        self._store = open_store(host, timeout_s)
        return host, self._store.port

    def join(self, kind: str, address: tuple[str, int], size: int, timeout_s: float) -> bool:
        """Sums by torch.distributed from now on; returns when all have joined, or False if they do not."""
        from rllib.learners.torch_collective import TorchSums

        if self._store is None:
            self._leave()
        store, self._store = self._store, None
        try:
            self._backend.collective = TorchSums(kind, address, self._rank, size, timeout_s, store)
        except Unfinished:
            return False
        return True

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
        self._take(changed)
        return self._outcome(lambda: self._backend.train(*batch, **options, resumes=resumes), self._rank == reporter)

    def compute_gradient(self, changed: Mapping[int, np.ndarray], arguments: tuple) -> Outcome:
        """Finds gradient and statistics of the whole batch."""
        self._take(changed)
        return self._outcome(lambda: self._backend.compute_gradient(*arguments), True)

    def apply_gradient(self, changed: Mapping[int, np.ndarray], gradient: np.ndarray, lr: float) -> Outcome:
        """Finds the gradient's length, after a step against it."""
        self._take(changed)
        return self._outcome(lambda: self._backend.apply_gradient(gradient, lr), True)

    def _outcome(self, work: Callable, reports: bool) -> Outcome:
        try:
            found = work()
        except Unfinished:
            return Outcome(self._backend.num_done, False)
        except Exception as failure:
            # The others do not wait for this one.
            self._leave()
            failure.add_note(f"in learner {self._rank}:\n{traceback.format_exc()}")
            return Outcome(self._backend.num_done, False, failure=failure)
        if not reports:
            return Outcome(self._backend.num_done, True)
        return Outcome(self._backend.num_done, True, found, self._learner.vector.flat)

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
    noise = vector.policy.layer_noise
    return [vector.flat, *(target.weights for target in targets), *([] if noise is None else [noise])]


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
        UnschedulableError: if the learners ask for what there is not.
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
        self._is_joined = self._is_lost = False
        ensure_runtime()
        of_targets = [(target.module, target.tau, target.every) for target in targets]
        recipe = runtime.put(Recipe(make, vector.policy.spec, of_targets))
        actor = runtime.remote(LearnerActor).options(oversubscribe=True, **settings.options)
        # An exception in a learner is none of its process; the others have it, too.
        tolerance = replace(settings.tolerance, ignore=False, delay_s=0.0)
        tolerance = replace(tolerance, restart=None if tolerance.restart else tolerance.restart)
        # A sum ends before the process that it waits for is given up, so that only that one is.
        self._timeout_s = tolerance.silence_s * max(tolerance.patience - 1, 0.5)
        self.fleet = Fleet(
            lambda index, _: actor.options(label=f"learner {index}").remote(recipe, index, settings.threads),
            range(settings.num_learners),
            kind="learner",
            tolerance=tolerance,
            hint="an update may take long; else a process was stopped, or a GPU hangs",
            ready=lambda handle: handle.process_id.remote(),
            on_lost=lambda index, member: self._break_off(),
            logger=logger,
        )
        # The processes that have the state of the training.
        self._informed = set(self.fleet.members.values())
        self._mend()

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
        while True:
            first = next(iter(self.fleet.members))
            answers = self._ask("get_states", indices=[first])
            if answers:
                return answers[first]

    def load_states(self, states: Iterable[Mapping[str, np.ndarray]]) -> None:
        """Copies arrays of the same names and shapes over the optimizers'; a group that has lost its own has these."""
        states = runtime.put(list(states))
        self._is_lost, self._known = False, [None] * len(self._host)
        while len(self._ask("set_states", states)) < self._settings.num_learners:
            pass
        self._informed = set(self.fleet.members.values())
        self._mend()

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
        while True:
            self._mend()
            answers = self._outcomes("compute_gradient", self._changed(), arguments)
            if answers and all(outcome.is_finished for outcome in answers.values()):
                return answers[min(answers)].found
            self._break_off()

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
        while True:
            reporter = min(self.fleet.members)
            answers = self._outcomes("train", changed, shared, options, resumes, reporter, meanwhile=meanwhile)
            if reporter in answers and all(outcome.is_finished for outcome in answers.values()):
                self._take_over(answers[reporter].weights)
                return answers[reporter].found
            # They go on from the step of those that have come farthest.
            most = max((outcome.num_done for outcome in answers.values()), default=0)
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
        try:
            for member in asked.values():
                member.send(getattr(member.handle, method).remote(*arguments))
            if meanwhile is not None:
                meanwhile()
            while any(self.fleet.members.get(i) is member and i not in answers for i, member in asked.items()):
                for answer in self.fleet.take(self.fleet.tolerance.silence_s):
                    answers[answer.index] = answer.value
        except BaseException:
            # The others are waiting for one that has failed, or whose answer nobody wants.
            self._break_off()
            self.fleet.forget()
            self._known = [None] * len(self._host)
            raise
        return answers

    def _outcomes(self, method: str, *arguments, meanwhile: Callable[[], None] | None = None) -> dict[int, Outcome]:
        """The same for work whose failure is everybody's: it is raised here."""
        outcomes = self._ask(method, *arguments, meanwhile=meanwhile)
        failures = [outcome.failure for outcome in outcomes.values() if outcome.failure is not None]
        if failures:
            self._break_off()
            self._known = [None] * len(self._host)
            raise failures[0]
        return outcomes

    def _break_off(self) -> None:
        """Ends the sums under way; the processes have to join anew."""
        self._is_joined = False
        if self._block is not None:
            self._block.interrupt()

    def _mend(self) -> None:
        """Gives new processes the state of the others, and joins them all.

        Raises:
            LearnersLostError: if no process is left that has the state.
        """
        while True:
            members = set(self.fleet.members.values())
            self._informed &= members
            if self._is_lost or not self._informed:
                self._is_lost = True
                raise LearnersLostError(
                    f"all {self._settings.num_learners} learners have ended, and the memory of their optimizers with "
                    "them. Go on from the last checkpoint: algo.restore(path)."
                )
            if uninformed := [index for index, member in self.fleet.members.items() if member not in self._informed]:
                self._inform(uninformed)
            elif not self._is_joined and len(members) > 1:
                self._join()
            else:
                return

    def _inform(self, uninformed: Sequence[int]) -> None:
        """Gives these processes the state of another one, if all live so long."""
        source = next(index for index, member in self.fleet.members.items() if member in self._informed)
        for progress in self._ask("get_progress", indices=[source]).values():
            shared = runtime.put(progress)
            asked = {index: self.fleet.members[index] for index in uninformed}
            answers = self._ask("set_progress", shared, indices=uninformed)
            self._informed |= {asked[index] for index in answers}

    def _join(self) -> None:
        """Lets all processes sum with one another, if all live so long."""
        self._is_joined = True  # until one is lost
        kind, num_gpus = self._settings.collective, self._settings.options.get("num_gpus") or 0
        if kind == "auto" and num_gpus >= 1:
            kind = "nccl"
        if kind in ("auto", "shared_memory"):
            if self._share_memory():
                return
            if kind == "shared_memory":
                raise ValueError(
                    'learner_collective="shared_memory" needs all learners on this machine, with x86-64 processors. '
                    'Use .learners(learner_collective="gloo") or "auto".'
                )
            kind = "gloo"
        timeout_s, size = self._timeout_s, self._settings.num_learners
        first = min(self.fleet.members)
        for address in self._ask("open_store", timeout_s, indices=[first]).values():
            if not all(self._ask("join", kind, address, size, timeout_s).values()):
                self._is_joined = False

    def _share_memory(self) -> bool:
        """Whether all that live can reach one block of memory."""
        timeout_s, patient = self._timeout_s, cpu_count() >= self._settings.num_learners
        self._block = SharedBlock(self._settings.num_learners, len(self._vector.flat) + ROOM)
        place = self._block.place
        try:
            return all(self._ask("share_memory", place, timeout_s, patient).values())
        finally:
            self._block.close()
