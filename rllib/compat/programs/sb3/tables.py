"""Tables of results with Stable-Baselines3's names, at the moments at which it prints them."""

import collections
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from rllib.callbacks.base import BaseCallback

# Algorithm -> statistics of its learner here -> names under train/.
_OF_GRADIENTS = {"vf_explained_var": "explained_variance", "cur_lr": "learning_rate", "vf_loss": "value_loss"}
_OF_CRITICS = {"actor_loss": "actor_loss", "critic_loss": "critic_loss", "cur_actor_lr": "learning_rate"}
_OF_VALUES = {"total_loss": "loss", "cur_lr": "learning_rate"}
_OF_SOFT = {**_OF_CRITICS, "alpha_value": "ent_coef", "alpha_loss": "ent_coef_loss"}
TRAINED: Mapping[str, Mapping[str, str]] = {
    "PPO": {
        **_OF_GRADIENTS, "kl": "approx_kl", "clip_fraction": "clip_fraction", "total_loss": "loss",
        "policy_loss": "policy_gradient_loss", "entropy": "entropy_loss",
    },
    "A2C": {**_OF_GRADIENTS, "policy_loss": "policy_loss", "policy_entropy": "entropy_loss"},
    "TRPO": {
        **_OF_GRADIENTS, "kl": "kl_divergence_loss", "step_taken": "is_line_search_success",
        "policy_loss": "policy_objective",
    },
    **dict.fromkeys(("DQN", "QRDQN"), _OF_VALUES),
    **dict.fromkeys(("SAC", "TQC", "CrossQ"), _OF_SOFT),
    **dict.fromkeys(("TD3", "DDPG"), _OF_CRITICS),
}  # fmt: skip
# What is minimised in one library and maximised in the other.
_NEGATED = ("train/entropy_loss", "train/policy_objective")
ON_POLICY = ("PPO", "A2C", "TRPO")


class Tables(BaseCallback):
    """Gives results to the model's logger: of on-policy algorithms every `log_interval` rounds, of others as often as
    this number of episodes has ended.

    Stable-Baselines3 writes a round's numbers before it learns from it, so those of `train/` are of the round before.

    Args:
        log_interval: rounds, or episodes.
    """

    def __init__(self, log_interval: int):
        super().__init__()
        self._interval = log_interval
        self._trained: dict[str, Any] = {}
        # What callbacks have recorded since the newest table; results have the values of each iteration.
        self._waiting: dict[str, Any] = {}

    def _on_training_start(self) -> None:
        self._began, self._first = time.time(), self.model.num_timesteps
        self._episodes = self.model.metrics.episodes_total
        self._episodes_at_start = self._episodes
        self._rounds = 0
        self._reported = 0

    def _on_rollout_start(self) -> None:
        for name, value in self._trained.items():
            self.logger.record(name, value)

    def _on_rollout_end(self) -> None:
        model = self.model
        of_round = model.steps_of_round
        if model.words_of == "ARS":
            self._rounds += 1
        else:
            self._rounds = (model.num_timesteps - self._first) // of_round if of_round else 0
        is_due = (
            self._rounds - self._reported >= self._interval
            if of_round or model.words_of == "ARS"
            else model.metrics.episodes_total - self._episodes >= self._interval
        )
        self._trained = self._of_learner()
        recorded = self.logger.name_to_value
        if not of_round:  # which have learned before an episode ends
            recorded.update(self._trained)
        self._waiting |= recorded
        if is_due:
            self._reported, self._episodes = self._rounds, model.metrics.episodes_total
            self.logger.write({**self._of_run(), **self._waiting}, model.num_timesteps)
            self._waiting = {}
        for name in self._trained:  # results have them already
            recorded.pop(name, None)

    def _of_run(self) -> dict[str, Any]:
        model = self.model
        elapsed = max(time.time() - self._began, 1e-9)
        values: dict[str, Any] = {
            "time/fps": int((model.num_timesteps - self._first) / elapsed),
            "time/time_elapsed": int(elapsed),
            "time/total_timesteps": model.num_timesteps,
        }
        if model.words_of == "ARS":  # whose episodes are each of other weights
            return values | self._of_population()
        if model.steps_of_round:
            values["time/iterations"] = self._rounds
        else:
            values["time/episodes"] = model.metrics.episodes_total - self._episodes_at_start
        if model.ep_info_buffer:
            values["rollout/ep_rew_mean"] = float(np.mean([episode["r"] for episode in model.ep_info_buffer]))
            values["rollout/ep_len_mean"] = float(np.mean([episode["l"] for episode in model.ep_info_buffer]))
        if model.ep_success_buffer:
            values["rollout/success_rate"] = float(np.mean(model.ep_success_buffer))
        if model.words_of in ("DQN", "QRDQN"):
            values["rollout/exploration_rate"] = model.exploration_rate
        return values

    def _of_population(self) -> dict[str, Any]:
        """Returns of the unperturbed weights, where they are played."""
        result = self.locals["result"]
        if not result["hist_stats"]["episode_reward"]:
            return {}
        return {"rollout/ep_rew_mean": result["episode_reward_mean"], "rollout/ep_len_mean": result["episode_len_mean"]}

    def _of_learner(self) -> dict[str, Any]:
        model, result = self.model, self.locals["result"]
        if model.words_of == "ARS":
            words = {f"train/{word}": _number(getattr(model, word)) for word in ("delta_std", "learning_rate")}
            return {**words, "train/iterations": self._rounds - 1}
        of_policy = next(iter(result["info"]["learner"].values()), {})
        statistics = of_policy.get("learner_stats", {})
        if not statistics or not model.num_updates:
            return {}
        names = TRAINED.get(model.words_of, {})
        values = {f"train/{names[name]}": value for name, value in statistics.items() if name in names}
        for name in _NEGATED:
            if name in values:
                values[name] = -values[name]
        if model.words_of == "PPO":
            before = result["timesteps_total"] - result["num_env_steps_sampled_this_iter"]  # when schedules were read
            for word, name in (("clip_range", "clip_param"), ("clip_range_vf", "vf_clip_param")):
                if (schedule := model.config.get_schedule(name)) is not None:
                    values[f"train/{word}"] = schedule(before)
        values["train/n_updates"] = model.n_updates
        if (std := model.deviation) is not None:
            values["train/std"] = std
        return values


def _number(setting: Any) -> Any:
    """A setting that may be a schedule, for a table."""
    return setting if isinstance(setting, int | float) else str(setting)


def empty_buffer(window: int) -> collections.deque:
    """A buffer of episodes where no environment is known."""
    return collections.deque(maxlen=window)
