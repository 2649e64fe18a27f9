"""Callbacks that count: calls, environment steps or episodes."""

import os
from pathlib import Path

import numpy as np

from rllib.callbacks.base import BaseCallback, EventCallback
from rllib.compat.names.stable_baselines3.rules import check_flags, count
from rllib.storage.local_path import local_path


class CheckpointCallback(BaseCallback):
    """Saves the algorithm every `save_freq` calls, as save_path/NAME_PREFIX_STEPS_steps.

    A checkpoint is a directory. Those that are due in one iteration have the same weights, and are all written, since
    programs find them by their names.

    Args:
        save_freq: calls from one checkpoint to the next; with n environments a call counts n steps.
        save_path: directory of the checkpoints.
        name_prefix: how their names begin.
        save_replay_buffer: write the replay next to each, as NAME_PREFIX_replay_buffer_STEPS_steps.
        save_vecnormalize: write the statistics of a VecNormalize that is trained in as
            NAME_PREFIX_vecnormalize_STEPS_steps.pkl; an observation filter is in the checkpoint.
        verbose: 2 prints each path.

    Raises:
        ValueError: if save_freq is no positive number, or a flag neither True nor False.
    """

    def __init__(
        self,
        save_freq: int,
        save_path: str | os.PathLike,
        name_prefix: str = "rl_model",
        save_replay_buffer: bool = False,
        save_vecnormalize: bool = False,
        verbose: int = 0,
    ):
        super().__init__(verbose)
        count(1).check("save_freq", save_freq)
        check_flags(save_replay_buffer=save_replay_buffer, save_vecnormalize=save_vecnormalize)
        self.save_freq, self.save_path, self.name_prefix = save_freq, save_path, name_prefix
        self.save_replay_buffer, self.save_vecnormalize = save_replay_buffer, save_vecnormalize

    def _init_callback(self) -> None:
        local_path(self.save_path).mkdir(parents=True, exist_ok=True)

    def _path(self, kind: str = "") -> Path:
        return local_path(self.save_path) / f"{self.name_prefix}_{kind}{self.num_timesteps}_steps"

    def _on_step(self) -> bool:
        if self.n_calls % self.save_freq == 0:
            path = self.model.save(self._path())
            if self.save_replay_buffer and hasattr(self.model, "save_replay_buffer"):
                self.model.save_replay_buffer(self._path("replay_buffer_"))
            normalized = self.model.get_vec_normalize_env() if self.save_vecnormalize else None
            if normalized is not None:
                normalized.save(self._path("vecnormalize_").with_suffix(".pkl"))
            if self.verbose >= 2:
                print(f"Saving model checkpoint to {path}")
        return True


class EveryNTimesteps(EventCallback):
    """Calls another callback every `n_steps` environment steps, at most once per call.

    Args:
        n_steps: environment steps from one call to the next.
        callback: the other one.
    """

    def __init__(self, n_steps: int, callback: BaseCallback):
        super().__init__(callback)
        count(1).check("n_steps", n_steps)
        self.n_steps = n_steps
        self.last_time_trigger = 0

    def _on_step(self) -> bool:
        if self.num_timesteps - self.last_time_trigger >= self.n_steps:
            self.last_time_trigger = self.num_timesteps
            return self._on_event()
        return True


class StopTrainingOnMaxEpisodes(BaseCallback):
    """Ends the training after the iteration in which `max_episodes` for each environment have been played.

    Args:
        max_episodes: episodes of each environment; of n environments n times as many, together.
        verbose: 1 prints the end.

    Attributes:
        n_episodes: episodes played since `learn` began.
    """

    def __init__(self, max_episodes: int, verbose: int = 0):
        super().__init__(verbose)
        count(0).check("max_episodes", max_episodes)
        self.max_episodes = max_episodes
        self.n_episodes = 0

    def _on_training_start(self) -> None:
        self._before = self.model.metrics.episodes_total
        self._offset = self.model.timesteps - self.model.num_timesteps
        self.n_episodes = 0

    def _on_step(self) -> bool:
        if "dones" in self.locals:
            self.n_episodes += int(np.sum(self.locals["dones"]))
        elif self.num_timesteps + self._offset + self.model.n_envs > self.model.timesteps:
            # In which steps of the iteration episodes ended is not known. Its last step counts them, since the others
            # still have calls of further callbacks: evaluations, checkpoints.
            self.n_episodes = self.model.metrics.episodes_total - self._before
        goes_on = self.n_episodes < self.max_episodes * self.model.n_envs
        if self.verbose and not goes_on:
            print(f"Stopping training after {self.n_episodes} episodes and {self.num_timesteps} steps")
        return goes_on
