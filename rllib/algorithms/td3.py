"""Twin delayed deep deterministic policy gradients (Fujimoto et al., arXiv:1802.09477), and DDPG (arXiv:1509.02971).

The actor gives one action, the critics judge it, and the actor climbs the first critic's value. TD3 adds three things
to DDPG, each a setting: targets take the smaller of two critics (`twin_q`), the target actions have noise
(`smooth_target_policy`), and the actor and all target copies move with every `policy_delay`-th update of the critics.

Actions are tanh of the network's output, in [-1, 1], which spans the bounds of the action space; the noise of the
target actions and of exploration is in that unit. Exploration adds Gaussian or Ornstein-Uhlenbeck noise; the first
steps (`random_timesteps`) are uniform over the bounds.

Departures from RLlib: `use_state_preprocessor` can only be False (networks read observations as they are).

Losses are in losses/deterministic.py, replay and updates in families/off_policy_actor_critic.py.
"""

import dataclasses
from typing import Annotated, ClassVar, Self

import numpy as np

from rllib.algorithms.base.settings.exploration import NOISE_ALIASES, OF_ACTIONS
from rllib.algorithms.families.actor_critic_settings import OffPolicyActorCriticConfig
from rllib.algorithms.families.off_policy_actor_critic import CRITICS, ActorCriticTrainee, OffPolicyActorCritic
from rllib.config.config_object import relation
from rllib.config.conflicts import Mistake
from rllib.config.sections import OfPolicy, above, at_least, only_with, section
from rllib.learners.updates.objective import POLICY
from rllib.losses.deterministic import TARGET_NOISE, actor_loss, critic_loss
from rllib.losses.loss import LossOverModules
from rllib.models.dense.network_spec import NetworkSpec
from rllib.models.distributions.standard import Deterministic
from rllib.replay.replay_settings import SequenceReplaySettings
from rllib.sample_batch import SampleBatch


def _of_network(part: str, key: str):
    """An alias: RLlib's setting of one layer list or activation is a key of the network's settings here."""
    return part, lambda value: {key: value}


class DDPGConfig(OffPolicyActorCriticConfig):
    """Settings of DDPG; the defaults are RLlib's, except those in default_differences.py."""

    reads_images: ClassVar[bool] = True
    exploration_kinds: ClassVar[tuple[str, ...]] = OF_ACTIONS
    default_exploration: ClassVar[dict] = {
        "type": "OrnsteinUhlenbeckNoise", "random_timesteps": 1000, "ou_base_scale": 0.1, "ou_theta": 0.15,
        "ou_sigma": 0.2, "initial_scale": 1.0, "final_scale": 0.02, "scale_timesteps": 10_000,
    }  # fmt: skip
    own_aliases: ClassVar[dict] = {
        **NOISE_ALIASES,
        "actor_hiddens": _of_network("policy_model_config", "fcnet_hiddens"),
        "actor_hidden_activation": _of_network("policy_model_config", "fcnet_activation"),
        "critic_hiddens": _of_network("q_model_config", "fcnet_hiddens"),
        "critic_hidden_activation": _of_network("q_model_config", "fcnet_activation"),
    }

    @section
    def exploration(self, *, exploration_config=default_exploration) -> Self: ...

    @section
    def training(
        self,
        *,
        lr=1e-3,
        model={"fcnet_hiddens": [400, 300], "fcnet_activation": "relu"},  # noqa: B006
        twin_q=False,
        tau=2e-3,
        smooth_target_policy: Annotated[bool, "noise on the target actions", OfPolicy] = False,
        target_noise: Annotated[
            float,
            "its standard deviation; actions are in [-1, 1]",
            at_least(0),
            only_with("smooth_target_policy"),
            OfPolicy,
        ] = 0.2,
        target_noise_clip: Annotated[
            float, "its bound", at_least(0), only_with("smooth_target_policy"), OfPolicy
        ] = 0.5,
        use_huber: Annotated[bool, "the Huber loss of the TD error; False: half its square", OfPolicy] = False,
        huber_threshold: Annotated[
            float, "from where on an error counts linearly", above(0, finite=True), only_with("use_huber"), OfPolicy
        ] = 1.0,
        l2_reg: Annotated[float, "weight of half the squared weights in both losses", at_least(0), OfPolicy] = 1e-6,
        replay_buffer_config=SequenceReplaySettings.defaults(capacity=50_000),
    ) -> Self: ...

    @section
    def reporting(self, *, min_time_s_per_iteration=None, min_sample_timesteps_per_iteration=1000) -> Self: ...

    @relation("model", "policy_model_config")
    def _check_noise(self):
        """The actor has no use_sde."""
        if self.acting_model.get("use_sde"):
            return Mistake(
                "policy_model_config: use_sde=True learns the standard deviations of actions, and a deterministic "
                "actor has none.",
                ("policy_model_config", "model"),
                (self.with_defaults("use_sde", of=("model", "policy_model_config")),),
                "Leave it out, or use SAC or TQC.",
            )
        return None


class DDPGTrainee(ActorCriticTrainee):
    """A policy that learns by DDPG or TD3."""

    copied_modules = (CRITICS, POLICY)

    def critic_loss(self) -> LossOverModules:
        config = self.config
        threshold = config.huber_threshold if config.use_huber else None
        return critic_loss(config.smooth_target_policy, config.l2_reg, threshold)

    def actor_loss(self) -> LossOverModules:
        return actor_loss(self.config.l2_reg)

    def add_noise(self, batch: SampleBatch, rows: int) -> None:
        config = self.config
        if config.smooth_target_policy:
            bound = config.target_noise_clip
            batch[TARGET_NOISE] = np.clip(np.float32(config.target_noise) * self.normal_noise(rows), -bound, bound)

    @property
    def moves_targets(self) -> bool:
        return self.moves_actor


class DDPG(OffPolicyActorCritic):
    """Deep deterministic policy gradient."""

    config_class = DDPGConfig
    trainee_class: ClassVar[type[DDPGTrainee]] = DDPGTrainee

    def actor_spec(self, observation_space, action_space, config: DDPGConfig) -> NetworkSpec:
        spec = self.plain_spec(observation_space, action_space, config)
        return dataclasses.replace(spec, distribution=Deterministic(spec.distribution.action_shape))


class TD3Config(DDPGConfig):
    """Settings of TD3; the defaults are RLlib's, except those in default_differences.py."""

    default_exploration: ClassVar[dict] = {
        "type": "GaussianNoise", "random_timesteps": 10_000, "stddev": 0.1, "initial_scale": 1.0, "final_scale": 1.0,
        "scale_timesteps": 1,
    }  # fmt: skip

    @section
    def exploration(self, *, exploration_config=default_exploration) -> Self: ...

    @section
    def training(
        self,
        *,
        twin_q=True,
        policy_delay=2,
        smooth_target_policy=True,
        l2_reg=0.0,
        tau=5e-3,
        train_batch_size=100,
        num_steps_sampled_before_learning_starts=10_000,
        replay_buffer_config=SequenceReplaySettings.defaults(type="MultiAgentReplayBuffer"),
    ) -> Self: ...


class TD3(DDPG):
    """Twin delayed DDPG: DDPG with the defaults of TD3Config."""

    config_class = TD3Config
