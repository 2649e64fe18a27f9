"""Per-decision importance sampling (Precup, Sutton & Singh 2000): unbiased, with a variance that grows with length."""

from rllib.evaluation.estimators.formulas import importance_sampling
from rllib.evaluation.estimators.off_policy_estimator import OffPolicyEstimator, Values
from rllib.evaluation.estimators.recorded_steps import RecordedSteps


class ImportanceSampling(OffPolicyEstimator):
    """Weighs each recorded reward by how much more often the policy would have come there."""

    short_name = "is"
    reads_probabilities = True

    def episode_values(self, steps: RecordedSteps) -> Values:
        log_ratios = self.log_ratios(steps)
        values = importance_sampling(steps.rewards, log_ratios, steps.starts, self.gamma)
        return Values(values, self.episode_weights(log_ratios, steps))
