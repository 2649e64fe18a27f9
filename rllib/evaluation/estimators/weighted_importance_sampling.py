"""Weighted importance sampling: ratios divided by their mean over episodes, which bounds them, for a small bias."""

from rllib.evaluation.estimators.formulas import weighted_importance_sampling
from rllib.evaluation.estimators.off_policy_estimator import OffPolicyEstimator, Values
from rllib.evaluation.estimators.recorded_steps import RecordedSteps
from rllib.evaluation.offline.rows import Conversions
from rllib.policy import Policy


class WeightedImportanceSampling(OffPolicyEstimator):
    """Importance sampling whose weights have a mean of 1 at each step; of one episode, its own return.

    Args:
        policy, gamma, epsilon_greedy, conversions: as for OffPolicyEstimator.
        carried: whether an episode that has ended keeps its last weight in the means of later steps (Thomas 2015).
            RLlib leaves it out. Then episodes count as if the policy reached step t as often as the recorded one did:
            where the policy decides how long episodes are, the estimate stays wrong, however much data there is.
    """

    short_name = "wis"
    reads_probabilities = True

    def __init__(
        self,
        policy: Policy,
        gamma: float = 0.99,
        epsilon_greedy: float = 0.0,
        carried: bool = False,
        conversions: Conversions | None = None,
    ):
        super().__init__(policy, gamma, epsilon_greedy, conversions)
        self._carried = carried

    def episode_values(self, steps: RecordedSteps) -> Values:
        log_ratios = self.log_ratios(steps)
        values, changes = weighted_importance_sampling(
            steps.rewards, log_ratios, steps.starts, self.gamma, self._carried
        )
        return Values(values, self.episode_weights(log_ratios, steps), changes)
