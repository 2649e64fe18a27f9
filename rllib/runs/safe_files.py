"""Files that are whole if the process dies at any time: replaced in one step, or appended to in pieces."""

import errno
import itertools
import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


def numbered(path: Path) -> Iterator[Path]:
    """Yields PATH, PATH_2, PATH_3, ... for the search of a free name."""
    yield path
    yield from (path.with_name(f"{path.name}_{number}") for number in itertools.count(2))


def is_of_full_disk(error: BaseException) -> bool:
    """Whether a file could not be written since the disk, or the user's share of it, is full."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Adds the file's name to an OSError raised inside: a failed write does not name it."""
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error


def write_whole(path: Path, content: bytes, is_synced: bool = True) -> None:
    """Replaces a file in one step.

    Args:
        path: path of the file.
        content: content of the file.
        is_synced: whether to wait until the disk has it: then even a power failure leaves the old or the new file.
    """
    draft = path.with_name(f".{path.name}.tmp")
    try:
        with naming(path), open(draft, "wb") as file:
            file.write(content)
            file.flush()
            if is_synced:
                os.fsync(file.fileno())
        os.replace(draft, path)
    except OSError:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
        raise


def append_text(path: Path, text: str) -> None:
    """Appends to a file; on a full disk the text is written as a whole or not at all."""
    file = AppendedFile(path)
    try:
        file.append(text.encode(errors="replace"))
    finally:
        file.close()


class AppendedFile:
    """A file to which pieces are appended; on a full disk a piece is written as a whole or not at all.

    Args:
        path: path of the file; it is made if there is none.
    """

    def __init__(self, path: Path):
        self.path = path
        self._file = open(path, "ab+", buffering=0)  # noqa: SIM115 (closed in close())

    def fileno(self) -> int:
        return self._file.fileno()

    def cut_half_line(self) -> None:
        """Removes an unfinished line at the end, which a killed writer may have left."""
        size = os.fstat(self.fileno()).st_size
        if size:
            with mmap.mmap(self.fileno(), 0, access=mmap.ACCESS_READ) as content:
                end = content.rfind(b"\n") + 1
            if end < size:
                os.ftruncate(self.fileno(), end)

    def append(self, piece: bytes) -> None:
        """Appends a piece.

        Raises:
            OSError: with the file's name; the file is as before.
        """
        size = os.fstat(self.fileno()).st_size
        try:
            with naming(self.path):
                left = memoryview(piece)
                while left:
                    left = left[self._file.write(left) :]
        except OSError:
            with suppress(OSError):
                os.ftruncate(self.fileno(), size)
            raise

    def close(self) -> None:
        self._file.close()
