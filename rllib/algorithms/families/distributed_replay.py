"""Distributed prioritised replay (Horgan et al., arXiv:1803.00933): many explore, shards of a replay, one learns.

The mechanism of Ape-X, for any off-policy algorithm; apex.py combines it with DQN and DDPG. Workers
explore to different degrees, and send rows of n-step returns with the TD errors that their own weights make of them, so
that new rows have a priority before the learner has seen them. The rows go to replay shards in turn. Samples are
fetched from the shards ahead of the learner, and their new TD errors are sent back.

Departures from the paper:
- Sampling and learning keep to a ratio, `training_intensity` rows trained on per step sampled: the side that is ahead
  waits. None lets both run as fast as they can. The results show the ratio and the age of the workers' weights.
- Every queue is bounded: requests to each worker and each shard, rows and samples on their way (Ray's are unbounded).
- New rows replace the oldest ones one by one, not in bulk.
- Everything is counted in environment steps, the updates of the target network too.

The results show the returns of the third of the workers that explore least, as in Ray: they come closest to the
policy that is learned. With num_rollout_workers=0 this process samples and learns in turn, exploring by the schedule.

A restored run continues with the saved weights, target networks and optimizers, and with the rows if
`store_buffer_in_checkpoints` is set. Fragments and samples on their way are lost, so it is not equal to the bit.
"""

import dataclasses
from abc import abstractmethod
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Self

import numpy as np

from rllib import sample_batch as sb
from rllib.algorithms.base.wiring import fault_tolerance
from rllib.algorithms.families.off_policy import OffPolicy, OffPolicyConfig, OffPolicyTrainee
from rllib.config.conflicts import conflict
from rllib.config.sections import Keys, Merged, at_least, only_with, section
from rllib.evaluation.postprocess.base import Postprocess
from rllib.evaluation.postprocess.td_errors import TDErrors
from rllib.evaluation.replay_shards import ReplayShards
from rllib.policy import Policy
from rllib.replay.replay_settings import ShardedReplaySettings
from rllib.sample_batch import SampleBatch

# Updates by which the learner may be behind before no more fragments are accepted.
MOST_UPDATES_OWED = 8


class DistributedReplayConfig(OffPolicyConfig):
    """Settings of workers, replay shards and the queues between them."""

    learns_from_data: ClassVar[bool] = False
    without_data: ClassVar[str] = "keeps its replay in processes that sampling workers fill"
    starts_by_rows: ClassVar[bool] = True

    @property
    def not_on_gpu(self) -> str:
        return "replays in other processes"

    @section
    def rollouts(self, *, num_rollout_workers=32, rollout_fragment_length=50) -> Self: ...

    @section
    def training(
        self,
        *,
        n_step=3,
        train_batch_size=512,
        training_intensity=1,
        num_steps_sampled_before_learning_starts=50_000,
        replay_buffer_config: Annotated[
            dict,
            "type, capacity (of all shards), prioritized_replay_alpha, _beta, _eps, frame_stack_axis, "
            "storage, worker_side_prioritization",
            Merged,
            Keys(ShardedReplaySettings),
        ] = ShardedReplaySettings.defaults(),
        num_replay_buffer_shards: Annotated[int, "processes that the replay is shared out to", at_least(1)] = 4,
        max_weight_sync_delay: Annotated[
            int, "steps that a worker makes between new weights", at_least(1), only_with("num_rollout_workers")
        ] = 400,
        max_requests_in_flight_per_sampler_worker: Annotated[
            int,
            "fragments that a worker is asked for ahead; 2 keep it busy",
            at_least(1),
            only_with("num_rollout_workers"),
        ] = 2,
        max_requests_in_flight_per_replay_worker: Annotated[
            int, "samples that a replay shard is asked for ahead of the learner", at_least(1)
        ] = 2,
    ) -> Self: ...

    @section
    def reporting(self, *, min_time_s_per_iteration=30, min_sample_timesteps_per_iteration=25_000) -> Self: ...

    conflicts = (
        conflict(
            "replay_buffer_config",
            "num_replay_buffer_shards",
            when=lambda config: config.replay_settings().capacity < config.num_replay_buffer_shards,
            why="capacity is shared out to the shards, and each needs a row",
            remedies=[
                {"num_replay_buffer_shards": 1},
                lambda config: {"replay_buffer_config": {"capacity": config.num_replay_buffer_shards}},
            ],
        ),
    )


@dataclass
class _Sent:
    """The weights that a worker acts by.

    Attributes:
        actor: handle of the worker.
        request: asks for a fragment by these weights.
        steps: steps since the worker got them: those requested, and more where whole episodes were longer.
    """

    actor: Any
    request: Any
    steps: int = 0


class ShardedTrainee(OffPolicyTrainee):
    """A policy whose replay is shared out to processes.

    Attributes:
        lags: ages of the policy's fragments that arrived last, in its updates.
        rows_per_step: rows in the replay for each step of an environment.
        workers_give_priorities: whether the policy's rows come with TD errors.
    """

    stratified = True

    def __init__(self, algorithm: "DistributedReplay", policy_id: str):
        super().__init__(algorithm, policy_id)
        self.lags, self.rows_per_step = [0], self.config.rows_per_step
        self.workers_give_priorities = algorithm.workers_give_priorities(policy_id)

    def make_replay(self) -> ReplayShards:
        config = self.config
        shards = config.num_replay_buffer_shards
        ring = self.ring(config.replay_settings().capacity // shards)
        self.check_room(ring, copies=shards)
        replay = ReplayShards(
            ring,
            shards,
            self.algorithm.seed,
            min_rows=max(config.num_steps_sampled_before_learning_starts // shards, 1),
            max_in_flight=config.max_requests_in_flight_per_replay_worker,
            fault_tolerance=fault_tolerance(config),
            spans_directory=self.algorithm.spans_directory,
            first_stream=self.number * shards,
        )
        return self.owns(replay)

    def owes(self, updates: int) -> bool:
        """Whether the learner is this number of updates behind, and has rows to make them."""
        return self.updates_owed >= updates and self.replay.is_ready and not self.is_refused

    @property
    def an_update_is_due(self) -> bool:
        """Whether the steps sampled ask for an update."""
        return self.updates_owed >= 1 and not self.is_refused

    def store_steps(self, rows: SampleBatch, steps: float) -> None:
        """Gives rows to the replay and, once learning has started, counts the updates that they make due.

        Args:
            rows: rows of the policy.
            steps: environment steps in which they were made.
        """
        config, replay = self.config, self.replay
        while not replay.has_room:
            replay.wait_for_room(config.sample_timeout_s)
        replay.add(rows)
        if not (replay.is_ready and self.learning_has_started):
            return
        self.count_steps(steps)
        if config.training_intensity is None:
            self.updates_owed = MOST_UPDATES_OWED - 1
        else:
            self.updates_owed += steps * config.training_intensity / config.train_batch_size

    def update_from_shards(self, **rates: float) -> None:
        """One update on a sample of some shard, if one comes in time; the shard gets the new TD errors.

        Args:
            rates: rates of `learn_from`.
        """
        config, replay = self.config, self.replay
        replay.request_samples(config.train_batch_size, self.beta)
        with self.algorithm.metrics.timer("replay"):
            sample = replay.next_sample(config.sample_timeout_s)
        if sample is None:
            return
        source, batch = sample
        # Rows of many weights; their age is a statistic.
        batch.policy_version = self.num_updates
        self.stats = self.learn_from(batch, **rates)
        replay.update_priorities(source, batch[sb.INDICES], self.stats.pop("td_error"))
        if config.training_intensity is not None:
            self.updates_owed -= 1


class DistributedReplay(OffPolicy):
    """Base of the algorithms that learn from a replay in shards, while workers sample on."""

    trainee_class: ClassVar[type[ShardedTrainee]] = ShardedTrainee
    is_synchronous = False

    def setup(self) -> None:
        self._sent: dict[int, _Sent] = {}
        self._sent_policies: list[Policy] = []
        self._newest: tuple[int, Any] | None = None
        super().setup()

    @abstractmethod
    def worker_errors(self, policy_id: str) -> TDErrors:
        """Makes the function that computes the TD errors of a policy's rows in workers."""

    def workers_give_priorities(self, policy_id: str) -> bool:
        """Whether a policy's rows come with TD errors."""
        settings = self.config_of(policy_id).replay_settings()
        return settings.has_priorities and settings.worker_side_prioritization

    def make_postprocess(self, policy_id: str) -> Postprocess:
        postprocess = super().make_postprocess(policy_id)
        if not self.workers_give_priorities(policy_id):
            return postprocess
        return dataclasses.replace(postprocess, td_errors=self.worker_errors(policy_id))

    def training_step(self) -> dict[str, dict[str, Any]]:
        before = self.timesteps
        self.take_in_fragments()
        for trainee in self.trainees.values():
            if trainee.an_update_is_due:
                trainee.update_from_shards(**trainee.learning_rates(before))
                trainee.update_target()
        return self.newest_stats()

    def take_in_fragments(self) -> None:
        """Gives the replays what has arrived from the workers, unless a learner is too far behind."""
        if any(trainee.owes(MOST_UPDATES_OWED) for trainee in self.trainees.values()):
            return
        for shares, fragment_steps in self._arriving_fragments():
            for trainee, rows in shares:
                # Of one agent, the steps are those whose rows are complete.
                steps = rows.count / trainee.rows_per_step if self.agents is None else fragment_steps
                trainee.store_steps(rows, steps)
        for trainee in self.trainees.values():
            trainee.replay.wait_for_room(0.0)

    def _arriving_fragments(self) -> list[tuple[list[tuple[ShardedTrainee, SampleBatch]], int]]:
        """The fragments that have arrived; waits for one if the learner has nothing to do.

        Returns:
            for each fragment its rows by policy, and the steps by which it has moved the run's clock.
        """
        before = self.timesteps
        if not self.config.num_rollout_workers:
            batch = self.sample(1)
            return [(self.by_trainee(batch), self.timesteps - before)]
        with self.metrics.timer("sample"):
            self.workers.fleet.keep_in_flight(self._request, self.config.max_requests_in_flight_per_sampler_worker)
            learns = any(trainee.owes(1) for trainee in self.trainees.values())
            answers = self.workers.fleet.take(0.0 if learns else self.config.sample_timeout_s)
        counted, fragments = self._counted_workers(), []
        for answer in answers:
            batch, report = answer.value
            if answer.index not in counted:
                report.episodes = []
            before = self.timesteps
            self._take_in(report, batch)
            if answer.index in self._sent:
                self._sent[answer.index].steps += max(report.rows - self._steps_of_a_fragment, 0)
            fragments.append((self.by_trainee(batch), self.timesteps - before))
        versions: dict[ShardedTrainee, list[int]] = {}
        for shares, _ in fragments:
            for trainee, rows in shares:
                versions.setdefault(trainee, []).append(rows.policy_version)
        for trainee, of_rows in versions.items():
            trainee.lags = [trainee.num_updates - version for version in of_rows]
        return fragments

    # ------------------------------------------------------------------ workers

    def _request(self, actor, index: int):
        """Asks for a fragment; the worker gets new weights after max_weight_sync_delay steps."""
        if self._sent_policies != [*self.policies.values()]:
            self._forget_weights()
            self._sent_policies = [*self.policies.values()]
        sent = self._sent.get(index)
        if sent is None or sent.actor is not actor or sent.steps >= self.config.max_weight_sync_delay:
            if self._newest is None or self._newest[0] != self.num_updates:
                self._newest = self.num_updates, self.workers.request("sample", self.snapshots())
            sent = self._sent[index] = _Sent(actor, self._newest[1])
        sent.steps += self._steps_of_a_fragment
        return sent.request(actor, index)

    @property
    def _steps_of_a_fragment(self) -> int:
        """Steps that a request asks for."""
        return self.config.get_rollout_fragment_length() * self.config.num_envs_per_worker

    def _counted_workers(self) -> range:
        """Indices of the workers whose returns are in the results."""
        workers = self.config.num_rollout_workers
        if not any(each.exploration.differs_by_worker for each in self._rollout_settings.policies.values()):
            return range(1, workers + 1)
        return range(workers - (workers - 1) // 3, workers + 1)

    def extra_results(self) -> dict[str, Any]:
        extra, fleets = super().extra_results(), [replay.fleet for replay in self.replays.values()]
        extra["replay"]["num_shards"] = sum(len(fleet.members) for fleet in fleets)
        extra["replay"]["num_shard_restarts"] = sum(fleet.num_restarts for fleet in fleets)
        for policy_id, stats in extra["learner"].items():
            lags = self.trainees[policy_id].lags
            lag, most = float(np.mean(lags)), float(max(lags))
            stats |= {"policy_lag_updates": lag, "policy_lag_mean": lag, "policy_lag_max": most}
        return extra

    # ------------------------------------------------------------------ state and the end

    def set_weights(self, weights: dict[str, np.ndarray]) -> None:
        super().set_weights(weights)
        self._forget_weights()

    def set_state(self, state: dict[str, Any]) -> None:
        super().set_state(state)
        self._forget_weights()

    def _forget_weights(self) -> None:
        self._sent.clear()
        self._newest = None
