"""`evaluate_policy`, as in Stable-Baselines3: episodes of any policy in any environment."""

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from rllib.acting.inference import inference_of
from rllib.compat.names.stable_baselines3.rules import check_flags, count, number
from rllib.env.factories.masks import METHOD, ActionMask
from rllib.env.vec_env.given import as_vec_env
from rllib.env.vec_env.monitor import Monitor
from rllib.env.vec_env.wrappers import VecEnvWrapper, VecMonitor


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
        callback: called with (locals, globals) for each step of each environment; locals has "i", "reward", "done",
            "info", and the other variables of Stable-Baselines3's function.
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
        played = _Episodes(model, vector, n_eval_episodes, deterministic, render)
        played.play(callback)
        returns, lengths = played.returns, played.lengths
    finally:
        if isinstance(env, type) or not hasattr(env, "step"):  # made here
            vector.close()
    mean = float(np.mean(returns))
    if reward_threshold is not None and mean <= reward_threshold:
        raise ValueError(f"the mean return {mean:.2f} is not above reward_threshold={reward_threshold}")
    return (returns, lengths) if return_episode_rewards else (mean, float(np.std(returns)))


class _Episodes:
    """The episodes of an evaluation.

    Attributes:
        returns, lengths: of the episodes, in the order in which they ended.
    """

    def __init__(self, model: Any, vector: Any, num_episodes: int, deterministic: bool, render: bool):
        self._actor: _Actor = (_OfPlayer if hasattr(model, "make_player") else _OfPredict)(model, vector, deterministic)
        self._vector, self._render = vector, render
        num_envs = vector.num_envs
        self._targets = np.array([(num_episodes + index) // num_envs for index in range(num_envs)])
        self._counts = np.zeros(num_envs, int)
        self._sums, self._steps = np.zeros(num_envs), np.zeros(num_envs, int)
        self._is_counted = _counts_episodes(vector)
        self.returns: list[float] = []
        self.lengths: list[int] = []
        # Variables of Stable-Baselines3's function that stay the same, or the same objects
        self._locals = {
            "model": model, "env": vector, "n_eval_episodes": num_episodes, "deterministic": deterministic,
            "render": render, "n_envs": num_envs, "is_monitor_wrapped": self._is_counted, "states": None,
            "episode_count_targets": self._targets, "episode_counts": self._counts, "episode_rewards": self.returns,
            "episode_lengths": self.lengths, "current_rewards": self._sums, "current_lengths": self._steps,
            "episode_starts": np.ones(num_envs, bool),
        }  # fmt: skip

    def play(self, callback: Callable[[dict[str, Any], dict[str, Any]], None] | None) -> None:
        """Plays them all; the callback is called for each step of each environment with episodes left."""
        vector, starts = self._vector, self._locals["episode_starts"]
        observations, rewards, infos = vector.reset(), None, vector.reset_infos
        while any(self._counts < self._targets):
            before, actions = observations, self._actor.act(observations, rewards, infos)
            observations, rewards, dones, infos = vector.step(actions)
            self._sums += rewards
            self._steps += 1
            step = {
                "observations": before, "new_observations": observations, "actions": actions, "rewards": rewards,
                "dones": dones, "infos": infos,
            }  # fmt: skip
            for i in range(vector.num_envs):
                if callback is not None and self._counts[i] < self._targets[i]:
                    starts[i] = dones[i]
                    values = {"i": i, "reward": rewards[i], "done": dones[i], "info": infos[i]}
                    callback({**self._locals, **step, **values}, {})
                if dones[i]:
                    self._close(i, infos[i])
                    infos[i] = vector.reset_infos[i]
            if self._render:
                vector.render()

    def _close(self, i: int, info: dict) -> None:
        """Ends the episode of an environment, and counts it if one is left there."""
        # Of an environment in a Monitor its numbers count: wrappers around it may scale rewards, or end an episode
        # within a game.
        counted = info.get("episode") if self._is_counted else {"r": self._sums[i], "l": self._steps[i]}
        if self._counts[i] < self._targets[i] and counted is not None:
            self._counts[i] += 1
            self.returns.append(float(counted["r"]))
            self.lengths.append(int(counted["l"]))
        self._sums[i] = self._steps[i] = 0
        self._actor.ended(i)


def _counts_episodes(vector: Any) -> bool:
    """Whether infos of last steps have the returns of the episodes: there is a Monitor or VecMonitor."""
    inner = vector
    while isinstance(inner, VecEnvWrapper):
        if isinstance(inner, VecMonitor):
            return True
        inner = inner.venv
    return hasattr(vector, "env_is_wrapped") and any(vector.env_is_wrapped(Monitor))


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
