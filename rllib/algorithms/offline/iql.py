"""IQL: implicit Q-learning (Kostrikov et al., arXiv:2110.06169).

A value is fitted to an upper expectile of what the critics say of recorded actions: towards the best action of a state
that the data has, without asking about any other. The critics bootstrap from that value, and the actor imitates
recorded actions, the more the better they are. An update moves the value, the actor by the new value, the critics, and
their target copies. Losses are in losses/offline/iql.py.

Departures from RLlib: the defaults are the paper's for locomotion (RLlib has beta 0.1, expectile 0.8, tau 1.0).
"""

from typing import Annotated, ClassVar, Self

from rllib.algorithms.families.off_policy_actor_critic import CRITICS
from rllib.algorithms.offline.weighted_cloning import WeightedCloning, WeightedCloningConfig
from rllib.config.sections import at_least, between, section
from rllib.learners.updates.objective import POLICY
from rllib.losses.loss import LossOverModules
from rllib.losses.offline import iql
from rllib.models.modules import FullyConnected
from rllib.sample_batch import DEFAULT_POLICY

VALUE = "value"


class IQLConfig(WeightedCloningConfig):
    """Settings of IQL."""

    own_aliases: ClassVar[dict] = {"weight_temp": ("beta", lambda weight: weight)}  # d3rlpy's

    @section
    def offline_data(self, *, normalize_observations=True) -> Self: ...

    @section
    def training(
        self,
        *,
        beta: Annotated[float, "weight of an advantage in the exponent; 0: all actions alike", at_least(0)] = 3.0,
        expectile: Annotated[float, "of the critics' values that the value is fitted to", between(0, 1)] = 0.7,
        value_lr: Annotated[float | list | None, "the value's, or a schedule of it; None: lr", at_least(0)] = None,
    ) -> Self: ...


class IQL(WeightedCloning):
    """Implicit Q-learning."""

    config_class = IQLConfig
    reported_stats = (*WeightedCloning.reported_stats, "value_loss", "mean_value", "mean_weight", "cur_value_lr")

    def critic_loss(self, policy_id: str) -> LossOverModules:
        return iql.critic_loss(self.is_discrete(policy_id))

    def actor_loss(self, policy_id: str) -> LossOverModules:
        return iql.actor_loss(self.config_of(policy_id).beta, self.is_discrete(policy_id))

    def value_loss(self, policy_id: str) -> LossOverModules:
        """The value's loss, over "value" and "target_critics"."""
        return iql.value_loss(self.config_of(policy_id).expectile, self.is_discrete(policy_id))

    def losses(self, policy_id: str) -> dict[str, LossOverModules]:
        # The actor sees the value after its step; the critics move last.
        return {
            VALUE: self.value_loss(policy_id),
            POLICY: self.actor_loss(policy_id),
            CRITICS: self.critic_loss(policy_id),
        }

    def judges(self, policy_id: str) -> dict[str, FullyConnected]:
        value = self.judging_module(policy_id, ("observation",), num_outputs=None, copies=None)
        return {**super().judges(policy_id), VALUE: value}

    def learning_rates(self, policy_id: str = DEFAULT_POLICY) -> dict[str, float]:
        rates = self.scheduled("lr", "value_lr", policy_id=policy_id)
        value_lr = rates["lr" if rates["value_lr"] is None else "value_lr"]
        return {**super().learning_rates(policy_id), "value_lr": value_lr}
