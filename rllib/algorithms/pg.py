"""Policy gradient: REINFORCE with the rewards to go (Williams 1992; Sutton et al. 1999), and no value function.

Departures from the paper:
- the gradient is a mean over steps, not a sum over episodes;
- episodes are discounted from each step on, and the factor gamma^t of the step itself is left out, as usual;
- Adam is the default optimizer;
- standardize_advantages=True takes the batch's mean return as the baseline and its spread as the unit.

Without a value function nothing is known about what would have followed a cut: rewards to go end there, also where a
fragment ends (batch_mode="truncate_episodes", the default) or a time limit. batch_mode="complete_episodes" samples to
the end of every episode, for environments in which every episode ends.
"""

from typing import Self

from rllib import sample_batch as sb
from rllib.algorithms.base.algorithm import Algorithm
from rllib.algorithms.families.on_policy import PolicyGradientConfig
from rllib.config.sections import section
from rllib.evaluation.postprocess.advantages import AdvantageEstimator
from rllib.evaluation.postprocess.base import Postprocess
from rllib.losses.policy_gradient import POLICY_GRADIENT_LOSS
from rllib.losses.returns import standardized


class PGConfig(PolicyGradientConfig):
    """Settings of PG; the defaults are RLlib's, except those in default_differences.py."""

    @section
    def training(
        self,
        *,
        lr=4e-4,
        train_batch_size=200,
    ) -> Self: ...


class PG(Algorithm):
    """Policy gradient without a value function (REINFORCE)."""

    config_class = PGConfig
    learns_from_own_actions = True
    trains_several = True
    loss = POLICY_GRADIENT_LOSS
    reported_stats = ("total_loss", "policy_loss", "policy_entropy", "cur_lr", "entropy_coeff")

    def make_postprocess(self, policy_id: str) -> Postprocess:
        return AdvantageEstimator(self.config_of(policy_id).gamma, use_gae=False, use_critic=False)

    def training_step(self) -> dict[str, dict[str, float]]:
        stats, now = {}, self.timesteps
        for trainee, batch in self.train_batches():
            if trainee.config.standardize_advantages:
                batch[sb.ADVANTAGES] = standardized(batch[sb.ADVANTAGES])
            settings = {"vf_loss_coeff": 0.0, **trainee.scheduled("lr", "entropy_coeff", at=now)}
            stats[trainee.policy_id] = trainee.learn_on_batch(batch, shuffle=False, **settings)
            del stats[trainee.policy_id]["vf_loss"], stats[trainee.policy_id]["vf_explained_var"]
        return stats
