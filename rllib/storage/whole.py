"""Directories that are there as a whole or not at all, whenever the process dies: drafts, renames and removals.

A draft of NAME is called .NAME.tmp-0123abcd and stands next to it. Its writer has it locked.
"""

import contextlib
import ctypes
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

from rllib.storage.file_locks import DirectoryLock, sync_directory

# Names that `_sibling` gives to drafts.
_DRAFT = re.compile(r"\..+\.tmp-[0-9a-f]{8}")


def is_draft(name: str) -> bool:
    """Whether a directory with this name is being written or removed."""
    return _DRAFT.fullmatch(name) is not None


@contextlib.contextmanager
def draft_beside(path: Path) -> Iterator[Path]:
    """A new hidden directory next to the path, removed at the end of the block if it still exists.

    It is locked until then, which tells other processes that it is not abandoned.
    """
    temporary, lock = _locked_draft(path)
    try:
        yield temporary
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        lock.close()


def _locked_draft(path: Path) -> tuple[Path, DirectoryLock]:
    """Makes the temporary directory, and locks it.

    Before it is locked, another process may take it for abandoned and remove it; then another one is made.
    """
    while True:
        temporary = _sibling(path, "tmp")
        temporary.mkdir()
        with contextlib.suppress(FileNotFoundError, BlockingIOError):
            lock = DirectoryLock(temporary)
            if temporary.exists():
                return temporary, lock
            lock.close()


def remove_abandoned(directory: Path) -> None:
    """Removes the temporary directories of killed writers in a directory, which are not locked.

    Where there are no locks, nothing is removed.
    """
    for found in directory.iterdir():
        if not is_draft(found.name) or not found.is_dir() or not _is_ours(found):
            continue
        # It is locked, or another process removes it as well.
        with contextlib.suppress(OSError), DirectoryLock(found) as lock:
            if lock.is_held:
                shutil.rmtree(found)


def _is_ours(directory: Path) -> bool:
    """Whether the directory holds nothing but files of a checkpoint."""
    files = [file for file in directory.rglob("*") if not file.is_dir()]
    return all(file.suffix in (".json", ".safetensors", ".pkl") for file in files)


def _sibling(path: Path, purpose: str) -> Path:
    """A new hidden name next to the path, and so on the same file system."""
    return path.parent / f".{path.name}.{purpose}-{secrets.token_hex(4)}"


def put_in_place(temporary: Path, path: Path) -> None:
    if path.exists() and not any(path.iterdir()):
        path.rmdir()  # a free name is claimed in one step on all systems
    if not path.exists():
        os.rename(temporary, path)
    elif _exchange(temporary, path):
        shutil.rmtree(temporary, ignore_errors=True)
    else:
        # Without an exchange, for a moment the old checkpoint exists only under its other name.
        old = _sibling(path, "old")
        os.rename(path, old)
        os.rename(temporary, path)
        shutil.rmtree(old)


def _exchange(first: Path, second: Path) -> bool:
    """Swaps two directories in one step (renameat2 of Linux); False if the system or file system cannot."""
    at_fdcwd, rename_exchange = -100, 2
    try:
        renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError, TypeError):  # TypeError: Windows has no library without a name
        return False
    return renameat2(at_fdcwd, os.fsencode(first), at_fdcwd, os.fsencode(second), rename_exchange) == 0


def move_whole(draft: Path, path: Path) -> None:
    """Gives a directory its name in one step, once the disk has all of its files.

    Args:
        draft: the directory, on the same file system.
        path: its new name; there is nothing, or an empty directory.
    """
    for root, _, names in os.walk(draft):
        for name in names:
            _sync_file(os.path.join(root, name))
        sync_directory(Path(root))
    os.rename(draft, path)
    sync_directory(path.parent)


def _sync_file(path: str | Path) -> None:
    """Waits until the disk has a file."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove_whole(directory: Path) -> None:
    """Removes a checkpoint: it is not there under its name from one moment on, and no reader sees a part of it.

    If the process is killed, what is left has a name that writers of checkpoints in the same directory clear away.
    """
    hidden = _sibling(directory, "tmp")
    try:
        os.rename(directory, hidden)
    except FileNotFoundError:
        return
    shutil.rmtree(hidden, ignore_errors=True)
