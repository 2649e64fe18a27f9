"""Checkpoint directories of trials: written under a temporary name, synchronised, renamed.

Beside the trainable's files a directory has `.tune.json`: counters of the trial, and the form of the trainable's part.
A dict that a trainable returned is in `checkpoint.json` if it is data, which reads back exactly and runs no code, and
else in `checkpoint.pkl`.
"""

import json
import os
import pickle
import secrets
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypedDict

import cloudpickle
import msgspec
import numpy as np

from rllib.errors import DamagedFileError
from rllib.runs.safe_files import numbered
from rllib.storage.encoding import decode, encode
from rllib.storage.foreign_files import WRONG_FORM, json_object, read_inside
from rllib.storage.tensor_file import DTYPES

METADATA = ".tune.json"
_DATA, _PICKLED = "checkpoint.json", "checkpoint.pkl"
# Bytes; larger arrays would take long as text.
_LARGEST_AS_TEXT = 2**16


class _Metadata(TypedDict, total=False):
    """Counters of a trial, and kind of its trainable's part: a "dict", or a "path" in the directory."""

    iteration: int
    time_total_s: float
    totals: dict[str, float]
    kind: str
    path: str


class Checkpoint:
    """A checkpoint directory, as functions report and receive it; it can be used as a path (os.PathLike).

    Args:
        path: path of the directory.
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
        write_dict(directory, data)
        return cls(directory)

    def to_directory(self, path: str | Path | None = None) -> str:
        """Copies it to a directory, a new one by default; returns the directory."""
        path = path or tempfile.mkdtemp(prefix="checkpoint_")
        shutil.copytree(self.path, path, dirs_exist_ok=True)
        return str(path)

    @contextmanager
    def as_directory(self) -> Iterator[str]:
        """Context with the directory itself; do not write into it."""
        yield self.path

    def to_dict(self) -> dict[str, Any]:
        """The dict of `from_dict` or of a class Trainable. May unpickle: use it on checkpoints you trust."""
        return read_dict(self.path)

    def __eq__(self, other):
        return isinstance(other, Checkpoint) and self.path == other.path

    def __hash__(self):
        return hash(self.path)

    def __repr__(self):
        return f"Checkpoint({self.path!r})"


def temporary_directory(inside: str | Path) -> Path:
    """Makes a hidden directory in another one."""
    directory = Path(inside) / f".checkpoint.tmp-{secrets.token_hex(6)}"
    directory.mkdir(parents=True)
    return directory


def remove_temporaries(inside: str | Path) -> None:
    """Removes unfinished checkpoints of a killed process from a directory that no process writes to now."""
    for leftover in Path(inside).glob(".checkpoint.tmp-*"):
        shutil.rmtree(leftover, ignore_errors=True)


def put_in_place(temporary: Path, place: Path, metadata: Mapping[str, Any]) -> Path:
    """Renames a directory after it was synchronised to the disk; returns its path.

    If the name exists already, the directory is called NAME_2, NAME_3, ...
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
    """The checkpoint directory in which a path lies, such as a file of `save_checkpoint`; else the path itself."""
    path = Path(path).expanduser().absolute()
    return next((place for place in (path, *path.parents) if (place / METADATA).is_file()), path)


def read_metadata(path: str | Path) -> dict[str, Any]:
    """Content of `.tune.json`; {} without the file."""
    try:
        return msgspec.convert(json_object(read_inside(path, METADATA)), _Metadata)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (DamagedFileError, msgspec.ValidationError) as error:
        raise DamagedFileError(f"the checkpoint {path} is damaged: {METADATA}: {error}") from None


def holds_pickle(path: str | Path) -> bool:
    """Whether reading a checkpoint runs code, as its dict had to be pickled."""
    return read_metadata(path).get("kind") == "dict" and not (Path(path) / _DATA).is_file()


def write_dict(directory: Path, data: Mapping[str, Any]) -> None:
    """Writes a trainable's dict to a file in the directory."""
    content = cloudpickle.dumps(dict(data))
    if len(content) <= _LARGEST_AS_TEXT and _is_data(dict(data)):
        (directory / _DATA).write_text(json.dumps(encode(dict(data))))
    else:
        (directory / _PICKLED).write_bytes(content)


def read_dict(directory: str | Path) -> dict[str, Any]:
    """Reads the dict that `write_dict` has written."""
    try:
        return decode(json_object(read_inside(directory, _DATA)))
    except FileNotFoundError:
        return pickle.loads(read_inside(directory, _PICKLED))
    except WRONG_FORM as error:
        raise DamagedFileError(f"the checkpoint {directory} is damaged: {_DATA}: {error}") from error


def _is_data(value) -> bool:
    """Whether JSON gives the value back exactly, as encoding.py writes it."""
    if type(value) is dict:
        return all(map(_is_data, (*value.keys(), *value.values())))
    if type(value) in (list, tuple):
        return all(map(_is_data, value))
    if isinstance(value, np.ndarray | np.generic):
        return type(value) is np.ndarray and value.dtype.name in DTYPES
    return value is None or type(value) in (bool, int, float, str)


def sync(path: str | Path) -> None:
    """Synchronises a file, or the names in a directory, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
