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

from rllib.algorithms.sac import SAC, SACConfig, SACTrainee
from rllib.config.config_object import relation
from rllib.config.conflicts import Mistake, conflict
from rllib.config.sections import OfPolicy, above, between, section
from rllib.learners.updates.optimizers import OptimizerSettings
from rllib.losses.loss import LossOverModules
from rllib.losses.sac_variants.crossq import ACTOR_LOSS, CRITIC_LOSS
from rllib.models.dense.batch_renorm import MOST_BATCHES, BatchRenorm
from rllib.models.dense.network_spec import NetworkSpec
from rllib.models.dense.spec import Dense
from rllib.models.modules import FullyConnected
from rllib.replay.replay_settings import SequenceReplaySettings


class CrossQConfig(SACConfig):
    """Settings of CrossQ; the defaults are sb3-contrib's."""

    without_memory: ClassVar[str] = "batch renormalisation is of single rows, not of the steps of sequences"

    refuses: ClassVar[dict[str, str]] = {
        **dict.fromkeys(("tau", "target_network_update_freq"), "CrossQ has no target copies"),
        "num_atoms": "CrossQ's critics give expected returns; atoms are for SAC's",
        "target_critics_sampled": "CrossQ has its own targets; SAC's take the least value",
        "cost_limit": "CrossQ has no target copies, of which that of the cost critic would be one; SAC has",
    }
    takes_choices: ClassVar[bool] = False
    without_residual: ClassVar[str] = "CrossQ normalises its layers by batches"
    not_custom: ClassVar[dict] = {
        "q_model_config": "CrossQ's critics have batch renormalisation in each of their layers instead of target copies"
    }
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
        batch_norm_actor: Annotated[bool, "the actor has batch renormalisation, as the critics", OfPolicy] = True,
        batch_norm_momentum: Annotated[
            float, "share of a new batch in the running statistics", between(0, 1), OfPolicy
        ] = 0.01,
        batch_norm_eps: Annotated[float, "added to the variances", above(0, finite=True), OfPolicy] = 1e-3,
        renorm_warmup_steps: Annotated[
            int, "batches that are normalised by themselves alone, at the beginning", between(0, MOST_BATCHES), OfPolicy
        ] = 100_000,
        adam_beta1: Annotated[
            float, "what Adam keeps of its mean gradient in a step", between(0, 0.9999), OfPolicy
        ] = 0.5,
        num_steps_sampled_before_learning_starts=100,
        replay_buffer_config=SequenceReplaySettings.defaults(type="ReplayBuffer"),
    ) -> Self: ...

    conflicts = (
        conflict(
            "num_learners",
            when=lambda config: config.num_learners > 1,
            why="each would normalise a part of the batch, and CrossQ normalises by the whole",
            remedies=[{"num_learners": 1}, {"num_learners": 0}],
        ),
        conflict(
            "policy_model_config",
            "batch_norm_actor",
            when=lambda config: config.batch_norm_actor and config.is_custom("policy_model_config"),
            why="a custom_model has its own layers, and batch_norm_actor=True normalises those of the library",
            remedies=[{"batch_norm_actor": False}, {"policy_model_config": {"custom_model": None}}],
        ),
    )

    @relation("model", "q_model_config")
    def _check_normalised_critics(self):
        """`q_model_config` has no layer_norm: the critics have batch renormalisation."""
        if self.network_settings("q_model_config").get("layer_norm"):
            return Mistake(
                "q_model_config: layer_norm=True is not available with batch renormalisation.",
                ("q_model_config", "model"),
                (self.with_defaults("layer_norm", of=("model", "q_model_config")),),
            )
        return None

    @relation("model", "policy_model_config", "batch_norm_actor")
    def _check_normalised_actor(self):
        """With `batch_norm_actor`, the actor has no layer_norm, no use_sde, and a bias in its output."""
        actor = self.network_settings("policy_model_config") if self.batch_norm_actor else {}
        for name, value in (("layer_norm", True), ("use_sde", True), ("output_layer_use_bias", False)):
            if actor.get(name) is value:
                return Mistake(
                    f"policy_model_config: {name}={value} is not available for an actor with batch renormalisation.",
                    ("policy_model_config", "model", "batch_norm_actor"),
                    (self.with_defaults(name, of=("model", "policy_model_config")), {"batch_norm_actor": False}),
                )
        return None


class CrossQTrainee(SACTrainee):
    """A policy that learns by CrossQ."""

    copied_modules = ()

    def critic_module(self) -> FullyConnected:
        return dataclasses.replace(super().critic_module(), batch_renorm=_batch_renorm(self.config))

    def optimizer_settings(self) -> OptimizerSettings:
        return dataclasses.replace(super().optimizer_settings(), adam_beta1=self.config.adam_beta1)

    def critic_loss(self) -> LossOverModules:
        return CRITIC_LOSS

    def actor_loss(self) -> LossOverModules:
        return ACTOR_LOSS if self.config.batch_norm_actor else super().actor_loss()


class CrossQ(SAC):
    """CrossQ: SAC with batch renormalisation, and without target networks."""

    config_class = CrossQConfig
    trainee_class = CrossQTrainee

    def actor_spec(self, observation_space, action_space, config: CrossQConfig) -> NetworkSpec:
        spec = super().actor_spec(observation_space, action_space, config)
        return (
            dataclasses.replace(spec, architecture=Dense(batch_renorm=_batch_renorm(config)))
            if config.batch_norm_actor
            else spec
        )


def _batch_renorm(config: CrossQConfig) -> BatchRenorm:
    return BatchRenorm(config.batch_norm_momentum, config.batch_norm_eps, config.renorm_warmup_steps)
