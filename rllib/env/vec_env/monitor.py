"""Monitor: counts episodes and writes them to monitor.csv, by Stable-Baselines3's names and form of files."""

import csv
import json
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import gymnasium

_EXTENSION = "monitor.csv"


class ResultsWriter:
    """Writes rows of episodes below a line of JSON.

    Args:
        filename: path of the file; "monitor.csv" is added to a name without it, and is the name below a directory,
            which exists or ends in a slash.
        header: begins the file.
        extra_keys: columns after r, l and t.
        override_existing: False: add to a file that is there.
    """

    def __init__(
        self,
        filename: str | os.PathLike,
        header: Mapping[str, Any] | None = None,
        extra_keys: tuple[str, ...] = (),
        override_existing: bool = True,
    ):
        path = Path(filename)
        if not str(path).endswith(_EXTENSION):
            is_directory = path.is_dir() or os.fspath(filename).endswith(os.sep)
            path = path / _EXTENSION if is_directory else Path(f"{path}.{_EXTENSION}")
        path.parent.mkdir(parents=True, exist_ok=True)
        is_new = override_existing or not path.exists()
        self.file_handler = path.open("w" if override_existing else "a", newline="")
        self.logger = csv.DictWriter(self.file_handler, ("r", "l", "t", *extra_keys), lineterminator="\n")
        if is_new:
            self.file_handler.write(f"#{json.dumps(dict(header or {}))}\n")
            self.logger.writeheader()
        self.file_handler.flush()

    def write_row(self, epinfo: Mapping[str, Any]) -> None:
        """Adds an episode."""
        self.logger.writerow(epinfo)
        self.file_handler.flush()

    def close(self) -> None:
        """Closes the file."""
        self.file_handler.close()


class Monitor(gymnasium.Wrapper):
    """Counts the return and the length of each episode: the info of its last step has "episode" with r, l and t.

    Args:
        env: the environment.
        filename: path of a monitor.csv; None: no file.
        allow_early_resets: False: a reset within an episode is an error.
        reset_keywords: arguments of reset that the file has as well.
        info_keywords: keys of the last step's info that the file has as well.
        override_existing: False: add to a file that is there.

    Raises:
        RuntimeError: for a step after the end of an episode, or an early reset that is not allowed.
    """

    EXT = _EXTENSION

    def __init__(
        self,
        env: gymnasium.Env,
        filename: str | os.PathLike | None = None,
        allow_early_resets: bool = True,
        reset_keywords: tuple[str, ...] = (),
        info_keywords: tuple[str, ...] = (),
        override_existing: bool = True,
    ):
        super().__init__(env)
        self.t_start, self.allow_early_resets = time.time(), allow_early_resets
        self.reset_keywords, self.info_keywords = reset_keywords, info_keywords
        self.results_writer = None
        if filename is not None:
            header = {"t_start": self.t_start, "env_id": str(env.spec and env.spec.id)}
            extra = (*reset_keywords, *info_keywords)
            self.results_writer = ResultsWriter(filename, header, extra, override_existing)
        self.rewards: list[float] = []
        self.needs_reset = True
        self.total_steps = 0
        self._returns: list[float] = []
        self._lengths: list[int] = []
        self._times: list[float] = []
        self.current_reset_info: dict[str, Any] = {}

    def reset(self, **kwargs):
        if not self.allow_early_resets and not self.needs_reset:
            raise RuntimeError(
                "reset() was called within an episode, which allow_early_resets=False forbids. Wrap the environment in "
                "Monitor(env, path, allow_early_resets=True)."
            )
        self.rewards, self.needs_reset = [], False
        for key in self.reset_keywords:
            if kwargs.get(key) is None:
                raise ValueError(f"reset() needs the argument {key!r}, which is one of reset_keywords")
            self.current_reset_info[key] = kwargs[key]
        return self.env.reset(**kwargs)

    def step(self, action):
        if self.needs_reset:
            raise RuntimeError("step() was called after the end of an episode, without a reset()")
        observation, reward, terminated, truncated, info = self.env.step(action)
        self.rewards.append(float(reward))
        self.total_steps += 1
        if terminated or truncated:
            self.needs_reset = True
            counted = {"r": round(sum(self.rewards), 6), "l": len(self.rewards)}
            counted["t"] = round(time.time() - self.t_start, 6)
            counted |= {key: info[key] for key in self.info_keywords}
            self._returns.append(sum(self.rewards))
            self._lengths.append(len(self.rewards))
            self._times.append(counted["t"])
            counted |= self.current_reset_info
            if self.results_writer:
                self.results_writer.write_row(counted)
            info = {**info, "episode": counted}
        return observation, reward, terminated, truncated, info

    def close(self):
        super().close()
        if self.results_writer is not None:
            self.results_writer.close()

    def get_total_steps(self) -> int:
        """Number of steps so far."""
        return self.total_steps

    def get_episode_rewards(self) -> list[float]:
        """Returns of the episodes so far."""
        return self._returns

    def get_episode_lengths(self) -> list[int]:
        """Lengths of the episodes so far, in steps."""
        return self._lengths

    def get_episode_times(self) -> list[float]:
        """Seconds from the beginning to the end of each episode."""
        return self._times


def get_monitor_files(path: str | os.PathLike) -> list[str]:
    """Files that Monitor wrote into a directory."""
    return sorted(str(file) for file in Path(path).glob(f"*{_EXTENSION}"))


class LoadMonitorResultsError(Exception):
    """There are no files of Monitor."""


def load_results(path: str | os.PathLike) -> Any:
    """Episodes of all files that Monitor wrote into a directory, as a DataFrame: r, l, t and further columns.

    Raises:
        LoadMonitorResultsError: if there are none.
        ImportError: without pandas.
    """
    import pandas

    files = get_monitor_files(path)
    if not files:
        raise LoadMonitorResultsError(f"{os.fspath(path)} has no files *{_EXTENSION}")
    frames, starts = [], []
    for file in files:
        with open(file) as lines:
            starts.append(json.loads(next(lines).removeprefix("#"))["t_start"])
            frame = pandas.read_csv(lines, index_col=None)
        frame["t"] += starts[-1]
        frames.append(frame)
    joined = pandas.concat(frames).sort_values("t").reset_index(drop=True)
    joined["t"] -= min(starts)
    return joined


def layers(env: gymnasium.Env) -> Iterator[gymnasium.Env]:
    """An environment and what is within its wrappers, outermost first."""
    yield env
    while isinstance(env, gymnasium.Wrapper):
        env = env.env
        yield env


def unwrap_wrapper(env: gymnasium.Env, wrapper_class: type) -> gymnasium.Env | None:
    """The outermost wrapper of a class around an environment; None without one."""
    return next((each for each in layers(env) if isinstance(each, wrapper_class)), None)


def is_wrapped(env: gymnasium.Env, wrapper_class: type) -> bool:
    """Whether a wrapper of a class is around an environment."""
    return unwrap_wrapper(env, wrapper_class) is not None
