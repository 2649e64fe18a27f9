"""Wrappers around vector environments that change observations, or look at them, by Stable-Baselines3's names."""

import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from rllib.env.vec_env.base import VecEnv, VecEnvWrapper
from rllib.env.vec_env.monitor import ResultsWriter

logger = logging.getLogger("rllib.env")


def is_image_space_channels_first(observation_space: spaces.Box) -> bool:
    """Whether the smallest axis of a picture's shape is the first."""
    return int(np.argmin(observation_space.shape)) == 0


def is_image_space(
    observation_space: spaces.Space, check_channels: bool = False, normalized_image: bool = False
) -> bool:
    """Whether a space is that of pictures: three axes, uint8 from 0 to 255.

    Args:
        observation_space: a space of any kind.
        check_channels: the number of channels must be 1, 3 or 4.
        normalized_image: pictures may have other bounds and types.
    """
    if not isinstance(observation_space, spaces.Box) or len(observation_space.shape) != 3:
        return False
    bounds_fit = observation_space.dtype == np.uint8 and not observation_space.low.any()
    if not normalized_image and not (bounds_fit and (observation_space.high == 255).all()):
        return False
    axis = 0 if is_image_space_channels_first(observation_space) else -1
    return not check_channels or observation_space.shape[axis] in (1, 3, 4)


class StackedObservations:
    """The newest observations of each environment, side by side.

    Args:
        num_envs: N.
        n_stack: number of observations.
        observation_space: space of one environment, a Box.
        channels_order: "first" or "last", the axis along which they lie; None: of pictures the channels' axis, of
            others the last.

    Attributes:
        stacked_observation_space: of what `reset` and `update` return.
    """

    def __init__(self, num_envs: int, n_stack: int, observation_space: spaces.Box, channels_order: str | None = None):
        if n_stack < 1:
            raise ValueError(f"n_stack={n_stack!r} must be an integer >= 1")
        if not isinstance(observation_space, spaces.Box):
            raise TypeError(f"observations of a Box can be stacked, but not of {observation_space}")
        first = channels_order == "first"
        if channels_order is None and is_image_space(observation_space):
            first = is_image_space_channels_first(observation_space)
        self.n_stack, self._axis = n_stack, 0 if first else len(observation_space.shape) - 1
        low, high = (
            np.concatenate([bound] * n_stack, self._axis) for bound in (observation_space.low, observation_space.high)
        )
        self.stacked_observation_space = spaces.Box(low, high, dtype=observation_space.dtype)
        self.stacked_obs = np.zeros((num_envs, *low.shape), low.dtype)
        self._size = observation_space.shape[self._axis]

    def reset(self, observation: np.ndarray) -> np.ndarray:
        """Begins with zeros in place of earlier observations; [N, ...] -> [N, ...]."""
        self.stacked_obs[:] = 0
        self._newest()[:] = observation
        return self.stacked_obs.copy()

    def update(
        self, observations: np.ndarray, dones: np.ndarray, infos: Sequence[dict]
    ) -> tuple[np.ndarray, Sequence[dict]]:
        """Adds observations; where an episode has ended, its final observation is stacked in the info."""
        self.stacked_obs = np.roll(self.stacked_obs, -self._size, axis=self._axis + 1)
        for index in np.flatnonzero(dones):
            if "terminal_observation" in infos[index]:
                earlier = np.delete(self.stacked_obs[index], self._places(), axis=self._axis)
                final = infos[index]["terminal_observation"]
                infos[index]["terminal_observation"] = np.concatenate([earlier, final], self._axis)
            self.stacked_obs[index] = 0
        self._newest()[:] = observations
        return self.stacked_obs.copy(), infos

    def _places(self) -> slice:
        size = self.stacked_obs.shape[self._axis + 1]
        return slice(size - self._size, size)

    def _newest(self) -> np.ndarray:
        place: list[Any] = [slice(None)] * self.stacked_obs.ndim
        place[self._axis + 1] = self._places()
        return self.stacked_obs[tuple(place)]


class VecFrameStack(VecEnvWrapper):
    """Stacks of the newest observations.

    Args:
        venv: the vector environment.
        n_stack: number of observations.
        channels_order: as for StackedObservations; of a Dict space also a dict by key.
    """

    def __init__(self, venv: VecEnv, n_stack: int, channels_order: str | Mapping[str, str] | None = None):
        self.n_stack = n_stack
        space = venv.observation_space
        self._stacks: StackedObservations | dict[str, StackedObservations]
        if isinstance(space, spaces.Dict):
            orders = channels_order if isinstance(channels_order, Mapping) else dict.fromkeys(space, channels_order)
            self._stacks = {
                key: StackedObservations(venv.num_envs, n_stack, part, orders.get(key)) for key, part in space.items()
            }
            stacked: spaces.Space = spaces.Dict(
                {key: each.stacked_observation_space for key, each in self._stacks.items()}
            )
        else:
            self._stacks = StackedObservations(venv.num_envs, n_stack, space, channels_order)
            stacked = self._stacks.stacked_observation_space
        super().__init__(venv, observation_space=stacked)

    def reset(self):
        observations = self.venv.reset()
        if isinstance(self._stacks, dict):
            return {key: each.reset(observations[key]) for key, each in self._stacks.items()}
        return self._stacks.reset(observations)

    def step_wait(self):
        observations, rewards, dones, infos = self.venv.step_wait()
        if not isinstance(self._stacks, dict):
            observations, infos = self._stacks.update(observations, dones, infos)
            return observations, rewards, dones, infos
        finals = [info.get("terminal_observation") for info in infos]
        stacked = {}
        for key, each in self._stacks.items():
            of_key = [{} if final is None else {"terminal_observation": final[key]} for final in finals]
            stacked[key], of_key = each.update(observations[key], dones, of_key)
            for info, part in zip(infos, of_key, strict=True):
                if part:
                    info["terminal_observation"] = {**info["terminal_observation"], key: part["terminal_observation"]}
        return stacked, rewards, dones, infos


class VecTransposeImage(VecEnvWrapper):
    """Pictures with their channels first.

    Args:
        venv: the vector environment.
        skip: leave pictures as they are.

    Raises:
        ValueError: for observations without pictures.
    """

    def __init__(self, venv: VecEnv, skip: bool = False):
        self.skip = skip
        space = venv.observation_space
        if isinstance(space, spaces.Dict):
            self._keys = [key for key, part in space.items() if self._is_moved(part)]
            moved: spaces.Space = spaces.Dict(
                {key: self.transpose_space(part) if key in self._keys else part for key, part in space.items()}
            )
        elif is_image_space(space):
            self._keys, moved = [], space if skip else self.transpose_space(space)
        else:
            raise ValueError(f"VecTransposeImage is for pictures, but the observation space is {space}")
        super().__init__(venv, observation_space=moved)

    def _is_moved(self, space: spaces.Space) -> bool:
        return not self.skip and is_image_space(space) and not is_image_space_channels_first(space)

    @staticmethod
    def transpose_space(observation_space: spaces.Box, key: str = "") -> spaces.Box:
        """The space of the moved pictures."""
        low, high = (np.moveaxis(bound, -1, 0) for bound in (observation_space.low, observation_space.high))
        return spaces.Box(low, high, dtype=observation_space.dtype)

    @staticmethod
    def transpose_image(image: np.ndarray) -> np.ndarray:
        """A picture, or several, with the channels in front."""
        return np.moveaxis(image, -1, -3)

    def transpose_observations(self, observations: Any) -> Any:
        """Observations with moved pictures."""
        if self.skip:
            return observations
        if isinstance(observations, dict):
            return {
                key: self.transpose_image(part) if key in self._keys else part for key, part in observations.items()
            }
        return self.transpose_image(observations)

    def reset(self):
        return self.transpose_observations(self.venv.reset())

    def step_wait(self):
        observations, rewards, dones, infos = self.venv.step_wait()
        for info in infos:
            if "terminal_observation" in info:
                info["terminal_observation"] = self.transpose_observations(info["terminal_observation"])
        return self.transpose_observations(observations), rewards, dones, infos


class VecExtractDictObs(VecEnvWrapper):
    """One part of Dict observations.

    Args:
        venv: the vector environment.
        key: key of the part.
    """

    def __init__(self, venv: VecEnv, key: str):
        self.key = key
        super().__init__(venv, observation_space=venv.observation_space.spaces[key])

    def reset(self):
        return self.venv.reset()[self.key]

    def step_wait(self):
        observations, rewards, dones, infos = self.venv.step_wait()
        for info in infos:
            if "terminal_observation" in info:
                info["terminal_observation"] = info["terminal_observation"][self.key]
        return observations[self.key], rewards, dones, infos


class VecCheckNan(VecEnvWrapper):
    """Looks for numbers that are not finite.

    Args:
        venv: the vector environment.
        raise_exception: raise a ValueError; False: a warning.
        warn_once: warn of the first alone.
        check_inf: infinities as well.
    """

    def __init__(self, venv: VecEnv, raise_exception: bool = False, warn_once: bool = True, check_inf: bool = True):
        super().__init__(venv)
        self.raise_exception, self.warn_once, self.check_inf = raise_exception, warn_once, check_inf
        self._has_warned = False

    def step_async(self, actions):
        self.check_array_value("actions", actions)
        super().step_async(actions)

    def reset(self):
        observations = self.venv.reset()
        self.check_array_value("observations", observations)
        return observations

    def step_wait(self):
        observations, rewards, dones, infos = self.venv.step_wait()
        self.check_array_value("observations", observations)
        self.check_array_value("rewards", rewards)
        return observations, rewards, dones, infos

    def check_array_value(self, name: str, value: Any) -> list[tuple[str, str]]:
        """Looks at an array, or a dict or tuple of them; returns pairs of what was found and where."""
        parts = value.items() if isinstance(value, dict) else [("", value)]
        found = []
        for key, part in parts:
            array = np.asarray(part)
            if array.dtype.kind == "f" and np.isnan(array).any():
                found.append((f"{name}{key and f'[{key!r}]'}", "nan"))
            if array.dtype.kind == "f" and self.check_inf and np.isinf(array).any():
                found.append((f"{name}{key and f'[{key!r}]'}", "inf"))
        if found and (self.raise_exception or not (self._has_warned and self.warn_once)):
            self._report("; ".join(f"found {what} in {where}" for where, what in found))
        return found

    def _report(self, message: str) -> None:
        self._has_warned = True
        if self.raise_exception:
            raise ValueError(message)
        logger.warning("%s", message)


class VecMonitor(VecEnvWrapper):
    """Counts returns and lengths of episodes: infos of their last steps have "episode".

    Args:
        venv: the vector environment.
        filename: path of a monitor.csv; None: no file.
        info_keywords: keys of the last step's info that the file has as well.
    """

    def __init__(self, venv: VecEnv, filename: str | None = None, info_keywords: tuple[str, ...] = ()):
        super().__init__(venv)
        self.info_keywords = info_keywords
        self.episode_count, self.t_start = 0, time.time()
        self.episode_returns = np.zeros(self.num_envs, np.float32)
        self.episode_lengths = np.zeros(self.num_envs, np.int32)
        self.results_writer = None
        if filename:
            spec = getattr(self.venv, "spec", None)
            header = {"t_start": self.t_start, "env_id": str(spec and spec.id)}
            self.results_writer = ResultsWriter(filename, header=header, extra_keys=info_keywords)

    def reset(self):
        self.episode_returns[:] = self.episode_lengths[:] = 0
        return self.venv.reset()

    def step_wait(self):
        observations, rewards, dones, infos = self.venv.step_wait()
        self.episode_returns += rewards
        self.episode_lengths += 1
        infos = list(infos)
        for index in np.flatnonzero(dones):
            counted = {"r": float(self.episode_returns[index]), "l": int(self.episode_lengths[index])}
            counted["t"] = round(time.time() - self.t_start, 6)
            counted |= {key: infos[index][key] for key in self.info_keywords}
            infos[index] = {**infos[index], "episode": counted}
            self.episode_count += 1
            self.episode_returns[index] = self.episode_lengths[index] = 0
            if self.results_writer:
                self.results_writer.write_row(counted)
        return observations, rewards, dones, infos

    def close(self):
        if self.results_writer:
            self.results_writer.close()
        return self.venv.close()
