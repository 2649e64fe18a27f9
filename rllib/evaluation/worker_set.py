"""The rollout workers of an algorithm: one object in this process, or actors that are replaced when they die."""

import itertools
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

import runtime
from rllib.env.episodes import Episode
from rllib.evaluation import seeding
from rllib.evaluation.evaluator import Duration
from rllib.evaluation.fault_tolerance import DEATHS, FAILURES, FaultTolerance, Restarts, SilentActorError
from rllib.evaluation.patience import PATIENCE
from rllib.evaluation.preload import PRELOAD
from rllib.evaluation.rollout_worker import Gradient, RolloutWorker, SampleReport
from rllib.evaluation.settings import RolloutSettings
from rllib.policy import Snapshot
from rllib.sample_batch import SampleBatch
from runtime.errors import ActorDiedError, GetTimeoutError

logger = logging.getLogger(__name__)


class SilentWorkerError(SilentActorError):
    """A rollout worker that does not answer; the message says what to look for."""

    def __init__(self, index: int, timeout_s: float):
        super().__init__(
            f"rollout worker {index} did not answer within {PATIENCE} x sample_timeout_s={timeout_s:g} s. Does an "
            "environment hang, or an episode never end? Give it a time limit (max_episode_steps), or a longer "
            "sample_timeout_s."
        )


class RolloutActor:
    """A worker in a process of its own; its columns are born in shared memory, and `shared` is mapped there."""

    def __init__(
        self,
        settings: RolloutSettings,
        worker_index: int,
        incarnation: int,
        worker_class: type = RolloutWorker,
        *shared: np.ndarray,
    ):
        self._worker = worker_class(settings, worker_index, incarnation, runtime.empty, *shared)

    def ready(self) -> int:
        """Answers once the environments exist."""
        return self._worker.worker_index

    def sample(self, snapshot: Snapshot) -> tuple[SampleBatch, SampleReport]:
        """One fragment, sampled by this policy."""
        self._worker.load_snapshot(snapshot)
        return self._worker.sample()

    def compute_gradient(self, snapshot: Snapshot, settings: dict) -> tuple[Gradient, SampleReport]:
        """The gradient over one fragment that was sampled by this policy."""
        self._worker.load_snapshot(snapshot)
        return self._worker.compute_gradient(**settings)

    def play_episodes(self, snapshot: Snapshot, duration: Duration, round_index: int, explore: bool) -> list[Episode]:
        """Evaluates this policy; the worker is an EvaluationWorker."""
        self._worker.load_snapshot(snapshot)
        return self._worker.play_episodes(duration, round_index, explore)

    def apply(self, function: Callable, *args) -> Any:
        """function(worker, *args)."""
        return function(self._worker, *args)


class WorkerSet:
    """Samples with one local worker (num_workers=0) or with actors.

    Args:
        settings: what each of them does.
        num_workers: remote workers; 0 samples in this process, without serialisation.
        fragment_lengths: steps of each environment per fragment, one number a worker, where they differ.
        actor_options: resources of a worker, as for `runtime.remote`.
        fault_tolerance: see FaultTolerance.
        worker_class: called with the arguments of RolloutWorker, then those of `shared`; its `kind` is for messages.
        shared: arrays that all workers read; there is one copy of each, however many workers there are.

    Attributes:
        actors: index -> handle of the remote workers that are there, in order.
        fault_tolerance: see FaultTolerance.
        restores: how often the run has gone on from a checkpoint, for the seeds of workers that replace others.

    Raises:
        the environment's own exception, if it cannot be made and FaultTolerance does not allow it.
        UnschedulableError: if a worker asks for what this machine does not have.
    """

    def __init__(
        self,
        settings: RolloutSettings,
        num_workers: int,
        actor_options: dict | None = None,
        fault_tolerance: FaultTolerance | None = None,
        fragment_lengths: Sequence[int] | None = None,
        worker_class: type = RolloutWorker,
        shared: Sequence[np.ndarray] = (),
    ):
        self.settings = settings
        self.num_workers = num_workers
        self._recreated: list[int] = []
        self.fault_tolerance = fault_tolerance or FaultTolerance()
        self._kind = worker_class.kind
        self.restarts = Restarts(self.fault_tolerance, self._kind)
        self._fragment_lengths = fragment_lengths or [settings.fragment_length] * num_workers
        self.restores = 0
        self._incarnations = dict.fromkeys(range(1, num_workers + 1), 0)
        self._local = None if num_workers else worker_class(settings, 0, 0, np.empty, *shared)
        self.actors: dict[int, Any] = {}
        if num_workers:
            ensure_runtime()
            self._worker_class, self._shared = worker_class, [runtime.put(array) for array in shared]
            self._class = runtime.remote(RolloutActor).options(oversubscribe=True, **(actor_options or {}))
            self.actors = {index: self._start(index) for index in self._incarnations}
            try:
                self._ask(lambda actor, index: actor.ready.remote(), wait=lambda index, ref: runtime.get(ref))
            except BaseException:
                self.stop()
                raise

    def _start(self, index: int):
        settings = replace(self.settings, fragment_length=self._fragment_lengths[index - 1])
        return self._class.options(name=f"{self._kind} {index}").remote(
            settings,
            index,
            seeding.incarnation(self.restores, self._incarnations[index]),
            self._worker_class,
            *self._shared,
        )

    # ------------------------------------------------------------------ sampling

    def sample(self, snapshot: Snapshot) -> list[tuple[SampleBatch, SampleReport]]:
        """One fragment from every worker, sampled by this policy, in the order of the workers, whoever was first."""
        if self._local is not None:
            self._local.load_snapshot(snapshot)
            return [self._local.sample()]
        return self._from_each(self.sample_request(snapshot))

    def sample_request(self, snapshot: Snapshot) -> Callable[[Any, int], runtime.ObjectRef]:
        """Makes requests to sample by this policy, which is copied into the object store here and now.

        Returns:
            a function of (actor, index) that asks for a fragment and returns the reference of (batch, report).
        """
        shared = runtime.put(snapshot)
        return lambda actor, index: actor.sample.remote(shared)

    def gradient_request(self, snapshot: Snapshot, settings: dict) -> Callable[[Any, int], runtime.ObjectRef]:
        """As `sample_request`, for gradients over one fragment: references of (gradient, report).

        Args:
            snapshot: of the policy that samples, at whose weights the gradient is computed.
            settings: as for Learner.compute_gradient.
        """
        shared = runtime.put(snapshot)
        return lambda actor, index: actor.compute_gradient.remote(shared, settings)

    def start_episodes(
        self, snapshot: Snapshot, duration: Duration, round_index: int, explore: bool
    ) -> Callable[[], list[Episode]]:
        """Begins an evaluation, shared out among the workers, which are remote ones of the class EvaluationWorker.

        Returns:
            a function that waits for the end and returns the episodes.
        """
        shared = runtime.put(snapshot)
        shares = dict(zip(self.actors, duration.split(len(self.actors) or 1)))

        def request(actor, index):
            return actor.play_episodes.remote(shared, shares[index], round_index, explore)

        pending = self._begin(request, [index for index, share in shares.items() if share.amount])

        def finish() -> list[Episode]:
            answers = self._collect(pending, request, wait=self._wait_for_episodes)
            return [episode for episodes in answers.values() for episode in episodes]

        return finish

    def foreach_worker(self, function: Callable, *args, local_worker: bool = True) -> list:
        """function(worker, *args) on every worker, in order. The function is sent to their processes.

        Args:
            local_worker: whether it is called on a worker in this process, too; there is one without remote workers.
        """
        if self._local is not None:
            return [function(self._local, *args)] if local_worker else []
        answers = self._ask(lambda actor, index: actor.apply.remote(function, *args), is_sampling=False)
        return list(answers.values())

    def share_out(self, function: Callable, items: Sequence, *args) -> list:
        """One result per item, in order: the items are dealt out, and each worker calls function(worker, share, *args).

        The share of a worker that died is worked on again, by the one that replaces it or by those that are left.

        Args:
            function: returns a list, one result for each item of the share.
            items: of anything small; they are sent to the workers.
            args: the same for all; put into the object store once.
        """
        if self._local is not None:
            return function(self._local, items, *args)
        args = [runtime.put(value) for value in args]
        results: dict[int, Any] = {}
        while len(results) < len(items):
            left = [position for position in range(len(items)) if position not in results]
            shares = {
                index: left[offset :: len(self.actors)]
                for offset, index in enumerate(self.actors)
                if offset < len(left)
            }

            def request(actor, index, shares=shares):
                return actor.apply.remote(function, [items[position] for position in shares[index]], *args)

            for index, answer in self._ask(request, list(shares)).items():
                results.update(zip(shares[index], answer, strict=True))
        return [results[position] for position in range(len(items))]

    def local_worker(self) -> RolloutWorker | None:
        """The worker in this process; None when there are remote ones."""
        return self._local

    def remote_workers(self) -> list:
        """The actors' handles, in order."""
        return list(self.actors.values())

    def pop_recreated(self) -> list[int]:
        """Indices of the workers that were replaced since the last call."""
        recreated, self._recreated = self._recreated, []
        return recreated

    @property
    def num_healthy_workers(self) -> int:
        """Remote workers that are there."""
        return len(self.actors)

    @property
    def num_restarts(self) -> int:
        """Workers that were replaced so far."""
        return self.restarts.count

    def _from_each(self, request: Callable, indices: Sequence[int] | None = None) -> list:
        """The answers of `_ask`, in the order of the workers."""
        return list(self._ask(request, indices).values())

    def _ask(
        self,
        request: Callable,
        indices: Sequence[int] | None = None,
        *,
        is_sampling: bool = True,
        wait: Callable[[int, Any], Any] | None = None,
    ) -> dict[int, Any]:
        """Asks actors at once and collects the answers by worker, in order, replacing those that failed.

        Args:
            request: (actor, index) -> reference of the answer.
            indices: whom to ask; all by default.
            is_sampling: whether this is the workers' own work. If not, an answer is no sign that they can do it, and
                what the request raises is the caller's affair.
            wait: (index, reference) -> answer; by default one that reports silence.
        """
        return self._collect(self._begin(request, indices), request, is_sampling, wait)

    def _begin(self, request: Callable, indices: Sequence[int] | None = None) -> dict[int, runtime.ObjectRef]:
        if not self.actors:
            raise ActorDiedError(f"no {self._kind} is left; with recreate_failed_workers=True they are replaced")
        return {index: request(self.actors[index], index) for index in (self.actors if indices is None else indices)}

    def _collect(
        self,
        pending: dict[int, runtime.ObjectRef],
        request: Callable,
        is_sampling: bool = True,
        wait: Callable[[int, Any], Any] | None = None,
    ) -> dict[int, Any]:
        failures = FAILURES if is_sampling else DEATHS
        answers = {}
        for index, ref in pending.items():
            while ref is not None:
                try:
                    answers[index] = (wait or self._wait)(index, ref)
                    ref = None
                except failures as failure:
                    ref = self._ask_successor(index, failure, request)
                else:
                    if is_sampling:
                        self.restarts.succeeded(index)
        return answers

    def _ask_successor(self, index: int, failure: Exception, request: Callable):
        """The reference of the same request to the worker that replaces a failed one; None where none does."""
        if not self.give_up(index, failure):
            return None
        time.sleep(self.restarts.delay_s(index))
        self.replace(index)
        return request(self.actors[index], index)

    def _wait(self, index: int, ref):
        """The answer; a worker that is silent for too long is given up."""
        return self._get(
            index,
            ref,
            range(PATIENCE),
            "a slow environment needs a longer sample_timeout_s or a shorter rollout_fragment_length",
        )

    def _wait_for_episodes(self, index: int, ref):
        """The answer, however long the episodes are: a worker whose environment hangs ends itself (Patience)."""
        return self._get(
            index,
            ref,
            itertools.count(),
            "its episodes are played to their end; a smaller evaluation_duration or a time limit (max_episode_steps) "
            "makes an evaluation shorter",
        )

    def _get(self, index: int, ref, attempts: Iterable[int], advice: str):
        """The answer, waited for `sample_timeout_s` in each attempt."""
        timeout_s = self.fault_tolerance.sample_timeout_s
        for attempt in attempts:
            try:
                return runtime.get(ref, timeout=timeout_s)
            except GetTimeoutError:
                waited_s = (attempt + 1) * timeout_s
                logger.warning("%s %d has not answered for %g s; %s", self._kind, index, waited_s, advice)
        raise SilentWorkerError(index, timeout_s)

    # ------------------------------------------------------------------ failures

    def give_up(self, index: int, failure: Exception) -> bool:
        """Takes a worker that has failed out of the set; returns and raises as `Restarts.failed`."""
        runtime.kill(self.actors.pop(index))
        return self.restarts.failed(index, failure, len(self.actors))

    def replace(self, index: int) -> None:
        """Starts a worker in the place of one that was given up."""
        self._incarnations[index] += 1
        self._recreated.append(index)
        # Rebuilt in order, so that batches are always joined in the order of the workers.
        self.actors = dict(sorted({**self.actors, index: self._start(index)}.items()))

    def stop(self) -> None:
        """Ends the workers' processes and closes the local environments."""
        for actor in self.actors.values():
            runtime.kill(actor)
        self.actors.clear()
        if self._local is not None:
            self._local.close()


def allocator(num_workers: int) -> Callable[..., np.ndarray]:
    """`allocate(shape, dtype)` for an array that becomes one of a WorkerSet's `shared` ones without being copied."""
    if not num_workers:
        return np.empty
    ensure_runtime()
    return runtime.empty


def ensure_runtime() -> None:
    """Starts the runtime with the workers' imports done beforehand, unless it runs already."""
    if not runtime.is_initialized():
        runtime.init(preload=PRELOAD)
