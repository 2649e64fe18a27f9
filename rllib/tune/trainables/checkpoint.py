"""Checkpoint directories of trials: written under a temporary name, synchronised, renamed.

In addition to the trainable's files a directory has `.tune.json`: counters of the trial, and the form of the
trainable's part. A dict that a trainable returned is in `checkpoint.json`, with its arrays in `checkpoint.safetensors`,
if it is data, which reads back exactly and runs no code. Else it is in `checkpoint.pkl` (pickles.py).

Data are numbers, texts, bytes, None, arrays and tensors, in dicts, lists, tuples and sets; at most 100,000 of them.
"""

import json
import secrets
import shutil
import tempfile
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, TypedDict

import msgspec
import numpy as np

from rllib.compat.names import absent
from rllib.did_you_mean import explains
from rllib.errors import DamagedFileError
from rllib.runs.safe_files import numbered, write_whole
from rllib.storage.encoding import decode, encode, is_tensor
from rllib.storage.foreign_files import WRONG_FORM, copy_inside, json_object, read_inside
from rllib.storage.local_path import expanded, local_path
from rllib.storage.tensor_file import DTYPES, TensorFile, tensors_of
from rllib.storage.whole import move_whole
from rllib.tune.trainables.pickles import is_foreign, is_signed, not_loaded, read_pickle, write_pickle

METADATA = ".tune.json"
# What a program adds to a checkpoint, under the name that Ray gives to it.
_OF_PROGRAM = ".metadata.json"
_DATA, _ARRAYS, _PICKLED = "checkpoint.json", "checkpoint.safetensors", "checkpoint.pkl"
# More values would take long as text.
_MOST_VALUES = 100_000


class _Metadata(TypedDict, total=False):
    """Counters of a trial, and kind of its trainable's part: a "dict", or a "path" in the directory."""

    iteration: int
    time_total_s: float
    totals: dict[str, float]
    kind: str
    path: str


@explains(absent.CHECKPOINT)
class Checkpoint:
    """A checkpoint directory, as functions report and receive it; it can be used as a path (os.PathLike).

    Args:
        path: path of the directory.
        load_user_code: whether `to_dict` may unpickle what another run has written.
    """

    def __init__(self, path: str | Path, load_user_code: bool = False):
        self.path, self._load_user_code = expanded(path), load_user_code

    def __fspath__(self) -> str:
        return self.path

    @classmethod
    def from_directory(cls, path: str | Path) -> "Checkpoint":
        """A checkpoint of the files in a directory, which are copied when it is reported."""
        if not local_path(path).is_dir():
            raise ValueError(f"a checkpoint is a directory, and {path} is none")
        return cls(path)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Checkpoint":
        """A checkpoint of values that can be pickled."""
        directory = Path(tempfile.mkdtemp(prefix="checkpoint_"))
        write_dict(directory, data)
        return cls(directory)

    def to_directory(self, path: str | Path | None = None) -> str:
        """Copies it to a directory, a new one by default; returns the directory.

        Raises:
            DamagedFileError: if it holds a link, which is not followed.
        """
        target = tempfile.mkdtemp(prefix="checkpoint_") if path is None else expanded(path)
        source = Path(self.path).resolve()
        copy_inside(source.parent, source.name, Path(target))
        return target

    @contextmanager
    def as_directory(self) -> Iterator[str]:
        """Context with the directory itself; do not write into it."""
        yield self.path

    def to_dict(self, load_user_code: bool = False) -> dict[str, Any]:
        """The dict of `from_dict` or of a class Trainable.

        Args:
            load_user_code: unpickle it even if another run has written it. That runs code: only for checkpoints whose
                origin you trust.

        Raises:
            ValueError: if it is a pickle of another run.
        """
        return read_dict(self.path, load_user_code or self._load_user_code)

    def get_metadata(self) -> dict[str, Any]:
        """The metadata of `set_metadata`; {} without any.

        Raises:
            DamagedFileError: if its file is damaged.
        """
        try:
            return json_object(read_inside(self.path, _OF_PROGRAM))
        except FileNotFoundError:
            return {}
        except DamagedFileError as error:
            raise DamagedFileError(f"the checkpoint {self.path} is damaged: {_OF_PROGRAM}: {error}") from None

    def set_metadata(self, metadata: Mapping[str, Any]) -> None:
        """Replaces the metadata in the directory. A copy of the checkpoint has them, too.

        Args:
            metadata: what JSON can hold, by text.

        Raises:
            TypeError: if JSON cannot hold it; what was there before stays.
        """
        content = json.dumps(dict(metadata)).encode()
        write_whole(local_path(self.path) / _OF_PROGRAM, content)

    def update_metadata(self, metadata: Mapping[str, Any]) -> None:
        """Adds to the metadata, or replaces some of it; arguments and errors as for `set_metadata`."""
        self.set_metadata({**self.get_metadata(), **metadata})

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
    for leftover in Path(inside).glob(".checkpoint*.tmp-*"):
        shutil.rmtree(leftover, ignore_errors=True)


def put_in_place(temporary: Path, place: Path, metadata: Mapping[str, Any]) -> Path:
    """Renames a directory after it was synchronised to the disk; returns its path.

    If the name exists already, the directory is called NAME_2, NAME_3, ...
    """
    (temporary / METADATA).write_bytes(msgspec.json.encode(metadata))
    target = next(path for path in numbered(place) if not path.exists())
    move_whole(temporary, target)
    return target


def checkpoint_of(path: str | Path) -> Path:
    """The checkpoint directory in which a path lies, such as a file of `save_checkpoint`; else the path itself."""
    path = local_path(path)
    return next((place for place in (path, *path.parents) if (place / METADATA).is_file()), path)


def read_metadata(path: str | Path) -> dict[str, Any]:
    """Content of `.tune.json`; {} without the file."""
    try:
        return msgspec.convert(json_object(read_inside(path, METADATA)), _Metadata)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (DamagedFileError, msgspec.ValidationError) as error:
        raise DamagedFileError(f"the checkpoint {path} is damaged: {METADATA}: {error}") from None


def refuse_foreign_pickle(path: str | Path) -> None:
    """Checks that the dict of a checkpoint can be read without running code of others.

    Raises:
        ValueError: if it is a pickle that this run has not written.
    """
    is_dict = read_metadata(path).get("kind") == "dict" or is_signed(path, _PICKLED)
    if is_dict and not (Path(path) / _DATA).is_file() and is_foreign(path, _PICKLED):
        raise not_loaded(Path(path) / _PICKLED)


def write_dict(directory: Path, data: Mapping[str, Any]) -> None:
    """Writes a trainable's dict to files in the directory."""
    data = dict(data)
    if not _is_data(data):
        write_pickle(directory, _PICKLED, data)
        return
    arrays: dict[str, np.ndarray] = {}
    (directory / _DATA).write_text(json.dumps(encode(data, arrays=arrays)))
    if arrays:
        with open(directory / _ARRAYS, "wb") as file:
            file.writelines(TensorFile(arrays).parts())


def read_dict(directory: str | Path, load_user_code: bool = False) -> dict[str, Any]:
    """Reads the dict that `write_dict` has written.

    Raises:
        ValueError: if it is a pickle of another run, and `load_user_code` is False.
    """
    try:
        data = json_object(read_inside(directory, _DATA))
    except FileNotFoundError:
        return read_pickle(directory, _PICKLED, load_user_code)
    except DamagedFileError as error:
        raise DamagedFileError(f"the checkpoint {directory} is damaged: {_DATA}: {error}") from error
    try:
        arrays = tensors_of(bytearray(read_inside(directory, _ARRAYS)))
    except FileNotFoundError:
        arrays = {}
    except WRONG_FORM as error:
        raise DamagedFileError(f"the checkpoint {directory} is damaged: {_ARRAYS}: {error}") from error
    try:
        return decode(data, arrays=arrays)
    except WRONG_FORM as error:
        raise DamagedFileError(f"the checkpoint {directory} is damaged: {_DATA}: {error!r}") from error


def _is_data(value) -> bool:
    """Whether files of data give the value back exactly, as encoding.py writes it, and soon."""
    try:
        leaves = list(islice(_leaves(value), _MOST_VALUES + 1))
    except RecursionError:
        return False
    return len(leaves) <= _MOST_VALUES and all(map(_is_leaf, leaves))


def _leaves(value) -> Iterator:
    """The value, or the values in a collection."""
    if type(value) is dict or (type(value) is OrderedDict and vars(value).keys() <= {"_metadata"}):
        for key, item in value.items():
            yield from _leaves(key)
            yield from _leaves(item)
        if type(value) is OrderedDict:
            yield from _leaves(vars(value))
    elif type(value) in (list, tuple, set, frozenset):
        for item in value:
            yield from _leaves(item)
    else:
        yield value


def _is_leaf(value) -> bool:
    if isinstance(value, np.ndarray):
        return type(value) is np.ndarray and value.dtype.name in DTYPES
    if isinstance(value, np.generic):
        return value.dtype.name in DTYPES
    return value is None or type(value) in (bool, int, float, str, bytes) or is_tensor(value)
