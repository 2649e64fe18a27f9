"""Deep Q-learning (Mnih et al., Nature 2015) and what Rainbow (Hessel et al., arXiv:1710.02298) adds, each a setting.

- `double_q`: the online network chooses the next action, the target network judges it (arXiv:1509.06461);
- `dueling`: Q is a value plus advantages (arXiv:1511.06581);
- `n_step`: rewards of several steps before the bootstrap;
- prioritised replay (arXiv:1511.05952), `replay_buffer_config`: {"type": "PrioritizedReplayBuffer"};
- `num_atoms` > 1: a distribution of returns, C51 (arXiv:1707.06887);
- `noisy`: exploration by learned noise in the weights of `hiddens` and the head instead of epsilon (arXiv:1706.10295).

Departures: both streams of the dueling network read the same hidden layers, `fcnet_hiddens` and then `hiddens`, and are
linear (the papers give each a hidden layer of its own); the priorities of C51 are KL(target || prediction), as in
Rainbow; a window of rewards that the newest step cuts is bootstrapped there, instead of being held back. As in RLlib,
`hiddens` have rectified units, whatever `fcnet_activation` is.

Weights begin as torch's layers do, uniform within 1 / sqrt(fan in), not orthogonal as policies' do; see
docs/decisions.md for what that is worth.

Everything is counted in environment steps, whatever the number of environments: epsilon, the start of learning, and the
updates of the target network.
"""

import dataclasses
from typing import Annotated, Any, ClassVar, Literal, Self

import gymnasium as gym
import numpy as np

from rllib import sample_batch as sb
from rllib.algorithms.algorithm import Algorithm
from rllib.algorithms.algorithm_config import AlgorithmConfig
from rllib.algorithms.config_object import relation
from rllib.algorithms.exploration_config import EPSILON_ALIASES, OF_VALUES
from rllib.algorithms.sections import Merged, above, at_least, between, section
from rllib.env.observations import observation_column
from rllib.evaluation.exploration import Exploration, NoisyWeights
from rllib.evaluation.transitions import LockstepTransitions, Transitions
from rllib.learners.learner import Learner
from rllib.losses.loss import Loss
from rllib.losses.td import DistributionalLoss, TDLoss, q_targets
from rllib.models.catalog import PolicySpec
from rllib.models.q_values import QValues
from rllib.policy import Policy
from rllib.replay.transition_replay import TransitionReplay
from rllib.sample_batch import SampleBatch
from rllib.schedules import Schedule, schedule_problem

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


class DQNConfig(AlgorithmConfig):
    """Settings of DQN; the defaults are RLlib's, except those in departures.py."""

    algo_class = "DQN"
    # What replay_buffer_config may say, and what counts where it does not.
    replay_defaults: ClassVar[dict] = REPLAY_DEFAULTS
    needs_all_workers: ClassVar[bool] = True
    exploration_kinds: ClassVar[tuple[str, ...]] = OF_VALUES
    own_aliases: ClassVar[dict] = EPSILON_ALIASES
    default_exploration: ClassVar[dict] = {
        "type": "EpsilonGreedy", "initial_epsilon": 1.0, "final_epsilon": 0.02, "epsilon_timesteps": 10_000,
    }  # fmt: skip

    @section
    def rollouts(self, *, rollout_fragment_length="auto") -> Self:
        """Who samples, how much at a time, and how; "auto" takes n_step."""

    @section
    def training(
        self,
        *,
        lr=5e-4,
        grad_clip=40.0,
        train_batch_size=32,
        double_q: Annotated[bool, "the online network chooses the next action, the target network judges it"] = True,
        dueling: Annotated[bool, "Q is a value plus advantages"] = True,
        hiddens: Annotated[list[int], "widths of hidden layers, relu, between fcnet_hiddens and the heads"] = [256],  # noqa: B006
        n_step: Annotated[int, "rewards before the bootstrap", at_least(1)] = 1,
        num_atoms: Annotated[int, "points of the return's distribution (C51: 51); 1: none", at_least(1)] = 1,
        v_min: Annotated[float, "least return of the distribution"] = -10.0,
        v_max: Annotated[float, "largest return of the distribution"] = 10.0,
        noisy: Annotated[bool, "explore by learned noise in the weights of hiddens and the head"] = False,
        sigma0: Annotated[
            float, "initial noise in the weights, before the root of a layer's inputs", above(0, finite=True)
        ] = 0.5,
        td_error_loss_fn: Annotated[Literal["huber", "mse"], "loss of the TD error (without atoms)"] = "huber",
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
    ) -> Self:
        """How it learns."""

    @section
    def exploration(self, *, exploration_config=default_exploration) -> Self:
        """How new behaviour is tried out."""

    @section
    def reporting(self, *, min_sample_timesteps_per_iteration=1000) -> Self:
        """What counts as an iteration, and what is reported about it."""

    @relation("num_atoms", "v_min", "v_max")
    def _check_support(self):
        if self.num_atoms > 1 and not -np.inf < self.v_min < self.v_max < np.inf:
            return (
                f"v_min={self.v_min} must be below v_max={self.v_max}, and both be finite: they are the ends of "
                "the returns that num_atoms stand for. Use .training(v_min=-10.0, v_max=10.0)."
            )

    @relation("noisy", "exploration_config")
    def _check_noise(self):
        given = {**self.default_exploration, **self.exploration_config}
        never = all(given.get(name) == 0 for name in ("initial_epsilon", "final_epsilon"))
        if self.noisy and given != self.default_exploration and not never:
            return (
                f"noisy=True explores by noise in the weights alone, without exploration_config={given!r}. Leave that "
                "out, or use .training(noisy=False)."
            )

    @relation("hiddens")
    def _check_hiddens(self):
        if not all(type(width) is int and width > 0 for width in self.hiddens):
            return f"hiddens={self.hiddens!r} must be a list of positive integers. Use .training(hiddens=[256])."

    @relation("replay_buffer_config", "train_batch_size", "num_steps_sampled_before_learning_starts")
    def _check_replay(self):
        return _replay_problem(
            self.replay_settings(), self.replay_defaults, self.num_steps_sampled_before_learning_starts
        )

    @relation("replay_buffer_config", "n_step", "num_rollout_workers", "num_envs_per_worker")
    def _check_windows(self):
        """Every environment has its share of the replay, and that has to hold a whole window of rewards."""
        capacity, needed = self.replay_settings()["capacity"], self.n_step * self._num_environments
        if type(capacity) is int and 0 < capacity < needed:
            return (
                f"replay_buffer_config: capacity={capacity} is below n_step x environments = {self.n_step} x "
                f"{self._num_environments}: no window of rewards would be whole. Use {{'capacity': {needed}}} or more."
            )

    @relation("replay_buffer_config")
    def _check_prioritization(self):
        given = self.replay_settings()["worker_side_prioritization"]
        if given is not False:
            return (
                f"replay_buffer_config: worker_side_prioritization={given!r} must be False: the replay gives new rows "
                "the largest priority so far. Leave it out, or use ApexDQN, whose workers compute priorities."
            )

    @relation("recreate_failed_workers", "ignore_worker_failures", "num_rollout_workers")
    def _check_failures(self):
        must_leave_out = self.ignore_worker_failures and self.recreate_failed_workers is False
        if must_leave_out and self.num_rollout_workers:
            return (
                "ignore_worker_failures=True does not go with a replay that joins the fragments of all workers. Use "
                ".fault_tolerance(recreate_failed_workers=True), or ApexDQN."
            )

    @relation("batch_mode", "n_step")
    def _check_batch_mode(self):
        if self.batch_mode != "truncate_episodes":
            return (
                f"batch_mode={self.batch_mode!r} has no use here: the replay joins fragments again. "
                'Use .rollouts(batch_mode="truncate_episodes").'
            )

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


def _replay_problem(settings: dict, defaults: dict, learning_start: int) -> str | None:
    capacity, kind = settings["capacity"], settings["type"]
    if kind not in REPLAY_TYPES:
        return f"replay_buffer_config: there is no type {kind!r}. There are {', '.join(REPLAY_TYPES)}."
    unknown = settings.keys() - defaults.keys() - {"has_priorities"}
    if unknown:
        return f"replay_buffer_config takes {', '.join(defaults)}, not {', '.join(sorted(map(str, unknown)))}."
    if type(capacity) is not int or capacity < 1:
        return f"replay_buffer_config: capacity={capacity!r} must be an integer >= 1. Use {{'capacity': 50000}}."
    if capacity < learning_start:
        return (
            f"replay_buffer_config: capacity={capacity} is below num_steps_sampled_before_learning_starts="
            f"{learning_start}: what was sampled first would be lost. Use {{'capacity': {learning_start}}} or more."
        )
    if settings["replay_sequence_length"] != 1:
        return "replay_buffer_config: replay_sequence_length must be 1; n_step sums up rewards of several steps."
    if settings["frame_stack_axis"] not in (None, 0, -1):
        return (
            f"replay_buffer_config: frame_stack_axis={settings['frame_stack_axis']!r} must be 0 or -1, the axis of the "
            "frames in an observation, so that each is stored once; or None, to store observations whole."
        )
    for name in ("prioritized_replay_alpha", "prioritized_replay_eps"):
        value = settings[name]
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < np.inf:
            return f"replay_buffer_config: {name}={value!r} must be a number >= 0. Use {{{name!r}: {defaults[name]}}}."
    given = settings["prioritized_replay_beta"]
    beta = schedule_problem(given)
    if not beta and not all(0 <= each <= 1 for each in ([given] if np.isscalar(given) else [v for _, v in given])):
        beta = f"must be >= 0 and <= 1, but is {given!r}"
    return beta and f"replay_buffer_config: prioritized_replay_beta {beta}. Use {{'prioritized_replay_beta': 0.4}}."


class SimpleQConfig(DQNConfig):
    """Q-learning without the parts that came later: the DQN of 2015."""

    algo_class = "SimpleQ"

    @section
    def rollouts(self, *, rollout_fragment_length=4) -> Self:
        """Who samples, how much at a time, and how."""

    @section
    def training(
        self,
        *,
        double_q=False,
        dueling=False,
        hiddens=[],  # noqa: B006
        replay_buffer_config={**REPLAY_DEFAULTS, "type": "MultiAgentReplayBuffer"},  # noqa: B006
    ) -> Self:
        """How it learns."""


class DQN(Algorithm):
    """The algorithm; see the module's docstring."""

    config_class = DQNConfig
    initializer = "uniform"

    def __init__(self, config: DQNConfig | dict | None = None, env: Any = None):
        super().__init__(config, env)
        config = self.config
        self.target = Policy(self.policy.spec, weights=self.policy.weights.copy())
        self._lr = config.get_schedule("lr")
        settings = config.replay_settings()
        self._beta = Schedule(settings["prioritized_replay_beta"])
        try:
            self.replay = self._make_replay(settings)
        except ValueError:
            self.stop()
            raise
        self._updates_owed = 0.0
        self._target_updated_at = 0
        self._stats: dict[str, float] = {}

    def make_policy_spec(self, observation_space, action_space) -> PolicySpec:
        config = self.config
        if not isinstance(action_space, gym.spaces.Discrete):
            raise ValueError(
                f"{type(self).__name__} learns the value of each action, so it needs a Discrete action space, but "
                f"{config.env!r} has {action_space}. Use PPO for it, or an environment with discrete actions."
            )
        spec = super().make_policy_spec(observation_space, action_space)
        values = QValues(int(action_space.n), config.dueling, config.num_atoms, config.v_min, config.v_max)
        return dataclasses.replace(
            spec,
            distribution=values,
            hiddens=(*spec.hiddens, *config.hiddens),
            activations=(*spec.activations, *("relu",) * len(config.hiddens)),
            critic=False,
            vf_share_layers=True,
            noisy_layers=len(config.hiddens) + 1 if config.noisy else 0,
            sigma0=config.sigma0,
        )

    def make_exploration(self, config: DQNConfig) -> Exploration:
        return NoisyWeights() if config.noisy else super().make_exploration(config)

    def make_postprocess(self) -> Transitions:
        stored = observation_column(self.observation_space)
        return LockstepTransitions(stored.shape, "float32" if self.policy.filters_observations else str(stored.dtype))

    def _make_replay(self, settings: dict) -> TransitionReplay:
        config = self.config
        observation, dtype = self._rollout_settings.postprocess.shape, self._rollout_settings.postprocess.dtype
        columns = {
            sb.OBS: (observation, dtype),
            sb.NEXT_OBS: (observation, dtype),
            sb.ACTIONS: (self.policy.action_shape, str(self.policy.action_dtype)),
            sb.REWARDS: ((), "float32"),
            sb.TERMINATEDS: ((), "bool"),
            sb.TRUNCATEDS: ((), "bool"),
        }
        return TransitionReplay(
            columns,
            settings["capacity"],
            max(config.num_rollout_workers, 1) * config.num_envs_per_worker,
            config.gamma,
            config.n_step,
            settings["prioritized_replay_alpha"] if settings["has_priorities"] else None,
            settings["prioritized_replay_eps"],
            self._frame_axis(observation, settings["frame_stack_axis"]),
        )

    def _frame_axis(self, observation: tuple[int, ...], axis: int | None) -> int | None:
        if axis is not None and len(observation) < 2:
            raise ValueError(
                f"replay_buffer_config: frame_stack_axis={axis} is for observations that are stacks of frames, but "
                f"those of {self.config.env!r} have the shape {observation}. Leave it at None."
            )
        return axis

    def result_info(self) -> dict[str, Any]:
        replay = {"num_entries": len(self.replay), "size_bytes": self.replay.size_bytes}
        return {**super().result_info(), "replay": replay}

    def make_loss(self) -> Loss:
        """That of numbers, or of distributions."""
        config = self.config
        return DistributionalLoss() if config.num_atoms > 1 else TDLoss(config.td_error_loss_fn)

    def make_learner(self) -> Learner:
        return self.make_default_learner(self.make_loss())

    def training_step(self) -> dict[str, float]:
        lr = self._lr(self.timesteps)
        batch = self.sample(1)
        self.replay.add(batch, self.config.get_rollout_fragment_length())
        if self.timesteps >= max(self.config.num_steps_sampled_before_learning_starts, 1):
            for _ in range(self._updates_for(batch.env_steps)):
                self._stats = self._update(lr)
            self._update_target()
        return {**self._stats, **self.exploration_stats()}

    def _updates_for(self, steps: int) -> int:
        """Updates that so many sampled steps ask for; fractions add up from round to round."""
        config = self.config
        if config.training_intensity is None:
            return 1
        self._updates_owed += steps * config.training_intensity / config.train_batch_size
        due = int(self._updates_owed)
        self._updates_owed -= due
        return due

    def _update(self, lr: float) -> dict[str, float]:
        batch = self.replay.sample(self.config.train_batch_size, self._learner_rng, self._beta(self.timesteps))
        stats = self._learn_from(batch, lr)
        self.replay.update_priorities(batch[sb.INDICES], stats.pop("td_error"))
        return stats

    def _learn_from(self, batch: SampleBatch, lr: float) -> dict[str, Any]:
        """One update on sampled rows; its statistics, with the rows' new td_error."""
        # Replayed rows are of many weights, which is no lag: new rows are sampled by the newest (Ape-X tells how old).
        batch.policy_version = self.num_updates
        for policy in (self.policy, self.target):
            policy.resample(self._learner_rng)
        self._add_targets(batch)
        return {**self.learn(batch, lr=lr, shuffle=False), "cur_lr": lr}

    def _add_targets(self, batch: SampleBatch) -> None:
        """What the rows' values are fitted to, by the target network."""
        following, rewards, discounts = batch[sb.NEXT_OBS], batch[sb.REWARDS], batch[sb.DISCOUNTS]
        judged = self.target.action_values(following)
        choosing = self.policy.action_values(following) if self.config.double_q else judged
        name, targets = q_targets(self.policy.distribution, judged, choosing.q_values(), rewards, discounts)
        batch[name] = targets

    def _update_target(self) -> None:
        if self.timesteps - self._target_updated_at >= self.config.target_network_update_freq:
            self._target_updated_at = self.timesteps
            target, tau = self.target.weights, np.float32(self.config.tau)
            target[:] = (1 - tau) * target + tau * self.policy.weights
            self.metrics.counters["num_target_updates"] += 1
            self.metrics.counters["last_target_update_ts"] = self.timesteps

    # ------------------------------------------------------------------ checkpoints

    def algorithm_state(self) -> dict[str, Any]:
        return {"updates_owed": self._updates_owed, "target_updated_at": self._target_updated_at}

    def set_algorithm_state(self, state: dict[str, Any]) -> None:
        self._updates_owed, self._target_updated_at = state["updates_owed"], state["target_updated_at"]

    def get_state(self) -> dict[str, Any]:
        state = super().get_state()
        state["target.safetensors"] = {"weights": self.target.weights.copy()}
        if self.config.store_buffer_in_checkpoints:
            state["replay.safetensors"] = self.replay.get_state()
        return state

    def set_state(self, state: dict[str, Any]) -> None:
        super().set_state(state)
        self.target.set_weights(state["target.safetensors"]["weights"])
        if "replay.safetensors" in state:
            self.replay.set_state(state["replay.safetensors"])


class SimpleQ(DQN):
    """The same algorithm, by the defaults of SimpleQConfig."""

    config_class = SimpleQConfig
