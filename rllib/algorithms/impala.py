"""IMPALA: workers act without waiting for the learner, V-trace corrects for it (Espeholt et al., arXiv:1802.01561).

In addition to the newest batches, old ones can be learned from: fragments that arrived before are mixed into the train
batches (`replay_proportion`), and a ring of train batches can be gone round several times (`minibatch_buffer_size`).

Departures from the paper:
- The queue between actors and learner is the requests themselves: each worker has a few in flight and gets a new one
  when one of its fragments is accepted. Nothing is ever dropped, memory is bounded, and workers that are too fast for
  the learner wait instead of sampling with weights that grow older (Ray's queue drops what does not fit).
- The learner takes the fragments in the order in which they arrive: slow workers delay no other worker.
- The loss is a mean over the steps of a train batch, not a sum (losses/impala.py), and Adam is the default optimizer.
- With several agents each policy has its own queue: its rows are collected until its train batch is full.
- Weights are sent with every request, so a worker never acts with older ones than when it was asked.

With num_rollout_workers=0 this process samples and learns in turn; V-trace then corrects nothing. Checkpoints hold
neither fragments under way nor those kept for replay: a restored run continues with fresh ones.
"""

import math
import time
from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar, NamedTuple, Self

import numpy as np

from rllib.algorithms.base.algorithm import Algorithm
from rllib.algorithms.base.saving import numbers_in
from rllib.algorithms.base.space_rules import NewPolicy, of_spaces
from rllib.algorithms.base.trainee import Trainee
from rllib.algorithms.base.wiring import fault_tolerance
from rllib.algorithms.families.actor_warmup import ActorWarmupConfig
from rllib.algorithms.families.fragment_queue import FragmentQueue, PolicyFragment
from rllib.algorithms.families.on_policy import PolicyGradientConfig
from rllib.config.conflicts import Mistake, Unfit, conflict
from rllib.config.sections import OfPolicy, above, at_least, between, only_with, section
from rllib.env.spaces.observations import observation_column
from rllib.errors import SampleTimeoutError
from rllib.evaluation.aggregation import Aggregators
from rllib.losses.impala import IMPALA_LOSS
from rllib.policy import Policy
from rllib.replay.fragment_replay import BatchRing, FragmentReplay
from rllib.replay.memory import free_bytes
from rllib.sample_batch import MultiAgentBatch, SampleBatch


class IMPALAConfig(PolicyGradientConfig, ActorWarmupConfig):
    """Settings of IMPALA; the defaults are RLlib's, except those in default_differences.py."""

    on_policy = False
    refuses: ClassVar[dict[str, str]] = {"sample_quorum": "fragments are learned from as they arrive, without rounds"}

    @section
    def rollouts(self, *, num_rollout_workers=2, rollout_fragment_length=50) -> Self: ...

    @section
    def training(
        self,
        *,
        lr=5e-4,
        train_batch_size: Annotated[int, "environment steps per update", at_least(1), OfPolicy] = 500,
        grad_clip=40.0,
        rmsprop_epsilon=2e-4,
        vtrace: Annotated[
            bool, "correct for old weights; False: take the fragments as on-policy, with GAE", OfPolicy
        ] = True,
        vtrace_clip_rho_threshold: Annotated[
            float, "rho_bar: clips the ratios that weight temporal differences", above(0), OfPolicy
        ] = 1.0,
        vtrace_clip_pg_rho_threshold: Annotated[
            float, "clips the ratios that weight the policy gradient", above(0), OfPolicy
        ] = 1.0,
        lambda_: Annotated[float, "shortens V-trace's sums as GAE's lambda does", between(0, 1), OfPolicy] = 1.0,
        num_sgd_iter: Annotated[int, "gradient steps on each train batch", at_least(1), OfPolicy] = 1,
        vf_loss_coeff: Annotated[
            float | list, "coefficient of the value loss, or a schedule", at_least(0), OfPolicy
        ] = 0.5,
        entropy_coeff=0.01,
        broadcast_interval: Annotated[
            int, "updates between new weights for the workers", at_least(1), only_with("num_rollout_workers")
        ] = 1,
        max_requests_in_flight_per_sampler_worker: Annotated[
            int,
            "fragments that a worker is asked for ahead of the learner; 2 keep it busy",
            at_least(1),
            only_with("num_rollout_workers"),
        ] = 2,
        learner_queue_size: Annotated[
            int, "train batches that all workers together may be ahead of the learner", at_least(1)
        ] = 16,
        learner_queue_timeout: Annotated[float, "longest wait for a fragment (seconds)", above(0)] = 300.0,
        minibatch_buffer_size: Annotated[
            int,
            "train batches that are gone round, each num_sgd_iter times, a gradient step at a time",
            at_least(1),
            OfPolicy,
        ] = 1,
        num_aggregation_workers: Annotated[
            int, "processes that join fragments to train batches; 0: this one does", at_least(0)
        ] = 0,
        replay_proportion: Annotated[float, "replayed fragments per new one", at_least(0), OfPolicy] = 0.0,
        replay_buffer_num_slots: Annotated[int, "newest fragments that are kept for replay", at_least(0), OfPolicy] = 0,
    ) -> Self: ...

    @section
    def reporting(self, *, min_time_s_per_iteration=10) -> Self: ...

    conflicts = (
        conflict(
            "rollout_fragment_length",
            "train_batch_size",
            when=lambda config: config.rollout_fragment_length not in ("auto", *range(config.train_batch_size + 1)),
            why="a train batch is made of whole fragments, so it has to be as long as one",
            remedies=[
                lambda config: {"train_batch_size": config.rollout_fragment_length},
                lambda config: {"rollout_fragment_length": config.train_batch_size},
            ],
        ),
        conflict(
            "replay_proportion",
            "replay_buffer_num_slots",
            when=lambda config: config.replay_proportion and not config.replay_buffer_num_slots,
            why="with replay_buffer_num_slots=0 no fragment is kept to replay",
            remedies=[{"replay_buffer_num_slots": 100}, {"replay_proportion": 0.0}],
        ),
        conflict(
            "minibatch_buffer_size",
            "num_sgd_iter",
            # APPO's target network stands still while the ring is gone round, also once.
            when=lambda config: (
                config.minibatch_buffer_size > 1
                and config.num_sgd_iter == 1
                and "target_update_frequency" not in config.settings
            ),
            why="train batches are kept to use them again, but with num_sgd_iter=1 each is used once",
            remedies=[{"num_sgd_iter": 2}, {"minibatch_buffer_size": 1}],
        ),
        conflict(
            "num_aggregation_workers",
            "num_rollout_workers",
            when=lambda config: config.num_aggregation_workers and not config.num_rollout_workers,
            why="without rollout workers there is nothing to join",
            remedies=[{"num_rollout_workers": 2}, {"num_aggregation_workers": 0}],
        ),
        conflict(
            "num_aggregation_workers",
            "learner_queue_size",
            when=lambda config: config.num_aggregation_workers > config.learner_queue_size,
            why="the first hold a train batch each, more than the second allows",
            remedies=[
                lambda config: {"learner_queue_size": config.num_aggregation_workers},
                lambda config: {"num_aggregation_workers": config.learner_queue_size},
            ],
        ),
    )

    @of_spaces("num_aggregation_workers")
    def _check_aggregation_of_agents(self, policy: NewPolicy):
        """`num_aggregation_workers` are for environments with one agent."""
        if self.num_aggregation_workers and policy.num_agents is not None:
            return Mistake(
                f"num_aggregation_workers={self.num_aggregation_workers} join the fragments of one policy, and "
                f"{policy.run.env!r} has several agents.",
                ("num_aggregation_workers",),
                ({"num_aggregation_workers": 0},),
            )
        return None


# Fragments that wait for a policy's train batch.
QUEUE_FILE = "queue.safetensors"


class TrainBatch(NamedTuple):
    """Fragments of a policy joined into one batch.

    Attributes:
        columns: the batch.
        versions: versions of the weights that acted in each of the fragments.
        env_steps: steps of the environments that they were made in.
    """

    columns: SampleBatch
    versions: list[int]
    env_steps: int

    @classmethod
    def of(cls, fragments: list[PolicyFragment]) -> "TrainBatch":
        """Joins fragments."""
        rows = [fragment.rows for fragment in fragments]
        return cls(SampleBatch.concat(rows), _versions(rows), sum(fragment.env_steps for fragment in fragments))

    @classmethod
    def of_joined(cls, fragments: list[SampleBatch], columns: SampleBatch) -> "TrainBatch":
        """Makes a batch of fragments of one agent that were joined elsewhere."""
        return cls(columns, _versions(fragments), columns.env_steps())


def _versions(fragments: list[SampleBatch]) -> list[int]:
    return [fragment.policy_version for fragment in fragments]


class IMPALATrainee(Trainee):
    """A policy that learns from fragments as they arrive.

    Attributes:
        queue: fragments that wait, with those that are replayed with them.
        ring: the newest train batches, of which each is learned from several times.
        staged: the next train batch, which is on its way to the GPU; None: there is none.
    """

    algorithm: "IMPALA"

    def __init__(self, algorithm: "IMPALA", policy_id: str):
        super().__init__(algorithm, policy_id)
        config = self.config
        replay = FragmentReplay(config.replay_proportion, config.replay_buffer_num_slots, self.rng)
        self.queue = FragmentQueue(config.train_batch_size, replay)
        self.ring: BatchRing[TrainBatch] = BatchRing(config.minibatch_buffer_size, config.num_sgd_iter)
        self.staged: TrainBatch | None = None

    @property
    def has_batch(self) -> bool:
        """Whether the next train batch is there."""
        return not self.ring.is_used_up or self.staged is not None or self.queue.is_full

    def learn(self, now: int) -> None:
        """One update on the next train batch; waits for it.

        Args:
            now: environment steps at which schedules are read: those sampled when the wait for a batch began.
        """
        settings = self.loss_settings(now)
        batch, num_epochs = self.ring.next(self.next_batch)
        lags = [self.num_updates - version for version in batch.versions]
        self.env_steps_of_batch = batch.env_steps
        stats = self.learn_on_batch(
            self.prepared(batch.columns),
            num_epochs=num_epochs,
            shuffle=False,
            meanwhile=self._stage_next if self.algorithm.stages_ahead else None,
            **settings,
        )
        self.after_update(stats)
        self.stats = {
            **stats,
            "var_gnorm": float(np.linalg.norm(self.policy.weights)),
            "policy_lag_mean": float(np.mean(lags)),
            "policy_lag_max": float(max(lags)),
            "diff_num_grad_updates_vs_sampler_policy": float(np.mean(lags)) * num_epochs,
        }

    def next_batch(self) -> TrainBatch:
        """The next train batch, of the policy's fragments in the order in which they arrived."""
        aggregators = self.algorithm.aggregators
        if self.staged is not None:
            staged, self.staged = self.staged, None
            return staged
        if aggregators is None:
            return TrainBatch.of(self.next_fragments())
        while not aggregators.is_busy:
            aggregators.give([fragment.rows for fragment in self.next_fragments()])
        with self.algorithm.metrics.timer("aggregate"):
            return TrainBatch.of_joined(*aggregators.take())

    def next_fragments(self) -> list[PolicyFragment]:
        """Fragments of the next train batch, as they arrived; the workers continue meanwhile."""
        self.algorithm.wait_until(lambda: self.queue.is_full)
        return self.queue.pop_batch()

    def _stage_next(self) -> None:
        """While a GPU computes: keeps what has arrived, and sends the next batch there once it is complete."""
        if self.staged is not None:
            return
        while not self.queue.is_full and self.algorithm.receive(0.0):
            self.algorithm.ask()
        if self.queue.is_full:
            self.staged = TrainBatch.of(self.queue.pop_batch())
            self.learner.stage(self.staged.columns)

    # ------------------------------------------------------------------ what APPO changes

    def prepared(self, batch: SampleBatch) -> SampleBatch:
        """The batch with further columns for the loss."""
        return batch

    def loss_settings(self, now: int) -> dict[str, Any]:
        """Settings of the next update; `now` as for `learn`."""
        config = self.config
        return {
            **self.scheduled("lr", "entropy_coeff", "vf_loss_coeff", at=now),
            "gamma": config.gamma,
            "lambda_": config.lambda_,
            "vtrace": config.vtrace,
            "clip_rho": config.vtrace_clip_rho_threshold,
            "clip_pg_rho": config.vtrace_clip_pg_rho_threshold,
            "standardize_advantages": bool(config.standardize_advantages),
        }

    def after_update(self, stats: dict[str, float]) -> None:
        """Called after each update with its statistics."""

    # ------------------------------------------------------------------ checkpoints

    def numbers(self) -> dict[str, Any]:
        # An iteration in which a policy does not learn reports its newest update.
        return {**super().numbers(), "stats": numbers_in(self.stats)}

    def set_numbers(self, numbers: Mapping[str, Any]) -> None:
        super().set_numbers(numbers)
        self.stats = numbers.get("stats", self.stats)

    def get_state(self) -> dict[str, dict[str, np.ndarray]]:
        waiting = self.queue.get_state()
        return {**super().get_state(), **({QUEUE_FILE: waiting} if waiting else {})}

    def refuse_state(self, files: Mapping[str, Mapping[str, np.ndarray]], settings: Mapping[str, Any]) -> None:
        super().refuse_state(files, settings)
        self.queue.refuse_state(files.get(QUEUE_FILE, {}))

    def set_state(self, files: Mapping[str, Mapping[str, np.ndarray]]) -> None:
        """Takes the files back, and drops fragments that the run has sampled since, or otherwise."""
        super().set_state(files)
        self.staged = None
        self.queue.set_state(files.get(QUEUE_FILE, {}))
        self.ring.clear()


class IMPALA(Algorithm):
    """Importance-weighted actor-learner architecture: asynchronous workers, corrected by V-trace."""

    config_class = IMPALAConfig
    trainee_class: ClassVar[type[IMPALATrainee]] = IMPALATrainee
    reported_stats = (
        "total_loss", "policy_loss", "vf_loss", "vf_explained_var", "cur_lr", "entropy_coeff", "entropy", "var_gnorm",
    )  # fmt: skip
    trains_several = True
    is_synchronous = False
    samples_sequences = True
    loss = IMPALA_LOSS

    def setup(self) -> None:
        config = self.config
        self._check_memory()
        # This process has time for it while a GPU or others compute; batches of aggregators come when they do.
        has_workers = config.num_rollout_workers > 0 and not config.num_aggregation_workers
        self.stages_ahead = (config.num_gpus > 0 or config.num_learners > 0) and has_workers
        self._request: Callable | None = None
        self._asked_for: list[Policy] = []  # whose weights the request carries
        self._broadcast_at = 0
        self._requests_per_worker = self._most_requests_per_worker()
        self.aggregators: Aggregators | None = None
        if config.num_aggregation_workers:
            self.aggregators = self._owns(
                Aggregators(config.num_aggregation_workers, fault_tolerance(config), self.spans_directory)
            )

    def _check_memory(self) -> None:
        """Raises Unfit if the observations that replay keeps do not fit into memory."""
        configs = {policy_id: trainee.config for policy_id, trainee in self.trainees.items()}
        replaying = {policy_id: config for policy_id, config in configs.items() if config.replay_proportion}
        slots = {policy_id: own.replay_buffer_num_slots for policy_id, own in replaying.items()}
        steps = self.config.get_rollout_fragment_length() * self.config.num_envs_per_worker
        size_bytes = steps * sum(count * self._observation_bytes(each) for each, count in slots.items())
        if size_bytes > (available := free_bytes()):
            most = max(slots.values())
            fitting = most * available // (2 * size_bytes)
            raise Unfit(
                f"replay_buffer_num_slots={most} fragments of {steps} observations need "
                f"{size_bytes / 2**30:.1f} GiB, but {available / 2**30:.1f} GiB of memory are free.",
                f"Use .training(replay_buffer_num_slots={fitting}).",
                {"replay_buffer_num_slots": fitting} if fitting else {"replay_proportion": 0.0},
            )

    def _observation_bytes(self, policy_id: str) -> int:
        """Bytes that a policy observes in one step of an environment, in which all of its agents act."""
        column = observation_column(self.policy_spaces()[policy_id][0])
        num_agents = 1 if self.agents is None else self.agents.settings.num_slots.get(policy_id, 1)
        return num_agents * math.prod(column.shape) * np.dtype(column.dtype).itemsize

    def _most_requests_per_worker(self) -> int:
        """The number of requests that is set, or fewer if all fragments together would overfill the learner's queue."""
        config = self.config
        steps = config.get_rollout_fragment_length() * config.num_envs_per_worker * max(config.num_rollout_workers, 1)
        fitting = config.learner_queue_size * config.train_batch_size // steps
        return max(1, min(config.max_requests_in_flight_per_sampler_worker, fitting))

    def training_step(self) -> dict[str, dict[str, float]]:
        now = self.timesteps
        for trainee in self._trainees_due():
            trainee.learn(now)
        return {policy_id: trainee.stats for policy_id, trainee in self.trainees.items() if trainee.stats}

    def _trainees_due(self) -> list[IMPALATrainee]:
        """Policies for which there is a train batch.

        With several agents it waits until there is one, or until a train batch of steps has been sampled: some policies
        may act seldom, and it is for the user's function whether one learns at all. A policy that is alone waits for
        its batch in `next_batch`.
        """
        if self.agents is None:
            return list(self.trainees.values())
        if not (due := self._with_batches()):
            enough = self.timesteps + self.config.train_batch_size
            self.wait_until(lambda: self._with_batches() or self.timesteps >= enough)
            due = self._with_batches()
        return due

    def _with_batches(self) -> list[IMPALATrainee]:
        """Policies whose next train batch is there."""
        return [trainee for trainee in self.trainees.values() if trainee.has_batch]

    # ------------------------------------------------------------------ fragments, as they come

    def wait_until(self, is_done: Callable[[], Any]) -> None:
        """Keeps the fragments that arrive until the condition holds.

        Raises:
            SampleTimeoutError: if none arrives for too long.
        """
        with self.metrics.timer("sample"):
            self.ask()
            started = time.monotonic()
            while not is_done():
                if self.receive(self.config.learner_queue_timeout):
                    started = time.monotonic()
                self.ask()
                if (waited_s := time.monotonic() - started) > self.config.learner_queue_timeout:
                    raise SampleTimeoutError(
                        f"no rollout worker has sent a fragment for {waited_s:.0f} s. Slow environments need a longer "
                        f".training(learner_queue_timeout={self.config.learner_queue_timeout:g}) or a shorter "
                        f"rollout_fragment_length than {self.config.rollout_fragment_length}."
                    )

    def receive(self, timeout_s: float) -> int:
        """Waits for the first fragment and keeps all that have arrived.

        Returns:
            number of fragments that have arrived.
        """
        if not self.config.num_rollout_workers:
            self._keep(self.sample(1))
            return 1
        answers = self.workers.fleet.take(timeout_s)
        for answer in answers:
            fragment, report = answer.value
            self._take_in(report, fragment)
            self._keep(fragment)
        return len(answers)

    def _keep(self, fragment: SampleBatch | MultiAgentBatch) -> None:
        # Of a policy that is alone, it is the same.
        counts_agents = self.config.count_steps_by == "agent_steps"
        steps = fragment.agent_steps() if counts_agents else fragment.env_steps()
        for trainee, rows in self.by_trainee(fragment):
            trainee.queue.put(PolicyFragment(rows, fragment.env_steps(), steps))

    def ask(self) -> None:
        """Sends requests, with the newest broadcast weights, to all workers that have too few."""
        if not self.config.num_rollout_workers:  # weights need not be put where other processes see them
            return
        policies = [*self.policies.values()]
        if self._request is None or self.num_updates >= self._broadcast_at or self._asked_for != policies:
            self._request = self.workers.request("sample", self.snapshots())
            self._broadcast_at = self.num_updates + self.config.broadcast_interval
            self._asked_for = policies
        self.workers.fleet.keep_in_flight(self._request, self._requests_per_worker)

    def extra_results(self) -> dict[str, Any]:
        restarts = self.aggregators.fleet.num_restarts if self.aggregators else 0
        return {**super().extra_results(), "num_aggregation_worker_restarts": restarts}

    def set_weights(self, weights: dict[str, np.ndarray]) -> None:
        super().set_weights(weights)
        self._request = None

    def set_state(self, state: dict[str, Any]) -> None:
        """Restores a state, and drops fragments that other weights have sampled or are sampling."""
        super().set_state(state)
        self._request, self._broadcast_at = None, 0
        if self.aggregators is not None:
            self.aggregators.clear()
