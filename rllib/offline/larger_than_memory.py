"""Datasets whose columns lie on a disk: files are read piece by piece, and are never whole in memory."""

import dataclasses
import mmap
import tempfile
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO

import numpy as np
from gymnasium import Space, spaces

from rllib import sample_batch as sb
from rllib.offline.assembly import set_flags
from rllib.offline.dataset import Dataset
from rllib.offline.decisions import Decisions
from rllib.offline.files import named, record_pieces
from rllib.offline.options import ReadOptions, read_options
from rllib.offline.records import Records, T, joined
from rllib.replay.disk import DISK, directory_of

# Bytes of files that are in memory at once, but for their last episode.
PIECE_BYTES = 64 << 20


def dataset_on_disk(
    paths,
    *,
    storage: str = DISK,
    piece_bytes: int = PIECE_BYTES,
    observation_space: Space | None = None,
    action_space: Space | None = None,
    **options: Any,
) -> Dataset:
    """Reads files into columns on a disk; they are used like those in memory, which the page cache brings back.

    The files of the columns have no name: the kernel removes them with the last process that uses them. What a dataset
    in memory decides by all of its rows is decided by those of the first piece, such as the units of actions.

    Args:
        paths, observation_space, action_space, options: as for `Dataset.from_path`.
        storage: "disk", a temporary directory that is on a disk; or a directory.
        piece_bytes: of the files that are in memory at once, about.

    Raises:
        as `Dataset.from_path`; ValueError also if rows of an episode are not together, and if a later piece does not
        agree with what the first has decided.
        OSError: if the disk is full.
    """
    directory = directory_of(storage)
    given = {"observation_space": observation_space, "action_space": action_space}
    pieces = record_pieces(paths, chosen := read_options(options), piece_bytes)
    source = named(paths)
    columns: dict[str, _Column] = {}
    lengths, has_next, notices = [], [], []
    first = None
    seeming: dict[str, Space] = {}
    for dataset in _datasets(_gathered(pieces, piece_bytes, source), chosen, given):
        if first is None:
            first = dataset
            columns = {name: _Column(directory, column) for name, column in dataset.columns.items()}
        dataset = dataset.with_densities_as(first)
        for name in [name for name in columns if name not in dataset.columns]:
            if name in _ALWAYS or name == sb.REWARDS:
                raise ValueError(f"not all files of {source} have {name}")
            del columns[name]
            notices.append(f"not all files of {source} have {name}: this column is left out")
        for name, column in columns.items():
            column.append(dataset.columns[name])
        for name in given:
            space = getattr(dataset, name)
            seeming[name] = _wider(seeming.get(name, space), space, f"the {name} of {source}")
        lengths.append(dataset.lengths)
        has_next.append(dataset.has_next)
        notices += dataset.notices
    starts = np.concatenate([[0], np.cumsum(np.concatenate(lengths))]).astype(np.int64)
    return dataclasses.replace(
        first,
        columns={name: column.mapped() for name, column in columns.items()},
        starts=starts,
        has_next=np.concatenate(has_next),
        notices=list(dict.fromkeys(notices)),
        source=source,
        **seeming,
    )


def _wider(first: Space, second: Space, what: str) -> Space:
    """The space that has the values of both, which two pieces seem to be of; equal where it is known."""
    match first, second:
        case _ if first == second:
            return first
        case spaces.Discrete(), spaces.Discrete():
            return spaces.Discrete(max(first.n, second.n))
        case spaces.MultiDiscrete(), spaces.MultiDiscrete() if first.shape == second.shape:
            return spaces.MultiDiscrete(np.maximum(first.nvec, second.nvec))
        case spaces.Box(), spaces.Box() if (first.shape, first.dtype) == (second.shape, second.dtype):
            low, high = np.minimum(first.low, second.low), np.maximum(first.high, second.high)
            return spaces.Box(low, high, dtype=first.dtype)
        case _:
            raise ValueError(f"{what} seems to be {first} at first, and {second} later. Give the space.")


_ALWAYS = (sb.OBS, sb.NEXT_OBS, sb.ACTIONS, sb.TERMINATEDS, sb.TRUNCATEDS)


def _gathered(pieces: Iterable[Records], piece_bytes: int, source: str) -> Iterator[Records]:
    """Pieces of about that size: small files together."""
    waiting: list[Records] = []
    size = 0
    for piece in pieces:
        waiting.append(piece)
        size += sum(column.nbytes for column in piece.columns.values())
        if size >= piece_bytes:
            yield joined(waiting, source)
            waiting, size = [], 0
    if waiting:
        yield joined(waiting, source)


def _datasets(pieces: Iterable[Records], options: ReadOptions, given: dict[str, Space | None]) -> Iterator[Dataset]:
    """Datasets of whole episodes.

    The last episode of a piece may continue in the next one, whose first row also tells whether its new_obs is that of
    a reset. So it is read again with the next piece.
    """
    decisions = _FileDecisions(dataclasses.replace(options, schema=None), given)
    order = _Order()
    left: Records | None = None
    for piece, is_last in _ending(pieces):
        records = piece if left is None else joined([left, piece], piece.source)
        if not len(records):
            continue
        dataset = decisions.dataset(records)
        whole = dataset if is_last else dataset.taking(np.arange(dataset.num_episodes - 1))
        order.check(records, dataset, whole.num_episodes)
        if len(whole):
            yield whole
        if not is_last:
            left = records.taking(np.arange(len(whole), len(records)))
            left.notices.clear()


def _ending(pieces: Iterable[Records]) -> Iterator[tuple[Records, bool]]:
    """(piece, whether it is the last)."""
    before = None
    for piece in pieces:
        if before is not None:
            yield before, False
        before = piece
    if before is not None:
        yield before, True


class _FileDecisions(Decisions):
    """Decisions about files: also whether flags, or lines and files, are the ends of episodes."""

    def dataset(self, records: Records) -> Dataset:
        self._decide_ends(records)
        return super().dataset(records)

    def _decide_ends(self, records: Records) -> None:
        if sb.EPS_ID in records.columns or T in records.columns or self.options.ends == "flags":
            return
        is_flagged = bool(set_flags(records).any())
        if is_flagged and not self.is_first:
            raise ValueError(
                f"{records.source}: no flag of an end was set in the first rows, so that each line or file was taken "
                "as an episode, but flags follow. input_config={'ends': 'flags'} makes them count from the beginning."
            )
        if is_flagged:
            self.options = dataclasses.replace(self.options, ends="flags")


class _Order:
    """Checks that the rows of each episode stand together, which only a dataset in memory can mend."""

    def __init__(self):
        # Number of an episode -> its last step so far, if steps are counted.
        self._seen: dict[int, int | None] = {}
        self._last: int | None = None

    def check(self, records: Records, dataset: Dataset, num_whole: int) -> None:
        """Checks a piece, of which the first `num_whole` episodes are not read again.

        Raises:
            ValueError: if rows of an episode are apart.
        """
        if sb.EPS_ID not in records.columns:
            return
        ids, steps = dataset.columns[sb.EPS_ID], dataset.columns.get(T)
        is_apart = not np.array_equal(records.columns[sb.EPS_ID], ids)
        for start, stop in zip(dataset.starts[:num_whole].tolist(), dataset.starts[1:].tolist()):
            number = int(ids[start])
            if number in self._seen and number != self._last:  # else its rows stand together, but for a gap
                before = self._seen[number]
                is_apart |= before is None or int(steps[start]) > before
            self._last = number
            self._seen[number] = None if steps is None else int(steps[stop - 1])
        if is_apart:
            raise ValueError(
                f"{records.source}: rows of an episode stand at several places, which can only be put in order in "
                "memory. Sort the rows by eps_id, or read a part of the files."
            )


class _Column:
    """A column that grows in a file without a name."""

    def __init__(self, directory: str | None, like: np.ndarray):
        self._file: BinaryIO = tempfile.TemporaryFile(dir=directory)  # noqa: SIM115, as it grows over many calls
        self._dtype, self._row_shape, self._rows = like.dtype, like.shape[1:], 0

    def append(self, rows: np.ndarray) -> None:
        if rows.shape[1:] != self._row_shape:
            raise ValueError(f"a row has the shape {rows.shape[1:]}, but those of the files before {self._row_shape}")
        if not np.can_cast(rows.dtype, self._dtype, "same_kind"):
            raise ValueError(f"a column has {rows.dtype}, but {self._dtype} in the files before")
        self._file.write(np.ascontiguousarray(rows, self._dtype).data.cast("B") if rows.size else b"")
        self._rows += len(rows)

    def mapped(self) -> np.ndarray:
        """The column [rows, ...], in the page cache as far as there is room."""
        self._file.flush()
        size = self._rows * int(np.prod(self._row_shape, dtype=np.int64)) * self._dtype.itemsize
        if not size:
            return np.empty((self._rows, *self._row_shape), self._dtype)
        with self._file:
            # Private: a change of a column changes the process's own copy.
            mapping = mmap.mmap(self._file.fileno(), size, access=mmap.ACCESS_COPY)
        if hasattr(mapping, "madvise"):  # not on Windows
            mapping.madvise(mmap.MADV_RANDOM)
        return np.ndarray((self._rows, *self._row_shape), self._dtype, mapping)
