"""The rollout workers of an algorithm: one object in this process, or a fleet of actors."""

import functools
import itertools
import json
import logging
import math
import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

import runtime
from rllib import spans
from rllib.env.episodes import Episode
from rllib.evaluation import seeding
from rllib.evaluation.asked_workers import AskedWorkers, check_function
from rllib.evaluation.evaluator import Duration
from rllib.evaluation.patience import EXIT_HANGS, PATIENCE
from rllib.evaluation.quorum import quorum_of
from rllib.evaluation.rollout_worker import Gradient, RolloutWorker
from rllib.evaluation.sampling_worker import SampleReport
from rllib.evaluation.settings import RolloutSettings
from rllib.evaluation.worker import Worker
from rllib.policy import Snapshots
from rllib.processes import ensure_runtime
from rllib.sample_batch import SampleBatch
from runtime.errors import ActorDiedError, ActorOutOfMemoryError, ActorStartError
from runtime.util.closing import CLOSE_S, ClosingActor, ask_last, ends_early
from runtime.util.fleet import FaultTolerance, Fleet, Request, SilentActorError

logger = logging.getLogger(__name__)

# At the end of a run, a fragment that takes longer is not recorded any more (seconds).
_FRAGMENT_S = 2.0


class RolloutActor(ClosingActor):
    """A worker as an actor: it allocates its columns in shared memory and maps the arrays of `shared`."""

    def __init__(
        self,
        settings: RolloutSettings,
        worker_index: int,
        incarnation: int,
        worker_class: type = RolloutWorker,
        *shared: np.ndarray,
    ):
        spans.start(settings.spans_directory, f"{worker_class.kind} {worker_index}", serves=True)
        self._worker = worker_class(settings, worker_index, incarnation, runtime.empty, *shared)

    @ends_early
    def sample(self, snapshots: Snapshots) -> tuple[SampleBatch, SampleReport]:
        """One fragment, sampled by these policies."""
        with spans.call("sample"):
            self._worker.load_snapshots(snapshots)
            return self._worker.sample()

    @ends_early
    def compute_gradient(self, snapshots: Snapshots, settings: dict) -> tuple[Gradient, SampleReport]:
        """The gradient over one fragment that was sampled by these policies."""
        with spans.call("sample"):
            self._worker.load_snapshots(snapshots)
            return self._worker.compute_gradient(**settings)

    @ends_early
    def play_episodes(self, snapshots: Snapshots, duration: Duration, round_index: int, explore: bool) -> list[Episode]:
        """Evaluates these policies; the worker is an EvaluationWorker."""
        with spans.call("evaluate"):
            self._worker.load_snapshots(snapshots)
            return self._worker.play_episodes(duration, round_index, explore)

    @ends_early
    def apply(self, function: Callable, *args) -> Any:
        """function(worker, *args)."""
        with spans.call(getattr(function, "__name__", "apply")):
            return function(self._worker, *args)

    def finish_recording(self) -> None:
        """Writes the recorded steps that wait, and closes their files."""
        self._worker.finish_recording()

    def close(self) -> None:
        """Closes the environments, and tells clients that the run has ended."""
        self._worker.close()


class WorkerSet(AskedWorkers):
    """The workers of an algorithm: one local object (num_workers=0), or actors.

    Args:
        settings: what each of them does.
        num_workers: remote workers; 0 samples in this process, without serialisation.
        actor_options: resources of a worker, as for `runtime.remote`.
        fault_tolerance: what happens to remote workers that fail.
        fragment_lengths: steps of each environment per fragment, one number a worker, where they differ.
        worker_class: called with the arguments of RolloutWorker, then `shared`; its `kind` and `if_silent` are
            for messages.
        shared: arrays that all workers read; there is one copy of each, however many workers there are. A worker in
            this process may be given anything.
        present: gives the present policies, for `local_worker` in addition to remote workers.
        quorum: share of the remote workers whose fragments `sample` waits for; the others' join a later round.

    Attributes:
        fleet: the remote workers, with indices from 1 on; asynchronous algorithms ask it themselves.
        restores: number of checkpoints that the run has been restored from; seeds of replaced workers depend on it.

    Raises:
        the environment's own exception, if it cannot be made and `fault_tolerance` does not allow it.
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
        shared: Sequence = (),
        present: Callable[[], Snapshots] | None = None,
        quorum: float = 1.0,
    ):
        self.settings = settings
        self.num_workers = num_workers
        self.restores = 0
        self._quorum, self._round = quorum, 0
        self._fragment_lengths = fragment_lengths or [settings.fragment_length] * num_workers
        self._present, self._make_local = present, lambda own: worker_class(own, 0, 0, np.empty, *shared)
        self._local = None if num_workers else self._make_local(settings)
        # A local worker in addition to remote ones; it is made when it is asked, and again after settings have changed.
        self._beside: Worker | None = None
        self._has_beside = False
        if num_workers:
            ensure_runtime()
            self._worker_class, self._shared = worker_class, [runtime.put(array) for array in shared]
            self._class = runtime.remote(RolloutActor).options(oversubscribe=True, **(actor_options or {}))
        self.fleet = Fleet(
            self._start,
            range(1, num_workers + 1),
            kind=worker_class.kind,
            tolerance=fault_tolerance,
            hint=worker_class.if_silent,
            ready=lambda actor: actor.__ray_ready__.remote(),
            explained=self._explained,
            close_s=CLOSE_S,
            logger=logger,
        )

    def _explained(self, index: int, failure: Exception) -> Exception:
        """A failure of a worker; where its process has died, with what may have ended it."""
        worker, env = f"{self._worker_class.kind} {index}", self.settings.env.name
        if not isinstance(failure, ActorDiedError) or isinstance(failure, ActorStartError | ActorOutOfMemoryError):
            return failure
        if f"exit code {EXIT_HANGS}" in str(failure):
            timeout = f"sample_timeout_s={self.settings.sample_timeout_s:g} s"
            return SilentActorError(
                f"{worker} did not answer within {PATIENCE} x {timeout}; does an environment hang? ({env})"
            )
        if "SIGKILL" not in str(failure) and "SIGTERM" not in str(failure):  # these come from outside
            failure.add_note(
                f"{worker} steps environments of {env}: native code that crashes in step() or reset() ends the process "
                "like this, as os._exit does. .rollouts(gym_env_vectorize_mode='async') gives each environment its "
                "own process"
            )
        return failure

    def _start(self, index: int, incarnation: int):
        settings = replace(self.settings, fragment_length=self._fragment_lengths[index - 1])
        return self._class.options(label=f"{self._worker_class.kind} {index}").remote(
            settings, index, seeding.incarnation(self.restores, incarnation), self._worker_class, *self._shared
        )

    # ------------------------------------------------------------------ sampling

    def sample(self, snapshots: Snapshots) -> list[tuple[SampleBatch, SampleReport]]:
        """One fragment from every worker that is not left out, sampled by these policies, in the order of the workers.

        A worker that dies meanwhile is replaced, and its successor samples the fragment (runtime/util/fleet.py). With a
        quorum they are the fragments of those that have answered, some perhaps by earlier policies (`rounds_late`).
        """
        if self._local is not None:
            self._local.load_snapshots(snapshots)
            return [self._local.sample()]
        if self._quorum < 1:
            return self._sample_quorum(snapshots)
        return self.begin_sampling(snapshots)()

    def _sample_quorum(self, snapshots: Snapshots) -> list[tuple[SampleBatch, SampleReport]]:
        self._round += 1
        enough = functools.partial(quorum_of, self._quorum)
        answers = self.fleet.ask_most(self.request("sample", snapshots), enough, self._round)
        for answer in answers:
            _, report = answer.value
            report.rounds_late = self._round - answer.tag
        return [answer.value for answer in answers]

    def begin_sampling(self, snapshots: Snapshots) -> Callable[[], list[tuple[SampleBatch, SampleReport]]]:
        """Asks each remote worker for a fragment now; returns a function that waits for all, as `sample` does."""
        collect = self.fleet.begin(self.request("sample", snapshots))
        return lambda: list(collect().values())

    def request(self, method: str, snapshots: Snapshots, *args) -> Request:
        """Makes requests that carry policies, which are copied into the object store here and now.

        Args:
            method: of RolloutActor: "sample" or "compute_gradient".
            snapshots: snapshots of the policies.
            args: further arguments of the method.

        Returns:
            a function of (actor, index) that sends the request and returns the reference of the answer.
        """
        with spans.span("send weights"):
            shared = runtime.put(snapshots)
        return lambda actor, index: getattr(actor, method).remote(shared, *args)

    def start_episodes(
        self, snapshots: Snapshots, duration: Duration, round_index: int, explore: bool = False
    ) -> Callable[[], list[Episode]]:
        """Begins an evaluation, shared out among the workers, which are of the class EvaluationWorker, or record.

        A worker in this process plays it to its end in this call.

        Returns:
            a function that waits for the end, however long the episodes are, and returns them. A worker whose
            environment hangs ends itself (Patience).
        """
        if self._local is not None:
            self._local.load_snapshots(snapshots)
            episodes = self._local.play_episodes(duration, round_index, explore)
            return lambda: episodes
        shared, indices = runtime.put(snapshots), list(self.fleet.members)
        shares = dict(zip(indices, duration.split(len(indices) or 1)))
        collect = self.fleet.begin(
            lambda actor, index: actor.play_episodes.remote(shared, shares[index], round_index, explore),
            [index for index, share in shares.items() if share.amount],
            patience=math.inf,
        )
        return lambda: [episode for episodes in collect().values() for episode in episodes]

    def foreach_worker(
        self,
        function: Callable,
        *args,
        local_worker: bool = True,
        remote_worker_ids: Iterable[int] | None = None,
    ) -> list:
        """[function(worker, *args) for each worker], the local one first. The function is sent to their processes.

        Args:
            local_worker: whether it is called on the worker in this process, too. Without remote workers there always
                is one, in addition to them from the first call of `local_worker()` on.
            remote_worker_ids: indices of the remote workers that are asked, from 1 on; None: all.

        Raises:
            ValueError: for an index without a worker.
        """
        check_function("foreach_worker", function, "(worker)")
        local = [function(self._present_local(), *args)] if local_worker and self._has_local else []
        return local + (self._ask_remote(function, args, remote_worker_ids) if self.num_workers else [])

    @property
    def _has_local(self) -> bool:
        return self._local is not None or self._has_beside

    def _ask_remote(self, function: Callable, args: Sequence, indices: Iterable[int] | None = None) -> list:
        indices = None if indices is None else list(indices)
        if unknown := [index for index in indices or () if index not in self.fleet.members]:
            raise ValueError(
                f"remote_worker_ids={indices!r}: there is no {self._worker_class.kind} {unknown[0]}. There are "
                f"{', '.join(map(str, self.fleet.members)) or 'none'}."
            )
        if indices == []:
            return []
        answers = self.fleet.ask_all(lambda actor, index: actor.apply.remote(function, *args), indices, is_work=False)
        return list(answers.values())

    def _ask_samplers(self, function: Callable, *args) -> list:
        """[function(worker, *args) for each worker that samples], without the local one if there are remote ones."""
        return self.foreach_worker(function, *args, local_worker=self._local is not None)

    def share_out(self, function: Callable, items: Sequence, *args) -> list:
        """One result per item, in order: items are distributed, and each worker calls function(worker, share, *args).

        If a worker dies, its replacement takes over its share, or else the remaining workers.

        Args:
            function: returns a list, one result for each item of the share.
            items: small values; they are sent to the workers.
            args: the same for all; put into the object store once.
        """
        if self._local is not None:
            with spans.span(function.__name__):
                return function(self._local, items, *args)
        args = [runtime.put(value) for value in args]
        results: dict[int, Any] = {}
        while len(results) < len(items):
            left = [position for position in range(len(items)) if position not in results]
            workers = list(self.fleet.members)
            shares = {index: left[offset :: len(workers)] for offset, index in enumerate(workers) if offset < len(left)}

            def request(actor, index, shares=shares):
                return actor.apply.remote(function, [items[position] for position in shares[index]], *args)

            for index, answer in self.fleet.ask_all(request, list(shares)).items():
                results.update(zip(shares[index], answer, strict=True))
        return [results[position] for position in range(len(items))]

    def change_settings(self, settings: RolloutSettings) -> None:
        """Lets the workers continue with other settings: those that are there, and those that will replace them."""
        self.settings = settings
        self._ask_samplers(_change_worker, settings)
        if self._beside is not None:
            self._beside.close()
            self._beside = None

    # ------------------------------------------------------------------ who is there

    def local_worker(self) -> Worker:
        """The worker in this process.

        If there are remote ones, it takes no part in sampling. It is made by the first call, with its own
        environments, and every call gives it the present policies. What it does to their weights does not reach the
        learners: use `Algorithm.set_weights`.
        """
        if self._local is not None:
            return self._local
        worker = self._present_local()
        self._has_beside = True
        return worker

    def _present_local(self) -> Worker:
        """The worker in this process, with the present policies if there are remote ones as well."""
        if self._local is not None:
            return self._local
        if self._beside is None:
            self._beside = self._make_local(replace(self.settings, make_recorder=None))
        if self._present is not None:
            self._beside.load_snapshots(self._present())
        return self._beside

    # The name of Ray 2.10 and later.
    local_env_runner = property(local_worker)

    def remote_workers(self) -> list:
        """The actors' handles, in order."""
        return [member.handle for member in self.fleet.members.values()]

    @property
    def num_healthy_workers(self) -> int:
        """Number of remote workers that are there."""
        return len(self.fleet.members)

    @property
    def num_restarts(self) -> int:
        """Number of workers that were replaced so far."""
        return self.fleet.num_restarts

    @property
    def num_in_flight(self) -> int:
        """Number of requests whose answers have not been taken."""
        return self.fleet.num_in_flight

    def pop_replaced(self) -> list[int]:
        """Indices of the workers that were replaced since the last call."""
        return self.fleet.pop_replaced()

    # ------------------------------------------------------------------ checkpoints

    def get_state(self) -> list[list[dict]]:
        """The state of each worker's random streams, of each of its environments."""
        return self._ask_samplers(operator.methodcaller("get_state"))

    def set_state(self, state: list[list[dict]], restores: int) -> None:
        """Restores a state of `get_state`; new episodes begin on seeds that the run has not used.

        Args:
            state: of a set of any size; it is taken over by a set with as many environments, however they are divided
                among workers.
            restores: number of checkpoints that the run has been restored from, this one included.
        """
        self.restores = restores
        self._ask_samplers(_restore_worker, json.dumps(state), restores)
        self.fleet.forget()  # requests under way use other weights

    def stop(self) -> None:
        """Closes all environments, and ends the workers' processes; recorded steps are written before.

        Remote workers have CLOSE_S for it; one that takes longer is killed.
        """
        failures = []
        try:
            if self.settings.make_recorder is not None:
                failures = self._finish_recording()
        finally:
            self.fleet.stop()
            for worker in (self._local, self._beside):
                if worker is not None:
                    worker.close()
        if failures:
            raise failures[0]

    def _finish_recording(self) -> list[Exception]:
        """Lets the remote workers write the recorded steps that wait; returns what went wrong.

        No worker is replaced any more: a worker that has died has lost its open file, and one that does not answer in
        time loses it now. A fragment under way is recorded if it ends soon; it may wait for a step that never ends.
        """
        members = {index: member.closable for index, member in self.fleet.members.items()}
        timeout_s = self.settings.sample_timeout_s
        refs, late = ask_last(members, lambda handle: handle.finish_recording.remote(), timeout_s, _FRAGMENT_S)
        failures: list[Exception] = []
        for index, ref in refs.items():
            try:
                if index in late:
                    raise SilentActorError(f"it did not answer within {self.settings.sample_timeout_s:g} s")
                runtime.get(ref)
            except (ActorDiedError, SilentActorError) as error:
                logger.warning(
                    "rollout worker %d has not written its last recorded steps, which are lost: %s", index, error
                )
            except Exception as error:
                failures.append(error)
        return failures


def _change_worker(worker, settings: RolloutSettings) -> None:
    # Its environments are made with the very dicts that it had.
    own = {name: getattr(worker.settings, name) for name in ("fragment_length", "env_tasks", "disturbance_ranges")}
    worker.change_settings(replace(settings, **own))


def _restore_worker(worker, states: str, restores: int) -> None:
    worker.start_over(incarnation=seeding.incarnation(restores))
    own = _own_part(worker, json.loads(states))
    if worker.takes_state(own):
        worker.set_state(own)


def _own_part(worker, states: list) -> list:
    """A worker's part of the states of all workers of a set, which may have divided the environments differently."""
    number, num_workers = max(worker.worker_index - 1, 0), max(worker.settings.num_workers, 1)
    if len(states) == num_workers:
        return states[number]
    environments = [part for state in states for part in worker.split_state(state)]
    count = len(worker.split_state(worker.get_state()))
    if len(environments) != num_workers * count:
        return []
    return list(itertools.chain.from_iterable(environments[number * count : (number + 1) * count]))
