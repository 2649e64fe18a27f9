"""The writers of recorded steps in this process, whose open files a reader of their directory has to find whole."""

import weakref
from pathlib import Path

# Each has a `directory` and `close`, which puts its open file in its place; SIGTERM closes them as well.
writers: weakref.WeakSet = weakref.WeakSet()


def close_below(directory: Path) -> None:
    """Puts the open files in a directory, or below it, in their places; the writers continue with the next ones."""
    for writer in list(writers):
        if writer.directory.is_relative_to(directory):
            writer.close()
