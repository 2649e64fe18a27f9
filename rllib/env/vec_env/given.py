"""Environments as programs for Stable-Baselines3 give them: made already, alone or several in one."""

import copy
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
from gymnasium.envs.registration import registry
from gymnasium.vector import VectorEnv

from rllib.compat.names.elsewhere import OF_STABLE_BASELINES
from rllib.env.factories.registry import MAKE_ARGUMENTS, EnvContext, resolve
from rllib.env.vec_env.dummy_vec_env import DummyVecEnv
from rllib.env.vec_env.given_vector import InPlace

# Wrappers that change nothing: returns are counted here in any case.
_ONLY_COUNT = frozenset({"Monitor", "RecordEpisodeStatistics"})


class CopiesOf:
    """Makes a run's environments as copies of one that is made already.

    Args:
        env: the pattern; it is not stepped.

    Raises:
        Exception: of `copy.deepcopy`, with a note, if it cannot be copied.
    """

    def __init__(self, env: gymnasium.Env):
        self._env, self.__qualname__ = env, type(env.unwrapped).__name__

    def __call__(self) -> gymnasium.Env:
        try:
            return copy.deepcopy(self._env)
        except Exception as error:
            error.add_note(
                f"{self._env} was given made already. A run needs several environments, and this one cannot be copied: "
                "give its class, its id or a function that makes it"
            )
            raise


class OneOfEach:
    """Makes a run's environments by functions without arguments: environment i of a worker by function i.

    Args:
        functions: each returns a new environment.
        name: name of the environment, for messages.
    """

    def __init__(self, functions: Sequence[Callable[[], gymnasium.Env]], name: str):
        self._functions, self.__qualname__ = list(functions), name

    def __call__(self, context: EnvContext) -> gymnasium.Env:
        return self._functions[context.vector_index % len(self._functions)]()


def settings_of(env: Any) -> dict[str, Any]:
    """The settings `env`, `env_config` and `num_envs_per_worker` for an environment in any form.

    Args:
        env: an id, class or function; an environment that is made already, which becomes a pattern of others; a
            `DummyVecEnv`, of this library or of Stable-Baselines3; an `InPlace`, which is stepped itself; None: no
            settings.

    Raises:
        TypeError: for a vector environment that does not say what it is made of, with what to write.
    """
    if env is None:
        return {}
    if isinstance(env, InPlace):
        return env.settings()
    if isinstance(env, DummyVecEnv):
        return {**_of_vector(env), "num_envs_per_worker": env.num_envs}
    if _is_vec_env(env):
        return _of_foreign_vector(env)
    if isinstance(env, VectorEnv):
        raise TypeError(
            f"{env} is made already, with all its environments. Give the id or the class of one environment, and "
            "make_vec_env for several."
        )
    if isinstance(env, gymnasium.Env):
        return _of_environments([env])
    return {"env": env}


def _of_vector(env: DummyVecEnv) -> dict[str, Any]:
    if env.env_id is not None:
        return {"env": env.env_id, "env_config": env.env_config}
    settings = _of_environments(env.envs)
    if isinstance(settings["env"], CopiesOf | OneOfEach):
        again = env.env_fns[0]()
        if again is not env.envs[0]:  # so each call makes a new one, and nothing needs to be copied
            again.close()
            settings["env"] = OneOfEach(env.env_fns, settings["env"].__qualname__)
    return settings


def _is_vec_env(env: Any) -> bool:
    """Whether this is a VecEnv of Stable-Baselines3, or has its shape."""
    return hasattr(env, "step_async") and hasattr(env, "num_envs") and not isinstance(env, type | VectorEnv)


def _of_foreign_vector(env: Any) -> dict[str, Any]:
    name = type(env).__name__
    if hasattr(env, "venv"):
        raise TypeError(f"{name} is a wrapper of Stable-Baselines3, and is not read: {_advice(name)}.")
    if not getattr(env, "envs", None):
        raise TypeError(f"{name} does not say what it is made of: {_advice(name)}.")
    return {**_of_environments(env.envs), "num_envs_per_worker": env.num_envs}


def _advice(name: str) -> str:
    return OF_STABLE_BASELINES.get(name, "give rllib.make_vec_env(id, n_envs=8)")


def _of_environments(envs: Sequence[gymnasium.Env]) -> dict[str, Any]:
    """Settings for environments that exist: the id if it reproduces them, so that checkpoints name it; else copies."""
    ids = [_by_id(env) for env in envs]
    if ids[0] is not None and ids.count(ids[0]) == len(ids):
        return ids[0]
    copies = [CopiesOf(env) for env in envs]
    return {"env": copies[0] if len(copies) == 1 else OneOfEach(copies, copies[0].__qualname__)}


def _by_id(env: gymnasium.Env) -> dict[str, Any] | None:
    """The id and the arguments by which gymnasium makes such an environment; None if more is needed."""
    spec = env.spec
    known = registry.get(spec.id) if spec is not None else None
    if known is None or spec.entry_point != known.entry_point:
        return None
    if any(wrapper.name not in _ONLY_COUNT for wrapper in spec.additional_wrappers):
        return None
    given = {name: value for name, value in spec.kwargs.items() if known.kwargs.get(name) != value}
    limits = {name: getattr(spec, name) for name in MAKE_ARGUMENTS if getattr(spec, name) != getattr(known, name)}
    return {"env": spec.id, "env_config": given | limits}


def as_vec_env(env: Any) -> Any:
    """An environment in any form as a vector environment in Stable-Baselines3's form.

    Args:
        env: as for `settings_of`; an environment that is made already is stepped itself.

    Raises:
        TypeError: for a vector environment of gymnasium.
        ValueError: for a name that nothing is registered under.
    """
    if _is_vec_env(env):
        return env
    if isinstance(env, gymnasium.Env):
        return DummyVecEnv([lambda: env])
    if isinstance(env, VectorEnv):
        raise TypeError(f"{env} is a vector environment of gymnasium. Give one environment, its class or its id.")
    factory = resolve(env)
    return DummyVecEnv([lambda: factory.make(EnvContext(in_evaluation=True))])
