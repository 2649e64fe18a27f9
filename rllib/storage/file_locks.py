"""Locks between processes, on files and directories, and the names in a directory as the disk has them.

A lock ends with the process that holds it. Windows has none, and opens no directories: runs there have to be kept out
of one another's directories by the user.
"""

import os
from pathlib import Path
from typing import Self

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


def lock(file, shared: bool = False) -> bool:
    """Locks an open file until it is closed, without waiting.

    Args:
        file: a descriptor, or an object that has one.
        shared: whether others may hold a shared lock as well.

    Returns:
        whether it is locked: False where the system, or the file system, has no locks.

    Raises:
        BlockingIOError: if another process holds a lock.
    """
    if fcntl is None:
        return False
    try:
        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:
        return False
    return True


class DirectoryLock:
    """Lock of a directory, until `close` or the end of the process.

    Args:
        path: path of the directory.

    Attributes:
        is_held: False where the system, or the file system, has no locks.

    Raises:
        BlockingIOError: if another process holds it.
        OSError: if the directory cannot be opened.
    """

    def __init__(self, path: Path):
        self._descriptor = _open(path)
        try:
            self.is_held = self._descriptor is not None and lock(self._descriptor)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Unlocks it; a second call does nothing."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception) -> None:
        self.close()


def sync_directory(path: Path) -> None:
    """Waits until the disk has the names in a directory; does nothing where directories cannot be opened."""
    descriptor = _open(path)
    if descriptor is not None:
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _open(directory: Path) -> int | None:
    """Opens a directory; None on Windows."""
    return None if fcntl is None else os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
