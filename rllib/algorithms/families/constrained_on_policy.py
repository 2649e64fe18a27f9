"""Base of actor-critics on the newest steps that take a limit on costs: PPO.

A network beside the policy, the cost critic, learns the value of costs. Workers get its weights with the policy's, and
compute the advantages of costs in the pass that computes those of rewards (evaluation/postprocess/cost_advantages.py).
A train batch's advantages are those of rewards minus the multiplier times those of costs
(losses/lagrangian/actor_critic.py).
"""

import dataclasses
from typing import Annotated, Any, Self

from rllib.algorithms.base.new_policy import NewPolicy, of_network
from rllib.algorithms.families.constrained import COST_CRITIC, Constrained, ConstrainedConfig
from rllib.algorithms.families.intrinsic import IntrinsicallyRewarded, IntrinsicConfig
from rllib.algorithms.families.on_policy import ActorCriticConfig
from rllib.config.conflicts import DEFAULT, Mistake, conflict
from rllib.config.sections import between, only_with, section
from rllib.evaluation import seeding
from rllib.evaluation.postprocess.advantages import AdvantageEstimator
from rllib.evaluation.postprocess.cost_advantages import CostAdvantages
from rllib.learners.learner import Learner
from rllib.learners.updates.objective import POLICY, Objective
from rllib.losses.lagrangian.actor_critic import cost_value_loss
from rllib.models.model_settings import ACTIVATION_NAMES, ModelSettings
from rllib.models.modules import FullyConnected
from rllib.policy import Snapshot
from rllib.sample_batch import DEFAULT_POLICY

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
            why="a limit needs a critic, beside which that of costs learns",
            remedies=[{"use_critic": True}, {"cost_limit": None}],
        ),
        conflict(
            "cost_limit",
            *_LOSSES,
            when=lambda config: config.limits_costs and any(config[name] for name in _LOSSES),
            why="a limit makes a learner of policy and cost critic, and your own losses are for the policy's alone",
            remedies=[dict.fromkeys(_LOSSES, DEFAULT), {"cost_limit": None}],
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
                f"{policy.run.env!r} has images, or the model is your own.",
                names,
                (unlimited, {"model": {"custom_model": None, "conv_filters": []}}),
                "Use SAC, or wrap the environment so that it returns vectors.",
            )
        return None


class ConstrainedActorCritic(Constrained, IntrinsicallyRewarded):
    """Base of actor-critics whose workers compute advantages, of costs as well where these have a limit."""

    def make_learner(self, policy_id: str, *objectives: Any, **more: Any) -> Learner:
        config = self.config_of(policy_id)
        if config.cost_limit is None:
            return super().make_learner(policy_id, *objectives, **more)
        how = {
            "optimizer": self._optimizer_settings(config),
            "grad_clip": config.grad_clip,
            "grad_clip_by": config.grad_clip_by,
        }
        return super().make_learner(
            policy_id,
            [
                Objective(self.make_loss(policy_id), **how),
                Objective(cost_value_loss(COST_CRITIC), (COST_CRITIC,), COST_CRITIC, **how),
            ],
            modules={COST_CRITIC: self._cost_critic(policy_id)},
            # The policy has the index 0.
            rng=seeding.generator(self.seed, seeding.INITIAL_WEIGHTS, 1),
            **more,
        )

    def _cost_critic(self, policy_id: str) -> FullyConnected:
        """Describes the network of the value of costs: the layers of the value of rewards, apart from the policy's."""
        settings = ModelSettings(self.config_of(policy_id).model)
        return FullyConnected(
            ("observation",),
            tuple(settings.fcnet_hiddens if settings.vf_hiddens is None else settings.vf_hiddens),
            activation=ACTIVATION_NAMES[settings.fcnet_activation],
            layer_norm=settings.layer_norm,
            # Values begin near zero, unlike those of orthogonal weights, until costs are known.
            initializer=settings.fcnet_weights_initializer or "uniform",
        )

    def make_postprocess(self, policy_id: str) -> AdvantageEstimator:
        config, plain = self.config_of(policy_id), super().make_postprocess(policy_id)
        if config.cost_limit is None:
            return plain
        given = {field.name: getattr(plain, field.name) for field in dataclasses.fields(plain)}
        return CostAdvantages(
            **given,
            cost_column=config.episode_cost_column,
            critic_name=COST_CRITIC,
            critic=self._cost_critic(policy_id),
            cost_gamma=config.get_cost_gamma(),
            cost_lambda=config.get_cost_lambda(),
        )

    def snapshot(self, policy_id: str = DEFAULT_POLICY) -> Snapshot:
        snapshot = super().snapshot(policy_id)
        if self.config.cost_limit is None:
            return snapshot
        return dataclasses.replace(snapshot, modules={COST_CRITIC: self.learners[policy_id].vector[COST_CRITIC]})

    def _of_policy(self, settings: dict[str, Any]) -> dict[str, Any]:
        """Settings of the policy's loss as `Learner.update` takes them: by objective where there is a cost critic."""
        return settings if self._lagrangian is None else {POLICY: settings}
