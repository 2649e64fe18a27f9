"""Files of models: a zip that Stable-Baselines3 reads, with the whole of this library's checkpoint in it.

| entry | content |
|---|---|
| `data`, `policy.pth`, ... | what Stable-Baselines3 writes (compat/files/sb3/written.py), where it has the model |
| `rllib/...` | the checkpoint, from which training continues exactly; Stable-Baselines3 does not look at it |
"""

import os
import shutil
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any

from rllib.compat.files.sb3.written import NotWrittenError, entries_of
from rllib.errors import DamagedFileError
from rllib.notices import log_once
from rllib.storage.checkpoint import write_checkpoint
from rllib.storage.local_path import local_path

_FOLDER = "rllib/"
# Entries of a zip may be larger than the whole by this factor, plus a MiB.
_MOST_TIMES, _MEBIBYTE = 50, 2**20


def write_zip(model: Any, algorithm: str, path: Any, left_out: set[str]) -> Path | None:
    """Writes a model, under the name that Stable-Baselines3 gives it: .zip is added to one without an ending.

    Args:
        model: the algorithm.
        algorithm: Stable-Baselines3's name of it.
        path: where, or an open binary file.
        left_out: names of Stable-Baselines3's attributes that its part of the file does not get.

    Returns:
        the path; None for an open file.
    """
    try:
        entries = entries_of(model, algorithm, left_out)
    except NotWrittenError as error:
        entries = {}
        log_once(f"zip of {algorithm}", f"the file holds this library's checkpoint alone: {error}")
    with tempfile.TemporaryDirectory(prefix="rllib-") as directory:
        checkpoint = write_checkpoint(Path(directory, "checkpoint"), model.get_state())
        if hasattr(path, "write"):
            _write(path, entries, checkpoint)
            return None
        place = local_path(path)
        place = place if place.suffix else place.with_name(f"{place.name}.zip")
        place.parent.mkdir(parents=True, exist_ok=True)
        part = place.with_name(f".{place.name}.part")
        try:
            with part.open("wb") as file:
                _write(file, entries, checkpoint)
            if place.is_dir():  # a checkpoint of an earlier version
                shutil.rmtree(place)
            part.replace(place)
        finally:
            part.unlink(missing_ok=True)
    return place


def _write(file: Any, entries: Mapping[str, bytes], checkpoint: Path) -> None:
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in entries.items():
            archive.writestr(name, content)
        for each in sorted(checkpoint.rglob("*")):
            if each.is_file():
                archive.write(each, _FOLDER + each.relative_to(checkpoint).as_posix())


def file_named(path: Any) -> Path | None:
    """The zip that a program means, with its ending or without; None if there is no such file."""
    given = local_path(path)
    return next((place for place in (given, given.with_name(f"{given.name}.zip")) if place.is_file()), None)


@contextmanager
def checkpoint_in(path: Any) -> Iterator[Path | None]:
    """The checkpoint in a zip, in a directory for the time; None where it has none.

    Args:
        path: path of the zip, or an open binary file.

    Raises:
        DamagedFileError: (a ValueError) if it is no zip, or is damaged.
    """
    with tempfile.TemporaryDirectory(prefix="rllib-") as directory:
        try:
            with zipfile.ZipFile(path) as archive:
                names = [each for each in archive.infolist() if each.filename.startswith(_FOLDER)]
                _extract(archive, names, Path(directory))
        except (zipfile.BadZipFile, NotImplementedError, RuntimeError) as error:
            raise DamagedFileError(f"{path} is no model, or damaged: {error}") from None
        yield Path(directory) if names else None


def _extract(archive: zipfile.ZipFile, entries: list[zipfile.ZipInfo], directory: Path) -> None:
    limit = _MOST_TIMES * archive.fp.seek(0, os.SEEK_END) + _MEBIBYTE
    for entry in entries:
        parts = PurePosixPath(entry.filename.removeprefix(_FOLDER)).parts
        if not parts or any(part in ("..", "/") or "\\" in part for part in parts):
            raise DamagedFileError(f"its entry {entry.filename!r:.80} names no file within")
        place = directory.joinpath(*parts)
        place.parent.mkdir(parents=True, exist_ok=True)
        with archive.open(entry) as source, place.open("wb") as target:
            while block := source.read(_MEBIBYTE):
                limit -= len(block)
                if limit < 0:
                    raise DamagedFileError("its entries grow to far more than the file")
                target.write(block)
