"""`evaluate_policy`, as in Stable-Baselines3: episodes of any policy in any environment."""

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from rllib.acting.inference import inference_of
from rllib.compat.names.stable_baselines3.rules import check_flags, count, number
from rllib.env.factories.masks import METHOD, ActionMask
from rllib.env.vec_env.given import as_vec_env
from rllib.env.vec_env.monitor import Monitor


class _Actor(Protocol):
    """Acts in several environments at once."""

    def act(self, observations: Any, rewards: np.ndarray | None, infos: list[dict]) -> Any: ...

    def ended(self, index: int) -> None: ...


def evaluate_policy(
    model: Any,
    env: Any,
    n_eval_episodes: int = 10,
    deterministic: bool = True,
    render: bool = False,
    callback: Callable[[dict[str, Any], dict[str, Any]], None] | None = None,
    reward_threshold: float | None = None,
    return_episode_rewards: bool = False,
    warn: bool = True,
) -> tuple[float, float] | tuple[list[float], list[int]]:
    """Plays whole episodes and returns the mean and the standard deviation of their returns.

    Episodes are divided among the environments beforehand, since short ones would otherwise count more often.

    Args:
        model: an algorithm, a policy of `load_policy`, or an object with Stable-Baselines3's `predict`.
        env: an id, class or function, an environment, or several (`make_vec_env`).
        n_eval_episodes: number of episodes.
        deterministic: take the most likely actions.
        render: draw each step.
        callback: called with (locals, globals) for each step of each environment; locals has "i", "reward", "done" and
            "info".
        reward_threshold: the mean return has to be higher.
        return_episode_rewards: return the episodes' returns and lengths instead.
        warn: without effect: returns are those of the environment as it was given, or of the Monitor around it.

    Raises:
        ValueError: if the mean return is not above `reward_threshold`, n_eval_episodes is not positive, or several
            agents act.
    """
    count(1).check("n_eval_episodes", n_eval_episodes)
    check_flags(deterministic=deterministic, render=render, return_episode_rewards=return_episode_rewards, warn=warn)
    if reward_threshold is not None:
        number().check("reward_threshold", reward_threshold)
    vector = as_vec_env(env)
    try:
        returns, lengths = _played(model, vector, n_eval_episodes, deterministic, render, callback)
    finally:
        if isinstance(env, type) or not hasattr(env, "step"):  # made here
            vector.close()
    mean = float(np.mean(returns))
    if reward_threshold is not None and mean <= reward_threshold:
        raise ValueError(f"the mean return {mean:.2f} is not above reward_threshold={reward_threshold}")
    return (returns, lengths) if return_episode_rewards else (mean, float(np.std(returns)))


def _played(
    model: Any, vector: Any, num_episodes: int, deterministic: bool, render: bool, callback: Callable | None
) -> tuple[list[float], list[int]]:
    """Returns and lengths of the episodes, in the order in which they ended."""
    actor: _Actor = (_OfPlayer if hasattr(model, "make_player") else _OfPredict)(model, vector, deterministic)
    left = [(num_episodes + index) // vector.num_envs for index in range(vector.num_envs)]
    is_counted = hasattr(vector, "env_is_wrapped") and any(vector.env_is_wrapped(Monitor))
    returns: list[float] = []
    lengths: list[int] = []
    sums, steps = np.zeros(vector.num_envs), np.zeros(vector.num_envs, int)
    observations, rewards = vector.reset(), None
    infos = vector.reset_infos
    while any(left):
        observations, rewards, dones, infos = vector.step(actor.act(observations, rewards, infos))
        sums += rewards
        steps += 1
        for i in range(vector.num_envs):
            if callback is not None and left[i]:
                callback({"i": i, "reward": rewards[i], "done": dones[i], "info": infos[i], "model": model}, {})
            if not dones[i]:
                continue
            # Of an environment in a Monitor its numbers count: wrappers around it may scale rewards, or end an episode
            # within a game.
            counted = infos[i].get("episode") if is_counted else {"r": sums[i], "l": steps[i]}
            if left[i] and counted is not None:
                left[i] -= 1
                returns.append(float(counted["r"]))
                lengths.append(int(counted["l"]))
            sums[i] = steps[i] = 0
            infos[i] = vector.reset_infos[i]
            actor.ended(i)
        if render:
            vector.render()
    return returns, lengths


class _OfPlayer:
    """A policy of this library: its player keeps states, and the actions and rewards before."""

    def __init__(self, model: Any, vector: Any, deterministic: bool):
        if getattr(model, "agents", None) is not None:
            raise ValueError("several agents act in this environment. Use algo.evaluate(10).")
        self._vector, self._inference = vector, inference_of(model)
        self._player = model.make_player(vector.num_envs, explore=not deterministic)
        self._masks = self._inference.settings.adapter(ActionMask)
        self._has_method = self._masks is not None and vector.has_attr(METHOD)

    def act(self, observations: Any, rewards: np.ndarray | None, infos: list[dict]) -> Any:
        masks = None
        if self._masks is not None and (self._masks.mask_from != "info" or self._has_method):
            masks = self._vector.env_method(METHOD)
        elif self._masks is not None:
            masks = [self._masks.mask_in(info, "the environment") for info in infos]
        rows = self._inference.rows_of(observations)
        if rows is None:
            raise ValueError(
                f"the policy takes observations of {self._inference.given_space}, but the environment has "
                f"{self._vector.observation_space}"
            )
        return self._player.act(rows, rewards, masks)

    def ended(self, index: int) -> None:
        self._player.reset(index)


class _OfPredict:
    """An object with Stable-Baselines3's `predict`."""

    def __init__(self, model: Any, vector: Any, deterministic: bool):
        self._model, self._deterministic, self._states = model, deterministic, None
        self._starts = np.ones(vector.num_envs, bool)

    def act(self, observations: Any, rewards: np.ndarray | None, infos: list[dict]) -> Any:
        actions, self._states = self._model.predict(
            observations, state=self._states, episode_start=self._starts, deterministic=self._deterministic
        )
        self._starts = np.zeros_like(self._starts)
        return actions

    def ended(self, index: int) -> None:
        self._starts[index] = True
