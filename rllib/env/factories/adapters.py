"""The adapters of observations, as a config asks for them."""

from collections.abc import Iterable, Mapping
from typing import Any

from rllib.env.factories.adapter import Adapter
from rllib.env.factories.masks import ActionMask
from rllib.env.factories.partial import PartialObservation
from rllib.env.factories.previous_steps import PreviousStep
from rllib.env.factories.registry import EnvFactory

# Innermost first.
ADAPTERS: tuple[type[Adapter], ...] = (PartialObservation, PreviousStep, ActionMask)


def adapters_of(config: Mapping[str, Any]) -> tuple[Adapter, ...]:
    """The adapters that the settings of an algorithm ask for, innermost first."""
    made = [kind.of_config(config) for kind in ADAPTERS]
    return tuple(adapter for adapter in made if adapter is not None)


def adapted(factory: EnvFactory, adapters: Iterable[Adapter]) -> EnvFactory:
    """A factory of the same environments, with the observations that the policy reads."""
    for adapter in adapters:
        factory = adapter.wrap(factory)
    return factory


def adapted_space(observation_space, action_space, adapters: Iterable[Adapter]):
    """The space of the observations that the policy reads."""
    for adapter in adapters:
        observation_space = adapter.space(observation_space, action_space)
    return observation_space
