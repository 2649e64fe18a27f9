"""Safe reading of files from other sources, since runs, checkpoints and experiments are passed on.

A name in data may only lead to a file below its directory, without links on the way. Only regular files are opened, so
that reading neither waits for a writer nor continues without end. Content of a wrong form is one kind of error.
"""

import errno
import json
import os
import shutil
import stat
import sys
from pathlib import Path
from typing import Any, BinaryIO

from rllib.errors import DamagedFileError

__all__ = [
    "WRONG_FORM",
    "copy_inside",
    "inside",
    "json_object",
    "open_inside",
    "printable",
    "read_inside",
    "refuse_links",
]

# Errors of code that reads a value of a wrong form.
WRONG_FORM = (ArithmeticError, AssertionError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
_LONGEST_NAME_BYTES = 255
# As far as the system has them; O_BINARY is of Windows.
_FLAGS = sum(getattr(os, f"O_{name}", 0) for name in ("RDONLY", "CLOEXEC", "NOFOLLOW", "NONBLOCK", "BINARY"))
# Windows opens nothing relative to a directory.
_CAN_DESCEND = os.open in os.supports_dir_fd


def inside(directory: Path, name: str, what: str) -> Path:
    """The path DIRECTORY/NAME. Only the name is checked: the user has chosen the directory, which may have "..".

    Raises:
        ValueError: if it is outside of the directory, since the name is absolute or has "..", if a part of it is too
            long, or if no file can have this name.
    """
    return directory.joinpath(*_parts(directory, name, what))


def _parts(directory: Path, name: str, what: str) -> tuple[str, ...]:
    """The parts of a name below a directory; raises as `inside`."""
    if not isinstance(name, str) or "\0" in name:
        raise ValueError(f"{what} is called {name!r:.60}, which is no file's name")
    within = Path(os.path.normpath(name))
    if within.anchor or not within.parts or within.parts[0] == os.pardir:
        raise ValueError(f"{what} {name!r} would lie outside of {directory}. Use a plain name, without '..'.")
    longest = max(len(os.fsencode(part)) for part in within.parts)
    if longest > _LONGEST_NAME_BYTES:
        raise ValueError(
            f"{what} {name!r:.40} has {longest} bytes, and file systems take {_LONGEST_NAME_BYTES}. Use a shorter name."
        )
    return within.parts


def open_inside(directory: str | os.PathLike, name: str) -> BinaryIO:
    """Opens a file below a directory for reading.

    Raises:
        DamagedFileError: if the name leads elsewhere, such as by a link, or is not of a regular file.
        OSError: if it cannot be opened.
    """
    directory = Path(directory).absolute()
    descriptor = _descend(directory, name)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise DamagedFileError(f"{name!r} in {directory} is no regular file")
    return os.fdopen(descriptor, "rb")


def _descend(directory: Path, name: str) -> int:
    """Opens an entry below a directory, part by part and without following links; raises as `open_inside`."""
    try:
        parts = _parts(directory, name, "a file")
    except ValueError as error:
        raise DamagedFileError(str(error)) from None
    if not _CAN_DESCEND:
        return _open_unlinked(directory, parts)
    descriptor = os.open(directory, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY)
    try:
        for part in parts:
            below = os.open(part, _FLAGS, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = below
        return descriptor
    except OSError as error:
        os.close(descriptor)
        if error.errno == errno.ELOOP:
            raise _link(directory, name) from None
        raise OSError(error.errno, error.strerror, str(directory / name)) from None  # its own names a part of the path
    except BaseException:
        os.close(descriptor)
        raise


def _open_unlinked(directory: Path, parts: tuple[str, ...]) -> int:
    """`_descend` where nothing is opened relative to a directory: a link that is made meanwhile is not noticed."""
    path = directory
    for part in parts:
        path /= part
        if path.is_symlink():
            raise _link(directory, os.path.join(*parts))
    return os.open(path, _FLAGS)


def _link(directory: Path, name: str) -> DamagedFileError:
    return DamagedFileError(
        f"{name!r} in {directory} is a symbolic link, which is not followed. Copy its target: cp -rL"
    )


def read_inside(directory: str | os.PathLike, name: str, most_bytes: int = sys.maxsize) -> bytes:
    """Reads a file below a directory; raises as `open_inside`, and for a file of more than `most_bytes`."""
    with open_inside(directory, name) as file:
        size = os.fstat(file.fileno()).st_size
        if size > most_bytes:
            raise DamagedFileError(f"{name!r} in {directory} has {size} bytes, and {most_bytes} are read at most")
        return file.read(size)


def copy_inside(directory: str | os.PathLike, name: str, target: Path) -> None:
    """Copies a directory below a directory, with the permissions of its files.

    Args:
        directory: the one that was given, which may be a link itself.
        name: name of a directory below it.
        target: the copy; made if necessary. Files that it has are overwritten.

    Raises:
        DamagedFileError: if the name leads elsewhere, or if it or an entry is a link or no regular file.
        OSError: if a file cannot be read or written.
    """
    directory = Path(directory).absolute()
    if not _CAN_DESCEND:
        _copy_unlinked(directory, name, target)
        return
    waiting = [name]
    while waiting:
        entry = waiting.pop()
        descriptor = _descend(directory, entry)
        place, mode = target / os.path.relpath(entry, name), os.fstat(descriptor).st_mode
        if stat.S_ISREG(mode):
            with os.fdopen(descriptor, "rb") as file, open(place, "wb") as copy:
                shutil.copyfileobj(file, copy)
                os.fchmod(copy.fileno(), mode & 0o777)
            continue
        try:
            if not stat.S_ISDIR(mode):
                raise DamagedFileError(f"{entry!r} in {directory} is no regular file")
            place.mkdir(parents=True, exist_ok=True)
            waiting += [os.path.join(entry, below) for below in os.listdir(descriptor)]
        finally:
            os.close(descriptor)


def _copy_unlinked(directory: Path, name: str, target: Path) -> None:
    """`copy_inside` where nothing is opened relative to a directory: a link that is made meanwhile is not noticed."""
    waiting = [name]
    while waiting:
        entry = waiting.pop()
        path, place = inside(directory, entry, "a directory"), target / os.path.relpath(entry, name)
        if path.is_symlink():
            raise _link(directory, entry)
        if path.is_dir():
            place.mkdir(parents=True, exist_ok=True)
            waiting += [os.path.join(entry, below) for below in os.listdir(path)]
            continue
        with open_inside(directory, entry) as file, open(place, "wb") as copy:
            shutil.copyfileobj(file, copy)


def json_object(content: bytes) -> dict[str, Any]:
    """Parses a file that holds a JSON object.

    Raises:
        DamagedFileError: if it holds none, or one that is nested too deeply.
    """
    try:
        value = json.loads(content)
    except RecursionError:
        raise DamagedFileError("its JSON is nested too deeply") from None
    except ValueError as error:
        raise DamagedFileError(f"it is not JSON ({error})") from None
    if not isinstance(value, dict):
        raise DamagedFileError(f"it holds no JSON object, but {value!r:.40}")
    return value


def refuse_links(directory: Path, *further: Path) -> None:
    """Checks that writing to the files of a directory, and below, changes nothing outside of it.

    Links may lead to a place in the directory, also to one that does not exist: trackers and users make such links, as
    to the latest run or the best checkpoint. What they lead to is checked as well.

    Args:
        directory: the directory.
        further: directories below it that are written to, whatever their names are.

    Raises:
        DamagedFileError: if one is a link that leads out of the directory, or neither a file nor a directory.
    """
    root, waiting, seen = os.path.realpath(directory), [str(directory), *map(str, further)], set()
    while waiting:
        path = waiting.pop()
        place = os.path.realpath(path)
        if not Path(place).is_relative_to(root):
            raise DamagedFileError(
                f"{path!r} is a link that leads out of {directory}, and writing to it would change something else. "
                "Remove it, or copy its target: cp -rL"
            )
        if place in seen or not os.path.isdir(place):
            continue
        seen.add(place)
        for entry in os.scandir(place):
            if entry.is_symlink():
                waiting.append(entry.path)
            elif entry.is_dir():
                # Into checkpoints nothing is written, unless by a link, and they are read without following links.
                is_closed = entry.name.startswith("checkpoint_") or _is_log_of_wandb(entry.path)
                waiting += [] if is_closed else [entry.path]
            elif not entry.is_file():
                raise DamagedFileError(
                    f"{entry.path!r} is no regular file, and writing to it would change something else. Remove it."
                )


def _is_log_of_wandb(path: str) -> bool:
    *_, package, run, logs = "", "", *Path(path).parts
    return (package, logs) == ("wandb", "logs") and run.startswith(("run-", "offline-run-"))


def printable(text: str) -> str:
    """The text with control characters escaped, for a terminal; newlines and tabs are kept."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() or char in "\n\t\u200d\xa0" else char.encode("unicode_escape").decode()
        for char in text
    )
