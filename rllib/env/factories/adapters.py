"""Adapters of observations, as a config asks for them: without some keys, with keys for the value, with more parts."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import gymnasium
from gymnasium.spaces import Dict
from gymnasium.vector import VectorEnv, VectorWrapper
from gymnasium.wrappers import FilterObservation

from rllib.config.conflicts import Unfit
from rllib.env.factories.adapter import Adapter, StepInputs
from rllib.env.factories.critic_keys import CriticKeys
from rllib.env.factories.masks import ActionMask
from rllib.env.factories.previous_steps import PreviousStep
from rllib.env.factories.registry import EnvFactory
from rllib.env.streams.first_results import env_name


@dataclass(frozen=True)
class PartialObservation(Adapter):
    """Observations without some of their keys, such as a text that no network here reads.

    Attributes:
        ignored: keys of the Dict observation.
    """

    ignored: tuple[str, ...]

    json_name = "ignored_keys"
    # The setting that names the keys.
    setting_name: ClassVar[str] = "ignore_observation_keys"

    @classmethod
    def of_config(cls, config: Mapping[str, Any]) -> Self | None:
        ignored = tuple(dict.fromkeys(config.get(cls.setting_name, ())))
        return cls(ignored) if ignored else None

    @property
    def setting(self) -> str:
        return f"{self.setting_name}={list(self.ignored)}"

    def remedy(self, config):
        return {self.setting_name: []}

    def space(self, observation_space, action_space):
        """The space without the ignored keys; they may be absent already."""
        return Dict(self._without(observation_space)) if isinstance(observation_space, Dict) else observation_space

    def refuse_agents(self, spaces, env_name):
        keys = list(dict.fromkeys(key for space in spaces if isinstance(space, Dict) for key in space.spaces))
        unknown = [key for key in self.ignored if key not in keys]
        if not unknown:
            return
        if keys:
            raise Unfit(
                f"{self.setting}: no agent of {env_name} has an observation with {unknown[0]!r}; the keys of theirs "
                f"are {keys}.",
                f"Use .environment({self.setting_name}=[...]) with keys of them.",
                {self.setting_name: [key for key in self.ignored if key in keys]},
            )
        raise Unfit(
            f"{self.setting} must be keys of Dict observations, but those of the agents of {env_name} are of "
            f"{', '.join(dict.fromkeys(map(str, spaces)))}.",
            "Of a group they are a Tuple with a part for each member: leave the keys out in the environment, before "
            "with_agent_groups.",
            {self.setting_name: []},
        )

    def wrapped(self, env) -> gymnasium.Env | VectorEnv:
        is_vector = isinstance(env, VectorEnv)
        space = env.single_observation_space if is_vector else env.observation_space
        keys = list(space.spaces) if isinstance(space, Dict) else []
        kept = list(self._without(dict.fromkeys(keys)))
        if not kept or len(kept) != len(keys) - len(self.ignored):
            has = f"a Dict with the keys {keys}" if keys else str(space)
            raise Unfit(
                f"{self.setting} must be some of the keys of a Dict observation, but the observation space of "
                f"{env_name(env)} is {has}.",
                f"Use .environment({self.setting_name}=[...]) with keys of it, and keep at least one.",
                {self.setting_name: []},
            )
        return _PartialVector(env, kept) if is_vector else FilterObservation(env, kept)

    def row(self, observation, inputs: StepInputs):
        return self._without(observation) if isinstance(observation, Mapping) else observation

    def to_json(self) -> list[str]:
        return list(self.ignored)

    @classmethod
    def from_json(cls, data) -> Self:
        return cls(tuple(data))

    def _without(self, parts: Mapping) -> dict:
        return {key: part for key, part in parts.items() if key not in self.ignored}


@dataclass(frozen=True)
class TeacherKeys(PartialObservation):
    """Observations without keys that only a teacher reads, such as a simulator's friction and masses.

    The environments that a teacher labels keep them (`as_teacher_sees`); all others go without.
    """

    json_name = "teacher_keys"
    setting_name = "teacher_observation_keys"


class _PartialVector(VectorWrapper):
    """A VectorEnv whose observations keep only these keys; gymnasium's wrapper supports only some autoreset modes.

    Final observations in the infos keep all keys: they are read by the keys of the space.
    """

    def __init__(self, env: VectorEnv, kept: list[str]):
        super().__init__(env)
        self._kept = kept
        self.single_observation_space = Dict({key: env.single_observation_space[key] for key in kept})
        self.observation_space = Dict({key: env.observation_space[key] for key in kept})

    def reset(self, *, seed=None, options=None):
        observations, infos = self.env.reset(seed=seed, options=options)
        return self._part(observations), infos

    def step(self, actions):
        observations, *rest = self.env.step(actions)
        return self._part(observations), *rest

    def _part(self, observations) -> dict:
        return {key: observations[key] for key in self._kept}


# Innermost first.
ADAPTERS: tuple[type[Adapter], ...] = (PartialObservation, TeacherKeys, CriticKeys, PreviousStep, ActionMask)


def adapters_of(config: Mapping[str, Any]) -> tuple[Adapter, ...]:
    """The adapters that the settings of an algorithm ask for, innermost first."""
    made = [kind.of_config(config) for kind in ADAPTERS]
    return tuple(adapter for adapter in made if adapter is not None)


def as_teacher_sees(adapters: Iterable[Adapter]) -> tuple[Adapter, ...]:
    """The adapters without those that hide parts from the policy alone."""
    return tuple(adapter for adapter in adapters if not isinstance(adapter, TeacherKeys))


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
