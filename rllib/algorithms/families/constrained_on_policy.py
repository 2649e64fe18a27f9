"""Base of actor-critics on the newest steps that take a limit on costs: PPO.

An additional network, the cost critic, learns the value of costs. Workers get its weights with the policy's, and
compute the advantages of costs in the pass that computes those of rewards (evaluation/postprocess/cost_advantages.py).
A train batch's advantages are those of rewards minus the multiplier times those of costs
(losses/lagrangian/actor_critic.py).
"""

from typing import Annotated, Any, Self

import numpy as np

from rllib.algorithms.base.space_rules import NewPolicy, of_network
from rllib.algorithms.families.constrained import COST_CRITIC, ConstrainedConfig
from rllib.algorithms.families.intrinsic import IntrinsicConfig, IntrinsicTrainee
from rllib.algorithms.families.on_policy import ActorCriticConfig
from rllib.config.conflicts import DEFAULT, Mistake, conflict
from rllib.config.sections import between, only_with, section
from rllib.evaluation import seeding
from rllib.evaluation.postprocess.advantages import AdvantageEstimator
from rllib.evaluation.postprocess.cost_advantages import CostAdvantages
from rllib.learners.learner import Learner
from rllib.losses.lagrangian.actor_critic import cost_value_loss
from rllib.models.arithmetic.activations import ACTIVATION_NAMES
from rllib.models.model_settings import ModelSettings
from rllib.models.modules import FullyConnected

# Settings that change the loss of the policy.
_LOSSES = ("auxiliary_losses", "custom_loss", "learner_class")


class ConstrainedActorCriticConfig(ConstrainedConfig, IntrinsicConfig, ActorCriticConfig):
    """Settings of actor-critics with a limit on costs."""

    @section
    def training(
        self,
        *,
        cost_lambda: Annotated[
            float | None,
            "GAE's lambda of costs; None: lambda_",
            between(0, 1),
            only_with("limits_costs", otherwise="cost_limit=None"),
        ] = None,
    ) -> Self: ...

    def get_cost_lambda(self) -> float:
        """GAE's lambda of costs; 1 with use_gae=False."""
        given = self.lambda_ if self.cost_lambda is None else self.cost_lambda
        return given if self.use_gae else 1.0

    conflicts = (
        conflict(
            "cost_limit",
            "use_critic",
            when=lambda config: config.limits_costs and not config.use_critic,
            why="a limit needs a critic, with which that of costs learns",
            remedies=[{"use_critic": True}, {"cost_limit": None}],
        ),
        conflict(
            "cost_limit",
            *_LOSSES,
            when=lambda config: config.limits_costs and any(config[name] for name in _LOSSES),
            why="a limit makes a learner of policy and cost critic, and your own losses are for the policy's alone",
            remedies=[dict.fromkeys(_LOSSES, DEFAULT), {"cost_limit": None}],
        ),
        conflict(
            "cost_limit",
            "teacher",
            when=lambda config: config.limits_costs and config.asks_teacher,
            why="a limit makes a learner of policy and cost critic, and a teacher is for the policy's alone",
            remedies=[{"teacher": None}, {"cost_limit": None}],
        ),
    )

    @of_network("cost_limit", "model")
    def _check_critic_of_costs(self, policy: NewPolicy):
        """`cost_limit` is for networks of vectors, without a memory and without a custom model."""
        if self.cost_limit is None:
            return None
        names, unlimited = ("cost_limit", "model"), {"cost_limit": None}
        if policy.spec.state_size:
            return Mistake(
                "cost_limit trains a value of costs that reads single observations, so it does not go with a policy "
                "that has a memory.",
                names,
                (unlimited, *self.no_memory("", policy.spec).remedies),
                "Use a model without use_lstm and use_attention, such as with "
                ".environment(env_wrappers=[{'FrameStackObservation': {'stack_size': 4}}]).",
            )
        if self.model.get("custom_model") or policy.spec.torso is not None:
            return Mistake(
                "cost_limit trains a value of costs with fully connected layers over observations as vectors, but "
                f"{policy.place} has images, or the model is your own.",
                names,
                (unlimited, {"model": {"custom_model": None, "conv_filters": []}}),
                "Use SAC, or wrap the environment so that it returns vectors.",
            )
        return None


class ConstrainedTrainee(IntrinsicTrainee):
    """A policy with a critic of costs that learns with it, where these have a limit."""

    def make_learner(self, *objectives: Any, **more: Any) -> Learner:
        if self.config.cost_limit is None:
            return super().make_learner(*objectives, **more)
        return super().make_learner(
            [
                self.objective(self.whole_loss()),
                self.objective(cost_value_loss(COST_CRITIC), (COST_CRITIC,), COST_CRITIC),
            ],
            modules={COST_CRITIC: cost_critic(self.config)},
            # The policy has the index 0.
            rng=seeding.generator(self.algorithm.seed, seeding.INITIAL_WEIGHTS, 1),
            **more,
        )

    def modules_of_workers(self) -> dict[str, np.ndarray]:
        return {} if self.config.cost_limit is None else {COST_CRITIC: self.learner.vector[COST_CRITIC]}


def with_cost_advantages(rows: AdvantageEstimator, config: ConstrainedActorCriticConfig) -> AdvantageEstimator:
    """What workers add to fragments, with the advantages of costs where these have a limit."""
    if config.cost_limit is None:
        return rows
    return CostAdvantages(
        **vars(rows),
        cost_column=config.episode_cost_column,
        critic_name=COST_CRITIC,
        critic=cost_critic(config),
        cost_gamma=config.get_cost_gamma(),
        cost_lambda=config.get_cost_lambda(),
    )


def cost_critic(config: ConstrainedActorCriticConfig) -> FullyConnected:
    """Describes the network of the value of costs: the layers of the value of rewards, apart from the policy's."""
    settings = ModelSettings(config.model)
    return FullyConnected(
        ("observation",),
        tuple(settings.fcnet_hiddens if settings.vf_hiddens is None else settings.vf_hiddens),
        activation=ACTIVATION_NAMES[settings.fcnet_activation],
        layer_norm=settings.layer_norm,
        # Values begin near zero, unlike those of orthogonal weights, until costs are known.
        initializer=settings.fcnet_weights_initializer or "uniform",
    )
