"""Open files of steps: they get their names when they are whole."""

import os
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from rllib.offline.writing.lines import line_of

# Writes columns and metadata to a path.
WriteColumns = Callable[[Path, Mapping[str, np.ndarray], Mapping[str, Any]], None]


class StepFile(Protocol):
    """A file that steps are added to.

    Attributes:
        path: its name when it is whole.
        rows: number of steps so far.
        size_bytes: size in bytes of the file, or of the columns that wait to be written.
    """

    path: Path
    rows: int
    size_bytes: int

    def add(self, columns: Mapping[str, np.ndarray]) -> None:
        """Adds consecutive steps of one environment, arrays [rows, ...] by name.

        Raises:
            OSError: if they cannot be written, with the name of the file; what was added before is still there.
        """

    def close(self) -> None:
        """Puts the file in its place, after the disk has it; without steps there is none. A second call does nothing.

        Raises:
            OSError: if it cannot be written, with its name.
        """

    def discard(self) -> None:
        """Drops the steps; what was in the file's place stays there."""


class LinesFile:
    """A file of RLlib's JSON, a batch a line.

    Until it is closed its name is ".NAME.partial". If the process is killed, its lines stay there; of the last one a
    part may be missing.

    Args:
        path: path of the file.
        metadata: facts about the steps (metadata.py); {}: the columns are written as they are given.
        packed: columns that are packed, where lz4 is installed.
    """

    def __init__(self, path: Path, metadata: Mapping[str, Any], packed: Collection[str] = ()):
        self.path, self.rows, self.size_bytes = path, 0, 0
        self._metadata, self._packed, self._num_lines = metadata, packed, 0
        self._draft = draft_of(path)
        with _naming(path):
            self._file = open(self._draft, "wb", buffering=0)  # noqa: SIM115 (closed in close())

    def add(self, columns: Mapping[str, np.ndarray]) -> None:
        line = memoryview(line_of(columns, self._metadata, self._packed, self._num_lines))
        size = len(line)
        try:
            with _naming(self.path):
                while line:
                    line = line[self._file.write(line) :]
        except OSError:
            with suppress(OSError):
                self._file.truncate(self.size_bytes)
                self._file.seek(self.size_bytes)
            raise
        self.size_bytes += size
        self.rows += len(next(iter(columns.values())))
        self._num_lines += 1

    def close(self) -> None:
        if self._file.closed:
            return
        with _naming(self.path), self._file:
            if self.rows:
                self._file.truncate(self.size_bytes)  # without the part of a line at which a signal came
                os.fsync(self._file.fileno())
                os.replace(self._draft, self.path)
            else:
                self._draft.unlink(missing_ok=True)

    def discard(self) -> None:
        self._file.close()
        self._draft.unlink(missing_ok=True)


class ColumnsFile:
    """A file that is written at once, when it is closed: until then its columns wait in memory.

    If the process is killed, they are lost.

    Args:
        path: path of the file.
        metadata: facts about the steps.
        write: writes it.
    """

    def __init__(self, path: Path, metadata: Mapping[str, Any], write: WriteColumns):
        self.path, self.rows, self.size_bytes = path, 0, 0
        self._metadata, self._write = metadata, write
        self._parts: list[Mapping[str, np.ndarray]] = []

    def add(self, columns: Mapping[str, np.ndarray]) -> None:
        if self._parts and self._parts[0].keys() != columns.keys():
            raise ValueError(
                f"all steps of {self.path} need the same columns, but some have {sorted(self._parts[0])}, others "
                f"{sorted(columns)}"
            )
        self._parts.append(dict(columns))
        self.rows += len(next(iter(columns.values())))
        self.size_bytes += sum(column.nbytes for column in columns.values())

    def close(self) -> None:
        parts, self._parts = self._parts, []
        if parts:
            with whole(self.path) as draft:
                columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
                self._write(draft, columns, self._metadata)

    def discard(self) -> None:
        self._parts = []


def draft_of(path: Path) -> Path:
    """The name of a file until it is whole."""
    return path.with_name(f".{path.name}.partial")


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """Gives a name to write to; when the disk has the file, it gets its own name. On an error it is removed.

    Raises:
        OSError: if it cannot be written, with the name of the file.
    """
    draft = draft_of(path)
    try:
        with _naming(path):
            yield draft
            with open(draft, "rb") as file:
                os.fsync(file.fileno())
            os.replace(draft, path)
    except BaseException:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
        raise


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Adds the file's name, and what to do, to an OSError: a failed write does not name it."""
    try:
        yield
    except OSError as error:
        if error.errno is None:  # of a format's library, in words alone
            raise OSError(f"recorded steps cannot be written to {path}: {error}") from error
        why = f"{error.strerror}; recorded steps cannot be written there"
        raise type(error)(error.errno, why, str(path)) from error
