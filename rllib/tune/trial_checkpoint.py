"""Checkpoint directories of trials: written under a temporary name, synchronised, renamed.

Beside the trainable's files a directory has `.tune.json`: counters of the trial, and how the trainable's part is to be
loaded. A dict that a trainable returned is in `checkpoint.pkl`.
"""

import os
import pickle
import secrets
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import cloudpickle
import msgspec

from rllib.runs.files import numbered

METADATA = ".tune.json"
_DICT = "checkpoint.pkl"


class Checkpoint:
    """A checkpoint directory, as functions report and get it; it can be used as a path (os.PathLike).

    Args:
        path: of the directory.
    """

    def __init__(self, path: str | Path):
        self.path = str(path)

    def __fspath__(self) -> str:
        return self.path

    @classmethod
    def from_directory(cls, path: str | Path) -> "Checkpoint":
        """A checkpoint of the files in a directory, which are copied when it is reported."""
        if not Path(path).is_dir():
            raise ValueError(f"a checkpoint is a directory, and {path} is none")
        return cls(path)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Checkpoint":
        """A checkpoint of values that can be pickled."""
        directory = Path(tempfile.mkdtemp(prefix="checkpoint_"))
        (directory / _DICT).write_bytes(cloudpickle.dumps(dict(data)))
        return cls(directory)

    def to_directory(self, path: str | Path | None = None) -> str:
        """Copies it to a directory; returns that."""
        path = path or tempfile.mkdtemp(prefix="checkpoint_")
        shutil.copytree(self.path, path, dirs_exist_ok=True)
        return str(path)

    @contextmanager
    def as_directory(self) -> Iterator[str]:
        """The directory itself; do not write into it."""
        yield self.path

    def to_dict(self) -> dict[str, Any]:
        """The dict of `from_dict` or of a class Trainable. Unpickles: use it on checkpoints you trust."""
        return read_dict(self.path)

    def __eq__(self, other):
        return isinstance(other, Checkpoint) and self.path == other.path

    def __hash__(self):
        return hash(self.path)

    def __repr__(self):
        return f"Checkpoint({self.path!r})"


def temporary_directory(inside: str | Path) -> Path:
    """A new hidden directory on the same file system."""
    directory = Path(inside) / f".checkpoint.tmp-{secrets.token_hex(6)}"
    directory.mkdir(parents=True)
    return directory


def remove_temporaries(inside: str | Path) -> None:
    """Removes unfinished checkpoints of a killed process from a directory that no process writes to now."""
    for leftover in Path(inside).glob(".checkpoint.tmp-*"):
        shutil.rmtree(leftover, ignore_errors=True)


def put_in_place(temporary: Path, place: Path, metadata: Mapping[str, Any]) -> Path:
    """Renames a directory when all of it is on the disk; returns its path.

    If there is one of that name already, the new one is called NAME_2, NAME_3, ...
    """
    (temporary / METADATA).write_bytes(msgspec.json.encode(metadata))
    for root, _, names in os.walk(temporary):
        for path in [*(os.path.join(root, name) for name in names), root]:
            sync(path)
    target = next(path for path in numbered(place) if not path.exists())
    os.rename(temporary, target)
    sync(place.parent)
    return target


def checkpoint_of(path: str | Path) -> Path:
    """The checkpoint directory in which a path lies, of a file that `save_checkpoint` wrote, say; else the path."""
    path = Path(path).expanduser().absolute()
    return next((place for place in (path, *path.parents) if (place / METADATA).is_file()), path)


def read_metadata(path: str | Path) -> dict[str, Any]:
    """What `.tune.json` holds; {} where there is none."""
    try:
        return msgspec.json.decode((Path(path) / METADATA).read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return {}


def write_dict(directory: Path, data: Mapping[str, Any]) -> None:
    """A trainable's dict as a file."""
    (directory / _DICT).write_bytes(cloudpickle.dumps(dict(data)))


def read_dict(directory: str | Path) -> dict[str, Any]:
    """The dict of `write_dict`."""
    return pickle.loads((Path(directory) / _DICT).read_bytes())


def sync(path: str | Path) -> None:
    """Has the disk hold a file, or the names in a directory."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
