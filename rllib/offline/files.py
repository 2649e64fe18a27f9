"""Files of recorded steps: which there are below a path, and the reader of each format."""

import glob
import gzip
import io
import itertools
import os
import re
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np

from rllib import sample_batch as sb
from rllib.did_you_mean import did_you_mean
from rllib.notices import shown
from rllib.offline.formats import FORMATS, MINARI, SIZES, records_of_minari
from rllib.offline.options import ReadOptions
from rllib.offline.records import AFTER_GAP, Records, joined, renamed
from rllib.offline.repeats import RowsOfFiles, row_digests
from rllib.offline.writing.open_writers import close_below
from rllib.storage.local_path import expanded, local_path, of_script

# Endings of packed files: what is in them is read in place, nothing is written next to them.
_PACKED = (".zip", ".gz")
# What archives that are damaged, encrypted, or packed in a way that is not known raise.
_DAMAGED_ARCHIVE = (zipfile.BadZipFile, gzip.BadGzipFile, EOFError, zlib.error, NotImplementedError, RuntimeError)
# Bytes that are unpacked at once.
_BUFFER = 1 << 20
_D4RL = (
    "d4rl's own datasets are downloaded and run by its package, which is not used. Minari has the same data: "
    "minari download D4RL/..., and input_='minari:D4RL/...'; its .hdf5 files can be read as well"
)


def read_records(paths: str | os.PathLike | Sequence[str | os.PathLike], options: ReadOptions) -> Records:
    """Reads all files of one or several paths; columns have our names.

    Args:
        paths: files, directories, patterns such as "data/*.json", and "minari:ID".
        options: options of reading; with on_error="skip", files that cannot be read are left out and named.

    Raises:
        FileNotFoundError: if a path matches nothing.
        ValueError: if a file is of no known format, or is damaged, or lacks a column that the schema names.
        ImportError: if the package that reads a format is not installed.
    """
    return joined(list(record_pieces(paths, options)), named(paths))


def record_pieces(
    paths: str | os.PathLike | Sequence[str | os.PathLike], options: ReadOptions, piece_bytes: int | None = None
) -> Iterator[Records]:
    """The records of all files, piece after piece; where files are left out, the last piece has their notices.

    Args:
        paths, options: as for `read_records`.
        piece_bytes: of a piece, about; None: a piece is a whole file. Formats that cannot be read in parts give one.

    Raises:
        as `read_records`.
    """
    sources = sources_of(paths)
    notices: list[str] = []
    last: Records | None = None
    begins: set[int] = set()  # digests of the first rows of files
    # Number of rows with which each file repeats earlier ones; None: no two files had the same first row so far.
    repeated: np.ndarray | None = None
    for number, first, piece in _numbered_pieces(sources, options, piece_bytes, notices):
        if repeated is None and not first and len(piece) and sb.EPS_ID in piece.columns:
            (begin,) = row_digests(piece.taking(np.arange(1))).tolist()
            if begin in begins:
                repeated = _repeated(sources, options, piece_bytes)
            begins.add(begin)
        if repeated is not None and first < repeated[number]:
            notices += piece.notices
            piece = piece.taking(np.arange(min(repeated[number] - first, len(piece)), len(piece)))
            piece.notices.clear()
            if not len(piece):
                continue
        if last is not None:
            yield last
        last = piece
    if last is None:
        raise ValueError(f"no file could be read: {'; '.join(notices)}")
    if repeated is not None and repeated.any():
        notices.append(
            f"{repeated.sum():,} rows at the beginnings of {np.count_nonzero(repeated):,} files repeat those of the "
            "files before: each is taken once"
        )
    last.notices[:0] = notices
    yield last


def _numbered_pieces(
    sources: Sequence[Path | str], options: ReadOptions, piece_bytes: int | None, notices: list[str]
) -> Iterator[tuple[int, int, Records]]:
    """(number of the file, number of the first row in it, records) of each piece; adds notices of files left out."""
    is_after_gap = False
    for number, source in enumerate(sources):
        first = 0
        try:
            for piece in _pieces_of_source(source, options, piece_bytes):
                if is_after_gap and len(piece):
                    said = piece.columns.setdefault(AFTER_GAP, np.zeros(len(piece), np.int8))
                    said[0], is_after_gap = 1, False
                yield number, first, renamed(piece, options.schema)
                first += len(piece)
        except (ValueError, OSError) as error:
            if not options.skips_errors:
                raise
            is_after_gap = True
            notices.append(f"{source} was left out, from the first error on: {error}")


def _repeated(sources: Sequence[Path | str], options: ReadOptions, piece_bytes: int | None) -> np.ndarray:
    """Number of rows with which each file repeats the files before, int64 [files]; reads all of them."""
    rows = RowsOfFiles(len(sources))
    for number, _, piece in _numbered_pieces(sources, options, piece_bytes, []):
        rows.add(number, piece)
    return rows.repeated()


def named(paths: str | os.PathLike | Sequence[str | os.PathLike]) -> str:
    """The paths, for messages."""
    return ", ".join(map(str, _listed(paths)))


def size_of_files(paths: str | os.PathLike | Sequence[str | os.PathLike]) -> int:
    """Bytes that the columns of files take in memory, about: what their formats say, or else their sizes.

    Raises:
        FileNotFoundError: if a path matches nothing.
        ImportError: if the package that reads a format is not installed.
    """
    return sum(_size_of(source) for source in sources_of(paths) if isinstance(source, Path))


def _listed(paths: str | os.PathLike | Sequence[str | os.PathLike]) -> list[str | os.PathLike]:
    return [paths] if isinstance(paths, str | os.PathLike) else list(paths)


def sources_of(paths: str | os.PathLike | Sequence[str | os.PathLike]) -> list[Path | str]:
    """The files, and the names of datasets of Minari ("minari:ID").

    Raises:
        FileNotFoundError: if a path matches nothing.
        ValueError: for a path that is not on this machine.
    """
    sources: list[Path | str] = []
    for path in _listed(paths):
        sources += [path] if isinstance(path, str) and path.startswith(MINARI) else files_of(path)
    return sources


def _pieces_of_source(source: Path | str, options: ReadOptions, piece_bytes: int | None) -> Iterator[Records]:
    if isinstance(source, str):
        return records_of_minari(source.removeprefix(MINARI), piece_bytes)
    return _pieces_of_file(source, options, piece_bytes)


def _size_of(path: Path) -> int:
    suffix, size = path.suffix.lower(), path.stat().st_size
    try:
        if suffix in (".zip", ".npz"):
            with zipfile.ZipFile(path) as archive:
                return sum(member.file_size for member in archive.infolist())
        if suffix == ".gz":  # its last bytes are the size of what was packed, without multiples of 4 GiB
            with open(path, "rb") as file:
                file.seek(max(size - 4, 0))
                return max(size, int.from_bytes(file.read(4), "little"))
        if suffix in SIZES:
            with open(path, "rb") as file:
                return SIZES[suffix](file, str(path))
    except (*_DAMAGED_ARCHIVE, ValueError):  # its reader says what is wrong with it
        return size
    return size


def files_of(path: str | os.PathLike) -> list[Path]:
    """The files that a path means, in the order of their names: itself, those of a directory and below, of a pattern.

    Names that begin with "_" or "." are left out of directories.

    Raises:
        FileNotFoundError: if there are none.
    """
    path = of_script(expanded(path))
    if path.startswith("d4rl.") and not os.path.exists(path):
        raise ValueError(f"{path!r} cannot be read: {_D4RL}.")
    if "://" in path:
        raise ValueError(f"{shown(path)!r} is not on this machine. Download it first, and give the path of the files.")
    if os.path.isdir(path):
        close_below(local_path(path))
        known = sorted(
            (
                each
                for each in Path(path).rglob("*")
                if each.is_file() and _is_known(each) and not _is_hidden(each, path)
            ),
            key=_order,
        )
        if not known:
            has = ", ".join(sorted(os.listdir(path))[:10]) or "nothing"
            raise FileNotFoundError(f"{path} has no data files ({', '.join((*FORMATS, *_PACKED))}); it has: {has}")
        return known
    if os.path.exists(path):
        return [Path(path)]
    if matching := sorted(map(Path, glob.glob(path)), key=_order):
        return matching
    directory, name = os.path.split(path)
    entries = os.listdir(directory or ".") if os.path.isdir(directory or ".") else []
    hint = did_you_mean(name, entries, lambda near: os.path.join(directory, near))
    raise FileNotFoundError(f"there is no {path!r} (in {os.getcwd()}).{hint}")


def _order(path: Path | str) -> list:
    """Key of the order of names, with numbers by their size: file_10 comes after file_9."""
    pieces = re.split(r"(\d+)", str(path))
    numbers = [piece.lstrip("0") for piece in pieces[1::2]]
    return [*itertools.chain(*zip(pieces[::2], ((len(number), number) for number in numbers))), pieces[-1], str(path)]


def _is_known(path: Path) -> bool:
    return path.suffix.lower() in FORMATS or path.suffix.lower() in _PACKED


def _is_hidden(path: Path, below: str) -> bool:
    return _has_hidden_part(path.relative_to(below))


def _has_hidden_part(path: Path) -> bool:
    return any(part.startswith(("_", ".")) and part not in (os.curdir, os.pardir) for part in path.parts)


def _pieces_of_file(path: Path, options: ReadOptions, piece_bytes: int | None) -> Iterator[Records]:
    if not path.is_file():  # to open a pipe would wait for a writer
        raise ValueError(f"{path} is no regular file")
    suffix = path.suffix.lower()
    try:
        if suffix == ".gz":
            with gzip.open(path) as file:
                yield from _pieces_of(file, str(path.with_suffix("")), options, piece_bytes)
        elif suffix == ".zip":
            with zipfile.ZipFile(path) as archive:
                yield from _pieces_of_archive(archive, str(path), options, piece_bytes)
        else:
            with open(path, "rb") as file:
                yield from _pieces_of(file, str(path), options, piece_bytes)
    except _DAMAGED_ARCHIVE as error:
        raise ValueError(f"{path} is no whole archive ({error})") from None


def _pieces_of(file: BinaryIO, name: str, options: ReadOptions, piece_bytes: int | None) -> Iterator[Records]:
    reader = FORMATS.get(os.path.splitext(name)[1].lower())
    if reader is None:
        raise ValueError(
            f"{name} is of no known format; files end in {', '.join((*FORMATS, *_PACKED))}. Rename it, or give arrays: "
            "input_={'obs': ..., 'actions': ...}"
        )
    return reader(file, name, options, piece_bytes)


def _pieces_of_archive(
    archive: zipfile.ZipFile, source: str, options: ReadOptions, piece_bytes: int | None
) -> Iterator[Records]:
    """The records of an archive's members in the order of their names, read in place; the same as of a directory."""
    members = sorted((name for name in archive.namelist() if not name.endswith("/")), key=_order)
    members = [name for name in members if _is_known(Path(name)) and not _has_hidden_part(Path(name))]
    if not members:
        raise ValueError(f"{source} has no data files ({', '.join((*FORMATS, *_PACKED))}), as a directory has them")
    for name in members:
        with archive.open(name) as file:
            yield from _pieces_of(io.BufferedReader(file, _BUFFER), f"{source}/{name}", options, piece_bytes)
