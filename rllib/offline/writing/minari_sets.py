"""Datasets of Minari, written from whole episodes into its directory on this machine."""

import inspect
import logging
import warnings
from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import Space, spaces

from rllib import sample_batch as sb
from rllib.env.spaces.actions import structured_actions
from rllib.env.spaces.row_selection import structured
from rllib.models.observations.flat_spaces import parts
from rllib.offline.formats.packages import package
from rllib.offline.writing.metadata import HAS_NEXT, NORMALIZED
from rllib.storage.encoding import space_from_json

# Of a path that means a dataset of Minari.
PREFIX = "minari:"
# Columns that a dataset of Minari holds, or whose content its order of steps says.
_KEPT = {sb.OBS, sb.NEXT_OBS, sb.ACTIONS, sb.REWARDS, sb.TERMINATEDS, sb.TRUNCATEDS, sb.EPS_ID, "t", HAS_NEXT}

logger = logging.getLogger(__name__)


def check_name(name: str) -> None:
    """Refuses a name by which no dataset of Minari can be made on this machine.

    Raises:
        ValueError: if there is such a dataset, or the name is none of Minari's.
        ImportError: without minari.
    """
    minari = package("minari", f"{PREFIX}{name}")
    from minari.dataset.minari_dataset import parse_dataset_id

    parse_dataset_id(name)
    if name in minari.list_local_datasets():
        raise ValueError(f"{PREFIX}{name} is there already; give another name, such as the next version")


def write_minari(name: str, columns: Mapping[str, np.ndarray], starts: np.ndarray, metadata: Mapping[str, Any]) -> None:
    """Makes a dataset of Minari; arguments as for write_steps.

    Each episode has one observation more than steps. Where the observation after the last step is not known, that step
    is left out, and a line of logging counts them. Another one names columns that it has no place for.

    Raises:
        ValueError: as for `check_name`; for normalized actions, whose units it cannot say; and without rewards.
        ImportError: without minari.
    """
    if metadata.get("actions") == NORMALIZED:
        raise ValueError(
            f"{PREFIX}{name} has actions in units of the environment; normalized ones can be saved to a file"
        )
    if sb.REWARDS not in columns:
        raise ValueError(f"{PREFIX}{name} needs rewards, and there are none; the steps can be saved to a file")
    check_name(name)
    minari = package("minari", f"{PREFIX}{name}")
    from minari.data_collector import EpisodeBuffer

    if left_out := sorted(columns.keys() - _KEPT):
        logger.warning("datasets of Minari have no place for %s: these columns are left out", ", ".join(left_out))

    lengths, known = np.diff(starts), columns.get(HAS_NEXT)
    last = starts[1:] - 1
    # What follows a termination is not learned from: the format wants an observation, and gets what stands there.
    shorter = np.zeros(len(lengths), bool) if known is None else ~(known | columns[sb.TERMINATEDS])[last]
    if shorter.any():
        logger.warning("%d last steps are left out, as it is unknown what followed them", shorter.sum())
    observation_space, action_space = (
        space_from_json(metadata[name]) for name in ("observation_space", "action_space")
    )
    buffers = []
    for start, stop, is_shorter in zip(starts[:-1].tolist(), starts[1:].tolist(), shorter.tolist()):
        obs = columns[sb.OBS][start:stop]
        if is_shorter:
            stop -= 1
        else:
            obs = np.concatenate([obs, columns[sb.NEXT_OBS][stop - 1 : stop]])
        if stop == start:
            continue
        terminateds, truncateds = (columns[flag][start:stop].copy() for flag in (sb.TERMINATEDS, sb.TRUNCATEDS))
        truncateds[-1] |= not terminateds[-1]
        buffers.append(
            EpisodeBuffer(
                id=len(buffers),
                observations=structured(observation_space, obs) if parts(observation_space) else obs,
                actions=structured_actions(action_space, columns[sb.ACTIONS][start:stop]),
                rewards=columns[sb.REWARDS][start:stop].astype(np.float64).tolist(),
                terminations=terminateds.tolist(),
                truncations=truncateds.tolist(),
            )
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # about an author and a link to code, which were not given
        minari.create_dataset_from_buffers(
            name,
            buffer=buffers,
            env=metadata.get("env") if metadata.get("env") in gymnasium.registry else None,
            observation_space=_as_stored(observation_space),
            action_space=action_space,
            algorithm_name=metadata.get("algorithm"),
            description="Recorded by rllib.",
            **_exact(minari),
        )


def _exact(minari) -> dict[str, bool]:
    """The argument by which images are stored as they are; by default some releases make JPEGs of them."""
    parameters = inspect.signature(minari.create_dataset_from_buffers).parameters
    return {"jpeg_encoding": False} if "jpeg_encoding" in parameters else {}


def _as_stored(space: Space) -> Space:
    """The space of observations as a dataset stores them."""
    if isinstance(space, spaces.Box):
        return space if space.dtype != np.float64 else spaces.Box(space.low, space.high, space.shape, np.float32)
    return space if parts(space) or isinstance(space, spaces.Discrete) else spaces.flatten_space(space)
