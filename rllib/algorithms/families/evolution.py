"""Base of evolution strategies and augmented random search: trials of perturbed weights instead of gradients.

    indices -> workers -> returns -> coefficients of the directions -> weights

Directions are slices of one noise table that all processes map; workers get indices and answer with scalars, so
an update costs the same however many workers there are. An episode depends on its number in the run alone: results are
the same bits with any number of workers and environments, and if workers die.
"""

import math
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Self

import numpy as np

from rllib.algorithms.base.algorithm import Algorithm
from rllib.algorithms.base.config import AlgorithmConfig
from rllib.algorithms.base.sources import Source
from rllib.algorithms.base.space_rules import NewPolicy, of_network, of_spaces
from rllib.algorithms.base.trainee import Trainee
from rllib.config.config_object import relation
from rllib.config.conflicts import Mistake, Unfit
from rllib.config.sections import above, at_least, between, section
from rllib.errors import LearnerError
from rllib.evaluation import seeding
from rllib.evaluation.evolution.noise_table import NoiseTable
from rllib.evaluation.evolution.perturbations import Outcome, PerturbationWorker, Trial
from rllib.evaluation.sampling_worker import SampleReport
from rllib.learners.updates.optimizers import SGD, Adam, global_norm
from rllib.metrics import Metrics
from rllib.models.catalog.catalog import policy_spec
from rllib.models.dense.network_spec import NetworkSpec
from rllib.models.observations.flat_spaces import parts
from rllib.processes import allocator
from rllib.replay.memory import free_bytes
from rllib.sample_batch import DEFAULT_POLICY

# Settings of other algorithms that nothing here reads, and why.
_WITHOUT_EFFECT = {
    "lr": "the step size is stepsize (ES) or sgd_stepsize (ARS)",
    "lr_schedule": "the step size is stepsize (ES) or sgd_stepsize (ARS), a number or a schedule",
    **dict.fromkeys(
        ("opt_type", "adam_epsilon", "weight_decay", "decay", "momentum", "rmsprop_epsilon"),
        "ES steps by Adam, ARS by plain gradient ascent",
    ),
    **dict.fromkeys(("grad_clip", "grad_clip_by"), "the returns are scaled before they move anything"),
    **dict.fromkeys(
        ("gamma", "clip_rewards", "normalize_returns", "normalized_reward_clip"),
        "whole episodes are compared by their returns",
    ),
    **dict.fromkeys(("rollout_fragment_length", "batch_mode"), "episodes are always whole"),
    **dict.fromkeys(
        (
            *("learner", "num_gpus", "num_learners", "learner_collective", "auxiliary_losses", "custom_loss"),
            *("learner_class", "learner_config_dict"),
            *("torch_autocast", "torch_matmul_precision", "torch_cuda_graphs"),
        ),
        "there is no gradient of a network to compute",
    ),
}


class EvolutionConfig(AlgorithmConfig):
    """Settings of ES and ARS; num_envs_per_worker and the number of workers change the speed alone."""

    has_steps = False
    without_memory: ClassVar[str] = "it perturbs fully connected networks, which have no state"
    refuses: ClassVar[dict[str, str]] = _WITHOUT_EFFECT
    # Ray's defaults have it; episodes of an evaluation are normalised as those of the training are.
    evaluation_ignores: ClassVar[frozenset[str]] = AlgorithmConfig.evaluation_ignores | {"observation_filter"}

    @section
    def rollouts(self, *, num_envs_per_worker=16, observation_filter="MeanStdFilter") -> Self: ...

    @section
    def training(
        self,
        *,
        noise_stdev: Annotated[float, "standard deviation of the weights' perturbations", above(0, finite=True)] = 0.02,
        action_noise_std: Annotated[float, "of noise on continuous actions in training", at_least(0)] = 0.0,
        eval_prob: Annotated[float, "noiseless episodes, as a share of those trained on", between(0, 1)] = 0.03,
        report_length: Annotated[int, "noiseless episodes that the reported means are over", at_least(1)] = 10,
        filter_update_prob: Annotated[
            float, "share of the training episodes whose observations the filter counts", between(0, 1)
        ] = 1.0,
        noise_size: Annotated[int, "numbers in the noise table, 4 bytes each", at_least(1)] = 250_000_000,
    ) -> Self: ...

    @section
    def exploration(self, *, explore=False) -> Self:
        """Exploration, which is in the weights here, not in the actions."""

    @relation("noise_size")
    def _check_noise_table(self):
        """The table of `noise_size` numbers fits into the free memory."""
        size_bytes, available = 4 * self.noise_size, free_bytes()
        if size_bytes > available:
            return Mistake(
                f"noise_size={self.noise_size} needs {size_bytes / 2**30:.1f} GiB, but {available / 2**30:.1f} GiB of "
                "memory are free.",
                ("noise_size",),
                ({"noise_size": available // 16},),
            )
        return None

    @relation("model")
    def _check_built_in(self):
        """`model` is a network of the library's."""
        if self.model.get("custom_model") is not None:
            return Mistake(
                f"{self.algorithm_name} perturbs the built-in fully connected networks, so it cannot use "
                f"model['custom_model']={self.model['custom_model']!r:.80}.",
                ("model",),
                (self.with_defaults("custom_model"),),
                "Leave it out, or use PPO.",
            )
        if self.model.get("use_sde"):
            return Mistake(
                f"{self.algorithm_name} perturbs the weights, not the actions.",
                ("model",),
                (self.with_defaults("use_sde"),),
                "Leave out model={'use_sde': True}.",
            )
        return None

    @of_spaces()
    def _check_actions(self, policy: NewPolicy):
        """Actions are one array."""
        if parts(policy.action_space) is None:
            return None
        return Mistake(
            f"{self.algorithm_name} takes actions that are one array, but {policy.place} has {policy.action_space}.",
            ("env",),
            advice="Use PPO for it, or let the environment take all parts of an action in one MultiDiscrete or Box.",
        )

    @of_network("model")
    def _check_no_images(self, policy: NewPolicy):
        """`model` has no convolutions."""
        if policy.spec.torso is None:
            return None
        return Mistake(
            f"{self.algorithm_name} perturbs fully connected networks, but {policy.observation_space} asks for "
            "convolutions.",
            ("model",),
            ({"model": {"conv_filters": []}},),
            "Use IMPALA or PPO for images, or flatten them: .training(model={'conv_filters': []}).",
        )


class DirectionLearner:
    """Moves weights along random directions of a noise table: no loss, no gradient of a network.

    The cost does not depend on the number of workers.

    Args:
        weights: flat float32 vector, moved in place.
        noise: the table that the directions are in.
        optimizer: steps on the flat vector.
    """

    core_choice = None  # a step is a few sums

    def __init__(self, weights: np.ndarray, noise: NoiseTable, optimizer: Adam | SGD):
        self.weights = weights
        self._noise = noise
        self._optimizer = optimizer

    def update(self, indices: np.ndarray, coefficients: np.ndarray, *, lr: float, decay: float) -> dict[str, float]:
        """One step up the gradient sum_k coefficients[k] * direction(indices[k]) - decay * weights.

        Args:
            indices: int [n], where the directions begin.
            coefficients: [n].
            lr: step size.
            decay: coefficient of the L2 penalty decay / 2 * |weights|^2.

        Returns:
            weights_norm, grad_norm (penalty included) and update_ratio (norm of the step / norm of the weights).

        Raises:
            LearnerError: if the gradient is not finite; the weights are left as they were.
        """
        gradient = self._noise.combination(coefficients, indices, len(self.weights))
        # Optimizers descend.
        np.negative(gradient, out=gradient)
        gradient += np.float32(decay) * self.weights
        grad_norm = global_norm(gradient)
        if not np.isfinite(grad_norm):
            raise LearnerError("the gradient is not finite; the returns of the episodes are too large or not finite")
        before = self.weights.copy()
        self._optimizer.step(self.weights, gradient, lr)
        weights_norm = global_norm(self.weights)
        return {
            "weights_norm": weights_norm,
            "grad_norm": grad_norm,
            "update_ratio": global_norm(self.weights - before) / max(weights_norm, 1e-12),
        }

    def get_state(self) -> dict[str, np.ndarray]:
        """Copies of the optimizer's arrays by name."""
        return {name: np.array(array) for name, array in self._optimizer.state.items()}

    def set_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Restores a state of `get_state`.

        Raises:
            ValueError: as `refuse_state`.
        """
        self.refuse_state(state)
        for name, array in self._optimizer.state.items():
            array[...] = state[name]

    def refuse_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Refuses a state that `set_state` cannot restore.

        Raises:
            ValueError: if it belongs to another optimizer or network.
        """
        own = self._optimizer.state
        if {name: array.shape for name, array in own.items()} != {n: np.shape(a) for n, a in state.items()}:
            raise ValueError(
                f"the optimizer's state has {sorted(own)}, but the given one {sorted(state)}, or their sizes differ"
            )


class EvolutionTrainee(Trainee):
    """A policy whose weights move along the directions that were tried.

    Attributes:
        noise: the table that directions are parts of.
    """

    algorithm: "Evolution"

    def make_learner(self) -> DirectionLearner:
        size, noise_size = self.policy.layout.size, self.config.noise_size
        if noise_size < size:
            raise Unfit(
                f"noise_size={noise_size} must be at least the number of the network's weights, {size}.",
                f"So that directions differ, use some hundred times as much: .training(noise_size={300 * size}).",
                {"noise_size": 300 * size},
            )
        rng = seeding.generator(self.algorithm.seed, seeding.NOISE_TABLE)
        self.noise = NoiseTable.draw(noise_size, rng, allocator(self.config.num_rollout_workers))
        return DirectionLearner(self.policy.weights, self.noise, self.algorithm.optimizer(size))


class Evolution(Algorithm):
    """Plays pairs of perturbations and moves the weights; subclasses compute the coefficient of each direction."""

    config_class = EvolutionConfig
    trainee_class = EvolutionTrainee
    # Class of the optimizer of the flat vector.
    optimizer: ClassVar[type[Adam | SGD]]
    reported_stats = ("weights_norm", "grad_norm", "update_ratio")

    def setup(self) -> None:
        self._num_trials = 0  # episodes so far, of whatever kind: each has a number
        self._stats: dict[str, float] = {}
        self._episodes_reported = 0
        self.metrics = Metrics(self.config.report_length)

    def make_policy_spec(self, observation_space, action_space, config: EvolutionConfig) -> NetworkSpec:
        """One tower: there is no critic, so no layers are spent on it."""
        model = {**config.model, "vf_share_layers": True, "vf_hiddens": None}
        read = {name: config[name] for name in ("observation_filter", "observation_clip", "action_mask_key")}
        return policy_spec(observation_space, action_space, model, **read)

    @property
    def noise(self) -> NoiseTable:
        """The table that directions are parts of."""
        return self.trainee.noise

    def make_workers(self) -> Source:
        return super().make_workers(worker_class=PerturbationWorker, shared=[self.noise.values])

    # ------------------------------------------------------------------ building blocks of a training step

    def play_pairs(self, num_pairs: int, min_steps: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Tries `num_pairs` directions with both signs, and more until there are min_steps environment steps.

        Noiseless episodes go with them, and the observation filter learns from some.

        Returns:
            indices of the directions, int64 [n]; returns [n, 2] and lengths [n, 2] of their two episodes.
        """
        indices, outcomes, steps = [], [], 0
        with self.metrics.timer("sample"):
            while num_pairs:
                drawn = self.noise.draw_indices(self.trainee.rng, num_pairs, self.policy.layout.size)
                played = self._play(drawn)
                indices.append(drawn)
                outcomes += played
                steps = sum(outcome.episode.length for outcome in outcomes)
                num_pairs = math.ceil((min_steps - steps) * len(outcomes) / (2 * steps)) if steps < min_steps else 0
        self.metrics.add_trained(DEFAULT_POLICY, steps)
        self.metrics.counters["num_episodes_trained"] += len(outcomes)
        returns = np.array([outcome.episode.episode_return for outcome in outcomes]).reshape(-1, 2)
        lengths = np.array([outcome.episode.length for outcome in outcomes]).reshape(-1, 2)
        return np.concatenate(indices), returns, lengths

    def _play(self, indices: np.ndarray) -> list[Outcome]:
        """One round: both signs of each direction, in order; noiseless episodes go to the metrics."""
        config, rng, filters = self.config, self.trainee.rng, self.policy.filters_observations
        count = 2 * len(indices)
        observed = rng.random(count) < config.filter_update_prob
        num_noiseless = rng.binomial(count, config.eval_prob)
        numbers = iter(range(self._num_trials, self._num_trials + count + num_noiseless))
        self._num_trials += count + num_noiseless
        trials = [
            Trial(next(numbers), index, scale, config.action_noise_std, bool(seen) and filters)
            for index, pair in zip(indices.tolist(), observed.reshape(-1, 2))
            for scale, seen in zip((config.noise_stdev, -config.noise_stdev), pair)
        ]
        trials += [Trial(number) for number in numbers]
        outcomes = self.workers.share_out(PerturbationWorker.play, trials, self.snapshots())
        for outcome in outcomes:
            if outcome.observations is not None:
                self.policy.filter.merge(outcome.observations)
        self.metrics.add_sample(
            SampleReport(
                episodes=[outcome.episode for outcome in outcomes[count:]],
                env_steps=sum(outcome.episode.length for outcome in outcomes),
            )
        )
        return outcomes[:count]

    def ascend(self, indices: np.ndarray, coefficients: np.ndarray, stepsize: float, decay: float = 0.0) -> dict:
        """One step of the weights; see DirectionLearner.update."""
        with self.metrics.timer("learn"):
            self._stats = self.learner.update(indices, coefficients, lr=stepsize, decay=decay)
        self.metrics.add_update(DEFAULT_POLICY)
        return self._stats

    def extra_results(self) -> dict[str, Any]:
        so_far = self.metrics.counters["num_episodes_trained"]
        now, self._episodes_reported = so_far - self._episodes_reported, so_far
        return {**self._stats, "episodes_this_iter": now, "episodes_so_far": so_far}

    def algorithm_state(self) -> dict[str, Any]:
        return {"num_trials": self._num_trials}

    def set_algorithm_state(self, state: dict[str, Any]) -> None:
        self._num_trials = state["num_trials"]
        self._episodes_reported = self.metrics.counters["num_episodes_trained"]
