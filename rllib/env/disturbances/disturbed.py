"""Environments in their disturbances."""

from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Dict
from gymnasium.vector import SyncVectorEnv, VectorEnv

from rllib.config.conflicts import Unfit
from rllib.env.disturbances.adaptive import BoundReturn, drawn_values
from rllib.env.disturbances.channel import Channel, drawn
from rllib.env.disturbances.parameters import ParameterSetter
from rllib.env.disturbances.settings import OF_STEPS, Disturbances, Interval
from rllib.env.factories.registry import EnvContext, WrappingFactory
from rllib.env.streams.first_results import env_name
from rllib.env.streams.legacy import as_gymnasium, is_bare_observation
from rllib.env.streams.rewards import reward_problem

# Key of the random stream of an environment's disturbances, which is spawned from the environment's seed.
_STREAM = 0x5EED


class DrawnEpisodes:
    """What the disturbances of one environment draw for its episodes, and the returns at bounds of adapted ranges.

    The random stream is spawned from the seed of the environment's reset. So it is that of the environment, however
    environments are divided among workers, and draws nothing from the environment's own generator.

    Args:
        env: the environment, in its wrappers.
        disturbances: disturbances of its episodes.
        adapts: whether ranges of parameters begin as "adapt" says, and not as "parameters" does.

    Attributes:
        rng: random generator of the running episode.

    Raises:
        Unfit: (a ValueError) if the environment lacks a parameter.
    """

    def __init__(self, env: Any, disturbances: Disturbances, adapts: bool):
        self._setter = ParameterSetter(env, disturbances)
        self._ranges = {name: each.range for name, each in disturbances.parameters.items()}
        adapt = disturbances.adapt if adapts else None
        self._at_bounds = adapt.at_bounds if adapt else 0.0
        self._adapted: dict[str, Interval] = dict(adapt.start) if adapt else {}
        self.rng = np.random.default_rng()
        self._bound: tuple[str, str] | None = None
        self._return, self._has_stepped = 0.0, False
        self._returns: list[BoundReturn] = []

    def begin(self, seed: int | None) -> None:
        """Draws and sets the parameters of the episode that the environment's reset begins.

        Args:
            seed: seed of the reset. With one, the running episode was left off, and its return does not count; without
                one, it has ended, by a time limit around the disturbances or as the environment said.
        """
        if seed is None:
            self.end()
        else:
            self.rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=(_STREAM,))))
        self._bound, self._return, self._has_stepped = None, 0.0, False
        values = {name: drawn(self.rng, each) for name, each in self._ranges.items() if name not in self._adapted}
        if self._adapted:
            adapted, self._bound = drawn_values(self.rng, self._adapted, self._at_bounds)
            values |= adapted
        self._setter.set(values)

    def add(self, *rewards: Any) -> None:
        """Adds the rewards of a step, as the environment gives them; streams refuse those that are none."""
        self._has_stepped = True
        if self._bound is not None:
            self._return += sum(np.asarray(each).item() for each in rewards if reward_problem(each) is None)

    def end(self) -> None:
        """Notes the return of an episode that has ended, if it had a parameter at a bound."""
        if self._bound is not None and self._has_stepped:
            self._returns.append(BoundReturn(*self._bound, self._return))
        self._bound = None

    def take_returns(self) -> list[BoundReturn]:
        """Returns of the episodes at bounds that have ended since the last call."""
        taken, self._returns = self._returns, []
        return taken

    def set_ranges(self, ranges: Mapping[str, Interval]) -> None:
        """Sets the ranges that the episodes from the next one on are drawn from."""
        self._adapted.update(ranges)


class DisturbedEnv(gymnasium.Wrapper):
    """An environment with one agent in its disturbances; rewards and ends are as the environment gives them.

    Args:
        env: the environment.
        disturbances: disturbances of its episodes.
        adapts: see DrawnEpisodes.

    Attributes:
        drawn_episodes: see DrawnEpisodes.

    Raises:
        Unfit: (a ValueError) if it lacks a parameter, or its spaces take no noise.
    """

    def __init__(self, env: gymnasium.Env, disturbances: Disturbances, adapts: bool = True):
        super().__init__(env)
        self._disturbances = disturbances
        self.drawn_episodes = DrawnEpisodes(env, disturbances, adapts)
        self._channel = Channel(disturbances, env.observation_space, env.action_space)

    def reset(self, *, seed=None, options=None):
        self.drawn_episodes.begin(seed)
        result = self.env.reset(seed=seed, options=options)
        # The old gym API has no infos here and four values in a step, which streams adapt; other forms they refuse.
        if is_bare_observation(result, self.env.observation_space):
            return self._channel.begin(self.drawn_episodes.rng, result)
        observation, info = result
        return self._channel.begin(self.drawn_episodes.rng, observation), info

    def step(self, action):
        result = self.env.step(self._channel.played(action))
        if not isinstance(result, tuple) or len(result) not in (4, 5):
            return result
        observation, reward, *ends, info = result
        self.drawn_episodes.add(reward)
        if any(ends):
            self.drawn_episodes.end()
        return self._channel.seen(observation), reward, *ends, info

    def take_bound_returns(self) -> list[BoundReturn]:
        """`DrawnEpisodes.take_returns`."""
        return self.drawn_episodes.take_returns()

    def set_disturbance_ranges(self, ranges: Mapping[str, Interval]) -> None:
        """`DrawnEpisodes.set_ranges`."""
        self.drawn_episodes.set_ranges(ranges)


@dataclass(frozen=True)
class DisturbedFactory(WrappingFactory):
    """A factory that puts disturbances around another factory's environments.

    Attributes:
        disturbances: disturbances of training, or of evaluation where its config asks for them.
        mask_key: key of the mask of legal actions in Dict observations; None: there is none.
    """

    disturbances: Disturbances
    mask_key: str | None = None

    def make(self, context: EnvContext) -> gymnasium.Env | VectorEnv:
        """One new environment, or a SyncVectorEnv of them.

        Raises:
            Unfit: (a ValueError) if it is another vector, drives its own loop, has masks of legal actions, lacks a
                parameter, or its spaces take no noise.
        """
        env = self.factory.make(context)
        try:
            return self.disturbed(env, context)
        except Exception:
            env.close()
            raise

    def disturbed(self, env: Any, context: EnvContext) -> gymnasium.Env | VectorEnv:
        """An environment that the other factory has made, with disturbances; errors as for `make`."""
        if isinstance(env, VectorEnv) and isinstance(env.unwrapped, SyncVectorEnv):
            vector = env.unwrapped
            vector.envs = [self.disturbed(each, context) for each in vector.envs]
            return env
        env = as_gymnasium(env)
        if not isinstance(env, gymnasium.Env):
            what = f"a {type(env).__name__}" if isinstance(env, VectorEnv) else env_name(env)
            raise Unfit(
                f"disturbances go around single environments that the library steps, but {self.name} makes {what}.",
                "Leave them out, and disturb it where it is made.",
                {"disturbances": {}},
            )
        self.refuse_masks(env.observation_space)
        return DisturbedEnv(env, self.disturbances, adapts=not context.in_evaluation)

    def refuse_masks(self, observation_space: Any) -> None:
        """Raises Unfit where late observations or actions would make masks of legal actions wrong."""
        has_mask = isinstance(observation_space, Dict) and self.mask_key in observation_space.spaces
        if has_mask and self.disturbances.changes_steps:
            raise Unfit(
                f"disturbances of observations and actions, and the mask of legal actions {self.mask_key!r} of "
                f"{self.name}, do not go together: an action that is played late may no longer be legal.",
                'Keep "parameters" alone.',
                self.disturbances.without(*OF_STEPS),
            )


@dataclass(frozen=True)
class RangedFactory(WrappingFactory):
    """A factory whose environments take over the ranges that an adaptation has reached.

    Attributes:
        ranges: parameter -> its present range; {}: those that it begins with. It is changed in place.
    """

    ranges: MutableMapping[str, Interval]

    def make(self, context: EnvContext):
        env = self.factory.make(context)
        if self.ranges and not context.in_evaluation:
            for each in getattr(env.unwrapped, "envs", [env]) if isinstance(env, VectorEnv) else [env]:
                layer_of(each).set_disturbance_ranges(self.ranges)
        return env


def layer_of(env: Any) -> Any:
    """The layer of an environment's wrappers that has its disturbances, or the process that it runs in.

    Raises:
        LookupError: if there is none.
    """
    layer = env
    while not hasattr(layer, "set_disturbance_ranges"):
        layer = getattr(layer, "env", None)
        if layer is None:
            raise LookupError(f"{env_name(env)} has no disturbances")
    return layer
