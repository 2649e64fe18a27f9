"""Replays on a disk: arrays in files without a name, which the kernel removes with the last process that uses them.

Such arrays are used like those in memory. The page cache writes them out and reads them back, so they take memory only
while there is enough of it.
"""

import math
import mmap
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from rllib.config.conflicts import Unfit
from rllib.replay.gpu import GPU
from rllib.storage.local_path import local_path

MEMORY, DISK = "memory", "disk"
# Where DISK looks for a disk, after $TMPDIR.
PLACES = ("/tmp", "/var/tmp")
# Number of bytes written at once where the system reserves none.
_ZEROS = 2**20
_IN_MEMORY = ("tmpfs", "ramfs")


def can_store(storage: str) -> bool:
    """Whether a replay can be stored there: MEMORY, DISK, GPU or a directory that can be written to."""
    return storage in (MEMORY, DISK, GPU) or (os.path.isdir(place := local_path(storage)) and _is_writable(place))


def directory_of(storage: str) -> str | None:
    """The directory of the files; None for MEMORY.

    Raises:
        Unfit: (a ValueError) for DISK, if no temporary directory is on a disk and can be written to.
    """
    if storage != DISK:
        return None if storage == MEMORY else str(local_path(storage))
    places = [place for place in (os.environ.get("TMPDIR"), *PLACES) if place]
    for place in places:
        if os.path.isdir(place) and _is_writable(place) and not _is_in_memory(place):
            return place
    raise Unfit(
        f"replay_buffer_config: storage='disk' needs a temporary directory on a disk, but {', '.join(places)} are in "
        "memory or cannot be written to.",
        "Use .training(replay_buffer_config={'storage': DIRECTORY}).",
        {"replay_buffer_config": {"storage": MEMORY}},
    )


def check_disk(rows: int, size_bytes: int, directory: str, setting_of: Callable[[int], int] = int) -> None:
    """Refuses a replay that the disk has no room for, before anything is written.

    Args:
        rows: number of rows.
        size_bytes: size in bytes of all rows together.
        directory: directory of the files.
        setting_of: as for `check_memory`.

    Raises:
        Unfit: (a ValueError) with the size, and a capacity that fits.
    """
    free = shutil.disk_usage(directory).free
    if size_bytes > free:
        fitting = setting_of(max(rows * free // (2 * size_bytes), 1))
        raise Unfit(
            f"a replay of {rows} rows takes {size_bytes / 2**30:.1f} GiB, but the disk of {directory} has "
            f"{free / 2**30:.1f} GiB free.",
            f"Use .training(replay_buffer_config={{'capacity': {fitting}}}), or a directory on another disk as "
            "'storage'.",
            {"replay_buffer_config": {"capacity": fitting}},
        )


def zeros_in(directory: str | None) -> Callable[..., np.ndarray]:
    """`zeros(shape, dtype)` makes an array in a file of this directory; None: in memory."""

    def zeros(shape: tuple[int, ...], dtype) -> np.ndarray:
        size = math.prod(shape) * np.dtype(dtype).itemsize
        # It has no name, not even for a moment where the file system can do without.
        with tempfile.TemporaryFile(dir=directory, buffering=0) as file:
            # What the disk has reserved can be written to later; a file with holes would end the process then.
            try:
                _reserve(file, max(size, 1))
            except OSError as error:
                message = f"{size / 2**30:.1f} GiB of a replay cannot be reserved on the disk ({error.strerror})"
                raise OSError(error.errno, message, directory) from error
            mapping = mmap.mmap(file.fileno(), max(size, 1))
        # Rows are drawn from all over the file: its neighbours need not be read with each of them.
        if hasattr(mapping, "madvise"):  # not on Windows
            mapping.madvise(mmap.MADV_RANDOM)
        return np.ndarray(shape, dtype, mapping)

    return np.zeros if directory is None else zeros


def _reserve(file, size: int) -> None:
    """Reserves this number of bytes on the disk, for an empty file."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file.fileno(), 0, size)
        return
    for start in range(0, size, _ZEROS):
        file.write(bytes(min(_ZEROS, size - start)))


def _is_writable(directory: str | os.PathLike) -> bool:
    return os.access(directory, os.W_OK | os.X_OK)


def _is_in_memory(directory: str) -> bool:
    """Whether its file system takes memory instead of a disk."""
    import psutil  # here, so that the library's import does without

    kinds = {partition.mountpoint: partition.fstype for partition in psutil.disk_partitions(all=True)}
    path = Path(directory).resolve()
    return next((kinds[str(place)] for place in (path, *path.parents) if str(place) in kinds), "") in _IN_MEMORY
