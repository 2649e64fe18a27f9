"""Files of recorded steps: which there are below a path, and the reader of each format."""

import glob
import gzip
import os
import zipfile
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import BinaryIO

from rllib.did_you_mean import nearest
from rllib.offline.arrays_file import records_of_npz
from rllib.offline.json_lines import records_of_lines
from rllib.offline.options import ReadOptions
from rllib.offline.records import Records, joined


def _json_file(file: BinaryIO, source: str, options: ReadOptions) -> Records:
    return records_of_lines(file, source, options)


# Ending of a name -> reader of such a file: (open binary file, its name, options) -> Records
FORMATS: dict[str, Callable[[BinaryIO, str, ReadOptions], Records]] = {
    ".json": _json_file,
    ".jsonl": _json_file,
    ".npz": records_of_npz,
}
# Endings of packed files: what is in them is read in place, nothing is written beside them.
_PACKED = (".zip", ".gz")


def read_records(paths: str | os.PathLike | Sequence[str | os.PathLike], options: ReadOptions) -> Records:
    """Reads all files of one or several paths.

    Args:
        paths: files, directories, and patterns such as "data/*.json".
        options: of reading; with on_error="skip", files that cannot be read are left out and named.

    Raises:
        FileNotFoundError: if a path matches nothing.
        ValueError: if a file is of no known format, or is damaged.
    """
    given = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    found = [file for path in given for file in files_of(path)]
    everything, skipped = [], []
    for file in found:
        try:
            everything.append(_records_of_file(file, options))
        except (ValueError, OSError) as error:
            if not options.skips_errors:
                raise
            skipped.append(f"{file} was left out: {error}")
    if not everything:
        raise ValueError(f"no file could be read: {'; '.join(skipped)}")
    records = joined(everything, ", ".join(map(str, given)))
    records.notices[:0] = skipped
    return records


def files_of(path: str | os.PathLike) -> list[Path]:
    """The files that a path means: itself, those of a directory and below in the order of their names, or of a pattern.

    Names that begin with "_" or "." are left out of directories.

    Raises:
        FileNotFoundError: if there are none.
    """
    path = os.path.expanduser(os.fspath(path).removeprefix("local://").removeprefix("file://"))
    if "://" in path:
        raise ValueError(f"{path!r} is not on this machine. Download it first, and give the path of the files.")
    if os.path.isdir(path):
        known = sorted(
            each for each in Path(path).rglob("*") if each.is_file() and _is_known(each) and not _is_hidden(each, path)
        )
        if not known:
            has = ", ".join(sorted(os.listdir(path))[:10]) or "nothing"
            raise FileNotFoundError(f"{path} has no data files ({', '.join((*FORMATS, *_PACKED))}); it has: {has}")
        return known
    if os.path.exists(path):
        return [Path(path)]
    if matching := sorted(map(Path, glob.glob(path))):
        return matching
    directory, name = os.path.split(path)
    entries = os.listdir(directory or ".") if os.path.isdir(directory or ".") else []
    near = nearest(name, entries)
    hint = f" Did you mean {os.path.join(directory, near[0])}?" if near else ""
    raise FileNotFoundError(f"there is no {path!r} (in {os.getcwd()}).{hint}")


def _is_known(path: Path) -> bool:
    return path.suffix.lower() in FORMATS or path.suffix.lower() in _PACKED


def _is_hidden(path: Path, below: str) -> bool:
    return any(part.startswith(("_", ".")) for part in path.relative_to(below).parts)


def _records_of_file(path: Path, options: ReadOptions) -> Records:
    suffix = path.suffix.lower()
    try:
        if suffix == ".gz":
            with gzip.open(path) as file:
                return _records_of(file, str(path.with_suffix("")), options)
        if suffix == ".zip":
            with zipfile.ZipFile(path) as archive:
                return _records_of_archive(archive, str(path), options)
    except (zipfile.BadZipFile, gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(f"{path} is no whole archive ({error})") from None
    with open(path, "rb") as file:
        return _records_of(file, str(path), options)


def _records_of(file: BinaryIO, name: str, options: ReadOptions) -> Records:
    reader = FORMATS.get(os.path.splitext(name)[1].lower())
    if reader is None:
        raise ValueError(
            f"{name} is of no known format; files end in {', '.join((*FORMATS, *_PACKED))}. Rename it, or give arrays: "
            "input_={'obs': ..., 'actions': ...}"
        )
    return reader(file, name, options)


def _records_of_archive(archive: zipfile.ZipFile, source: str, options: ReadOptions) -> Records:
    """The records of an archive's members in the order of their names, read in place."""
    members = sorted(name for name in archive.namelist() if not name.endswith("/"))
    members = [name for name in members if not os.path.basename(name).startswith(("_", "."))]
    if not members:
        raise ValueError(f"{source} has no files")
    parts = []
    for name in members:
        with archive.open(name) as file:
            parts.append(_records_of(file, f"{source}/{name}", options))
    return joined(parts, source)
