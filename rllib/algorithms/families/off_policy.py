"""Base of off-policy algorithms: a replay of rows, and updates in proportion to the steps sampled.

Workers send rows that need no other row (evaluation/postprocess/transitions.py), and the replay keeps them, whichever
weights acted in them. Learning starts after some steps. An update samples rows, learns from them, and gives them new
priorities. On this stand q_learning.py, which learns the values of discrete actions, and off_policy_actor_critic.py,
which learns an actor beside its critics.

Everything is counted in environment steps, whatever the number of environments: schedules, the start of learning, and
the updates of the target network.
"""

import functools
import logging
import math
import os
from abc import abstractmethod
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

import numpy as np

from rllib import sample_batch as sb
from rllib.algorithms.base.from_checkpoint import REPLAY_FILE, file_of, rows_of_steps
from rllib.algorithms.base.new_policy import NewPolicy, of_spaces
from rllib.algorithms.base.recorded.data import learned_rewards
from rllib.algorithms.base.saving import numbers_in
from rllib.algorithms.families.sampling_ahead import SamplingAhead, SamplingAheadConfig
from rllib.config.aliases import tell_arguments
from rllib.config.config_object import relation
from rllib.config.conflicts import DEFAULT, Mistake, Unfit, conflict
from rllib.config.sections import Keys, Merged, OfPolicy, above, at_least, between, section
from rllib.env.spaces.goals import Goals
from rllib.env.spaces.observations import observation_column
from rllib.evaluation import seeding
from rllib.evaluation.offline.rows import transitions
from rllib.evaluation.postprocess.hindsight import HindsightTransitions
from rllib.evaluation.postprocess.transitions import Transitions
from rllib.evaluation.settings import Postprocess
from rllib.offline.dataset import Dataset
from rllib.offline.stream import Unread
from rllib.policies import of_only_policy
from rllib.policy import Policy
from rllib.replay.disk import MEMORY
from rllib.replay.gpu import GPU
from rllib.replay.mixed_replay import MixedReplay
from rllib.replay.replay_buffer import ReplayBuffer
from rllib.replay.replay_settings import ReplaySettings
from rllib.sample_batch import DEFAULT_POLICY, Column, MultiAgentBatch, SampleBatch
from rllib.schedules import Schedule
from rllib.storage.checkpoint import CheckpointError, naming_damage, read_checkpoint, write_checkpoint

# Remedies.
_PLAIN_REPLAY = {"replay_buffer_config": {"type": "ReplayBuffer"}}
_REPLAY_IN_MEMORY = {"replay_buffer_config": {"storage": MEMORY}}
# Recorded steps that are made into rows at once.
_ROWS_AT_ONCE = 1 << 18
logger = logging.getLogger(__name__)


class OffPolicyConfig(SamplingAheadConfig):
    """Settings of replay, updates and target networks."""

    needs_probabilities: ClassVar[bool] = False
    without_memory: ClassVar[str] = Transitions.without_memory
    learns_from_data: ClassVar[bool] = True
    mixes_data: ClassVar[bool] = True
    # Rows that cannot lie on the learner's GPU, for the message; empty: they can.
    not_on_gpu: ClassVar[str] = ""
    # Whether learning starts by the number of rows in the replay, which one that is too small never reaches.
    starts_by_rows: ClassVar[bool] = False

    @property
    def overestimates_alone(self) -> bool:
        """Whether it values actions that the data does not have too highly, where it learns from data alone."""
        return not self.needs_data

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
            why="storage='gpu' keeps the rows beside a learner in this process, but num_learners are in others",
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
                f"of other goals, and {policy.run.env!r} has several agents.",
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
                f"observations of {policy.run.env!r} have the shape {shape}.",
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


class OffPolicy(SamplingAhead):
    """Base of the algorithms that learn from a replay.

    Attributes:
        replays: id of a policy that learns -> its rows.
    """

    trains_several = True
    # Whether a sample takes one row from each of equal parts of the priorities' sum.
    stratified: ClassVar[bool] = False

    def setup(self) -> None:
        self._betas: dict[str, Schedule] = {}
        self._updates_owed: dict[str, float] = {}
        # The run's clock when the replay was empty.
        self._empty_at: dict[str, int] = {}
        # Statistics of each policy's newest update.
        self._stats: dict[str, dict[str, Any]] = {}
        self.replays: dict[str, Any] = {}
        learns = self.config.is_offline and not isinstance(self.config.input_, Unread)
        if learns and self.config.overestimates_alone:
            logger.warning(
                "%s on recorded data alone overestimates actions that the data does not have. CQL, IQL and TD3BC are "
                "made for it, and for Discrete actions DQN with conservative_weight=1.0.",
                type(self).__name__,
            )
        losses = (self.config_of(policy_id).lost_before_learning() for policy_id in self.learners)
        for text in dict.fromkeys(lost.text(str) for lost in losses if lost):
            logger.warning("%s", text)
        for policy_id in self.learners:
            self.prepare_policy(policy_id)

    def prepare_policy(self, policy_id: str) -> None:
        """Makes what a policy needs beside its learner."""
        beta = self.config_of(policy_id).replay_settings().prioritized_replay_beta
        self._betas[policy_id], self._updates_owed[policy_id] = Schedule(beta), 0.0
        self._empty_at[policy_id], self._stats[policy_id] = self.timesteps, {}
        replay = self.replays[policy_id] = self.make_replay(policy_id)
        if isinstance(replay, ReplayBuffer):
            replay.new_rows = self.learners[policy_id].new_rows

    def begin_training(self, policy_id: str) -> None:
        super().begin_training(policy_id)
        self.prepare_policy(policy_id)

    def end_training(self, policy_id: str) -> None:
        super().end_training(policy_id)
        for of_policies in (self._betas, self._updates_owed, self._empty_at, self._stats, self.replays):
            of_policies.pop(policy_id, None)

    def weights_of_modules(self, policy_id: str) -> np.random.Generator:
        """Random stream of the initial weights of the modules beside a policy."""
        # The first policy's modules have index 1, as they always had; `make_policies` counts policies from 0.
        return seeding.generator(self.seed, seeding.INITIAL_WEIGHTS, 1, self.policy_number(policy_id))

    @property
    def replay(self):
        """The replay of the only policy."""
        return of_only_policy(self.replays, "replay", "replays[POLICY_ID]")

    def target_of(self, policy_id: str) -> Policy:
        """The target network of a policy, of a learner with a TargetCopy of the module "policy"."""
        return self.learners[policy_id].targets["policy"].policy

    @abstractmethod
    def learn_from(
        self, batch: SampleBatch, policy_id: str = DEFAULT_POLICY, *args: Any, **settings: Any
    ) -> dict[str, Any]:
        """Makes one update on rows from a policy's replay.

        Args:
            batch: the rows.
            policy_id: of the policy that learns.
            args: none. With it type checkers accept overrides that name their settings.
            settings: given to `update`.

        Returns:
            its statistics, with the new TD errors [B] as td_error.
        """

    def make_postprocess(self, policy_id: str) -> Postprocess:
        config, stored = self.config_of(policy_id), self.stored_observation(policy_id)
        rows = stored.shape, stored.dtype, config.gamma, config.n_step
        if not config.needs_goals:
            return Transitions(*rows)
        goals, settings = Goals.of(self.policies[policy_id].observation_space), config.replay_settings()
        return HindsightTransitions(
            *rows, goals=goals, num_goals=settings.n_sampled_goal, strategy=settings.goal_selection_strategy
        )

    def stored_observation(self, policy_id: str) -> Column:
        """An observation of a policy as workers store it."""
        policy = self.policies[policy_id]
        stored = observation_column(policy.observation_space)
        dtype = "float32" if policy.filters_observations else str(stored.dtype)
        return Column(sb.OBS, stored.shape, dtype)

    def replay_columns(self, policy_id: str) -> tuple[Column, ...]:
        """Columns of a row in a policy's replay."""
        policy, stored = self.policies[policy_id], self._rollout_settings.policies[policy_id].postprocess
        return (
            Column(sb.OBS, stored.shape, stored.dtype),
            Column(sb.NEXT_OBS, stored.shape, stored.dtype),
            Column(sb.ACTIONS, policy.action_shape, str(policy.action_dtype)),
            Column(sb.REWARDS, (), "float32"),
            Column(sb.DISCOUNTS, (), "float32"),
        )

    def make_replay(self, policy_id: str):
        """Makes the replay of a policy."""
        config = self.config_of(policy_id)
        if config.replay_settings().storage == GPU and not self.learners[policy_id].objectives[0].is_over_modules:
            raise Unfit(
                "replay_buffer_config: storage='gpu' needs targets that are computed on the GPU, but this run "
                "computes them elsewhere: it has custom_loss, auxiliary_losses, or a separate add_targets.",
                "Use .training(replay_buffer_config={'storage': 'memory'}).",
                _REPLAY_IN_MEMORY,
            )
        if self.recorded is None:
            return self.ring(config.rows_of_capacity, policy_id)()
        return self._recorded_replay(policy_id, config.rows_of_capacity)

    def _recorded_replay(self, policy_id: str, capacity: int) -> ReplayBuffer | MixedReplay:
        """The replay of a run from recorded data, or from a mixture of it with sampled steps."""
        if self.recorded.stream is not None:
            return self.ring(capacity, policy_id)()
        parts = []
        for dataset, share in self.recorded.datasets:
            buffer = self.ring(len(dataset), policy_id)()
            for part in dataset.parts(_ROWS_AT_ONCE):
                buffer.add(self.recorded_columns(part, policy_id))
            parts.append((buffer, share))
        if self.recorded.sampled:
            parts.append((self.ring(capacity, policy_id)(), self.recorded.sampled))
        elif len(parts) == 1:
            return parts[0][0]
        return MixedReplay(parts, takes_new_rows=self.recorded.sampled > 0)

    def _refill_recorded(self) -> None:
        super()._refill_recorded()
        for policy_id in tuple(self.replays):
            del self.replays[policy_id]  # two of them may not fit into the memory
            self.replays[policy_id] = self.make_replay(policy_id)

    def recorded_columns(self, dataset: Dataset, policy_id: str) -> dict[str, np.ndarray]:
        """Rows of recorded steps with the columns of a policy's replay."""
        config = self.config_of(policy_id)
        rewards = learned_rewards(dataset, config)
        return transitions(dataset, self.policies[policy_id], config, rewards, config.gamma, config.n_step)

    def streamed_rows(self, dataset: Dataset) -> SampleBatch:
        return SampleBatch(self.recorded_columns(dataset, DEFAULT_POLICY))

    def ring(self, capacity: int, policy_id: str = DEFAULT_POLICY) -> functools.partial:
        """A factory, which can be pickled, of a buffer of `capacity` rows of a policy."""
        settings = self.config_of(policy_id).replay_settings()
        alpha = settings.prioritized_replay_alpha if settings.has_priorities else None
        place = self.replay_columns(policy_id), capacity, settings.frame_stack_axis, alpha, settings.storage
        epsilon = settings.prioritized_replay_eps
        return functools.partial(ReplayBuffer, *place, epsilon=epsilon, stratified=self.stratified)

    # ------------------------------------------------------------------ building blocks of a training step

    def store(self, batch: SampleBatch | MultiAgentBatch) -> None:
        """Adds the rows in which each policy has acted to its replay."""
        for policy_id, rows in self.by_policy(batch).items():
            if len(rows):  # of recorded steps the replay has all already
                self.replays[policy_id].add(rows)

    def learning_has_started(self, policy_id: str = DEFAULT_POLICY) -> bool:
        """Whether enough steps have been sampled, and there are rows in the policy's replay."""
        if self.config.is_offline:
            return len(self.replays[policy_id]) > 0
        sampled = self.timesteps - self._empty_at[policy_id]
        enough = sampled >= max(self.config_of(policy_id).num_steps_sampled_before_learning_starts, 1)
        return enough and len(self.replays[policy_id]) > 0

    def updates_due(self, steps: int, policy_id: str = DEFAULT_POLICY) -> int:
        """Updates of a policy that newly sampled steps ask for; fractions add up from round to round."""
        config = self.config_of(policy_id)
        if config.training_intensity is None:
            return 1
        owed = self._updates_owed[policy_id] + steps * config.training_intensity / config.train_batch_size
        self._updates_owed[policy_id] = owed - int(owed)
        return int(owed)

    def extra_results(self) -> dict[str, Any]:
        replays = self.replays.values()
        replay = {"num_entries": sum(map(len, replays)), "size_bytes": sum(each.size_bytes for each in replays)}
        learner = {
            policy_id: self._exploration_stats(policy_id) | self._ratios(policy_id) for policy_id in self.replays
        }
        return {**super().extra_results(), "replay": replay, "learner": learner}

    def _ratios(self, policy_id: str) -> dict[str, float]:
        """Updates, and rows trained on, for each environment step sampled since learning began."""
        start, counts = self.config_of(policy_id).num_steps_sampled_before_learning_starts, self.metrics.policies
        steps = max(self.timesteps - max(start, 1) + 1, 1)
        return {
            "updates_per_step_sampled": counts[policy_id]["num_updates"] / steps,
            "rows_trained_per_step_sampled": counts[policy_id]["num_steps_trained"] / steps,
        }

    def update(self, policy_id: str = DEFAULT_POLICY, **settings) -> dict[str, float]:
        """Makes one update of a policy on rows of its replay in this process. Returns its statistics.

        Args:
            policy_id: of the policy.
            settings: of `learn_from`.
        """
        config, replay = self.config_of(policy_id), self.replays[policy_id]
        rows = -(-config.train_batch_size // config.steps_per_row)
        batch = replay.sample(rows, self.learner_rng(policy_id), self._beta(policy_id))
        # Rows of many weights have no lag: workers sample by the newest ones (Ape-X reports how old theirs are).
        batch.policy_version = self.metrics.num_updates(policy_id)
        stats = self.learn_from(batch, policy_id, **settings)
        replay.update_priorities(batch[sb.INDICES], stats.pop("td_error"))
        return stats

    def update_target(self, policy_id: str = DEFAULT_POLICY) -> None:
        """Moves a policy's target networks towards the learned ones, if that is due by the run's clock."""
        if self.learners[policy_id].update_targets(self.timesteps):
            self.metrics.counters["num_target_updates"] += 1
            self.metrics.counters["last_target_update_ts"] = self.timesteps

    def _beta(self, policy_id: str) -> float:
        """Present exponent of the importance weights of a policy's rows."""
        return self._betas[policy_id](self.timesteps)

    # ------------------------------------------------------------------ checkpoints

    def algorithm_state(self) -> dict[str, Any]:
        owed = {policy_id: each.owed for policy_id, each in self.replays.items() if isinstance(each, MixedReplay)}
        state = {"updates_owed": dict(self._updates_owed), "replay_empty_at": dict(self._empty_at)}
        # An iteration without an update of a network, as that of a delayed actor, reports those of the newest one.
        state["stats"] = {policy_id: numbers_in(stats) for policy_id, stats in self._stats.items()}
        return {**state, "rows_owed": owed} if owed else state

    def set_algorithm_state(self, state: dict[str, Any]) -> None:
        self._updates_owed |= state["updates_owed"]
        self._empty_at |= state.get("replay_empty_at", {})
        saved = state.get("stats", {})  # earlier checkpoints have none
        self._stats |= {policy_id: saved[policy_id] for policy_id in self._stats.keys() & saved.keys()}
        for policy_id, owed in state.get("rows_owed", {}).items():
            if isinstance(self.replays.get(policy_id), MixedReplay):
                self.replays[policy_id].owed = owed

    def _own_replays(self) -> dict[str, ReplayBuffer]:
        """Policy id -> the part of its replay with rows of the run's own: recorded ones are not saved again."""
        if self.recorded is None or self.recorded.stream is not None:
            return self.replays
        return {policy_id: replay.newest for policy_id, replay in self.replays.items() if self.recorded.sampled}

    def get_state(self) -> dict[str, Any]:
        state = super().get_state()
        if self.config.store_buffer_in_checkpoints:
            for policy_id, replay in self._own_replays().items():
                state[file_of(policy_id, REPLAY_FILE)] = replay.get_state()
        return state

    def set_state(self, state: dict[str, Any]) -> None:
        super().set_state(state)
        for policy_id, replay in self._own_replays().items():
            if (rows := state.get(file_of(policy_id, REPLAY_FILE))) is not None:
                self._set_rows(policy_id, replay, rows)
            elif not len(replay):
                # A few rows, learned from over and over, would undo what has been learned.
                self._empty_at[policy_id] = self.timesteps

    def _set_rows(self, policy_id: str, replay: ReplayBuffer, rows: dict[str, np.ndarray]) -> None:
        """Gives a policy's replay the rows of a file."""
        rows = self._as_rows(policy_id, rows)
        replay.refuse_state(rows, self.config_of(policy_id).capacity_for)
        replay.set_state(rows)

    def _as_rows(self, policy_id: str, rows: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        config = self.config_of(policy_id)
        return rows_of_steps(rows, config.gamma, config.n_step, config.rows_of_capacity)

    def save_replay_buffer(self, path: str | os.PathLike) -> Path:
        """Writes the rows of the replay alone, by Stable-Baselines3's name, into a directory. Returns its path.

        With `store_buffer_in_checkpoints=True` they are a part of each checkpoint.
        """
        replays = self._own_replays().items()
        files = {file_of(policy_id, REPLAY_FILE): replay.get_state() for policy_id, replay in replays}
        return write_checkpoint(Path(path), files)

    def load_replay_buffer(self, path: str | os.PathLike, truncate_last_traj: bool = True) -> None:
        """Takes the rows that `save_replay_buffer` wrote in the place of the replay's own; learning goes on at once.

        Args:
            path: of the directory.
            truncate_last_traj: without effect: rows are whole transitions.

        Raises:
            CheckpointError: (a ValueError) if there are none, or they are not of these policies.
            Unfit: (a ValueError) if they are of another environment, or of a replay with other settings; no policy's
                rows are replaced then.
        """
        tell_arguments("load_replay_buffer", "rows are whole transitions", truncate_last_traj=not truncate_last_traj)
        files = read_checkpoint(path)
        replays = self._own_replays()
        missing = [policy_id for policy_id in replays if file_of(policy_id, REPLAY_FILE) not in files]
        if missing:
            named = ", ".join(missing)
            raise CheckpointError(f"{os.fspath(path)} has no rows of {named}. Use save_replay_buffer(path).")
        own = {file_of(policy_id, REPLAY_FILE) for policy_id in replays}
        if others := sorted(name for name in files if Path(name).name == REPLAY_FILE and name not in own):
            raise CheckpointError(
                f"{os.fspath(path)} has rows of other policies, {', '.join(others)}, than the run's, "
                f"{', '.join(sorted(own))}. Build the run with the policies that they were saved with."
            )
        with naming_damage(path):
            for policy_id, replay in replays.items():  # all of them, before any is replaced
                rows = self._as_rows(policy_id, files[file_of(policy_id, REPLAY_FILE)])
                replay.refuse_state(rows, self.config_of(policy_id).capacity_for)
            for policy_id, replay in replays.items():
                self._set_rows(policy_id, replay, files[file_of(policy_id, REPLAY_FILE)])
                self._empty_at[policy_id] = 0
