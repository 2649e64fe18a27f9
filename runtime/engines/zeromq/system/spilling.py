"""Files for objects when the shared memory is full: they have no name, which the kernel removes with their last user.

A segment on disk is used like one in memory: it is mapped, and the page cache writes it out and reads it back. So
nothing that exists is moved, and arrays that look at it stay as they are.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import tempfile

PLACES = ("/tmp", "/var/tmp")
IN_MEMORY = (0x01021994, 0x858458F6)  # tmpfs and ramfs, by statfs
KEPT_FREE = 0.05  # of the disk

_libc = ctypes.CDLL(None, use_errno=True)


def is_in_memory(directory: str) -> bool:
    """Whether a directory's file system takes memory instead of a disk."""
    buffer = ctypes.create_string_buffer(256)
    if _libc.statfs(os.fsencode(directory), buffer):
        return False
    return int.from_bytes(buffer[: ctypes.sizeof(ctypes.c_long)], "little") in IN_MEMORY


def default_directory() -> str | None:
    """The first directory for temporary files that is on a disk and can be written to."""
    for place in (os.environ.get("TMPDIR"), *PLACES):
        if place and os.path.isdir(place) and os.access(place, os.W_OK | os.X_OK) and not is_in_memory(place):
            return place
    return None


def unnamed_file(directory: str, size: int) -> int:
    """A descriptor of a new file with `size` bytes that the disk has reserved: writing to it cannot fail later.

    Raises:
        OSError: the disk is full, or would be nearly; the message says so.
    """
    usage = shutil.disk_usage(directory)
    if usage.free - size < KEPT_FREE * usage.total:
        kept = KEPT_FREE * usage.total / 2**20
        raise OSError(f"{directory} has {usage.free / 2**20:.0f} MB free, and {kept:.0f} MB are to stay free")
    file = _open_unnamed(directory)
    try:
        os.posix_fallocate(file, 0, size)
    except OSError as error:
        os.close(file)
        raise OSError(f"{directory}: {error.strerror}") from error
    return file


def _open_unnamed(directory):
    with contextlib.suppress(OSError):  # a file system that has no unnamed files
        return os.open(directory, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
    file, path = tempfile.mkstemp(prefix="rts-", dir=directory)
    os.unlink(path)
    return file
