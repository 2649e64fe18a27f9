"""`import gym` for programs older than gymnasium, if gym itself is not installed: gymnasium with gym's API.

The API is that of gym 0.21 to 0.25, which Ray 0.8 to 2.2 used: reset() returns the observation alone, step() returns
four values, and there is seed(). Environments and wrappers are gymnasium's, with these methods in front; `gym.Env`,
spaces and errors are gymnasium's own. `import gymnasium` is left as it is.
"""

import functools
import importlib
import importlib.abc
import importlib.machinery
import sys
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gymnasium
from gymnasium.envs.registration import load_env_creator
from gymnasium.utils import seeding

from rllib.compat.programs.absent import absent
from rllib.env.streams.legacy import LegacyEnvironment

# Of the versions with this API the last; programs compare it.
VERSION = "0.25.2"
# Modules in which both APIs are the same.
_SAME = ("gym.spaces", "gym.utils", "gym.error", "gym.logger")
_VECTORS = "its vectors of environments return five values from step(): use gymnasium.vector"
# Private attributes of wrappers that programs read from what gym.make returns.
_OF_TIME_LIMIT = ("_max_episode_steps", "_elapsed_steps")


# ---------------------------------------------------------------------- environments in the old API


class OldApi:
    """The old API, before a class of environments or wrappers in the order of its bases."""

    _next_seed: int | None = None

    def reset(self, *, seed: int | None = None, options: dict | None = None, return_info: bool = False) -> Any:
        """The first observation; (observation, info) with `return_info`."""
        seed, self._next_seed = self._next_seed if seed is None else seed, None
        observation, info = super().reset(seed=seed, options=options)
        return (observation, info) if return_info else observation

    def step(self, action) -> tuple:
        """(observation, reward, done, info), with info["TimeLimit.truncated"] where an episode was cut."""
        observation, reward, terminated, truncated, info = super().step(action)
        if truncated:
            info = {**info, "TimeLimit.truncated": not terminated}
        return observation, reward, terminated or truncated, info

    def seed(self, seed: int | None = None) -> list:
        """Seeds the next reset."""
        self._next_seed = seed
        return [seed]

    def render(self, mode: str | None = None) -> Any:
        """The picture in the render mode that the environment was made with.

        Raises:
            ValueError: another mode is asked for.
        """
        if mode not in (None, self.render_mode):
            raise ValueError(
                f"render(mode={mode!r}) of an environment that was made with render_mode={self.render_mode!r}: give "
                f"gym.make(..., render_mode={mode!r})"
            )
        return super().render()


class _Forwards:
    """Forwards attributes that a wrapper lacks to the wrapped object."""

    def __getattr__(self, name: str) -> Any:
        if name == "env" or (name.startswith("_") and name not in _OF_TIME_LIMIT):
            raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}")
        return self.env.get_wrapper_attr(name)


class OldEnvironment(OldApi, _Forwards, gymnasium.Wrapper):
    """An environment of gymnasium's in the old API, as gym.make returns it."""


class _NewApi(_Forwards, LegacyEnvironment, gymnasium.Wrapper):
    """An environment of either API, in the API of gymnasium."""

    def __init__(self, env):
        gymnasium.Wrapper.__init__(self, env)


class Wrapper(_Forwards, gymnasium.Wrapper):
    """Base of wrappers in the old API."""

    def reset(self, **kwargs) -> Any:
        return self.env.reset(**kwargs)

    def seed(self, seed: int | None = None) -> list:
        """Seeds the environment, by its seed() if it has one."""
        try:
            own = self.env.get_wrapper_attr("seed")
        except AttributeError:
            self.unwrapped.np_random = seeding.np_random(seed)[0]
            return [seed]
        return own(seed)

    def render(self, *args, **kwargs) -> Any:
        return self.env.render(*args, **kwargs)


class ObservationWrapper(Wrapper):
    """A wrapper that changes observations by its method `observation`."""

    def reset(self, **kwargs) -> Any:
        result = self.env.reset(**kwargs)
        return (self.observation(result[0]), result[1]) if kwargs.get("return_info") else self.observation(result)

    def step(self, action) -> tuple:
        observation, *others = self.env.step(action)
        return self.observation(observation), *others

    def observation(self, observation) -> Any:
        raise NotImplementedError


class RewardWrapper(Wrapper):
    """A wrapper that changes rewards by its method `reward`."""

    def step(self, action) -> tuple:
        observation, reward, *others = self.env.step(action)
        return observation, self.reward(reward), *others

    def reward(self, reward) -> Any:
        raise NotImplementedError


class ActionWrapper(Wrapper):
    """A wrapper that changes actions by its method `action`."""

    def step(self, action) -> tuple:
        return self.env.step(self.action(action))

    def action(self, action) -> Any:
        raise NotImplementedError


@dataclass(frozen=True)
class _EntryPoint:
    """Makes an environment that was registered with `gym.register`, in the API of gymnasium."""

    entry_point: str | Callable

    def __call__(self, **kwargs) -> gymnasium.Env:
        make = load_env_creator(self.entry_point) if isinstance(self.entry_point, str) else self.entry_point
        return _NewApi(make(**kwargs))


def register(id: str, entry_point: str | Callable, **kwargs) -> None:
    """Registers an environment of either API with gymnasium, which then makes it in gymnasium's API."""
    gymnasium.register(id, _EntryPoint(entry_point), **kwargs)


def make(id: str | gymnasium.envs.registration.EnvSpec, **kwargs) -> OldEnvironment:
    """An environment by its id, in the old API."""
    return OldEnvironment(gymnasium.make(id, **kwargs))


# ---------------------------------------------------------------------- modules

_OURS: dict[Any, Any] = {
    gymnasium.Env: gymnasium.Env,
    gymnasium.Wrapper: Wrapper,
    gymnasium.ObservationWrapper: ObservationWrapper,
    gymnasium.RewardWrapper: RewardWrapper,
    gymnasium.ActionWrapper: ActionWrapper,
    gymnasium.make: make,
    gymnasium.register: register,
}


@functools.cache
def _in_old_api(cls: type) -> type:
    """A class of environments or wrappers of gymnasium's with the old API."""
    bases, body = (
        (OldApi, cls),
        {"__module__": "gym" + cls.__module__.removeprefix("gymnasium"), "__doc__": cls.__doc__},
    )
    if issubclass(cls, gymnasium.Wrapper):
        bases = (OldApi, _Forwards, cls)
        body["__init__"] = lambda self, env, *args, **kwargs: cls.__init__(self, _NewApi(env), *args, **kwargs)
    return type(cls.__name__, bases, body)


class _OldModule(types.ModuleType):
    """A module of gym whose names are gymnasium's, in the old API; they are looked up when they are first asked for."""

    def __init__(self, name: str):
        super().__init__(name, f"{name}, served by rllib.as_ray")
        self._its = importlib.import_module("gymnasium" + name.removeprefix("gym"))
        self.__path__ = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name != "__all__":
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        path = f"{self.__name__}.{name}"
        if path == "gym.vector":
            return absent(path, _VECTORS)
        value = getattr(self._its, name)
        if isinstance(value, types.ModuleType) and value.__name__ == f"{self._its.__name__}.{name}":
            value = importlib.import_module(path)
        elif isinstance(value, type | types.FunctionType):
            is_environment = isinstance(value, type) and issubclass(value, gymnasium.Env) and value not in _OURS
            value = _in_old_api(value) if is_environment else _OURS.get(value, value)
        setattr(self, name, value)
        return value

    def __dir__(self):
        return sorted({*vars(self), *dir(self._its)})

    def __reduce__(self):
        return importlib.import_module, (self.__name__,)


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports gymnasium.x under the name gym.x: as the same object where both APIs are the same."""

    def find_spec(self, fullname, path=None, target=None):
        if fullname.partition(".")[0] != "gym" or fullname.startswith("gym.vector"):
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec):
        if not spec.name.startswith(_SAME):
            module = _OldModule(spec.name)
            if spec.name == "gym":
                module.__version__ = VERSION
            return module
        module = importlib.import_module("gymnasium" + spec.name.removeprefix("gym"))
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module):
        if module.__spec__.loader_state is not None:
            module.__spec__ = module.__spec__.loader_state  # the import system has set the other name's spec


_finder = _Finder()


def install() -> None:
    """Adds the finder after all others, so that an installed gym takes precedence."""
    if _finder not in sys.meta_path:
        sys.meta_path.append(_finder)
