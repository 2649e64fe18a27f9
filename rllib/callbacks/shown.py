"""Callbacks that show the progress of `learn`: a bar, and tables of results in Stable-Baselines3's form."""

import math
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from rllib.callbacks.base import BaseCallback
from rllib.compat.names.stable_baselines3.rules import count
from rllib.progress import StepsProgress, number, steps_progress
from rllib.runs.curve_groups import name_of_statistic

# Width of a table's columns of names and values.
_NAMES, _VALUES = 28, 12


class ProgressBarCallback(BaseCallback):
    """Shows steps, speed and mean return on the terminal, or in the notebook: `learn(n, progress_bar=True)`."""

    _bar: StepsProgress | None = None

    def _on_training_start(self) -> None:
        model, first = self.model, self.model.timesteps
        total = self.locals["total_timesteps"] - model.num_timesteps
        self._bar = steps_progress(total, lambda: model.timesteps - first)
        self._bar.__enter__()

    def _on_rollout_end(self) -> None:
        self._bar.update(self.locals["result"])

    def close(self) -> None:
        if self._bar is not None:
            bar, self._bar = self._bar, None
            bar.__exit__(*sys.exc_info())


class TableCallback(BaseCallback):
    """Prints a table of every `log_interval`th result; `verbose=1` of the constructor adds it to each `learn`.

    Args:
        log_interval: iterations from one table to the next.

    Raises:
        ValueError: if it is not positive.
    """

    def __init__(self, log_interval: int = 1):
        super().__init__()
        count(1).check("log_interval", log_interval)
        self.log_interval = log_interval
        self._iterations = 0

    def _is_due(self) -> bool:
        self._iterations += 1
        return self._iterations % self.log_interval == 0

    def _on_rollout_end(self) -> None:
        if self._is_due():
            print("\n".join(_table(self.locals["result"], self.logger.name_to_value, self.model.num_timesteps)))


class LogEveryNTimesteps(TableCallback):
    """Prints a table of the first result after every `n_steps` environment steps.

    Args:
        n_steps: environment steps from one table to the next.
    """

    def __init__(self, n_steps: int):
        super().__init__()
        count(1).check("n_steps", n_steps)
        self.n_steps, self._shown_at = n_steps, 0

    def _is_due(self) -> bool:
        due = self.num_timesteps - self._shown_at >= self.n_steps
        if due:
            self._shown_at = self.num_timesteps
        return due


def _table(result: Mapping[str, Any], recorded: Mapping[str, Any], num_timesteps: int) -> Iterator[str]:
    """Lines of the table of a result.

    Args:
        result: result of `train()`.
        recorded: further values, "section/name" -> value.
        num_timesteps: environment steps.
    """
    line = "-" * (_NAMES + _VALUES + 7)
    yield line
    for section, values in sorted(_sections(result, recorded, num_timesteps).items()):
        yield f"| {section + '/':<{_NAMES}} | {'':<{_VALUES}} |"
        for name, value in values.items():
            yield f"|    {name[: _NAMES - 3]:<{_NAMES - 3}} | {_shown(value):<{_VALUES}} |"
    yield line


def _sections(result: Mapping, recorded: Mapping, num_timesteps: int) -> dict[str, dict[str, Any]]:
    sections: dict[str, dict[str, Any]] = {"time": {
        "fps": number(result["num_env_steps_sampled_throughput_per_sec"], 0),
        "iterations": result["training_iteration"],
        "time_elapsed": round(result["time_total_s"]),
        "total_timesteps": num_timesteps,
    }}  # fmt: skip
    if not math.isnan(result["episode_reward_mean"]):
        means = {"ep_len_mean": result["episode_len_mean"], "ep_rew_mean": result["episode_reward_mean"]}
        sections["rollout"] = means
    learners = result["info"]["learner"]
    for policy_id, of_policy in learners.items():
        section = "train" if len(learners) == 1 else f"train/{policy_id}"
        statistics = of_policy.get("learner_stats", {})
        sections[section] = {name_of_statistic(name): value for name, value in statistics.items()}
    for name, value in recorded.items():
        section, _, last = name.rpartition("/")
        sections.setdefault(section or "time", {})[last] = value
    return sections


def _shown(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)[:_VALUES]
