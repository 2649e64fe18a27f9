"""IQL: implicit Q-learning (Kostrikov et al., arXiv:2110.06169).

A value is fitted to an upper expectile of what the critics say of recorded actions: towards the best action of a state
that the data has, without asking about any other. The critics bootstrap from that value, and the actor imitates
recorded actions, the more the better they are. An update moves the value, the actor by the new value, the critics, and
their target copies. Losses are in losses/offline/iql.py.

Departures from RLlib: the defaults are the paper's for locomotion (RLlib has beta 0.1, expectile 0.8, tau 1.0).
"""

from typing import Annotated, Any, ClassVar, Self

from rllib.algorithms.families.critic_networks import network_of_critics
from rllib.algorithms.families.off_policy_actor_critic import CRITICS
from rllib.algorithms.offline.weighted_cloning import CloningTrainee, WeightedCloning, WeightedCloningConfig
from rllib.config.sections import at_least, between, section
from rllib.learners.updates.objective import POLICY
from rllib.losses.loss import LossOverModules
from rllib.losses.offline import iql

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


class IQLTrainee(CloningTrainee):
    """A policy that learns by IQL."""

    def critic_loss(self) -> LossOverModules:
        return iql.critic_loss(self.is_discrete)

    def actor_loss(self) -> LossOverModules:
        return iql.actor_loss(self.config.beta, self.is_discrete)

    def value_loss(self) -> LossOverModules:
        """The value's loss, over "value" and "target_critics"."""
        return iql.value_loss(self.config.expectile, self.is_discrete)

    def losses(self) -> dict[str, LossOverModules]:
        # The actor sees the value after its step; the critics learn last.
        return {VALUE: self.value_loss(), POLICY: self.actor_loss(), CRITICS: self.critic_loss()}

    def critics(self) -> dict[str, Any]:
        value = network_of_critics(self.config, self.policy, ("observation",), num_outputs=None, copies=None)
        return {**super().critics(), VALUE: value}

    def learning_rates(self, at: int | None = None) -> dict[str, float]:
        rates = self.scheduled("lr", "value_lr", at=at)
        value_lr = rates["lr" if rates["value_lr"] is None else "value_lr"]
        return {**super().learning_rates(at), "value_lr": value_lr}


class IQL(WeightedCloning):
    """Implicit Q-learning."""

    config_class = IQLConfig
    trainee_class = IQLTrainee
    reported_stats = (*WeightedCloning.reported_stats, "value_loss", "mean_value", "mean_weight", "cur_value_lr")
