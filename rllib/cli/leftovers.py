"""Directories that a command makes before it is known whether it does its work."""

import contextlib
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path


def _is_empty(directory: Path) -> bool:
    return not any(directory.iterdir())


@contextlib.contextmanager
def removed_if_unused(path: Path, is_unused: Callable[[Path], bool] = _is_empty) -> Iterator[None]:
    """Context manager: removes a directory, and those above it, that were made within it for nothing.

    Args:
        path: path of the directory; what was there before stays.
        is_unused: function of the directory: whether nothing in it is worth keeping.
    """
    made = [each for each in (path, *path.parents) if not each.exists()]
    try:
        yield
    finally:
        with contextlib.suppress(OSError):  # another process uses it
            if path in made and path.is_dir() and is_unused(path):
                shutil.rmtree(path)
            if not path.exists():
                for each in made[1:]:
                    each.rmdir()
