"""The form of a replay's saved state: what another replay needs, to continue with its rows."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from rllib import sample_batch as sb
from rllib.config.conflicts import Unfit
from rllib.errors import DamagedFileError
from rllib.replay.frame_stacks import Frames
from rllib.replay.priorities import refuse_damaged, refuse_made_by

STACKS = (sb.OBS, sb.NEXT_OBS)
# Largest number of a row, or of a frame: arithmetic with it stays within int64, also in a mixed replay.
_MOST = 2**53


@dataclass(frozen=True)
class Form:
    """What two replays have to share, so that one can continue with the other's rows.

    Attributes:
        columns: (name, shape of one row, dtype) of each stored column.
        capacity: rows.
        priorities: (alpha, epsilon) of the priorities by which rows are drawn; None: there are none.
        frames: the frames of stacked observations; None: observations are stored whole.
    """

    columns: frozenset[tuple[str, tuple[int, ...], str]]
    capacity: int
    priorities: tuple[float, float] | None
    frames: Frames | None = None

    def refuse(
        self, state: Mapping[str, np.ndarray], setting_of: Callable[[int], int] | None = None, shards: int = 1
    ) -> None:
        """Refuses a state of a replay that has another form.

        Args:
            state: of `ReplayBuffer.get_state`.
            setting_of: function of a number of rows, the capacity of replay_buffer_config that has room for them; None:
                it is not known here.
            shards: number of such buffers that the capacity of replay_buffer_config is shared out to.

        Raises:
            Unfit: (a ValueError) if it belongs to a buffer with other columns or another capacity, lacks the priorities
                that this one has, or as `refuse_priorities`.
            DamagedFileError: (a ValueError) if no buffer has such a state, since its numbers and arrays contradict each
                other or are out of their bounds.
        """
        if "capacity" not in state:
            raise Unfit(
                "the saved replay was that of an algorithm with a replay in shards, such as ApexDQN.",
                "Load it into that algorithm, or begin with an empty replay.",
            )
        saved = {
            (name.removeprefix("columns."), column.shape[1:], str(column.dtype))
            for name, column in state.items()
            if name.startswith("columns.")
        }
        if saved != self.columns:
            raise Unfit(
                f"the saved replay has rows of other columns (name, shape, dtype): {sorted(saved - self.columns)}, "
                f"where this one has {sorted(self.columns - saved)}.",
                "Such rows are of another environment, algorithm or setting of the replay. Use those that they were "
                "saved with, or begin with an empty replay.",
            )
        if self.priorities is not None and "priorities" not in state:
            raise Unfit(
                "the saved replay has no priorities: it was sampled uniformly, this one is not.",
                'Use .training(replay_buffer_config={"type": "ReplayBuffer"}), or begin with an empty replay.',
                {"replay_buffer_config": {"type": "ReplayBuffer"}},
            )
        capacity = _integer(state, "capacity", 1, _MOST)
        added = _integer(state, "added", 0, _MOST)
        filled = min(added, capacity)
        oldest = _integer(state, "oldest", added - filled, added) if "oldest" in state else added - filled
        for name, _, _ in self.columns:
            _check_rows(f"columns.{name}", state[f"columns.{name}"], filled)
        if capacity != self.capacity:
            capacity, own = capacity * shards, self.capacity * shards
            asked = {"capacity": setting_of(capacity)} if setting_of else None
            raise Unfit(
                f"the saved replay has a capacity of {capacity} rows, but this one of {own}.",
                f"Use .training(replay_buffer_config={asked or '...'}), as it was saved with, or begin with an empty "
                "replay.",
                *([{"replay_buffer_config": asked}] if asked else ()),
            )
        if self.frames is not None:
            self._refuse_frames(state, added, oldest)
        self.refuse_priorities(state, added, oldest)

    def _refuse_frames(self, state: Mapping[str, np.ndarray], added: int, oldest: int) -> None:
        """Refuses rows whose frames are not there; arguments as for `refuse_priorities`."""
        count, shape, dtype = self.frames
        written = _integer(state, "stacks.written", 0, _MOST)
        first, frames, least = max(written - count, 0), _array(state, "stacks.frames"), _array(state, "least")
        _check_rows("stacks.frames", frames, written - first)
        if (frames.shape[1:], str(frames.dtype)) != (shape, dtype):
            raise DamagedFileError(
                f"a replay has frames of shape {list(frames.shape[1:])} and dtype {frames.dtype}, but needs "
                f"{list(shape)} and {dtype}"
            )
        _check_rows("least", least, min(added, self.capacity), "iu")
        places = np.arange(oldest, added) % self.capacity
        least = least[places, None]
        for positions in (state[f"columns.{name}"][places] for name in STACKS):
            if not np.all((first <= least) & (least <= positions) & (positions < written)):
                raise DamagedFileError(f"rows of a replay have other frames than {first} to {written - 1}, its newest")

    def refuse_priorities(self, state: Mapping[str, np.ndarray], added: int, oldest: int) -> None:
        """Refuses priorities (`ReplayBuffer.get_priorities`) that are too large by the exponent of this replay.

        Args:
            state: has them.
            added: number of rows that were added.
            oldest: number of the oldest row that can be sampled.

        Raises:
            Unfit: (a ValueError) see above.
            DamagedFileError: (a ValueError) if no replay of these rows has such priorities.
        """
        if self.priorities is None:
            return
        filled, priorities = min(added, self.capacity), _array(state, "priorities")
        _check_rows("priorities", priorities, filled, "f")
        if priorities.ndim > 1:
            raise DamagedFileError(f"priorities of a replay must have one dimension, but are {list(priorities.shape)}")
        if priorities[np.arange(added - filled, oldest) % self.capacity].any():
            raise DamagedFileError("rows of a replay that have lost their frames have priorities above 0")
        largest = _number(state, "largest_priority", "biuf")
        alpha, epsilon = by = made_by(state, *self.priorities)
        refuse_damaged(priorities[np.arange(oldest, added) % self.capacity].astype(np.float64), largest, by)
        try:
            refuse_made_by(np.append(priorities, largest), by, self.priorities)
        except ValueError as error:
            keys = {"prioritized_replay_alpha": alpha, "prioritized_replay_eps": epsilon}
            raise Unfit(
                f"the saved replay does not fit the exponent of this one: {error}",
                f"It was saved with .training(replay_buffer_config={keys}).",
                {"replay_buffer_config": keys},
            ) from error


def made_by(state: Mapping[str, np.ndarray], alpha: float, epsilon: float) -> tuple[float, float]:
    """(alpha, epsilon) of saved priorities; these where an earlier state does not have them."""
    alpha, epsilon = (
        float(_number(state, name, "biuf")) if name in state else own
        for name, own in (("alpha", alpha), ("epsilon", epsilon))
    )
    return alpha, epsilon


def _array(state: Mapping[str, np.ndarray], name: str) -> np.ndarray:
    if name not in state:
        raise DamagedFileError(f"a replay must have {name}, but has {', '.join(sorted(state))}")
    return np.asarray(state[name])


def _number(state: Mapping[str, np.ndarray], name: str, kinds: str) -> float:
    """A single number; `kinds`: of its dtype, by numpy's letters."""
    array = _array(state, name)
    if array.ndim or array.dtype.kind not in kinds:
        raise DamagedFileError(f"{name} of a replay must be one number, but is of {array.dtype} [{array.size}]")
    return array.item()


def _integer(state: Mapping[str, np.ndarray], name: str, least: int, most: int) -> int:
    if not least <= (value := _number(state, name, "iu")) <= most:
        raise DamagedFileError(f"{name} of a replay must be from {least} to {most}, but is {value}")
    return value


def _check_rows(name: str, array: np.ndarray, count: int, kinds: str | None = None) -> None:
    """Refuses an array without this number of rows; `kinds`: of its dtype, by numpy's letters."""
    if array.shape[:1] != (count,) or (kinds and array.dtype.kind not in kinds):
        found = f"{array.dtype} {list(array.shape)}"
        raise DamagedFileError(f"{name} of a replay must have {count} rows, but is of {found}")
