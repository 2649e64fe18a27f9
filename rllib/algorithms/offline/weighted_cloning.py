"""Base of the algorithms whose actor imitates recorded actions, weighted by what critics say of them (IQL, AWAC).

No action of the actor's own is judged where it learns, so that critics are asked for little outside of the data.
"""

import dataclasses
from typing import ClassVar, Self

from gymnasium import spaces

from rllib.algorithms.families.actor_critic_settings import OffPolicyActorCriticConfig
from rllib.algorithms.families.critic_networks import critics_of
from rllib.algorithms.families.off_policy_actor_critic import ActorCriticTrainee, OffPolicyActorCritic
from rllib.config.conflicts import conflict
from rllib.config.sections import section
from rllib.models.dense.network_spec import NetworkSpec
from rllib.models.distributions.bounded_mean import BoundedMeanGaussian
from rllib.models.modules import FullyConnected
from rllib.replay.replay_settings import SequenceReplaySettings


class WeightedCloningConfig(OffPolicyActorCriticConfig):
    """Settings that these algorithms share."""

    needs_data: ClassVar[bool] = True
    takes_choices: ClassVar[bool] = True
    not_custom: ClassVar[dict] = dict.fromkeys(
        ("policy_model_config", "q_model_config"),
        "the actor's deviation is one number for each component, a parameter next to the library's own layers",
    )

    conflicts = (
        conflict(
            "policy_model_config",
            "model",
            when=lambda config: config.acting_model.get("use_sde"),
            why="use_sde=True learns standard deviations that depend on the state, and this actor's do not",
            remedies=[lambda config: config.with_defaults("use_sde", of=("model", "policy_model_config"))],
        ),
    )

    @section
    def training(
        self,
        *,
        num_steps_sampled_before_learning_starts=0,
        replay_buffer_config=SequenceReplaySettings.defaults(type="MultiAgentReplayBuffer"),
    ) -> Self: ...


class CloningTrainee(ActorCriticTrainee):
    """An actor that imitates recorded actions, the more the better its critics find them."""

    @property
    def is_discrete(self) -> bool:
        """Whether actions are choices."""
        return isinstance(self.policy.action_space, spaces.Discrete)

    def critic_module(self) -> FullyConnected:
        if self.is_discrete:
            return critics_of(self.config, self.policy, ("observation",), self.policy.distribution.num_actions)
        return super().critic_module()


class WeightedCloning(OffPolicyActorCritic):
    """Actor-critics whose actor imitates recorded actions."""

    trainee_class: ClassVar[type[CloningTrainee]] = CloningTrainee
    trains_several = False

    def actor_spec(self, observation_space, action_space, config: WeightedCloningConfig) -> NetworkSpec:
        if isinstance(action_space, spaces.Discrete):
            return self.plain_spec(observation_space, action_space, config)
        # One standard deviation a component: recorded actions of one state rarely tell more.
        spec = self.plain_spec(observation_space, action_space, config, free_log_std=True)
        return dataclasses.replace(spec, distribution=BoundedMeanGaussian(spec.distribution.action_shape))
