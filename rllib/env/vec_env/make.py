"""`make_vec_env`, as in Stable-Baselines3."""

import contextlib
import logging
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium

from rllib.compat.names.stable_baselines3.rules import count
from rllib.env.factories.registry import EnvContext, GymnasiumFactory, resolve
from rllib.env.streams.legacy import as_gymnasium
from rllib.env.vec_env.dummy_vec_env import DummyVecEnv
from rllib.notices import log_once

_MONITORS = (
    "no monitor.csv is written; episodes are in progress.csv and result.json of the constructor's tensorboard_log, and "
    "returns and lengths in each result's hist_stats"
)
_PROCESSES = "environments step in one process; PPO('MlpPolicy', env, num_rollout_workers=4) makes processes"
_IGNORED = {
    **dict.fromkeys(("monitor_dir", "monitor_kwargs"), _MONITORS),
    **dict.fromkeys(("vec_env_cls", "vec_env_kwargs"), _PROCESSES),
}


def make_vec_env(
    env_id: str | Callable[..., gymnasium.Env],
    n_envs: int = 1,
    seed: int | None = None,
    start_index: int = 0,
    monitor_dir: str | None = None,
    wrapper_class: Callable[..., gymnasium.Env] | None = None,
    env_kwargs: Mapping[str, Any] | None = None,
    vec_env_cls: Any = None,
    vec_env_kwargs: Mapping[str, Any] | None = None,
    monitor_kwargs: Mapping[str, Any] | None = None,
    wrapper_kwargs: Mapping[str, Any] | None = None,
) -> DummyVecEnv:
    """Several equal environments, for an algorithm or for a loop of one's own.

    Args:
        env_id: a registered id, or a class or function that makes an environment.
        n_envs: how many.
        seed: seed of the first reset: environment i gets seed + start_index + i.
        start_index: see `seed`.
        wrapper_class: a wrapper around each environment, with `wrapper_kwargs`.
        env_kwargs: arguments of each environment.
        wrapper_kwargs: arguments of the wrapper.
        monitor_dir, monitor_kwargs, vec_env_cls, vec_env_kwargs: without effect, and a warning says so: episodes are
            counted in any case, and processes are the algorithm's own (num_rollout_workers).

    Raises:
        ValueError: if `n_envs` is not positive.
    """
    count(1).check("n_envs", n_envs)
    arguments, around = dict(env_kwargs or {}), dict(wrapper_kwargs or {})
    other_class = None if vec_env_cls is DummyVecEnv else vec_env_cls
    _log_ignored(
        {
            "monitor_dir": monitor_dir,
            "monitor_kwargs": monitor_kwargs,
            "vec_env_cls": other_class,
            "vec_env_kwargs": vec_env_kwargs,
        }
    )

    def make() -> gymnasium.Env:
        env = _made(env_id, arguments)
        return env if wrapper_class is None else wrapper_class(as_gymnasium(env), **around)

    made = DummyVecEnv([make] * int(n_envs))
    made.seed(None if seed is None else seed + start_index)
    # A class that takes arguments may expect them in another form than here.
    if wrapper_class is None and (isinstance(env_id, str) or (isinstance(env_id, type) and not arguments)):
        made.env_id, made.env_config = env_id, arguments
    return made


def _made(env_id: str | Callable[..., gymnasium.Env], arguments: Mapping[str, Any]) -> gymnasium.Env:
    if not isinstance(env_id, str):
        return env_id(**arguments)
    factory = resolve(env_id)
    if isinstance(factory, GymnasiumFactory):
        with contextlib.suppress(TypeError):  # that it can be drawn costs nothing until it is; some cannot
            return factory.make(EnvContext({"render_mode": "rgb_array", **arguments}))
    return factory.make(EnvContext(arguments))


def _log_ignored(given: Mapping[str, Any]) -> None:
    """Warns once of each argument that was given and has no effect."""
    for name, value in given.items():
        if value:
            log_once(f"make_vec_env {name}", f"make_vec_env: {name} has no effect: {_IGNORED[name]}.", logging.WARNING)
