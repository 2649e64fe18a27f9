"""Truncated quantile critics (Kuznetsov et al., arXiv:2005.04269).

Soft actor-critic (sac.py) whose critics give quantiles of the return instead of its mean. SAC takes the smaller of two
critics as its target, so that values are not overestimated. TQC sorts the quantiles of all target copies together and
leaves out the largest, `top_quantiles_to_drop_per_net` for each critic, which is a finer setting of the same. The
actor maximises the mean of all quantiles. Actions are continuous.

Departures: the critics have the number and the size of SAC's, as in Stable-Baselines3 and in later releases of RLlib.
The paper has five with three layers of 512: `n_critics=5, q_model_config={"fcnet_hiddens": [512, 512, 512]}`.

Losses are in losses/tqc.py, replay and updates in families/off_policy_actor_critic.py.
"""

from typing import Annotated, Self

from rllib.algorithms.sac import SAC, SACConfig
from rllib.config.config_object import relation
from rllib.config.sections import at_least, section
from rllib.losses.loss import LossOverModules
from rllib.losses.tqc import ACTOR_LOSS, critic_loss
from rllib.models.modules import FullyConnected
from rllib.models.policy_spec import PolicySpec


class TQCConfig(SACConfig):
    """Settings of TQC: SAC's, and the critics' quantiles."""

    @section
    def training(
        self,
        *,
        n_quantiles: Annotated[int, "quantiles of the return that each critic gives", at_least(2)] = 25,
        top_quantiles_to_drop_per_net: Annotated[
            int, "times the number of critics: the largest quantiles that are left out of the targets", at_least(0)
        ] = 2,
    ) -> Self: ...

    @relation("n_quantiles", "top_quantiles_to_drop_per_net")
    def _check_dropped(self):
        if self.top_quantiles_to_drop_per_net < self.n_quantiles:
            return None
        return (
            f"top_quantiles_to_drop_per_net={self.top_quantiles_to_drop_per_net} must be less than n_quantiles="
            f"{self.n_quantiles}, or no targets are left. Use .training(top_quantiles_to_drop_per_net="
            f"{min(2, self.n_quantiles - 1)})."
        )


class TQC(SAC):
    """Truncated quantile critics."""

    config_class = TQCConfig

    def actor_spec(self, observation_space, action_space, config: TQCConfig) -> PolicySpec:
        self.check_bounded(action_space)
        return super().actor_spec(observation_space, action_space, config)

    def critic_module(self, policy_id: str) -> FullyConnected:
        return self.critics_of(policy_id, ("observation", "action"), self.config_of(policy_id).n_quantiles)

    def critic_loss(self, policy_id: str) -> LossOverModules:
        return critic_loss(self.config_of(policy_id).top_quantiles_to_drop_per_net)

    def actor_loss(self, policy_id: str) -> LossOverModules:
        return ACTOR_LOSS
