"""Weighted importance sampling: ratios divided by their mean over episodes, which bounds them, for a small bias.

The mean of step t is over the episodes that have reached it, as RLlib has it; Thomas (2015) carries the ratios of
shorter episodes on.
"""

from rllib.evaluation.estimators.formulas import weighted_importance_sampling
from rllib.evaluation.estimators.off_policy_estimator import OffPolicyEstimator, Values
from rllib.evaluation.estimators.recorded_steps import RecordedSteps


class WeightedImportanceSampling(OffPolicyEstimator):
    """Importance sampling whose weights have a mean of 1 at each step; of one episode, its own return."""

    short_name = "wis"

    def episode_values(self, steps: RecordedSteps) -> Values:
        log_ratios = self.log_ratios(steps)
        values, changes = weighted_importance_sampling(steps.rewards, log_ratios, steps.starts, self.gamma)
        return Values(values, self.episode_weights(log_ratios, steps), changes)
