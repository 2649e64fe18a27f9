"""Doubly robust estimates (Jiang & Li, arXiv:1511.03722): a model, corrected by importance sampling of its errors."""

import numpy as np

from rllib.evaluation.estimators.direct_method import DirectMethod
from rllib.evaluation.estimators.formulas import doubly_robust
from rllib.evaluation.estimators.off_policy_estimator import Values
from rllib.evaluation.estimators.recorded_steps import RecordedSteps


class DoublyRobust(DirectMethod):
    """Estimates that are unbiased if either the model or the recorded probabilities are right.

    After a truncated episode the model's value represents what would have followed: that of the observation after the
    last step; if it is not known, that of the last step's own observation, in place of the step.
    """

    short_name = "dr"
    reads_probabilities = True

    def episode_values(self, steps: RecordedSteps) -> Values:
        log_ratios = self.log_ratios(steps)
        after, last = np.zeros(steps.num_episodes), steps.last
        goes_on = ~steps.terminated[last] & steps.is_transition[last]
        if goes_on.any():
            after[goes_on] = self.model.values(steps.new_obs[last[goes_on]])
        values = doubly_robust(
            steps.rewards,
            np.where(steps.is_transition, log_ratios, -np.inf),  # with a ratio of 0, V_t = v_t
            steps.starts,
            self.gamma,
            self.model.values(steps.obs),
            self.model.action_values(steps.obs, steps.actions),
            after,
        )
        return Values(values, self.episode_weights(np.where(steps.is_transition, log_ratios, 0.0), steps))
