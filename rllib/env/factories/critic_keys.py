"""Keys of Dict observations that the value reads and the policy does not, such as a simulator's friction and masses.

In training the environment gives them. Outside of it, where values are not computed, they may be absent. Then fillers
stand in their place, which the policy's layers do not read (models/dense/separate.py).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import gymnasium
from gymnasium.spaces import Dict
from gymnasium.vector import VectorEnv

from rllib.config.conflicts import Unfit
from rllib.env.factories.adapter import Adapter, StepInputs
from rllib.models.observations.flat_spaces import next_to_zero


@dataclass(frozen=True)
class CriticKeys(Adapter):
    """Observations with keys for the value alone; environments stay as they are.

    Attributes:
        keys: keys of the Dict observation.
    """

    keys: tuple[str, ...]

    json_name = "critic_keys"
    adds_to_steps = False

    @classmethod
    def of_config(cls, config: Mapping[str, Any]) -> Self | None:
        keys = tuple(dict.fromkeys(config.get("critic_observation_keys", ())))
        return cls(keys) if keys else None

    @property
    def setting(self) -> str:
        return f"critic_observation_keys={list(self.keys)}"

    def remedy(self, config):
        return {"critic_observation_keys": []}

    def space(self, observation_space, action_space):
        """The same space.

        Raises:
            ValueError: if it has not these keys, and others.
        """
        keys = list(observation_space.spaces) if isinstance(observation_space, Dict) else []
        if not set(self.keys) < set(keys):
            has = f"a Dict with the keys {keys}" if keys else str(observation_space)
            raise Unfit(
                f"{self.setting} must be some of the keys of a Dict observation, but the observation space is {has}.",
                "Use .environment(critic_observation_keys=[...]) with keys of it, and leave the policy at least one.",
                {"critic_observation_keys": []},
            )
        return observation_space

    def own_space(self, space):
        """The space without the keys, which an observation may have or not."""
        return Dict([(key, part) for key, part in space.spaces.items() if key not in self.keys])

    def wrapped(self, env) -> gymnasium.Env | VectorEnv:
        single = (env.single_observation_space, env.single_action_space) if isinstance(env, VectorEnv) else None
        self.space(*(single or (env.observation_space, env.action_space)))
        return env

    def lacks(self, observation: Any) -> bool:
        return isinstance(observation, Mapping) and not observation.keys() >= set(self.keys)

    def row(self, observation, inputs: StepInputs):
        if inputs.policy_space is None or not self.lacks(observation):
            return observation
        absent = [key for key in self.keys if key not in observation]
        return {**observation, **{key: next_to_zero(_part(inputs.policy_space, key)) for key in absent}}

    def to_json(self) -> list[str]:
        return list(self.keys)

    @classmethod
    def from_json(cls, data) -> Self:
        return cls(tuple(data))


def _part(space: Dict, key: str) -> gymnasium.Space:
    """The part of the environment's observation with this key, where adapters have added to it, or put it deeper."""
    return space[key] if key in space.spaces else _part(space["observations"], key)
