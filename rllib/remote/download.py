"""Copies of remote folders on this machine. Names in a listing lead nowhere but below the copy."""

import atexit
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import BinaryIO, Protocol

from rllib.errors import CheckpointError, DamagedFileError, StorageError
from rllib.notices import shown
from rllib.remote.filesystem import RemoteFolder
from rllib.remote.hub import HubRepository
from rllib.remote.order import in_download_order
from rllib.remote.url import is_url, joined, parent_and_name, place_of, protocol_of
from rllib.storage.checkpoint import MANIFEST, OF_ITERATION
from rllib.storage.foreign_files import inside
from rllib.storage.whole import draft_beside

# A folder that is written to meanwhile may lose files between its listing and their copies.
_LISTINGS = 3
_ENTRIES_SHOWN = 5
# Other files may stand next to them, such as the picture and the video of a model card.
_OF_CHECKPOINTS = (".json", ".safetensors", ".pkl")

_copies: set[Path] = set()


class Folder(Protocol):
    """A remote folder, as RemoteFolder and HubRepository are."""

    url: str

    def names(self) -> list[str]: ...

    def copy_to(self, name: str, file: BinaryIO) -> None: ...


def folder_at(url: str) -> Folder:
    """The remote folder of a URL; raises as RemoteFolder and HubRepository do."""
    return HubRepository(url) if protocol_of(url) == "hf" else RemoteFolder(url)


def download(folder: Folder, target: Path, wanted: Callable[[list[str]], Mapping[str, str]] | None = None) -> None:
    """Copies a remote folder to a new directory, whole or not at all.

    Args:
        folder: is copied.
        target: path of the copy; an empty directory may be there.
        wanted: maps the names of all files to those that are copied, and their names in the copy; None: all, as they
            are called.

    Raises:
        DamagedFileError: if a name would lie outside of the copy, or two files would have one place.
        StorageError: if a file cannot be read.
        OSError: if the copy cannot be written, for instance since `target` is not empty.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    for attempt in range(_LISTINGS):
        try:
            names = folder.names()
            places = {name: name for name in names} if wanted is None else wanted(names)
            with draft_beside(target) as draft:
                _copy(folder, places, draft)
                os.rename(draft, target)
            return
        except FileNotFoundError as error:
            if attempt == _LISTINGS - 1:
                raise StorageError(f"{folder.url} changes while it is read: {error}") from error


def _copy(folder: Folder, places: Mapping[str, str], draft: Path) -> None:
    for name in in_download_order(places):
        path = _place(folder, places[name], draft)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            file = path.open("xb")
        except (FileExistsError, IsADirectoryError, NotADirectoryError):
            raise DamagedFileError(f"{folder.url} lists {name!r:.200}, whose place another of its files has") from None
        with file:
            folder.copy_to(name, file)


def _place(folder: Folder, name: str, draft: Path) -> Path:
    try:
        return inside(draft, name, f"a file of {folder.url}")
    except ValueError:
        raise DamagedFileError(
            f"{folder.url} lists {name!r:.200}, which would lie outside of the folder. Nothing of it is kept."
        ) from None


# ---------------------------------------------------------------------- checkpoints


def local_checkpoint(place: str | os.PathLike) -> Path:
    """The path of a checkpoint, or of a run, on this machine: the one that is given, or a copy of what a URL names.

    Of a run at a URL, the newest checkpoint is copied. Copies are removed when the program ends.

    Args:
        place: a path, or a URL such as s3://BUCKET/RUN or hf://ORG/NAME.

    Raises:
        CheckpointError: if there is no checkpoint at the URL.
        StorageError: if it cannot be read.
        ImportError: if a package is missing that reads it.
    """
    place = place_of(place)
    if not is_url(place):
        return place

    def newest(names: list[str]) -> dict[str, str]:
        prefix = _newest_prefix(names, shown(place))
        own = [name for name in names if name.startswith(prefix) and name.endswith(_OF_CHECKPOINTS)]
        return {name: name.removeprefix(prefix) for name in own}

    directory = Path(tempfile.mkdtemp(prefix="rllib-")).absolute()
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    copy = directory / (place.rpartition("/")[2] or "checkpoint")
    download(folder_at(place), copy, newest)
    _copies.add(copy)
    return copy


def is_copy(path: Path) -> bool:
    """Whether a path is what `local_checkpoint` has copied, which goes when the program ends."""
    return path in _copies


def _newest_prefix(names: Iterable[str], url: str) -> str:
    """Prefix of the files of the checkpoint in a folder: "" if the folder is one, else that of the newest in it."""
    names = list(names)
    if MANIFEST in names:
        return ""
    folders = [name.removesuffix(f"/{MANIFEST}") for name in names if name.endswith(f"/{MANIFEST}")]
    numbered = {int(match[1]): folder for folder in folders if (match := OF_ITERATION.fullmatch(folder))}
    if numbered:
        return f"{numbered[max(numbered)]}/"
    if not names:
        raise CheckpointError(f"there is nothing at {url}")
    if folders:
        some = ", ".join(joined(url, folder) for folder in sorted(folders)[:_ENTRIES_SHOWN])
        raise CheckpointError(f"{url} is neither a checkpoint nor the folder of a run. Checkpoints in it: {some}")
    some = ", ".join(sorted({name.partition("/")[0] for name in names})[:_ENTRIES_SHOWN])
    raise CheckpointError(f"there is no checkpoint at {url}; it holds {some}")


# ---------------------------------------------------------------------- runs and experiments


def refuse_hub(url: str) -> None:
    """Raises a ValueError for a repository of the Hub: runs are mirrored to file systems."""
    if protocol_of(url) == "hf":
        raise ValueError(
            f"{shown(url)} is a repository of the Hugging Face Hub, which holds no runs; rllib push writes there"
        )


def working_copy(url: str, results: Path, record: str) -> Path:
    """The directory RESULTS/NAME in which the run at the URL .../NAME continues; it is copied if it is not there.

    Whether a directory that is there is a copy of that run is checked by Mirror, which continues it.

    Args:
        url: URL of a run or an experiment.
        results: directory of the copies.
        record: pattern of the file at its top by which it is known.

    Raises:
        ValueError: if there is no such run at the URL.
        ImportError, StorageError, DamagedFileError: as `download` raises them.
    """
    refuse_hub(url)
    path = inside(results.absolute(), parent_and_name(url)[1], "the copy of the run")
    if path.is_dir() and any(path.iterdir()):
        return path
    folder = folder_at(url)
    if not holds(folder, record):
        raise ValueError(f"there is no run at {folder.url}: it has no {record}")
    download(folder, path)
    return path


def holds(folder: Folder, record: str) -> bool:
    """Whether a file at the top of a remote folder has a name of this pattern."""
    return any(fnmatchcase(name, record) for name in folder.names() if "/" not in name)
