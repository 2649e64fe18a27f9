"""An adapter for environments of the old gym API.

Old environments return the observation alone from reset(), four values from step(), take no seed in reset(), and may
carry spaces of the `gym` package. `gym` need not be installed.
"""

import inspect
import logging

import gymnasium
from gymnasium import spaces
from gymnasium.utils import seeding
from gymnasium.vector import VectorEnv

from rllib.env.agents import is_external, is_multi_agent
from rllib.env.spaces.supported import mismatch

logger = logging.getLogger("rllib.env")

_warned: set[type] = set()


class LegacyEnvironment(gymnasium.Env):
    """An adapter that gives an environment of the old API the new one, and any other one gymnasium's class.

    `done` becomes `terminated`, unless info["TimeLimit.truncated"] says that only a time limit was reached.
    """

    def __init__(self, env):
        self.env = env
        self.observation_space = convert_space(env.observation_space)
        self.action_space = convert_space(env.action_space)
        self.metadata = getattr(env, "metadata", None) or {}
        self.render_mode, self.spec = getattr(env, "render_mode", None), getattr(env, "spec", None)

    def __getattr__(self, name: str):
        if name.startswith("_") or name == "env":  # "env" is missing while a copy is made
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self.env, name)

    @property
    def unwrapped(self):
        return getattr(self.env, "unwrapped", self.env)

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple:
        result = call_reset(self.env, seed, options)
        return (result, {}) if is_bare_observation(result, self.observation_space) else result

    def step(self, action) -> tuple:
        result = self.env.step(action)
        return self.convert(result) if len(result) == 4 else result

    @staticmethod
    def convert(result: tuple) -> tuple:
        """(observation, reward, done, info) as (observation, reward, terminated, truncated, info)."""
        observation, reward, done, info = result
        truncated = bool(done and info.get("TimeLimit.truncated", False))
        return observation, reward, bool(done) and not truncated, truncated, info

    def render(self):
        return self.env.render()

    def close(self) -> None:
        if hasattr(self.env, "close"):
            self.env.close()


def takes_seed(env) -> bool:
    """Whether env.reset(seed=...) can be called."""
    try:
        parameters = inspect.signature(env.reset).parameters.values()
    except (TypeError, ValueError):
        return True
    return any(parameter.name == "seed" or parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)


def call_reset(env, seed: int | None, options: dict | None = None):
    """The result of a reset, in whichever way the environment accepts a seed; options where they are given."""
    given = {} if options is None else {"options": options}
    if seed is None or takes_seed(env):
        return env.reset(**given) if seed is None else env.reset(seed=seed, **given)
    if isinstance(env, gymnasium.Env):
        env.unwrapped.np_random = seeding.np_random(seed)[0]
    elif hasattr(env, "seed"):
        env.seed(seed)
    return env.reset()


def is_bare_observation(result, observation_space) -> bool:
    """Whether reset() returned an observation alone instead of (observation, info)."""
    if not isinstance(result, tuple) or len(result) != 2:
        return True
    # A pair may itself be an observation: of a Tuple space, or of a Box of two numbers.
    return mismatch(observation_space, result) is None


_NEW_API = (
    "reset(self, *, seed=None, options=None) -> (observation, info); step(self, action) -> (observation, reward, "
    "terminated, truncated, info)"
)


def warn_of_legacy(env, reason: str, new_api: str = _NEW_API) -> None:
    """Logs one warning for each class of old environments: why it counts as one, and the present form."""
    kind = type(getattr(env, "unwrapped", env))
    if kind in _warned:
        return
    _warned.add(kind)
    logger.warning(
        "%s follows the old gym API (%s). It is adapted. The new API: %s.",
        kind.__name__,
        reason,
        new_api,
    )


def convert_space(space):
    """A space of the old gym package as gymnasium's; anything else is returned as it is."""
    if isinstance(space, spaces.Space) or not type(space).__module__.startswith("gym."):
        return space
    kind = type(space).__name__
    if kind == "Box":
        return spaces.Box(space.low, space.high, dtype=space.dtype.type)
    if kind == "Discrete":
        return spaces.Discrete(int(space.n), start=int(getattr(space, "start", 0)))
    if kind == "MultiDiscrete":
        return spaces.MultiDiscrete(space.nvec)
    if kind == "MultiBinary":
        return spaces.MultiBinary(space.n)
    if kind == "Tuple":
        return spaces.Tuple([convert_space(part) for part in space.spaces])
    if kind == "Dict":
        return spaces.Dict({key: convert_space(part) for key, part in space.spaces.items()})
    return space


def refuse_agents(env) -> None:
    """Raises TypeError for an environment of several agents: PettingZoo's, in both its APIs, or a MultiAgentEnv."""
    if is_multi_agent(env):
        raise TypeError(
            f"{type(env).__name__} is an environment of several agents, and here one with one agent is needed. A "
            "wrapper can let a policy act for one agent, or for all of them in a Dict or Tuple of their actions "
            "(docs/guide/action_spaces.md)."
        )


def adapt_spaces(env):
    """The environment, with gymnasium's spaces.

    Raises:
        TypeError: if it is not an environment, or is one of several agents.
    """
    refuse_agents(env)
    missing = [name for name in ("reset", "step", "observation_space", "action_space") if not hasattr(env, name)]
    if missing:
        raise TypeError(
            f"an environment needs reset(), step(), observation_space and action_space, but {env!r} "
            f"({type(env).__name__}) lacks {', '.join(missing)}. Does its creator return the environment, and does "
            "its __init__ set both spaces?"
        )
    foreign = any(convert_space(space) is not space for space in (env.observation_space, env.action_space))
    return LegacyEnvironment(env) if foreign else env


def as_gymnasium(env):
    """An environment with one agent as what gymnasium's wrappers are put around; any other as it is.

    Streams adapt the old API, and classes that are not gymnasium's, after they have seen the first results. Wrappers
    are put around an environment before.

    Raises:
        TypeError: if it is not an environment.
    """
    if isinstance(env, VectorEnv) or is_multi_agent(env) or is_external(env):
        return env
    takes = takes_seed(env) if hasattr(env, "reset") else True
    if takes and isinstance(env, gymnasium.Env):
        return env
    adapted = adapt_spaces(env)
    if not takes:
        warn_of_legacy(env, "reset() takes no seed")
    return adapted if isinstance(adapted, LegacyEnvironment) else LegacyEnvironment(adapted)
