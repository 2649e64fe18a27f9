"""Base of off-policy algorithms: a replay of rows, and updates in proportion to the steps sampled.

Workers send rows that need no other row (evaluation/postprocess/transitions.py), and the replay keeps them, whichever
weights acted in them. Learning starts after some steps. An update samples rows, learns from them, and gives them new
priorities. On this stand q_learning.py, which learns the values of discrete actions, and off_policy_actor_critic.py,
which learns an actor and its critics.

Everything is counted in environment steps, whatever the number of environments: schedules, the start of learning, and
the updates of the target network.
"""

import contextlib
import functools
import logging
import math
import os
from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

import numpy as np

from rllib import sample_batch as sb
from rllib.algorithms.base.algorithm import Algorithm
from rllib.algorithms.base.from_checkpoint import REPLAY_FILE
from rllib.algorithms.base.recorded.data import learned_rewards
from rllib.algorithms.base.saving import numbers_in
from rllib.algorithms.base.space_rules import NewPolicy, of_spaces
from rllib.algorithms.base.trainee import Trainee
from rllib.algorithms.families.replay_files import (
    RowFiles,
    priorities_file,
    read_replays,
    refuse_priorities,
    take_priorities,
    write_replays,
)
from rllib.algorithms.families.sampling_ahead import SamplingAheadConfig
from rllib.config.config_object import relation
from rllib.config.conflicts import DEFAULT, Mistake, Unfit, conflict
from rllib.config.sections import Keys, Merged, OfPolicy, above, at_least, between, section
from rllib.env.spaces.goals import Goals
from rllib.env.spaces.observations import observation_column
from rllib.evaluation import seeding
from rllib.evaluation.offline.rows import transitions
from rllib.evaluation.postprocess.base import Postprocess
from rllib.evaluation.postprocess.hindsight import HindsightTransitions
from rllib.evaluation.postprocess.sequences import SequenceTransitions
from rllib.evaluation.postprocess.transitions import Transitions
from rllib.notices import log_unused_arguments
from rllib.offline.dataset import Dataset
from rllib.offline.stream import Unread
from rllib.policies import of_only_policy
from rllib.policy import Policy
from rllib.replay.disk import MEMORY
from rllib.replay.frame_stacks import SPARE
from rllib.replay.gpu import GPU
from rllib.replay.mixed_replay import MixedReplay
from rllib.replay.replay_buffer import ReplayBuffer
from rllib.replay.replay_settings import ReplaySettings
from rllib.sample_batch import Column, MultiAgentBatch, SampleBatch
from rllib.schedules import Schedule
from rllib.storage.checkpoint import naming_damage

# Remedies.
_PLAIN_REPLAY = {"replay_buffer_config": {"type": "ReplayBuffer"}}
_REPLAY_IN_MEMORY = {"replay_buffer_config": {"storage": MEMORY}}
# Recorded steps that are made into rows at once.
_ROWS_AT_ONCE = 1 << 18
# Of a policy's counts: steps since its learning began, but for those in which it was frozen or its replay was filled.
_STEPS = "num_env_steps_since_learning_began"
logger = logging.getLogger(__name__)


class OffPolicyConfig(SamplingAheadConfig):
    """Settings of replay, updates and target networks."""

    needs_probabilities: ClassVar[bool] = False
    without_memory: ClassVar[str] = Transitions.without_memory
    learns_from_data: ClassVar[bool] = True
    mixes_data: ClassVar[bool] = True
    # Whether learning starts by the number of rows in the replay, which one that is too small never reaches.
    starts_by_rows: ClassVar[bool] = False

    @property
    def overestimates_alone(self) -> bool:
        """Whether it values actions that the data does not have too highly, where it learns from data alone."""
        return not self.needs_data

    @property
    def replays_sequences(self) -> bool:
        """Whether rows of the replay are sequences (sequence_replay.py)."""
        return False

    @property
    def not_on_gpu(self) -> str:
        """Rows that cannot lie on the learner's GPU, for the message; empty: they can."""
        return "sequences, which are put together on the CPU" if self.replays_sequences else ""

    @property
    def steps_per_row(self) -> int:
        """Largest number of learned steps in one row of the replay."""
        return 1

    @property
    def steps_per_unit(self) -> int:
        """Steps that replay_buffer_config's capacity counts as one: those of a row."""
        return self.steps_per_row

    @property
    def rows_of_capacity(self) -> int:
        """Rows that replay_buffer_config's capacity has room for."""
        return max(self.replay_settings().capacity * self.steps_per_unit // self.steps_per_row, 1)

    def capacity_for(self, rows: int) -> int:
        """The capacity of replay_buffer_config that has room for this number of rows."""
        return -(-rows * self.steps_per_row // self.steps_per_unit)

    @property
    def needs_goals(self) -> bool:
        """Whether rows are relabelled with goals that episodes achieved."""
        return self.replay_settings().has_goals

    @property
    def rows_per_step(self) -> int:
        """Rows in the replay for each step of an environment, further goals included."""
        return 1 + self.replay_settings().n_sampled_goal if self.needs_goals else 1

    @section
    def rollouts(self, *, rollout_fragment_length="auto") -> Self:
        """Rollout workers and their fragments; "auto" takes n_step."""

    @section
    def training(
        self,
        *,
        train_batch_size: Annotated[int, "environment steps per update", at_least(1), OfPolicy] = 32,
        n_step: Annotated[int, "rewards before the bootstrap", at_least(1), OfPolicy] = 1,
        target_network_update_freq: Annotated[
            int, "environment steps between its updates", at_least(1), OfPolicy
        ] = 500,
        tau: Annotated[
            float, "how far an update moves the target network to the learned one; 1: copied", between(0, 1), OfPolicy
        ] = 1.0,
        num_steps_sampled_before_learning_starts: Annotated[int, "environment steps", at_least(0), OfPolicy] = 1000,
        training_intensity: Annotated[
            float | None,
            "rows trained on per step sampled; None: one update per round of fragments",
            above(0, finite=True),
            OfPolicy,
        ] = None,
        replay_buffer_config: Annotated[
            dict,
            "type, capacity, prioritized_replay_alpha, _beta, _eps, frame_stack_axis, storage, n_sampled_goal, "
            "goal_selection_strategy",
            Merged,
            OfPolicy,
            Keys(ReplaySettings),
        ] = ReplaySettings.defaults(),
        store_buffer_in_checkpoints: Annotated[bool, "checkpoints hold the replay"] = False,
    ) -> Self: ...

    @section
    def reporting(self, *, min_sample_timesteps_per_iteration=1000) -> Self: ...

    @relation("replay_buffer_config", "num_steps_sampled_before_learning_starts")
    def _check_room(self) -> Mistake | None:
        """`replay_buffer_config` has room for the first rows."""
        return self.lost_before_learning() if self.starts_by_rows else None

    def lost_before_learning(self) -> Mistake | None:
        """What is wrong where the replay drops rows before learning starts; None if it has room for them."""
        capacity, start = self.replay_settings().capacity, self.num_steps_sampled_before_learning_starts
        if capacity * self.steps_per_unit >= start * self.rows_per_step:
            return None
        rows = f" times {self.rows_per_step} rows a step" if self.needs_goals else ""
        most = capacity * self.steps_per_unit // self.rows_per_step
        enough = math.ceil(start * self.rows_per_step / self.steps_per_unit)
        return Mistake(
            f"replay_buffer_config: capacity={capacity} is below num_steps_sampled_before_learning_starts={start}"
            f"{rows}: what is sampled first is lost.",
            ("replay_buffer_config", "num_steps_sampled_before_learning_starts"),
            ({"replay_buffer_config": {"capacity": enough}}, {"num_steps_sampled_before_learning_starts": most}),
            f"Use {{'capacity': {enough}}} or more, or num_steps_sampled_before_learning_starts={most} or less.",
        )

    conflicts = (
        conflict(
            "replay_buffer_config",
            "input_",
            when=lambda config: config.needs_goals and config.has_data,
            why="hindsight replay relabels steps by asking the environment, but input_ has recorded ones",
            remedies=[_PLAIN_REPLAY, {"input_": DEFAULT}],
        ),
        *(
            conflict(
                "replay_buffer_config",
                name,
                when=lambda config, name=name: config.needs_goals and config[name],
                why=f"{name} changes the rewards of steps, but rewards of hindsight's further goals come from the "
                "environment's compute_reward, which may do the same",
                remedies=[{name: DEFAULT}, _PLAIN_REPLAY],
            )
            for name in ("clip_rewards", "normalize_returns")
        ),
        conflict(
            "replay_buffer_config",
            when=lambda config: config.keeps_rows_on_gpu and config.not_on_gpu,
            why=lambda config: f"storage='gpu' is not for {config.not_on_gpu}",
            remedies=[_REPLAY_IN_MEMORY],
        ),
        conflict(
            "replay_buffer_config",
            "input_",
            when=lambda config: config.keeps_rows_on_gpu and len(config.shares()) > 1,
            why="storage='gpu' keeps the rows of one replay, but input_ is a mixture of several",
            remedies=[_REPLAY_IN_MEMORY],
        ),
        conflict(
            "replay_buffer_config",
            "num_learners",
            when=lambda config: config.keeps_rows_on_gpu and config.num_learners,
            why="storage='gpu' keeps the rows next to a learner in this process, but num_learners are in others",
            remedies=[_REPLAY_IN_MEMORY, {"num_learners": 0}],
        ),
        conflict(
            "replay_buffer_config",
            "num_gpus",
            when=lambda config: config.keeps_rows_on_gpu and not config.num_gpus,
            why="storage='gpu' keeps the rows on the GPU of the learner, but num_gpus=0",
            remedies=[_REPLAY_IN_MEMORY, {"num_gpus": 1}],
        ),
    )

    @property
    def keeps_rows_on_gpu(self) -> bool:
        """Whether the replay is on the learner's GPU."""
        return self.replay_settings().storage == GPU

    @of_spaces("replay_buffer_config")
    def _check_goals(self, policy: NewPolicy):
        """Hindsight replay in `replay_buffer_config` is for environments with one agent."""
        if self.needs_goals and policy.num_agents is not None:
            return Mistake(
                f"replay_buffer_config: type={self.replay_settings().type!r} asks the environment for the rewards "
                f"of other goals, and {policy.place} has several agents.",
                ("replay_buffer_config",),
                (_PLAIN_REPLAY,),
                "Use {'type': 'ReplayBuffer'}.",
            )
        return None

    @of_spaces("replay_buffer_config")
    def _check_frames(self, policy: NewPolicy):
        """frame_stack_axis in `replay_buffer_config` is for observations that are stacks of frames."""
        axis, shape = self.replay_settings().frame_stack_axis, observation_column(policy.observation_space).shape
        if axis is not None and len(shape) < 2:
            return Mistake(
                f"replay_buffer_config: frame_stack_axis={axis} is for observations that are stacks of frames, but "
                f"observations of {policy.place} have the shape {shape}.",
                ("replay_buffer_config",),
                ({"replay_buffer_config": {"frame_stack_axis": None}},),
                "Leave it at None.",
            )
        return None

    def replay_settings(self) -> ReplaySettings:
        """The keys of replay_buffer_config, under their present names."""
        return self.settings["replay_buffer_config"].keys.of(self.replay_buffer_config)

    def get_rollout_fragment_length(self, worker_index: int = 0) -> int:
        """Steps of each of a worker's environments per fragment: n_step, unless it is given."""
        return self.n_step if self.rollout_fragment_length == "auto" else self.rollout_fragment_length


class OffPolicyTrainee(Trainee):
    """A policy that learns from a replay.

    Attributes:
        replay: its rows; None before `prepare`.
        updates_owed: updates, or parts of one, that the steps sampled so far ask for and that have not been made.
        empty_at: the run's clock when the replay was empty.
    """

    # Whether a sample takes one row from each of equal parts of the priorities' sum.
    stratified: ClassVar[bool] = False

    def __init__(self, algorithm: "OffPolicy", policy_id: str):
        super().__init__(algorithm, policy_id)
        replay, beta = self.config.replay_settings(), "prioritized_replay_beta"
        self._beta = Schedule(replay[beta], beta, replay.settings[beta].range_of_schedule)
        self.updates_owed, self.empty_at = 0.0, self.timesteps
        self.replay: Any = None

    def prepare(self) -> None:
        super().prepare()
        self.refill()

    def initial_weights(self) -> np.random.Generator:
        """Random generator for the initial weights of critics and other modules in addition to the policy."""
        # The first policy's modules have index 1, as they always had; `make_policies` counts policies from 0.
        return seeding.generator(self.algorithm.seed, seeding.INITIAL_WEIGHTS, 1, self.number)

    @property
    def target(self) -> Policy:
        """The target network, of a learner with a TargetCopy of the module "policy"."""
        return self.learner.targets["policy"].policy

    # ------------------------------------------------------------------ the replay

    def refill(self) -> None:
        """Makes the replay, empty or with the recorded steps."""
        self.replay = None  # two of them may not fit into the memory
        self.replay = self.make_replay()
        if isinstance(self.replay, ReplayBuffer):
            self.replay.new_rows = self.learner.new_rows

    def make_replay(self) -> Any:
        """Makes the replay."""
        config, recorded = self.config, self.algorithm.recorded
        if config.replay_settings().storage == GPU and not self.learner.objectives[0].is_over_modules:
            raise Unfit(
                "replay_buffer_config: storage='gpu' needs targets that are computed on the GPU, but this run "
                "computes them elsewhere: it has custom_loss, auxiliary_losses, or a separate add_targets.",
                "Use .training(replay_buffer_config={'storage': 'memory'}).",
                _REPLAY_IN_MEMORY,
            )
        if recorded is None or recorded.stream is not None:
            ring = self.ring(config.rows_of_capacity)
            self.check_room(ring)
            return ring()
        parts = []
        for dataset, share in recorded.datasets:
            buffer = self._filled(dataset)
            if not len(buffer):
                raise Unfit(
                    f"{dataset.source} has {len(dataset):,} steps, but of none of them it is known what followed, so "
                    "that there is nothing to learn from.",
                    "Give new_obs, or flags of terminations, or several steps an episode; or imitate them with BC.",
                )
            parts.append((buffer, share))
        if recorded.sampled:
            parts.append((self.ring(config.rows_of_capacity)(), recorded.sampled))
        elif len(parts) == 1:
            return parts[0][0]
        return MixedReplay(parts, takes_new_rows=recorded.sampled > 0)

    def _filled(self, dataset: Dataset) -> ReplayBuffer:
        """A buffer with all recorded steps."""
        spare, buffer = SPARE, None
        while buffer is None or buffer.is_full:  # of short episodes, or stacks that share no frames
            buffer = None  # two of them may not fit into the memory
            buffer = self.ring(len(dataset), spare)()
            for part in dataset.parts(_ROWS_AT_ONCE):
                buffer.add(self.recorded_columns(part))
            spare *= 4
        return buffer

    def ring(self, capacity: int, spare_frames: float = SPARE) -> functools.partial:
        """A factory, which can be pickled, of a buffer of `capacity` rows; spare_frames as for ReplayBuffer."""
        settings = self.config.replay_settings()
        alpha = settings.prioritized_replay_alpha if settings.has_priorities else None
        place = self.replay_columns(), capacity, settings.frame_stack_axis, alpha, settings.storage
        epsilon = settings.prioritized_replay_eps
        more = {"epsilon": epsilon, "stratified": self.stratified, "spare_frames": spare_frames}
        return functools.partial(ReplayBuffer, *place, **more)

    def check_room(self, ring: functools.partial, copies: int = 1) -> None:
        """Refuses a replay that does not fit into memory with those of the run's other policies.

        Args:
            ring: of `ring`.
            copies: number of these buffers.

        Raises:
            Unfit: (a ValueError) with a capacity that fits.
        """
        others = [each for each in self.algorithm.trainees.values() if each is not self and each.is_in_memory]
        promised = sum(each.unfilled_bytes for each in others)
        more = {"setting_of": self.config.capacity_for, "promised": promised, "replays": 1 + len(others)}
        ReplayBuffer.check_room(*ring.args, copies=copies, **more)

    @property
    def is_in_memory(self) -> bool:
        """Whether rows of the replay are in memory."""
        return self.config.replay_settings().storage == MEMORY

    @property
    def unfilled_bytes(self) -> int:
        """Size of the replay's rows that are still to come: memory is taken when a row is first written."""
        if self.replay is None:
            return 0
        return int(self.replay.size_bytes * max(1 - len(self.replay) / self.config.rows_of_capacity, 0))

    def replay_columns(self) -> tuple[Column, ...]:
        """Columns of a row in the replay."""
        policy, stored = self.policy, self.algorithm.postprocess_of(self.policy_id)
        if self.config.replays_sequences:
            return stored.row_columns
        return (
            Column(sb.OBS, stored.shape, stored.dtype),
            Column(sb.NEXT_OBS, stored.shape, stored.dtype),
            Column(sb.ACTIONS, policy.action_shape, str(policy.action_dtype)),
            Column(sb.REWARDS, (), "float32"),
            Column(sb.DISCOUNTS, (), "float32"),
        )

    def recorded_columns(self, dataset: Dataset) -> dict[str, np.ndarray]:
        """Rows of recorded steps with the columns of the replay.

        In a mixture, an environment that has rewards clipped (Atari) has those of the recorded steps clipped, too.
        """
        config = self.config
        clip = self.algorithm._rollout_settings.clip if self.algorithm.recorded.sampled else None
        rewards = learned_rewards(dataset, config, clip)
        return transitions(dataset, self.policy, config, rewards, config.gamma, config.n_step)

    def own_rows(self) -> ReplayBuffer | None:
        """The part of the replay with rows of the run's own, since recorded ones are not saved again; None: no part."""
        recorded = self.algorithm.recorded
        if recorded is None or recorded.stream is not None:
            return self.replay
        return self.replay.newest if recorded.sampled else None

    def recorded_parts(self) -> list[ReplayBuffer]:
        """The parts of the replay with recorded rows, which are read again and not saved."""
        recorded = self.algorithm.recorded
        if recorded is None or recorded.stream is not None:
            return []
        return self.replay.recorded if isinstance(self.replay, MixedReplay) else [self.replay]

    @property
    def discounts(self) -> dict[str, tuple[str, float]]:
        """Columns of the replay that have powers of a discount, each with the setting and the discount per step."""
        return {sb.DISCOUNTS: ("gamma", self.config.gamma)}

    @property
    def row_files(self) -> RowFiles:
        """What writes rows of the replay into files, and reads them."""
        config = self.algorithm.config
        scales, filters = config.normalize_returns, self.policy.filters_observations
        made_by = {
            "clip_rewards": self.algorithm._reward_clip or False,
            "normalize_returns": scales,
            "normalized_reward_clip": config.normalized_reward_clip if scales else None,
            "observation_filter": config.observation_filter if filters else "NoFilter",
            "observation_clip": config.observation_clip if filters else None,
            "time_limit_ends_episode": config.time_limit_ends_episode,
        }
        return RowFiles(self.config, self.discounts, made_by, self.policy.distribution.unit)

    # ------------------------------------------------------------------ learning

    def store(self, rows: SampleBatch) -> None:
        """Adds rows in which the policy has acted to the replay."""
        if len(rows):  # of recorded steps the replay has all already
            self.replay.add(rows)

    @property
    def learning_has_started(self) -> bool:
        """Whether enough steps have been sampled, and there are rows in the replay."""
        if self.algorithm.config.is_offline:
            return len(self.replay) > 0
        sampled = self.timesteps - self.empty_at
        enough = sampled >= max(self.config.num_steps_sampled_before_learning_starts, 1)
        return enough and len(self.replay) > 0

    def count_steps(self, steps: float) -> None:
        """Counts steps that make updates due among those that `ratios` are of."""
        self.algorithm.metrics.policies[self.policy_id][_STEPS] += steps

    def updates_due(self, steps: int) -> int:
        """Updates that newly sampled steps ask for; fractions add up from round to round."""
        if self.config.training_intensity is None:
            return 1
        owed = self.updates_owed + steps * self.config.training_intensity / self.config.train_batch_size
        self.updates_owed = owed - int(owed)
        return int(owed)

    def learning_rates(self, at: int | None = None) -> dict[str, float]:
        """Current learning rates, by the names of their settings; `at` as for `scheduled`."""
        return self.scheduled("lr", at=at)

    def learn(self, steps: int, now: int) -> None:
        """Makes the updates that newly sampled steps ask for, and moves the target networks if that is due.

        Args:
            steps: environment steps sampled since the last time.
            now: environment steps at which schedules are read: those sampled before.
        """
        if not self.learning_has_started:
            return
        self.count_steps(steps)
        rates = self.learning_rates(now)
        for _ in range(self.updates_due(steps)):
            self.stats = self.update(**rates)
        self.update_target()

    def update(self, **rates: float) -> dict[str, Any]:
        """Makes one update on rows of the replay in this process. Returns its statistics.

        Args:
            rates: rates of `learn_from`.
        """
        rows = -(-self.config.train_batch_size // self.config.steps_per_row)
        batch = self.replay.sample(rows, self.rng, self.beta)
        # Rows of many weights have no lag: workers sample by the newest ones (Ape-X reports how old theirs are).
        batch.policy_version = self.num_updates
        stats = self.learn_from(batch, **rates)
        self.replay.update_priorities(batch[sb.INDICES], stats.pop("td_error"))
        return stats

    @abstractmethod
    def learn_from(self, batch: SampleBatch, **rates: float) -> dict[str, Any]:
        """Makes one update on rows of the replay.

        Args:
            batch: the rows.
            rates: learning rates, by the names of their settings.

        Returns:
            its statistics, with the new TD errors [B] as td_error.
        """

    def update_target(self) -> None:
        """Moves the target networks towards the learned ones, if that is due by the run's clock."""
        if self.learner.update_targets(self.timesteps):
            counters = self.algorithm.metrics.counters
            counters["num_target_updates"] += 1
            counters["last_target_update_ts"] = self.timesteps

    @property
    def beta(self) -> float:
        """Present exponent of the importance weights of rows."""
        return self._beta(self.timesteps)

    def ratios(self) -> dict[str, float]:
        """Updates, and rows trained on, for each step sampled while the policy was learning."""
        counts = self.algorithm.metrics.policies[self.policy_id]
        steps = max(counts[_STEPS], 1)
        return {
            "updates_per_step_sampled": counts["num_updates"] / steps,
            "rows_trained_per_step_sampled": counts["num_steps_trained"] / steps,
        }

    # ------------------------------------------------------------------ checkpoints

    def numbers(self) -> dict[str, Any]:
        numbers = {**super().numbers(), "updates_owed": self.updates_owed, "replay_empty_at": self.empty_at}
        # An iteration without an update of a network, as that of a delayed actor, reports those of the newest one.
        numbers["stats"] = numbers_in(self.stats)
        if isinstance(self.replay, MixedReplay):
            numbers["rows_owed"] = self.replay.owed
        if self.is_refused:
            numbers["is_refused"] = True
        return numbers

    def set_numbers(self, numbers: Mapping[str, Any]) -> None:
        super().set_numbers(numbers)
        self.updates_owed = numbers.get("updates_owed", self.updates_owed)
        self.empty_at = numbers.get("replay_empty_at", self.empty_at)
        self.stats = numbers.get("stats", self.stats)
        self.is_refused = numbers.get("is_refused", False)
        counts = self.algorithm.metrics.policies[self.policy_id]
        if counts["num_updates"] and _STEPS not in counts:  # an earlier checkpoint
            counts[_STEPS] = max(self.timesteps - max(self.config.num_steps_sampled_before_learning_starts, 1) + 1, 0)
        if isinstance(self.replay, MixedReplay) and "rows_owed" in numbers:
            self.replay.owed = numbers["rows_owed"]

    def get_state(self) -> dict[str, dict[str, np.ndarray]]:
        state, own = super().get_state(), self.own_rows()
        if not self.algorithm.config.store_buffer_in_checkpoints:
            return state
        if own is not None:
            state[REPLAY_FILE] = self.row_files.write(own)
        return state | priorities_file(self.recorded_parts())

    def set_state(self, files: Mapping[str, Mapping[str, np.ndarray]]) -> None:
        super().set_state(files)
        take_priorities(files, self.recorded_parts())
        if (own := self.own_rows()) is None:
            return
        if REPLAY_FILE in files and (rows := self.row_files.read_checkpoint(files[REPLAY_FILE], own)) is not None:
            own.set_state(rows)
        elif not len(own):
            # A few rows, learned from over and over, would undo what has been learned.
            self.empty_at = self.timesteps

    def refuse_state(self, files: Mapping[str, Mapping[str, np.ndarray]], settings: Mapping[str, Any]) -> None:
        super().refuse_state(files, settings)
        refuse_priorities(files, self.recorded_parts())
        stores, own = self.algorithm.config.store_buffer_in_checkpoints, self.own_rows()
        if REPLAY_FILE not in files or own is None:
            return
        if stores:
            self.row_files.read_checkpoint(files[REPLAY_FILE], own)
        else:
            with contextlib.suppress(Unfit):  # rows of other settings are left out, and only damaged ones refused
                self.row_files.read(files[REPLAY_FILE], own)


class OffPolicy(Algorithm):
    """Base of the algorithms that learn from a replay."""

    trainee_class: ClassVar[type[OffPolicyTrainee]] = OffPolicyTrainee
    trains_several = True

    def setup(self) -> None:
        learns = self.config.is_offline and not isinstance(self.config.input_, Unread)
        if learns and self.config.overestimates_alone:
            logger.warning(
                "%s on recorded data alone overestimates actions that the data does not have. CQL, IQL and TD3BC are "
                "made for it, and for Discrete actions DQN with conservative_weight=1.0.",
                type(self).__name__,
            )
        losses = (trainee.config.lost_before_learning() for trainee in self.trainees.values())
        for text in dict.fromkeys(lost.text(str) for lost in losses if lost):
            logger.warning("%s", text)

    def training_step(self) -> dict[str, dict[str, Any]]:
        before = self.timesteps
        self.store(self.sample(1))
        for trainee in self.trainees.values():
            if not trainee.is_refused:
                trainee.learn(self.timesteps - before, before)
        return self.newest_stats()

    def _updates_this_iteration(self) -> int:
        """Updates since the iteration began: `training_intensity` says how many a training step has."""
        return self.metrics.trained_this_iteration() // self.config.train_batch_size

    def store(self, batch: SampleBatch | MultiAgentBatch) -> None:
        """Adds the rows in which each policy has acted to its replay."""
        for trainee, rows in self.by_trainee(batch):
            trainee.store(rows)

    def newest_stats(self) -> dict[str, dict[str, Any]]:
        """Policy id -> statistics of its newest update."""
        return {policy_id: trainee.stats for policy_id, trainee in self.trainees.items()}

    @property
    def _reward_clip(self) -> bool | float | None:
        """How rewards are clipped: by the setting or, where it is None, as the environment asks for."""
        return self._rollout_settings.clip_rewards

    @property
    def replays(self) -> dict[str, Any]:
        """Policy id -> the replay of a policy in training."""
        return {policy_id: trainee.replay for policy_id, trainee in self.trainees.items()}

    @property
    def replay(self) -> Any:
        """The replay of the only policy."""
        return of_only_policy(self.replays, "replay", "replays[POLICY_ID]")

    def make_postprocess(self, policy_id: str) -> Postprocess:
        config, policy = self.config_of(policy_id), self.policies[policy_id]
        stored = observation_column(policy.observation_space)
        stored = Column(sb.OBS, stored.shape, "float32" if policy.filters_observations else str(stored.dtype))
        if config.replays_sequences:
            return SequenceTransitions(
                stored,
                Column(sb.ACTIONS, policy.action_shape, str(policy.action_dtype)),
                config.gamma,
                config.n_step,
                policy.spec.architecture.max_seq_len,
                config.replay_settings().replay_burn_in,
                0 if config.zero_init_states else policy.state_size,
            )
        rows = stored.shape, stored.dtype, config.gamma, config.n_step
        if not config.needs_goals:
            return Transitions(*rows)
        goals, settings = Goals.of(policy.observation_space), config.replay_settings()
        return HindsightTransitions(
            *rows, goals=goals, num_goals=settings.n_sampled_goal, strategy=settings.goal_selection_strategy
        )

    def streamed_rows(self, dataset: Dataset) -> SampleBatch:
        return SampleBatch(self.trainee.recorded_columns(dataset))

    def _refill_recorded(self) -> None:
        super()._refill_recorded()
        for trainee in self.trainees.values():
            trainee.refill()

    def extra_results(self) -> dict[str, Any]:
        replays = self.replays.values()
        replay = {"num_entries": sum(map(len, replays)), "size_bytes": sum(each.size_bytes for each in replays)}
        learner = {
            policy_id: self._exploration_stats(policy_id) | trainee.ratios()
            for policy_id, trainee in self.trainees.items()
        }
        return {**super().extra_results(), "replay": replay, "learner": learner}

    # ------------------------------------------------------------------ files of replays alone

    def save_replay_buffer(self, path: str | os.PathLike) -> Path:
        """Writes the rows of the replay alone, by Stable-Baselines3's name, into a directory. Returns its path.

        With `store_buffer_in_checkpoints=True` they are a part of each checkpoint.

        Raises:
            CheckpointError: (a ValueError) if the run has no replay.
        """
        return write_replays(path, self._rows_of_replays())

    def _rows_of_replays(self) -> dict[str, dict[str, np.ndarray]]:
        return {each.policy_id: each.row_files.write(each.own_rows()) for each in self._with_own_rows()}

    def _take_rows_of_replays(self, rows: dict[str, dict[str, np.ndarray]]) -> None:
        for policy_id, of_policy in rows.items():
            trainee = self.trainees[policy_id]
            own = trainee.own_rows()
            own.set_state(trainee.row_files.read(of_policy, own))

    def load_replay_buffer(self, path: str | os.PathLike, truncate_last_traj: bool = True) -> None:
        """Takes the rows that `save_replay_buffer` wrote instead of the replay's own; learning continues at once.

        Args:
            path: path of the directory.
            truncate_last_traj: without effect: rows are whole transitions.

        Raises:
            CheckpointError: (a ValueError) if there are none, they are not of these policies, or the run has no
                replay.
            Unfit: (a ValueError) if they are of another environment, or of a replay with other settings; no policy's
                rows are replaced then.
        """
        log_unused_arguments(
            "load_replay_buffer", "rows are whole transitions", truncate_last_traj=not truncate_last_traj
        )
        trainees = self._with_own_rows()
        readers = {each.policy_id: (each.row_files, each.own_rows()) for each in trainees}
        rows = read_replays(path, readers)
        with naming_damage(path):
            for trainee in trainees:
                trainee.own_rows().set_state(rows[trainee.policy_id])
                trainee.empty_at = 0

    def _with_own_rows(self) -> list[OffPolicyTrainee]:
        """The trainees whose replay has rows that the run has sampled, or may get them."""
        return [each for each in self.trainees.values() if each.own_rows() is not None]
