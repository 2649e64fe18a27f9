"""Callbacks that evaluate, and those that judge by evaluations."""

import math
import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from rllib.acting.evaluate_policy import evaluate_policy
from rllib.callbacks.base import BaseCallback, EventCallback, callback_of, close, ends
from rllib.compat.names.stable_baselines3.rules import check_flags, count, number
from rllib.env.vec_env.given import as_vec_env
from rllib.env.vec_env.vec_normalize import sync_envs_normalization
from rllib.storage.local_path import local_path


class EvalCallback(EventCallback):
    """Evaluates the policy every `eval_freq` calls, and saves the algorithm when it has never been better.

    Weights that have been evaluated are not evaluated again: of the calls that are due in one iteration, the first
    evaluates. Results have eval/mean_reward and eval/mean_ep_length, and eval/success_rate where infos have is_success.
    Statistics of a VecNormalize around the training environment are copied to that around the other one.

    Args:
        eval_env: an id, class or function, an environment, or several (`make_vec_env`).
        callback_on_new_best: called after an evaluation with the highest mean return so far.
        callback_after_eval: called after each evaluation.
        n_eval_episodes: episodes of an evaluation.
        eval_freq: calls from one evaluation to the next; with n environments a call counts n steps.
        log_path: directory for evaluations.npz, with timesteps [K], results and ep_lengths [K, n_eval_episodes], and
            successes, of the same shape, where infos have is_success.
        best_model_save_path: directory for the checkpoint best_model.
        deterministic: take the most likely actions.
        render: draw each step.
        verbose: 1 prints each evaluation.
        warn: without effect.

    Attributes:
        best_mean_reward, last_mean_reward: mean returns; -inf before the first evaluation.
        evaluations_timesteps, evaluations_results, evaluations_length: of all evaluations.
        evaluations_successes: of those with is_success in their infos.
    """

    def __init__(
        self,
        eval_env: Any,
        callback_on_new_best: BaseCallback | None = None,
        callback_after_eval: BaseCallback | None = None,
        n_eval_episodes: int = 5,
        eval_freq: int = 10_000,
        log_path: str | os.PathLike | None = None,
        best_model_save_path: str | os.PathLike | None = None,
        deterministic: bool = True,
        render: bool = False,
        verbose: int = 1,
        warn: bool = True,
    ):
        super().__init__(callback_after_eval, verbose)
        count(1).check("n_eval_episodes", n_eval_episodes)
        count(-1).check("eval_freq", eval_freq)
        check_flags(deterministic=deterministic, render=render, warn=warn)
        self.callback_on_new_best = callback_of(callback_on_new_best, self)
        self.eval_env = as_vec_env(eval_env)
        self.n_eval_episodes, self.eval_freq = n_eval_episodes, eval_freq
        self.deterministic, self.render, self.warn = deterministic, render, warn
        self.log_path = None if log_path is None else local_path(log_path) / "evaluations"
        self.best_model_save_path = best_model_save_path
        self.best_mean_reward = self.last_mean_reward = -math.inf
        self.evaluations_timesteps: list[int] = []
        self.evaluations_results: list[list[float]] = []
        self.evaluations_length: list[list[int]] = []
        self.evaluations_successes: list[list[bool]] = []
        self._is_success_buffer: list[bool] = []
        self._evaluated_version: int | None = None

    def _init_callback(self) -> None:
        if self.best_model_save_path is not None:
            local_path(self.best_model_save_path).mkdir(parents=True, exist_ok=True)
        if self.log_path is not None:
            self.log_path.parent.mkdir(parents=True, exist_ok=True)
        if self.callback_on_new_best is not None:
            self.callback_on_new_best.init_callback(self.model)

    def _on_training_start(self) -> None:
        super()._on_training_start()
        if self.callback_on_new_best is not None:
            self.callback_on_new_best.on_training_start(self.locals, self.globals)

    def update_child_locals(self, locals_: Mapping[str, Any]) -> None:
        super().update_child_locals(locals_)
        if self.callback_on_new_best is not None:
            self.callback_on_new_best.update_locals(locals_)

    def _on_step(self) -> bool:
        is_due = self.eval_freq > 0 and self.n_calls % self.eval_freq == 0
        if not is_due or self.model.num_updates == self._evaluated_version:
            return True
        self._evaluated_version = self.model.num_updates
        self._evaluate()
        goes_on = self.last_mean_reward <= self.best_mean_reward or self._on_new_best()
        return goes_on and self._on_event()

    def _evaluate(self) -> None:
        if self.model.get_vec_normalize_env() is not None:
            sync_envs_normalization(self.training_env, self.eval_env)
        successes = self._is_success_buffer = []
        returns, lengths = evaluate_policy(
            self.model,
            self.eval_env,
            self.n_eval_episodes,
            self.deterministic,
            self.render,
            callback=self._log_success_callback,
            return_episode_rewards=True,
        )
        self.evaluations_timesteps.append(self.num_timesteps)
        self.evaluations_results.append(returns)
        self.evaluations_length.append(lengths)
        if successes:
            self.evaluations_successes.append(successes)
        if self.log_path is not None:
            columns = {"results": self.evaluations_results, "ep_lengths": self.evaluations_length}
            if successes:
                columns["successes"] = self.evaluations_successes
            np.savez(self.log_path, timesteps=self.evaluations_timesteps, **columns)
        self.last_mean_reward = float(np.mean(returns))
        self.logger.record("eval/mean_reward", self.last_mean_reward)
        self.logger.record("eval/mean_ep_length", float(np.mean(lengths)))
        if successes:
            self.logger.record("eval/success_rate", float(np.mean(successes)))
        if self.verbose:
            print(f"Eval num_timesteps={self.num_timesteps}, episode_reward={self.last_mean_reward:.2f} "
                  f"+/- {np.std(returns):.2f}, length {np.mean(lengths):.2f} +/- {np.std(lengths):.2f}")  # fmt: skip

    def _log_success_callback(self, locals_: Mapping[str, Any], globals_: Mapping[str, Any]) -> None:
        """Called for each step of an evaluation; Stable-Baselines3's name, which subclasses there override."""
        if locals_["done"] and (success := locals_["info"].get("is_success")) is not None:
            self._is_success_buffer.append(bool(success))

    def _on_new_best(self) -> bool:
        self.best_mean_reward = self.last_mean_reward
        if self.verbose:
            print("New best mean reward!")
        if self.best_model_save_path is not None:
            self.model.save(local_path(self.best_model_save_path) / "best_model")
        return self.callback_on_new_best is None or not ends(self.callback_on_new_best.on_step())

    def close(self) -> None:
        super().close()
        if self.callback_on_new_best is not None:
            close(self.callback_on_new_best)


def _evaluations_of(callback: BaseCallback, argument: str) -> EvalCallback:
    """The EvalCallback that calls a callback.

    Raises:
        ValueError: if none does.
    """
    if callback.parent is None or not hasattr(callback.parent, "best_mean_reward"):
        name = type(callback).__name__
        raise ValueError(f"{name} judges by evaluations. Use EvalCallback(eval_env, {argument}={name}(...)).")
    return callback.parent


class StopTrainingOnRewardThreshold(BaseCallback):
    """Ends the training when the best mean return of an EvalCallback has reached a threshold.

    Give it as `callback_on_new_best`.

    Args:
        reward_threshold: mean return that is enough.
        verbose: 1 prints the end.
    """

    def __init__(self, reward_threshold: float, verbose: int = 0):
        super().__init__(verbose)
        number().check("reward_threshold", reward_threshold)
        self.reward_threshold = reward_threshold

    def _init_callback(self) -> None:
        _evaluations_of(self, "callback_on_new_best")

    def _on_step(self) -> bool:
        best = _evaluations_of(self, "callback_on_new_best").best_mean_reward
        goes_on = best < self.reward_threshold
        if self.verbose and not goes_on:
            print(f"Stopping training: the mean reward {best:.2f} is above the threshold {self.reward_threshold}")
        return goes_on


class StopTrainingOnNoModelImprovement(BaseCallback):
    """Ends the training when more than `max_no_improvement_evals` evaluations in a row were not the best.

    Give it to an EvalCallback as `callback_after_eval`.

    Args:
        max_no_improvement_evals: as many may pass.
        min_evals: evaluations before the first that counts.
        verbose: 1 prints the end.
    """

    def __init__(self, max_no_improvement_evals: int, min_evals: int = 0, verbose: int = 0):
        super().__init__(verbose)
        count(0).check("max_no_improvement_evals", max_no_improvement_evals)
        count(0).check("min_evals", min_evals)
        self.max_no_improvement_evals, self.min_evals = max_no_improvement_evals, min_evals
        self.last_best_mean_reward, self.no_improvement_evals = -math.inf, 0

    def _init_callback(self) -> None:
        _evaluations_of(self, "callback_after_eval")

    def _on_step(self) -> bool:
        best = _evaluations_of(self, "callback_after_eval").best_mean_reward
        if self.n_calls > self.min_evals:
            self.no_improvement_evals = 0 if best > self.last_best_mean_reward else self.no_improvement_evals + 1
        self.last_best_mean_reward = best
        goes_on = self.no_improvement_evals <= self.max_no_improvement_evals
        if self.verbose and not goes_on:
            print(f"Stopping training because the last {self.no_improvement_evals} evaluations were not the best")
        return goes_on
