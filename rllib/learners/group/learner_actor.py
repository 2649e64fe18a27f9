"""One of the learners of a group (learner_group.py), in a separate process."""

import math
import os
import time
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from rllib import spans
from rllib.learners.learner import Learner
from rllib.learners.updates.collective import SharedBlock, SharedSums, Unfinished
from rllib.learners.updates.descent import Update
from rllib.learners.updates.in_numpy import NumpyBackend
from rllib.learners.updates.objective import ModuleVector
from rllib.learners.updates.target_copy import TargetCopy
from rllib.metrics import gpu_usage
from rllib.models.dense.network_spec import NetworkSpec
from rllib.policy import Policy
from runtime.host.machine import node_ip_address


class Recipe(NamedTuple):
    """Arguments that make a learner in its process.

    Attributes:
        make: called with keyword arguments `policy`, `targets` and `rng`.
        spec: spec of the policy.
        targets: (module, tau, every) of each target copy.
    """

    make: Callable[..., Learner]
    spec: NetworkSpec
    targets: list[tuple]


class Outcome(NamedTuple):
    """Answer of one learner to a request.

    Attributes:
        num_done: number of steps of the update that the learner has made, over all objectives.
        unfinished: reason for stopping early, if another learner did not join a sum; empty: the request is done.
        found: result of the backend, if this learner reports.
        weights: the flat vector after the update, if this learner reports.
        failure: exception that the backend raised; None: none.
        busy_s: duration of the call (seconds).
        gpus: `gpu_usage` in the learner's process, at most a second old.
        logged: values that the user's loss has logged, if this learner reports.
    """

    num_done: float
    unfinished: str = ""
    found: Any = None
    weights: np.ndarray | None = None
    failure: Exception | None = None
    busy_s: float = 0.0
    gpus: Mapping[str, float] = {}
    logged: Sequence = ()


class LearnerActor:
    """One of the learners, in a separate process. All its weights come from the driver.

    Args:
        recipe: arguments of the learner.
        rank: number of this learner.
        threads: number of torch's threads.
        spans_directory: directory for recorded time spans (spans.py); None: none are recorded.
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
        """Process id."""
        return os.getpid()

    def whereabouts(self) -> tuple[int, str]:
        """Process id, and address of the machine."""
        return os.getpid(), node_ip_address()

    # ------------------------------------------------------------------ joining the others

    def share_memory(self, place: tuple, timeout_s: float, patient: bool) -> bool:
        """Uses this SharedBlock for sums from now on. Returns whether this process can reach it."""
        self._leave()
        block = SharedBlock.find(*place)
        if block is None:
            return False
        self._backend.collective = SharedSums(block, self._rank, timeout_s, patient)
        return True

    def open_store(self, timeout_s: float) -> tuple[str, int]:
        """Opens a store of torch.distributed, through which the others find this process. Returns its host and port."""
        from rllib.learners.group.torch_collective import open_store

        self._leave()
        host = node_ip_address()
        self._store = open_store(host, timeout_s)
        return host, self._store.port

    def join(self, kind: str, address: tuple[str, int], size: int, timeout_s: float) -> str:
        """Uses torch.distributed for sums from now on. Returns "" when all learners have joined, else the reason."""
        from rllib.learners.group.torch_collective import TorchSums

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

    def train(self, changed: Mapping[int, np.ndarray], update: Update, resumes: bool, reporter: int) -> Outcome:
        """Makes an update, or the rest of one.

        Args:
            changed: arrays that the driver has changed: index in `mirrored` -> array.
            update: the update.
            resumes: whether to continue the update that was interrupted.
            reporter: rank of the learner that returns the results.
        """
        with spans.call("update"):
            self._take(changed)
            return self._outcome(lambda: self._backend.train(update, resumes=resumes), self._rank == reporter)

    def compute_gradient(self, changed: Mapping[int, np.ndarray], update: Update, reporter: int) -> Outcome:
        """Computes gradient and statistics of the whole batch."""
        self._take(changed)
        return self._outcome(lambda: self._backend.compute_gradient(update), self._rank == reporter)

    def apply_gradient(self, changed: Mapping[int, np.ndarray], gradient: np.ndarray, lr: float) -> Outcome:
        """Takes a step against the gradient, and computes the gradient's norm."""
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
            # The other learners need not wait for this one.
            self._leave()
            return Outcome(self._backend.num_done, str(error))
        except Exception as failure:
            self._leave()
            failure.add_note(f"in learner {self._rank}:\n{traceback.format_exc()}")
            return Outcome(self._backend.num_done, failure=failure)
        logged = self._learner.pop_logged()
        if not reports:
            return Outcome(self._backend.num_done)
        return Outcome(self._backend.num_done, found=found, weights=self._learner.vector.flat, logged=logged)

    def _take(self, changed: Mapping[int, np.ndarray]) -> None:
        for place, array in changed.items():
            np.copyto(self._mirrored[place], array)

    # ------------------------------------------------------------------ state

    def get_states(self) -> list[dict[str, np.ndarray]]:
        """States of the optimizers."""
        return self._backend.states

    def set_states(self, states: Sequence[Mapping[str, np.ndarray]]) -> None:
        """Restores states of `get_states`."""
        self._backend.load_states(states)

    def get_progress(self) -> tuple:
        """Complete state of this learner, in the middle of an update or not."""
        progress = self._backend.get_progress()
        return dict(enumerate(self._mirrored)), self._backend.states, progress

    def set_progress(self, given: tuple) -> None:
        """Restores the progress that another learner's `get_progress` returned."""
        arrays, states, progress = given
        self._take(arrays)
        self._backend.load_states(states)
        self._backend.set_progress(progress)


def mirrored(vector: ModuleVector, targets: Iterable[TargetCopy]) -> list[np.ndarray]:
    """The arrays that the driver's learner and the group's learners have in common: weights, target copies, noise."""
    targets = list(targets)
    policies = [vector.policy, *(target.policy for target in targets if target.policy is not None)]
    noises = [policy.layer_noise for policy in policies if policy.is_noisy]
    return [vector.flat, *(target.weights for target in targets), *noises]
