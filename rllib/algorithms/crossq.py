"""CrossQ (Bhatt et al., arXiv:1902.05605): soft actor-critic with batch normalisation instead of target networks.

Three changes to SAC (sac.py), all of which the paper needs:

- critics and actor normalise what each of their layers reads (models/dense/batch_renorm.py);
- there are no target copies: values of (s, a) and of (s', a') come from one pass through the critics, which so are
  normalised by the statistics of both;
- critics are wider, Adam forgets its mean gradient faster (beta1 = 0.5), and the actor and alpha move with every third
  update of the critics.

One update for each environment step then learns as fast as methods that make twenty. Actions are continuous.

Departures: hidden layers of the critics have 1024 units, as in sb3-contrib; the paper has 2048
(`q_model_config={"fcnet_hiddens": [2048, 2048]}`). Normalisation is by the batch alone for `renorm_warmup_steps`
batches and corrected by the running statistics after them, as in the authors' code, without the gradual change that the
paper on batch renormalisation describes.

Losses are in losses/sac_variants/crossq.py, replay and updates in families/off_policy_actor_critic.py.
"""

import dataclasses
from typing import Annotated, ClassVar, Self

from rllib.algorithms.families.off_policy_actor_critic import REPLAY_OF_A_MILLION
from rllib.algorithms.sac import SAC, SACConfig
from rllib.config.config_object import relation
from rllib.config.sections import above, between, section
from rllib.learners.updates.optimizers import OptimizerSettings
from rllib.losses.loss import LossOverModules
from rllib.losses.sac_variants.crossq import ACTOR_LOSS, CRITIC_LOSS
from rllib.models.dense.batch_renorm import MOST_BATCHES, BatchRenorm
from rllib.models.modules import FullyConnected
from rllib.models.policy_spec import PolicySpec

# Of target copies, which CrossQ does not have.
_WITHOUT_EFFECT = ("tau", "target_network_update_freq")


class CrossQConfig(SACConfig):
    """Settings of CrossQ; the defaults are sb3-contrib's."""

    without_memory: ClassVar[str] = "batch renormalisation is of single rows, not of the steps of sequences"

    targets_are_least: ClassVar[bool] = False
    without_atoms: ClassVar[str] = "CrossQ's critics give expected returns"
    without_residual: ClassVar[str] = "CrossQ normalises its layers by batches"
    not_custom: ClassVar[dict] = {
        "q_model_config": "CrossQ's critics have batch renormalisation in each of their layers instead of target "
        "copies. Use SAC, or leave it out."
    }
    takes_no_limit: ClassVar[str] = "CrossQ has no target copies, of which that of the cost critic would be one"
    default_exploration: ClassVar[dict] = {"type": "StochasticSampling", "random_timesteps": 100}

    @section
    def exploration(self, *, exploration_config=default_exploration) -> Self: ...

    @section
    def training(
        self,
        *,
        lr=1e-3,
        policy_delay=3,
        q_model_config={"fcnet_hiddens": [1024, 1024]},  # noqa: B006
        batch_norm_actor: Annotated[bool, "the actor has batch renormalisation, as the critics"] = True,
        batch_norm_momentum: Annotated[float, "share of a new batch in the running statistics", between(0, 1)] = 0.01,
        batch_norm_eps: Annotated[float, "added to the variances", above(0, finite=True)] = 1e-3,
        renorm_warmup_steps: Annotated[
            int, "batches that are normalised by themselves alone, at the beginning", between(0, MOST_BATCHES)
        ] = 100_000,
        adam_beta1: Annotated[float, "what Adam keeps of its mean gradient in a step", between(0, 0.9999)] = 0.5,
        num_steps_sampled_before_learning_starts=100,
        replay_buffer_config={**REPLAY_OF_A_MILLION, "type": "ReplayBuffer"},  # noqa: B006
    ) -> Self: ...

    @relation(*_WITHOUT_EFFECT)
    def _check_no_targets(self):
        changed = [name for name in _WITHOUT_EFFECT if self[name] != self.settings[name].default]
        return " ".join(f"{name}={self[name]!r} has no effect here: CrossQ has no target copies." for name in changed)

    @relation("num_learners")
    def _check_one_learner(self):
        if self.num_learners > 1:
            return (
                f"num_learners={self.num_learners} would each normalise a part of the batch, and CrossQ normalises by "
                "the whole. Use .learners(num_learners=1), or 0."
            )

    @relation("model", "q_model_config", "policy_model_config", "batch_norm_actor")
    def _check_normalisation(self):
        if self.network_settings("q_model_config").get("layer_norm"):
            return "q_model_config: layer_norm=True is not available beside batch renormalisation. Leave it out."
        actor = self.network_settings("policy_model_config") if self.batch_norm_actor else {}
        if self.batch_norm_actor and self.is_custom("policy_model_config"):
            return (
                "policy_model_config: a custom_model has its own layers, and batch_norm_actor=True normalises those of "
                "the library. Use .training(batch_norm_actor=False)."
            )
        for name, value in (("layer_norm", True), ("use_sde", True), ("output_layer_use_bias", False)):
            if actor.get(name) is value:
                return (
                    f"policy_model_config: {name}={value} is not available for an actor with batch renormalisation. "
                    "Leave it out, or use .training(batch_norm_actor=False)."
                )
        return None


class CrossQ(SAC):
    """CrossQ: SAC with batch renormalisation, and without target networks."""

    config_class = CrossQConfig
    copied_modules = ()

    def actor_spec(self, observation_space, action_space, config: CrossQConfig) -> PolicySpec:
        self.check_bounded(action_space)
        spec = super().actor_spec(observation_space, action_space, config)
        return dataclasses.replace(spec, batch_renorm=_batch_renorm(config)) if config.batch_norm_actor else spec

    def critic_module(self, policy_id: str) -> FullyConnected:
        batch_renorm = _batch_renorm(self.config_of(policy_id))
        return dataclasses.replace(super().critic_module(policy_id), batch_renorm=batch_renorm)

    def _optimizer_settings(self, config: CrossQConfig) -> OptimizerSettings:
        return dataclasses.replace(super()._optimizer_settings(config), adam_beta1=config.adam_beta1)

    def critic_loss(self, policy_id: str) -> LossOverModules:
        return CRITIC_LOSS

    def actor_loss(self, policy_id: str) -> LossOverModules:
        return ACTOR_LOSS if self.config_of(policy_id).batch_norm_actor else super().actor_loss(policy_id)


def _batch_renorm(config: CrossQConfig) -> BatchRenorm:
    return BatchRenorm(config.batch_norm_momentum, config.batch_norm_eps, config.renorm_warmup_steps)
