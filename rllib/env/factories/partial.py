"""Dict observations without some of their keys, such as a text that no network here reads."""

from dataclasses import dataclass

import gymnasium
from gymnasium.spaces import Dict
from gymnasium.vector import VectorEnv, VectorWrapper
from gymnasium.wrappers import FilterObservation

from rllib.env.factories.registry import EnvContext, WrappingFactory


@dataclass(frozen=True)
class PartialObservationFactory(WrappingFactory):
    """A factory that makes another factory's environments without some keys of their observations.

    Attributes:
        ignored: keys of the Dict observation.
    """

    ignored: tuple[str, ...]

    def make(self, context: EnvContext) -> gymnasium.Env | VectorEnv:
        """One new environment.

        Raises:
            ValueError: if its observations are not a Dict with the ignored keys and at least one other.
        """
        env = self.factory.make(context)
        if isinstance(env, VectorEnv):
            return _PartialVector(env, self._kept(env.single_observation_space))
        if not isinstance(env, gymnasium.Env):
            raise ValueError(
                f"ignore_observation_keys={list(self.ignored)} needs an environment that is a gymnasium.Env, but "
                f"{self.name} is {type(env).__name__}. Leave the keys out in the environment itself."
            )
        return FilterObservation(env, self._kept(env.observation_space))

    def _kept(self, space) -> list[str]:
        keys = list(space.spaces) if isinstance(space, Dict) else []
        kept = [key for key in keys if key not in self.ignored]
        if not kept or len(kept) != len(keys) - len(self.ignored):
            has = f"a Dict with the keys {keys}" if keys else str(space)
            raise ValueError(
                f"ignore_observation_keys={list(self.ignored)} must be some of the keys of a Dict observation, but the "
                f"observation space of {self.name} is {has}. Use .environment(ignore_observation_keys=[...]) with keys "
                "of it, and keep at least one."
            )
        return kept


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
