"""Base of off-policy estimators: what an estimate reports, and the parts that they share."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from rllib.evaluation.estimators.formulas import discounted_returns, effective_sample_size, log_cumulative
from rllib.evaluation.estimators.recorded_steps import RecordedSteps, recorded_steps
from rllib.evaluation.estimators.target_policy import TargetPolicy
from rllib.evaluation.offline.rows import Conversions
from rllib.policy import Policy

# Of a normal distribution: 95 % lie within this number of standard deviations.
_DEVIATIONS = 1.959963984540054


@dataclass(frozen=True)
class Values:
    """Estimates of the episodes.

    Attributes:
        values: float64 [episodes], whose mean is the estimate.
        log_weights: log-weights of whole episodes, [episodes]; None for an estimate without weights.
        changes: float64 [episodes] with the same mean, whose deviation over sqrt(episodes) is the estimate's standard
            error; None: the values themselves, which are independent of one another.
    """

    values: np.ndarray
    log_weights: np.ndarray | None = None
    changes: np.ndarray | None = None


class OffPolicyEstimator(ABC):
    """Estimates the value of a policy from steps of another one.

    A subclass writes `episode_values`.

    Args:
        policy: whose value is estimated; its present weights count in each estimate.
        gamma: discount per step.
        epsilon_greedy: share of the steps in which the policy would act at random (Discrete actions alone).
        conversions: between actions of the policy and of the environment, for a Dataset (evaluation/offline/rows.py);
            None: the config's of the policy, or the defaults.

    Raises:
        ValueError: for numbers out of range.
    """

    # Short name in settings and on the command line.
    short_name: ClassVar[str | None] = None
    # Whether it compares probabilities of the recorded actions, by `log_ratios`: those of the policy and of the data.
    reads_probabilities: ClassVar[bool] = False
    # What `train` fits, where estimators may have one in common; None: the estimator itself.
    model: Any = None

    def __init__(
        self,
        policy: Policy,
        gamma: float = 0.99,
        epsilon_greedy: float = 0.0,
        conversions: Conversions | None = None,
    ):
        if not 0 <= gamma <= 1:
            raise ValueError(f"gamma={gamma!r} must be from 0 to 1")
        self.policy, self.gamma, self.epsilon_greedy = policy, gamma, epsilon_greedy
        self.target = TargetPolicy(policy, epsilon_greedy)
        self._conversions = conversions

    @abstractmethod
    def episode_values(self, steps: RecordedSteps) -> Values:
        """Estimates the discounted return of the policy from each recorded episode."""

    def train(self, batch: Any) -> dict[str, Any]:
        """Fits what the estimator learns to recorded steps, given as for `estimate`; most learn nothing.

        Returns:
            statistics by name.
        """
        return {}

    def steps(self, batch: Any) -> RecordedSteps:
        """Recorded steps in the policy's units."""
        return recorded_steps(batch, self.policy, self._conversions)

    def log_ratios(self, steps: RecordedSteps) -> np.ndarray:
        """log pi(a_t | s_t) - log b(a_t | s_t) of single steps, float64 [N]; -inf where the policy would not act so.

        Raises:
            ValueError: if the data says nothing of b, or the policy has no probabilities.
        """
        behavior = steps.behavior_log_prob()
        return self.target.log_prob(steps.obs, steps.actions, steps.starts) - behavior

    def estimate(self, batch: Any, split_batch_by_episode: bool = True) -> dict[str, float]:
        """Estimates the policy's value.

        Args:
            batch: a Dataset, or the columns of whole episodes as the policy's batches store them (SampleBatch).
            split_batch_by_episode: False takes each step as its own episode: contextual bandits.

        Returns:
            means over the episodes, float64:

            - v_behavior: the discounted return that was recorded; v_behavior_std, its deviation (population's);
              v_behavior_low, v_behavior_high: bounds of its 95 % confidence interval;
            - v_target, v_target_std, v_target_low, v_target_high: the same of the policy;
            - v_gain: v_target / v_behavior, NaN unless v_behavior is above 0; v_delta: v_target - v_behavior;
            - effective_sample_size: (sum w)^2 / sum w^2 of the episodes' weights; NaN for an estimate without weights;
            - num_episodes, and num_truncated of them, which were cut.

            Intervals are normal, from the standard error of the mean over episodes; NaN for one episode. They know
            nothing of errors of a model, and of episodes that were not recorded.

        Raises:
            ValueError: if the data lacks a column, or a probability cannot be right.
        """
        steps = self.steps(batch)
        if not split_batch_by_episode:
            steps = steps.as_single_steps()
        recorded = discounted_returns(steps.rewards, steps.starts, self.gamma)
        estimated = self.episode_values(steps)
        behavior = _spread("v_behavior", recorded)
        target = _spread("v_target", estimated.values, estimated.changes)
        before, after = behavior["v_behavior"], target["v_target"]
        weights = estimated.log_weights
        return {
            **behavior,
            **target,
            "v_gain": after / before if before > 0 else math.nan,
            "v_delta": after - before,
            "effective_sample_size": math.nan if weights is None else effective_sample_size(weights),
            "num_episodes": steps.num_episodes,
            "num_truncated": int((~steps.terminated[steps.last]).sum()),
        }

    def episode_weights(self, log_ratios: np.ndarray, steps: RecordedSteps) -> np.ndarray:
        """log of the product of each whole episode's ratios, [episodes]."""
        return log_cumulative(log_ratios, steps.starts)[steps.last]


def _spread(name: str, values: np.ndarray, changes: np.ndarray | None = None) -> dict[str, float]:
    """Mean, deviation, and bounds of the 95 % interval of the mean of values [episodes]."""
    with np.errstate(invalid="ignore"):
        mean, deviation = float(values.mean()), float(values.std())
        samples = values if changes is None else changes
        error = float(samples.std(ddof=1)) / math.sqrt(len(samples)) if len(samples) > 1 else math.nan
    half = _DEVIATIONS * error
    return {name: mean, f"{name}_std": deviation, f"{name}_low": mean - half, f"{name}_high": mean + half}
