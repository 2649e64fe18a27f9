"""Files of a replay's rows: in checkpoints, and those of `save_replay_buffer`.

A file says what its rows were made by. Rows of other settings are converted where that can be told from them, such as
those of another discount with n_step=1, and refused where it cannot.
"""

import json
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rllib import sample_batch as sb
from rllib.algorithms.base.from_checkpoint import REPLAY_FILE, rows_of_steps
from rllib.config.conflicts import Unfit
from rllib.errors import DamagedFileError
from rllib.models.distributions.base import ActionUnit
from rllib.replay.replay_buffer import ReplayBuffer
from rllib.sample_batch import DEFAULT_POLICY
from rllib.storage.checkpoint import CheckpointError, naming_damage, read_checkpoint, write_checkpoint
from rllib.storage.foreign_files import json_object

# Of rows that are read from data.
PRIORITIES_FILE = "recorded_priorities.safetensors"
# Name of an array in a file of rows: JSON of what they were made by, as bytes.
_MADE_BY = "made_by"
_NO_OWN_ROWS = (
    "this run has no replay: it learns from recorded steps alone, which it reads again. Use "
    'input_="sampler", or a mixture with it.'
)
logger = logging.getLogger(__name__)

Rows = dict[str, np.ndarray]


class RowFiles(NamedTuple):
    """Writes and reads the rows of one policy's replay.

    Attributes:
        config: settings of the policy, of an off-policy algorithm.
        discounts: columns that have powers of a discount, each with the setting and the discount per step.
        made_by: settings by which rewards, observations and ends were changed before rows were stored, by name.
        unit: in which actions are stored.
    """

    config: Any
    discounts: Mapping[str, tuple[str, float]]
    made_by: Mapping[str, Any]
    unit: ActionUnit

    def write(self, buffer: ReplayBuffer) -> Rows:
        """The rows of a buffer for a file, with what they were made by."""
        by = {f"gamma.{column}": np.array(gamma) for column, (_, gamma) in self.discounts.items()}
        made = {**self.made_by, "unit": self.unit.value}
        by |= {"n_step": np.array(self.config.n_step), _MADE_BY: np.frombuffer(json.dumps(made).encode(), np.uint8)}
        return {**buffer.get_state(), **by}

    def read(self, saved: Rows, buffer: ReplayBuffer) -> Rows:
        """The rows of a file as the buffer takes them, with the discounts and the unit of actions of this policy.

        Raises:
            Unfit: (a ValueError) if they are of another environment, or of a replay with other settings.
            DamagedFileError: (a ValueError) if no replay writes such rows.
        """
        by = {name: saved[name] for name in saved if name in ("n_step", _MADE_BY) or name.startswith("gamma.")}
        rows = {name: column for name, column in saved.items() if name not in by}
        rows = rows_of_steps(rows, self.config.gamma, self.config.n_step, self.config.rows_of_capacity)
        for column, (setting, gamma) in self.discounts.items():
            if (before := float(by.get(f"gamma.{column}", gamma))) != gamma:
                named = [name for name in rows if name.endswith(f"columns.{column}")]  # also of a shard
                rows |= {name: _by_discount(rows[name], setting, before, gamma, int(by["n_step"])) for name in named}
        buffer.refuse_state(rows, self.config.capacity_for)
        if _MADE_BY in by:  # earlier files do not say it
            made = json_object(by[_MADE_BY].tobytes())
            try:
                unit = ActionUnit(made.pop("unit", self.unit))
            except ValueError as error:
                raise DamagedFileError(f"{_MADE_BY} of a replay: {error}") from None
            self._refuse_other_rows(made)
            if unit != self.unit:
                named = [name for name in rows if name.endswith(f"columns.{sb.ACTIONS}")]
                rows |= {name: self.unit.stored(unit.read(rows[name])) for name in named}
        return rows

    def _refuse_other_rows(self, saved: Mapping[str, Any]) -> None:
        """Refuses saved rows that other settings have made: what they were before is lost."""
        for name, own in self.made_by.items():
            before = saved.get(name, own)
            if json.dumps(before) != json.dumps(own):  # True and 1.0 are two clips
                raise Unfit(
                    f"the saved replay has rows of {name}={before!r}, but the run has {name}={own!r}.",
                    f"Use .{self.config.settings[name].section}({name}={before!r}), as they were saved with, or begin "
                    "with an empty replay.",
                    {name: before},
                )

    def read_checkpoint(self, saved: Rows, buffer: ReplayBuffer) -> Rows | None:
        """`read` for the rows of a checkpoint; None for those of other settings, where the run does not store its own.

        Raises:
            Unfit: (a ValueError) for such rows, if it does.
        """
        try:
            return self.read(saved, buffer)
        except Unfit as error:
            problem, advice, remedies = error.mistake.problem, error.mistake.advice, error.mistake.remedies
            if not self.config.store_buffer_in_checkpoints:
                logger.warning("%s The run continues with an empty one.", problem)
                return None
            advice = f"{advice} With store_buffer_in_checkpoints=False the replay begins empty."
            raise Unfit(problem, advice, *remedies, {"store_buffer_in_checkpoints": False}) from error


def _by_discount(discounts: np.ndarray, setting: str, before: float, gamma: float, n_step: int) -> np.ndarray:
    """Saved discounts of rows, as they are with another discount per step.

    Args:
        discounts: of single steps; 0 where the task ended.
        setting: that has the discount.
        before, gamma: discount per step when they were saved, and now.
        n_step: rewards that the rows sum up, at most.

    Raises:
        Unfit: (a ValueError) if they cannot be told: rewards are summed up with the one before, or it was 0.
    """
    going_on = discounts > 0
    if n_step > 1 or not before or (discounts[going_on] != np.float32(before)).any():
        raise Unfit(
            f"the saved replay has returns of {setting}={before:g}, but the run has {setting}={gamma:g}.",
            f"Use .training({setting}={before:g}), as they were saved with, or begin with an empty replay. Rows of "
            "n_step=1 can be used with another discount.",
            {setting: before},
        )
    return np.where(going_on, np.float32(gamma), np.float32(0))


# ---------------------------------------------------------------------- priorities of recorded rows


def priorities_file(parts: Sequence[ReplayBuffer]) -> dict[str, Rows]:
    """The file with the priorities of rows that are read again from data; {} where they have none."""
    priorities = [part.get_priorities() for part in parts]
    if not any(priorities):
        return {}
    return {
        PRIORITIES_FILE: {f"{i}.{name}": array for i, each in enumerate(priorities) for name, array in each.items()}
    }


def take_priorities(files: Mapping[str, Mapping[str, np.ndarray]], parts: Sequence[ReplayBuffer]) -> None:
    """Sets the priorities of `priorities_file`; where none are saved they start again, whatever was learned before."""
    for part, priorities in zip(parts, _priorities_of(files, len(parts))):
        part.set_priorities(priorities)


def refuse_priorities(files: Mapping[str, Mapping[str, np.ndarray]], parts: Sequence[ReplayBuffer]) -> None:
    """Refuses files whose priorities `take_priorities` cannot set; raises as `Form.refuse_priorities`."""
    for part, priorities in zip(parts, _priorities_of(files, len(parts))):
        part.refuse_priorities(priorities)


def _priorities_of(files: Mapping[str, Mapping[str, np.ndarray]], num_parts: int) -> Iterator[dict[str, np.ndarray]]:
    priorities = files.get(PRIORITIES_FILE, {})
    for i in range(num_parts):
        names = [name for name in priorities if name.startswith(f"{i}.")]
        yield {name.removeprefix(f"{i}."): priorities[name] for name in names}


# ---------------------------------------------------------------------- files of replays alone


def write_replays(path: str | os.PathLike, rows: Mapping[str, Rows]) -> Path:
    """Writes rows of policies, by their ids, into a directory. Returns its path.

    Raises:
        CheckpointError: (a ValueError) if there are none.
    """
    if not rows:
        raise CheckpointError(_NO_OWN_ROWS)
    return write_checkpoint(Path(path), {_file_of(policy_id): of_policy for policy_id, of_policy in rows.items()})


def read_replays(path: str | os.PathLike, readers: Mapping[str, tuple[RowFiles, ReplayBuffer]]) -> dict[str, Rows]:
    """Reads the rows that `write_replays` wrote, of all policies before any is changed.

    Args:
        path: path of the directory.
        readers: policy id -> what reads its rows, and the buffer that is to take them.

    Raises:
        CheckpointError: (a ValueError) if there are none, they are not of these policies, or there are no policies.
        Unfit: (a ValueError) if they are of another environment, or of a replay with other settings.
    """
    files = read_checkpoint(path)
    if not readers:
        raise CheckpointError(_NO_OWN_ROWS)
    if missing := [policy_id for policy_id in readers if _file_of(policy_id) not in files]:
        named = ", ".join(missing)
        raise CheckpointError(f"{os.fspath(path)} has no rows of {named}. Use save_replay_buffer(path).")
    own = {_file_of(policy_id) for policy_id in readers}
    if others := sorted(name for name in files if Path(name).name == REPLAY_FILE and name not in own):
        raise CheckpointError(
            f"{os.fspath(path)} has rows of other policies, {', '.join(others)}, than the run's, "
            f"{', '.join(sorted(own))}. Build the run with the policies that they were saved with."
        )
    with naming_damage(path):
        return {
            policy_id: row_files.read(files[_file_of(policy_id)], buffer)
            for policy_id, (row_files, buffer) in readers.items()
        }


def _file_of(policy_id: str) -> str:
    """Path of a policy's rows in what `write_replays` writes."""
    return REPLAY_FILE if policy_id == DEFAULT_POLICY else f"policies/{policy_id}/{REPLAY_FILE}"
