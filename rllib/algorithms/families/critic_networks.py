"""Describes the networks of critics, which read observations and actions, by the settings of a policy."""

from typing import TYPE_CHECKING, Any

from rllib.algorithms.families.actor_critic_settings import OffPolicyActorCriticConfig
from rllib.models.arithmetic.activations import ACTIVATION_NAMES
from rllib.models.catalog.catalog import preprocessing, user_critics
from rllib.models.memory.critics import MemoryCritics
from rllib.models.memory.spec import Memory
from rllib.models.model_settings import ModelSettings
from rllib.models.modules import EncodedFirst, FullyConnected, ResidualNetworks
from rllib.models.residual.spec import Residual
from rllib.policy import Policy

if TYPE_CHECKING:
    from rllib.models.user.user_critics import UserCritics

# Weights of actors and critics begin as torch's layers do.
INITIALIZER = "uniform"


def critics_of(
    config: OffPolicyActorCriticConfig, policy: Policy, reads: tuple[str, ...], num_outputs: int | None = None
) -> "FullyConnected | ResidualNetworks | MemoryCritics | UserCritics":
    """Describes the networks of a policy's critics.

    Args:
        config: settings of the policy.
        policy: the actor.
        reads: the inputs, "observation" and "action"; num_outputs as for FullyConnected.

    Raises:
        ValueError: if critics of the user's break their contract.
    """
    if policy.spec.memory:
        return _critics_with_memory(config, policy, reads, num_outputs)
    if not config.is_custom("q_model_config"):
        return network_of_critics(config, policy, reads, num_outputs, config.num_critics)
    return user_critics(
        config.network_settings("q_model_config"),
        policy.observation_space,
        policy.action_space,
        policy.spec,
        reads=reads,
        num_outputs=num_outputs,
        copies=config.num_critics,
    )


def _critics_with_memory(
    config: OffPolicyActorCriticConfig, policy: Policy, reads: tuple[str, ...], num_outputs: int | None
) -> MemoryCritics:
    settings, of_actor = ModelSettings(config.network_settings("q_model_config")), policy.spec.memory
    behind = tuple(settings.post_lstm_hiddens), ACTIVATION_NAMES[settings.post_lstm_activation]
    return MemoryCritics(
        reads,
        tuple(settings.fcnet_hiddens),
        Memory(of_actor.cell, settings.lstm_cell_size, of_actor.max_seq_len, *behind),
        num_outputs,
        config.num_critics,
        ACTIVATION_NAMES[settings.fcnet_activation],
        settings.fcnet_weights_initializer or INITIALIZER,
    )


def network_of_critics(
    config: OffPolicyActorCriticConfig,
    policy: Policy,
    reads: tuple[str, ...],
    num_outputs: int | None,
    copies: int | None,
) -> FullyConnected | ResidualNetworks:
    """Describes a network with the layers of q_model_config; further arguments as for FullyConnected."""
    settings = ModelSettings(config.network_settings("q_model_config"))
    if (residual := Residual.of_settings(settings)) is not None:
        return ResidualNetworks(residual, reads, num_outputs, copies)
    torso = config.critics_torso(policy.observation_space, policy.spec)
    return FullyConnected(
        reads,
        tuple(settings.fcnet_hiddens),
        num_outputs,
        copies,
        ACTIVATION_NAMES[settings.fcnet_activation],
        settings.layer_norm,
        settings.fcnet_weights_initializer or INITIALIZER,
        torso=torso,
        shares_torso=torso is not None and config.shares_encoder,
    )


def encoded_first(config: OffPolicyActorCriticConfig, policy: Policy, module: Any) -> Any:
    """The module, with its own encoder where it is built in and the actor reads stored observations."""
    if not isinstance(module, FullyConnected) or module.torso or not config.is_custom("policy_model_config"):
        return module
    settings = ModelSettings(config.network_settings("q_model_config"))
    activation, is_filtered = ACTIVATION_NAMES[settings.conv_activation], policy.filters_observations
    return EncodedFirst(module, preprocessing(policy.observation_space, settings, activation, is_filtered)[0])
