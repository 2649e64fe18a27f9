"""Statistics of VecNormalize, from the pickle that its `save` writes, without running anything in it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from gymnasium import spaces

from rllib.errors import DamagedFileError
from rllib.models.observations.filters import EPSILON
from rllib.storage.foreign_files import read_inside
from rllib.storage.pickled_data import Record, read_pickle

_VEC_NORMALIZE = "stable_baselines3.common.vec_env.vec_normalize.VecNormalize"
_MOMENTS = "stable_baselines3.common.running_mean_std.RunningMeanStd"
# Classes of further values in such a pickle, which are read as records: spaces and their random generators.
_KNOWN = ("gymnasium.spaces.", "gym.spaces.", "gym.utils.seeding.", "numpy.random.")
_MOST_BYTES = 2**28

State = dict[str, np.ndarray]


class Normalization:
    """Statistics that observations and rewards were normalised with.

    Args:
        path: path of the file that `VecNormalize.save` wrote.

    Attributes:
        settings: settings of the config: observation_filter, observation_clip, normalize_returns,
            normalized_reward_clip.

    Raises:
        ValueError: if the file names classes other than VecNormalize's, or is damaged.
        OSError: if the file cannot be opened.
    """

    def __init__(self, path: Path):
        self._what = f"the file {path}"
        whole = path.resolve()
        found = read_pickle(read_inside(whole.parent, whole.name, _MOST_BYTES), self._what, _is_known)
        if not isinstance(found, Record) or found.path != _VEC_NORMALIZE:
            raise DamagedFileError(f"{self._what} holds {found!r:.60}, and not what VecNormalize.save writes")
        self._given, self.settings = found.attributes, {}
        with self._naming_damage():
            if self._given["norm_obs"]:
                self.settings |= {"observation_filter": "MeanStdFilter", "observation_clip": self._number("clip_obs")}
            if self._given["norm_reward"]:
                self.settings |= {"normalize_returns": True, "normalized_reward_clip": self._number("clip_reward")}

    def observation_state(self, space: spaces.Space) -> State | None:
        """State of the observation filter; None if observations are not normalised.

        Args:
            space: space of the environment's observations.

        Raises:
            ValueError: if the statistics are of other observations.
        """
        with self._naming_damage():
            if not self._given["norm_obs"]:
                return None
            moments = self._given["obs_rms"]
            if not isinstance(moments, dict):
                return self._state([moments], [spaces.flatdim(space)])
            if not isinstance(space, spaces.Dict) or set(space.spaces) != set(moments):
                raise ValueError(
                    f"{self._what} normalises the parts {list(moments)} of an observation, and a filter here "
                    f"normalises all parts: {space}"
                )
            return self._state([moments[key] for key in space], [spaces.flatdim(part) for part in space.values()])

    def return_state(self) -> State | None:
        """State of the scale of rewards; None if rewards are not normalised."""
        with self._naming_damage():
            return self._state([self._given["ret_rms"]], [1]) if self._given["norm_reward"] else None

    def _number(self, name: str) -> float:
        return float(self._given[name])

    def _state(self, moments: list[Record], sizes: list[int]) -> State:
        """Joins the statistics of parts of an observation: count, mean and sum of squared deviations.

        Filters here add EPSILON to a variance. If VecNormalize added another number, the variance is corrected by the
        difference.
        """
        parts = [self._moments_of(*each) for each in zip(moments, sizes)]
        count = float(moments[0].attributes["count"])
        mean, variance = (np.concatenate(column) for column in zip(*parts))
        deviations = np.maximum(variance + self._number("epsilon") - EPSILON, 0) * count
        state = {"count": np.asarray(count), "mean": mean, "m2": deviations}
        if count <= 0 or not all(np.isfinite(array).all() for array in state.values()):
            raise DamagedFileError(f"{self._what} has statistics that are no finite numbers")
        return state

    def _moments_of(self, moments: Record, size: int) -> tuple[np.ndarray, np.ndarray]:
        if moments.path != _MOMENTS:
            raise DamagedFileError(f"{self._what} has {moments!r:.60} instead of statistics")
        mean, variance = (np.asarray(moments.attributes[name], np.float64).reshape(-1) for name in ("mean", "var"))
        if mean.size != size or variance.size != size:
            raise ValueError(
                f"{self._what} has statistics of {mean.size} numbers, and observations of this environment have "
                f"{size}: it belongs to another environment"
            )
        return mean, variance

    @contextmanager
    def _naming_damage(self) -> Iterator[None]:
        try:
            yield
        except (KeyError, TypeError, AttributeError, IndexError) as error:
            raise DamagedFileError(f"{self._what} is damaged: {type(error).__name__}: {error}") from None


def _is_known(path: str) -> bool:
    return path in (_VEC_NORMALIZE, _MOMENTS) or path.startswith(_KNOWN)
