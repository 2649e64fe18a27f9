"""What off-policy algorithms share: a replay of rows, updates in proportion to the steps sampled, a target network.

Workers send rows that need no other row (evaluation/transitions.py), and the replay keeps them, whichever weights acted
in them. Learning starts after some steps. An update samples rows, fits them to targets that the target network has a
part in, and gives the rows new priorities. An algorithm adds its network, `make_loss` and `add_targets`, and says in
its `training_step` when these happen.

Everything is counted in environment steps, whatever the number of environments: schedules, the start of learning, and
the updates of the target network.
"""

import functools
from abc import abstractmethod
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Self

import numpy as np

from rllib import sample_batch as sb
from rllib.algorithms.algorithm import Algorithm
from rllib.algorithms.algorithm_config import AlgorithmConfig
from rllib.algorithms.config_object import relation
from rllib.algorithms.from_checkpoint import rows_of_steps
from rllib.algorithms.sections import Merged, above, at_least, between, section
from rllib.env.observations import observation_column
from rllib.evaluation.transitions import Transitions
from rllib.learners.learner import Learner
from rllib.learners.target_copy import TargetCopy
from rllib.losses.loss import Loss
from rllib.policy import Policy
from rllib.replay.replay_buffer import ReplayBuffer
from rllib.sample_batch import Column, SampleBatch
from rllib.schedules import Schedule, schedule_problem, values_of

REPLAY_DEFAULTS = {
    "type": "MultiAgentPrioritizedReplayBuffer",
    "capacity": 50_000,
    "prioritized_replay_alpha": 0.6,
    "prioritized_replay_beta": 0.4,
    "prioritized_replay_eps": 1e-6,
    "replay_sequence_length": 1,
    "worker_side_prioritization": False,
    "frame_stack_axis": None,
}
# Names of Ray's buffers -> whether they have priorities.
REPLAY_TYPES = {
    "PrioritizedReplayBuffer": True,
    "MultiAgentPrioritizedReplayBuffer": True,
    "PrioritizedEpisodeReplayBuffer": True,
    "ReplayBuffer": False,
    "MultiAgentReplayBuffer": False,
    "EpisodeReplayBuffer": False,
}
# Ray 2.10+ name of a buffer's setting -> ours
REPLAY_ALIASES = {
    "alpha": "prioritized_replay_alpha",
    "beta": "prioritized_replay_beta",
    "eps": "prioritized_replay_eps",
}


class OffPolicyConfig(AlgorithmConfig):
    """Settings of replay, updates and target network."""

    # What replay_buffer_config may say, and what counts where it does not.
    replay_defaults: ClassVar[dict] = REPLAY_DEFAULTS

    @section
    def rollouts(self, *, rollout_fragment_length="auto") -> Self:
        """Who samples, how much at a time, and how; "auto" takes n_step."""

    @section
    def training(
        self,
        *,
        n_step: Annotated[int, "rewards before the bootstrap", at_least(1)] = 1,
        target_network_update_freq: Annotated[int, "environment steps between its updates", at_least(1)] = 500,
        tau: Annotated[
            float, "how far an update moves the target network to the learned one; 1: copied", between(0, 1)
        ] = 1.0,
        num_steps_sampled_before_learning_starts: Annotated[int, "environment steps", at_least(0)] = 1000,
        training_intensity: Annotated[
            float | None,
            "rows trained on per step sampled; None: one update per round of fragments",
            above(0, finite=True),
        ] = None,
        replay_buffer_config: Annotated[
            dict, "type, capacity, prioritized_replay_alpha, _beta, _eps, frame_stack_axis", Merged
        ] = REPLAY_DEFAULTS,
        store_buffer_in_checkpoints: Annotated[bool, "checkpoints hold the replay"] = False,
    ) -> Self: ...

    @section
    def reporting(self, *, min_sample_timesteps_per_iteration=1000) -> Self: ...

    @relation("replay_buffer_config", "train_batch_size", "num_steps_sampled_before_learning_starts")
    def _check_replay(self):
        settings, defaults = self.replay_settings(), self.replay_defaults
        capacity, start = settings["capacity"], self.num_steps_sampled_before_learning_starts
        if settings["type"] not in REPLAY_TYPES:
            return f"replay_buffer_config: there is no type {settings['type']!r}. There are {', '.join(REPLAY_TYPES)}."
        unknown = settings.keys() - defaults.keys() - {"has_priorities"}
        if unknown:
            return f"replay_buffer_config takes {', '.join(defaults)}, not {', '.join(sorted(map(str, unknown)))}."
        if type(capacity) is not int or capacity < 1:
            return f"replay_buffer_config: capacity={capacity!r} must be an integer >= 1. Use {{'capacity': 50000}}."
        if capacity < start:
            return (
                f"replay_buffer_config: capacity={capacity} is below num_steps_sampled_before_learning_starts={start}: "
                f"what was sampled first would be lost. Use {{'capacity': {start}}} or more."
            )
        if settings["replay_sequence_length"] != 1:
            return "replay_buffer_config: replay_sequence_length must be 1; n_step sums up rewards of several steps."
        if settings["frame_stack_axis"] not in (None, 0, -1):
            return (
                f"replay_buffer_config: frame_stack_axis={settings['frame_stack_axis']!r} must be 0 or -1, the axis of "
                "the frames in an observation, so that each is stored once; or None, to store observations whole."
            )
        return _priorities_problem(settings, defaults)

    def replay_settings(self) -> dict[str, Any]:
        """replay_buffer_config under the names of Ray 2.6, with the defaults for what it does not say."""
        given = {REPLAY_ALIASES.get(name, name): value for name, value in self.replay_buffer_config.items()}
        settings = {**self.replay_defaults, **given}
        kind = settings["type"]
        if isinstance(settings["capacity"], float) and settings["capacity"].is_integer():  # 1e6
            settings["capacity"] = int(settings["capacity"])
        settings["type"] = kind if isinstance(kind, str) else getattr(kind, "__name__", repr(kind))
        return {**settings, "has_priorities": REPLAY_TYPES.get(settings["type"], False)}

    def get_rollout_fragment_length(self, worker_index: int = 0) -> int:
        """Steps of each of a worker's environments per fragment: n_step, unless it is given."""
        return self.n_step if self.rollout_fragment_length == "auto" else self.rollout_fragment_length


def _priorities_problem(settings: dict, defaults: dict) -> str | None:
    for name in ("prioritized_replay_alpha", "prioritized_replay_eps"):
        value = settings[name]
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < np.inf:
            return f"replay_buffer_config: {name}={value!r} must be a number >= 0. Use {{{name!r}: {defaults[name]}}}."
    given = settings["prioritized_replay_beta"]
    beta = schedule_problem(given)
    if not beta and not all(0 <= each <= 1 for each in values_of(given)):
        beta = f"must be >= 0 and <= 1, but is {given!r}"
    return beta and f"replay_buffer_config: prioritized_replay_beta {beta}. Use {{'prioritized_replay_beta': 0.4}}."


class OffPolicy(Algorithm):
    """Base of the algorithms that learn from a replay.

    Attributes:
        replay: the rows.
        target: the target network.
    """

    # Whether a sample takes one row from each of equal parts of the priorities' sum.
    stratified: ClassVar[bool] = False

    def setup(self) -> None:
        self._beta = Schedule(self.config.replay_settings()["prioritized_replay_beta"])
        self._updates_owed = 0.0
        self._stats: dict[str, float] = {}
        self.replay = self.make_replay()

    @abstractmethod
    def make_loss(self) -> Loss:
        """What an update minimises; its row statistic td_error becomes the priorities of the rows."""

    @abstractmethod
    def add_targets(self, batch: SampleBatch) -> None:
        """Adds to sampled rows what the loss fits their values to."""

    def make_learner(self, policy: Policy, targets: Sequence[TargetCopy] = ()) -> Learner:
        copy = TargetCopy("policy", self.config.tau, self.config.target_network_update_freq)
        learner = super().make_learner(policy, [copy])
        self.target = Policy(policy.spec, copy.weights)
        return learner

    def make_postprocess(self) -> Transitions:
        stored = observation_column(self.observation_space)
        dtype = "float32" if self.policy.filters_observations else str(stored.dtype)
        return Transitions(stored.shape, dtype, self.config.gamma, self.config.n_step)

    def make_replay(self):
        """Where the rows are kept."""
        return self.ring(self.config.replay_settings()["capacity"])()

    def ring(self, capacity: int) -> functools.partial:
        """Makes a buffer of `capacity` rows when it is called; it can be pickled."""
        stored, settings = self._rollout_settings.postprocess, self.config.replay_settings()
        axis = settings["frame_stack_axis"]
        if axis is not None and len(stored.shape) < 2:
            raise ValueError(
                f"replay_buffer_config: frame_stack_axis={axis} is for observations that are stacks of frames, but "
                f"those of {self.config.env!r} have the shape {stored.shape}. Leave it at None."
            )
        columns = (
            Column(sb.OBS, stored.shape, stored.dtype),
            Column(sb.NEXT_OBS, stored.shape, stored.dtype),
            Column(sb.ACTIONS, self.policy.action_shape, str(self.policy.action_dtype)),
            Column(sb.REWARDS, (), "float32"),
            Column(sb.DISCOUNTS, (), "float32"),
        )
        alpha = settings["prioritized_replay_alpha"] if settings["has_priorities"] else None
        epsilon = settings["prioritized_replay_eps"]
        return functools.partial(ReplayBuffer, columns, capacity, axis, alpha, epsilon, self.stratified)

    def result_info(self) -> dict[str, Any]:
        replay = {"num_entries": len(self.replay), "size_bytes": self.replay.size_bytes}
        return {**super().result_info(), "replay": replay}

    # ------------------------------------------------------------------ building blocks of a training step

    @property
    def learning_has_started(self) -> bool:
        """Whether enough steps have been sampled."""
        return self.timesteps >= max(self.config.num_steps_sampled_before_learning_starts, 1)

    def updates_due(self, steps: int) -> int:
        """Updates that these newly sampled steps ask for; fractions add up from round to round."""
        config = self.config
        if config.training_intensity is None:
            return 1
        self._updates_owed += steps * config.training_intensity / config.train_batch_size
        due = int(self._updates_owed)
        self._updates_owed -= due
        return due

    def update(self, lr: float) -> dict[str, float]:
        """One update on rows of a replay in this process; its statistics."""
        batch = self.replay.sample(self.config.train_batch_size, self._learner_rng, self._beta(self.timesteps))
        stats = self.learn_from(batch, lr)
        self.replay.update_priorities(batch[sb.INDICES], stats.pop("td_error"))
        return stats

    def learn_from(self, batch: SampleBatch, lr: float) -> dict[str, Any]:
        """One update on sampled rows; its statistics, with the new td_error of the rows."""
        # Rows of many weights have no lag: workers sample by the newest ones (Ape-X reports how old theirs are).
        batch.policy_version = self.num_updates
        for policy in (self.policy, self.target):
            policy.resample(self._learner_rng)
        self.add_targets(batch)
        return self.learn(batch, lr=lr, shuffle=False)

    def update_target(self) -> None:
        """Moves the target network towards the learned one, if that is due."""
        if self.learner.update_targets(self.timesteps):
            self.metrics.counters["num_target_updates"] += 1
            self.metrics.counters["last_target_update_ts"] = self.timesteps

    # ------------------------------------------------------------------ checkpoints

    def algorithm_state(self) -> dict[str, Any]:
        return {"updates_owed": self._updates_owed}

    def set_algorithm_state(self, state: dict[str, Any]) -> None:
        self._updates_owed = state["updates_owed"]

    def get_state(self) -> dict[str, Any]:
        state = super().get_state()
        if self.config.store_buffer_in_checkpoints:
            state["replay.safetensors"] = self.replay.get_state()
        return state

    def set_state(self, state: dict[str, Any]) -> None:
        super().set_state(state)
        if "replay.safetensors" in state:
            config = self.config
            capacity = config.replay_settings()["capacity"]
            self.replay.set_state(rows_of_steps(state["replay.safetensors"], config.gamma, config.n_step, capacity))
