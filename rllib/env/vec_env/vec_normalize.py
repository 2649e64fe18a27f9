"""VecNormalize: observations and rewards in units of their running deviations, by Stable-Baselines3's names.

Its file is the one that Stable-Baselines3 writes and reads: a pickle, which is written with that library's names of
classes and read as data.
"""

import copy
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces

from rllib.env.vec_env.base import VecEnv, VecEnvWrapper, unwrap_vec_wrapper
from rllib.errors import DamagedFileError
from rllib.storage.foreign_files import read_inside
from rllib.storage.local_path import local_path
from rllib.storage.pickled_data import Record, read_pickle
from rllib.storage.pickled_names import Instance, dumps_with_names

_VEC_NORMALIZE = "stable_baselines3.common.vec_env.vec_normalize.VecNormalize"
_MOMENTS = "stable_baselines3.common.running_mean_std.RunningMeanStd"
# Classes whose values stand in such a file next to the statistics.
_KNOWN = ("gymnasium.spaces.", "gym.spaces.", "gym.utils.seeding.", "numpy.random.")
_MOST_BYTES = 2**28
# Attributes of the file that are numbers, flags or lists.
_PLAIN = ("norm_obs", "norm_reward", "norm_obs_keys", "clip_obs", "clip_reward", "gamma", "epsilon", "training")


class RunningMeanStd:
    """Running mean and variance, joined by the formula of Chan et al.

    Args:
        epsilon: count at the beginning, of mean 0 and variance 1.
        shape: shape of a value.

    Attributes:
        mean, var: float64, of this shape.
        count: number of values.
    """

    def __init__(self, epsilon: float = 1e-4, shape: tuple[int, ...] = ()):
        self.mean, self.var, self.count = np.zeros(shape, np.float64), np.ones(shape, np.float64), epsilon

    def copy(self) -> "RunningMeanStd":
        """One with the same numbers."""
        return copy.deepcopy(self)

    def combine(self, other: "RunningMeanStd") -> None:
        """Merges the statistics of another RunningMeanStd."""
        self.update_from_moments(other.mean, other.var, other.count)

    def update(self, arr: np.ndarray) -> None:
        """Adds values [B, ...] to the statistics."""
        self.update_from_moments(np.mean(arr, axis=0), np.var(arr, axis=0), arr.shape[0])

    def update_from_moments(self, batch_mean: np.ndarray, batch_var: np.ndarray, batch_count: float) -> None:
        """Counts values with this mean, variance and number.

        Raises:
            ValueError: if one is not finite. The statistics stay as they were: they would be NaN for ever.
        """
        if not (np.isfinite(batch_mean).all() and np.isfinite(batch_var).all()):
            raise ValueError(
                f"running statistics can only count finite numbers, but the mean of these is {batch_mean} and their "
                f"variance {batch_var}. Correct the observations or rewards of the environment."
            )
        count = self.count + batch_count
        difference = batch_mean - self.mean
        deviations = self.var * self.count + batch_var * batch_count
        deviations += np.square(difference) * self.count * batch_count / count
        self.mean = self.mean + difference * batch_count / count
        self.var, self.count = deviations / count, count


class VecNormalize(VecEnvWrapper):
    """Observations less their running mean, and rewards, over their running deviations.

    Rewards are divided by the deviation of the discounted return, and their mean is left as it is.

    Args:
        venv: the vector environment.
        training: take what is seen into the statistics.
        norm_obs, norm_reward: what is normalised.
        clip_obs, clip_reward: most absolute value of what comes out.
        gamma: discount factor of the discounted return.
        epsilon: added to variances.
        norm_obs_keys: of a Dict space, the parts to normalise; None: all.

    Attributes:
        obs_rms, ret_rms: the statistics; of a Dict space obs_rms is a dict.
        returns: [N], the discounted returns.

    Raises:
        ValueError: for observations that are no Boxes.
    """

    def __init__(
        self,
        venv: VecEnv,
        training: bool = True,
        norm_obs: bool = True,
        norm_reward: bool = True,
        clip_obs: float = 10.0,
        clip_reward: float = 10.0,
        gamma: float = 0.99,
        epsilon: float = 1e-8,
        norm_obs_keys: Sequence[str] | None = None,
    ):
        super().__init__(venv)
        self.norm_obs, self.norm_obs_keys = norm_obs, None if norm_obs_keys is None else list(norm_obs_keys)
        self.training, self.norm_reward = training, norm_reward
        self.clip_obs, self.clip_reward, self.gamma, self.epsilon = clip_obs, clip_reward, gamma, epsilon
        self.obs_rms = self._new_moments() if norm_obs else None
        self.ret_rms = RunningMeanStd()
        self._begin()

    def _begin(self) -> None:
        space = self.venv.observation_space
        if self.norm_obs and isinstance(space, spaces.Dict):
            self.norm_obs_keys = self.norm_obs_keys or list(space.spaces)
            within = {key: self._bounded(part) if key in self.norm_obs_keys else part for key, part in space.items()}
            self.observation_space: spaces.Space = spaces.Dict(within)
        elif self.norm_obs:
            self.observation_space = self._bounded(space)
        self.returns = np.zeros(self.num_envs)
        self.old_obs: Any = None
        self.old_reward = np.zeros(self.num_envs)

    def _bounded(self, space: spaces.Space) -> spaces.Box:
        if not isinstance(space, spaces.Box):
            raise ValueError(
                f"VecNormalize normalises observations of a Box, but these are of {space}. Give norm_obs=False, or of "
                "a Dict space norm_obs_keys=[...] with its Boxes."
            )
        return spaces.Box(-self.clip_obs, self.clip_obs, space.shape, np.float32)

    def _new_moments(self) -> "RunningMeanStd | dict[str, RunningMeanStd]":
        space = self.venv.observation_space
        if isinstance(space, spaces.Dict):
            return {key: RunningMeanStd(shape=space[key].shape) for key in self.norm_obs_keys or space.spaces}
        self._bounded(space)
        return RunningMeanStd(shape=space.shape)

    # ------------------------------------------------------------------ steps

    def reset(self):
        observations = self.venv.reset()
        self.old_obs = observations
        self.returns = np.zeros(self.num_envs)
        self._take_in(observations)
        return self.normalize_obs(observations)

    def step_wait(self):
        observations, rewards, dones, infos = self.venv.step_wait()
        self.old_obs, self.old_reward = observations, rewards
        self._take_in(observations)
        if self.training:
            returns = self.returns * self.gamma + rewards
            self.ret_rms.update(returns)
            self.returns = returns
        rewards = self.normalize_reward(rewards)
        for index in np.flatnonzero(dones):
            if "terminal_observation" in infos[index]:
                infos[index]["terminal_observation"] = self.normalize_obs(infos[index]["terminal_observation"])
        self.returns[dones] = 0
        return self.normalize_obs(observations), rewards, dones, infos

    def _take_in(self, observations: Any) -> None:
        if not (self.training and self.norm_obs):
            return
        if isinstance(self.obs_rms, dict):
            for key, moments in self.obs_rms.items():
                moments.update(observations[key])
        else:
            self.obs_rms.update(observations)

    def normalize_obs(self, obs: Any) -> Any:
        """Observations [..., as the space] in units of the statistics, float32."""
        if not self.norm_obs:
            return obs
        if isinstance(self.obs_rms, dict):
            return {**obs, **{key: self._normalized(obs[key], moments) for key, moments in self.obs_rms.items()}}
        return self._normalized(obs, self.obs_rms)

    def _normalized(self, values: np.ndarray, moments: RunningMeanStd) -> np.ndarray:
        scaled = (values - moments.mean) / np.sqrt(moments.var + self.epsilon)
        return np.clip(scaled, -self.clip_obs, self.clip_obs).astype(np.float32)

    def normalize_reward(self, reward: np.ndarray) -> np.ndarray:
        """Rewards over the deviation of the return."""
        if not self.norm_reward:
            return reward
        scaled = reward / np.sqrt(self.ret_rms.var + self.epsilon)
        return np.clip(scaled, -self.clip_reward, self.clip_reward).astype(np.float32)

    def unnormalize_obs(self, obs: Any) -> Any:
        """Observations in the environment's units again."""
        if not self.norm_obs:
            return obs
        if isinstance(self.obs_rms, dict):
            return {**obs, **{key: self._restored(obs[key], moments) for key, moments in self.obs_rms.items()}}
        return self._restored(obs, self.obs_rms)

    def _restored(self, values: np.ndarray, moments: RunningMeanStd) -> np.ndarray:
        return values * np.sqrt(moments.var + self.epsilon) + moments.mean

    def unnormalize_reward(self, reward: np.ndarray) -> np.ndarray:
        """Rewards in the environment's units again."""
        return reward * np.sqrt(self.ret_rms.var + self.epsilon) if self.norm_reward else reward

    def get_original_obs(self) -> Any:
        """The newest observations in the environment's units."""
        return copy.deepcopy(self.old_obs)

    def get_original_reward(self) -> np.ndarray:
        """The newest rewards in the environment's units."""
        return self.old_reward.copy()

    # ------------------------------------------------------------------ files

    def save(self, save_path: str | os.PathLike) -> None:
        """Writes settings and statistics; Stable-Baselines3 reads the file as well."""
        moments = {name: self._named(getattr(self, name)) for name in ("obs_rms", "ret_rms")}
        spaces_ = {"observation_space": self.observation_space, "action_space": self.action_space}
        plain = {name: getattr(self, name) for name in _PLAIN}
        own = {"num_envs": self.num_envs, "render_mode": self.render_mode, "old_reward": self.old_reward}
        content = {**plain, **moments, **spaces_, **own, "old_obs": self.old_obs}
        Path(local_path(save_path)).write_bytes(dumps_with_names(Instance(_VEC_NORMALIZE, content)))

    @staticmethod
    def _named(moments: Any) -> Any:
        if isinstance(moments, dict):
            return {key: Instance(_MOMENTS, dict(vars(each))) for key, each in moments.items()}
        return None if moments is None else Instance(_MOMENTS, dict(vars(moments)))

    @classmethod
    def load(cls, load_path: str | os.PathLike, venv: VecEnv) -> "VecNormalize":
        """A wrapper with the settings and statistics of a file, which is read as data.

        Args:
            load_path: path of a file that `save` wrote, of this library's or Stable-Baselines3's.
            venv: the vector environment to put it around.

        Raises:
            DamagedFileError: (a ValueError) if it holds anything else.
            OSError: if it cannot be read.
        """
        path = local_path(load_path)
        whole, what = path.resolve(), f"the file {path}"
        found = read_pickle(read_inside(whole.parent, whole.name, _MOST_BYTES), what, _is_known)
        if not isinstance(found, Record) or found.path != _VEC_NORMALIZE:
            raise DamagedFileError(f"{what} holds {found!r:.60}, and not what VecNormalize.save writes")
        given = found.attributes
        made = cls.__new__(cls)
        VecEnvWrapper.__init__(made, venv)
        try:
            for name in _PLAIN:
                setattr(made, name, given.get(name))
            made.training = bool(given.get("training", True))
            made.obs_rms = _moments_of(given["obs_rms"]) if made.norm_obs else None
            made.ret_rms = _moments_of(given["ret_rms"])
        except (KeyError, TypeError, AttributeError) as error:
            raise DamagedFileError(f"{what} is damaged: {type(error).__name__}: {error}") from None
        made._begin()
        return made

    def set_venv(self, venv: VecEnv) -> None:
        """Puts the statistics around another vector environment with the same spaces."""
        self.venv, self.num_envs = venv, venv.num_envs
        self._begin()


def _is_known(path: str) -> bool:
    return path in (_VEC_NORMALIZE, _MOMENTS) or path.startswith(_KNOWN)


def _moments_of(record: Any) -> Any:
    if isinstance(record, dict):
        return {key: _moments_of(each) for key, each in record.items()}
    if not isinstance(record, Record) or record.path != _MOMENTS:
        raise TypeError(f"{record!r:.60} instead of statistics")
    made = RunningMeanStd()
    made.mean, made.var = (np.asarray(record.attributes[name], np.float64) for name in ("mean", "var"))
    made.count = float(record.attributes["count"])
    return made


def unwrap_vec_normalize(env: Any) -> VecNormalize | None:
    """The VecNormalize around a vector environment; None without one."""
    return unwrap_vec_wrapper(env, VecNormalize)


def sync_envs_normalization(env: Any, eval_env: Any) -> None:
    """Copies the statistics of the VecNormalize around an environment to that around another."""
    while isinstance(env, VecEnvWrapper):
        if isinstance(env, VecNormalize):
            if not isinstance(eval_env, VecNormalize):
                raise ValueError(
                    "the training environment is normalised by VecNormalize, and the one for evaluation has none in "
                    "its place. Wrap it: VecNormalize(eval_env, training=False, norm_reward=False)."
                )
            eval_env.obs_rms, eval_env.ret_rms = copy.deepcopy(env.obs_rms), copy.deepcopy(env.ret_rms)
        env, eval_env = env.venv, eval_env.venv
