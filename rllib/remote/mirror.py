"""A copy in remote storage of a directory that is being written, kept by a thread of the program.

The directory stays the original: the run writes there as without storage, and a connection that is lost costs nothing
but time. `Mirror` looks for changes at intervals, sends whole files in the order of order.py, and removes what was
removed. What could not be sent at the end is named, and `rllib upload` sends it later.

The file storage.json, here and in the copy, says whose copy it is: an id, and a word for each process that has begun to
write it. If the copy has words that are not here, another process has continued the run from the copy.
"""

import logging
import os
import secrets
import threading
import time
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

from rllib.errors import DamagedFileError, StorageError
from rllib.progress import counted
from rllib.remote.filesystem import Patience, RemoteFolder
from rllib.remote.order import by_checkpoint, folder_of, is_passing, mark_rank, record_rank
from rllib.runs.safe_files import write_whole
from rllib.storage.foreign_files import read_inside

logger = logging.getLogger(__name__)

IDENTITY = "storage.json"
# Between two looks, at least; and as a multiple of the time that the last one took.
_INTERVAL_S, _REST = 10.0, 4.0
# Requests of one look; the next look tries again.
_REQUESTS = Patience(attempts=3, first_pause_s=0.5, longest_pause_s=2.0)
# Pauses between looks that have failed.
_BETWEEN = Patience(first_pause_s=2.0, longest_pause_s=60.0)
# Time at the end without a file that has arrived, after which the rest is left.
_LAST_WAIT_S = 180.0

# Size, time of the last change in nanoseconds, and inode of a file: equal for equal contents.
_Version = tuple[int, int, int]


class _Identity(msgspec.Struct):
    """Content of storage.json.

    Attributes:
        id: id of the run or experiment.
        sessions: random words, one for each process that has begun to write the copy.
        url: URL of the copy, for people: nothing is sent there because of it.
    """

    id: str
    sessions: list[str]
    url: str = ""


class Mirror:
    """Keeps a copy of a directory at a URL.

    Args:
        directory: directory of a run or an experiment; nothing but its own files is read.
        url: URL of the copy.

    Raises:
        ImportError, ValueError: as RemoteFolder raises them.
    """

    def __init__(self, directory: Path, url: str):
        self.directory, self.url = directory, url
        self._folder = RemoteFolder(url, _REQUESTS)
        # Name of each file of the copy -> the version here that it has; None: it is not known.
        self._sent: dict[str, _Version | None] = {}
        self._problem: Exception | None = None
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        self._is_left = False  # no caller waits for the thread any more

    def start(self) -> None:
        """Checks that the copy may be written, and starts the thread.

        Raises:
            ValueError: if something else is at the URL, or the copy is newer than the directory.
            StorageError: if the storage does not answer, or cannot be written.
        """
        self._begin()
        self._thread = threading.Thread(target=self._run, name="rllib upload", daemon=True)
        self._thread.start()

    def close(self) -> str | None:
        """Sends what is left, once nothing is written to the directory any more; a second call does nothing.

        Returns:
            None if the copy is whole, else a message that says what it lacks.
        """
        thread, self._thread = self._thread, None
        if thread is None:
            return None
        logger.info("sending what is left to %s; Ctrl-C leaves it", self._folder.url)
        began = time.monotonic()
        self._closing.set()
        try:
            while thread.is_alive() and time.monotonic() - max(began, self._folder.moved_at) < _LAST_WAIT_S:
                thread.join(0.2)
        except KeyboardInterrupt:
            self._is_left = True
            return self._lacking("interrupted")
        if thread.is_alive():
            self._is_left = True
            cause = f", {self._problem}" if self._problem is not None else ""
            return self._lacking(f"nothing has arrived for {_LAST_WAIT_S:g} s{cause}")
        return None

    # ------------------------------------------------------------------ the identity of the copy

    def _begin(self) -> None:
        names, here = self._folder.names(), self._identity_here()
        there = self._identity_there() if IDENTITY in names else None
        if names and (here is None or there is None or here.id != there.id):
            raise ValueError(
                f"{self._folder.url} holds other files than {self.directory}. Choose another name or another storage."
            )
        if here is not None and there is not None and there.sessions != here.sessions[: len(there.sessions)]:
            raise ValueError(
                f"{self._folder.url} is newer than {self.directory}: another process has continued from there. Move "
                f"{self.directory} away and resume {self._folder.url}."
            )
        own = here or _Identity(secrets.token_hex(8), [])
        own = _Identity(own.id, [*own.sessions, secrets.token_hex(4)], self._folder.url)
        content = msgspec.json.encode(own) + b"\n"
        write_whole(self.directory / IDENTITY, content)
        # Without it there is no run: it is given more attempts than what is sent meanwhile.
        RemoteFolder(self.url).write(IDENTITY, content)
        self._sent = dict.fromkeys([*names, IDENTITY])
        self._recognise_checkpoints()

    def _identity_here(self) -> _Identity | None:
        try:
            return msgspec.json.decode(read_inside(self.directory, IDENTITY), type=_Identity)
        except FileNotFoundError:
            return None
        except (DamagedFileError, msgspec.DecodeError) as error:
            raise DamagedFileError(
                f"{self.directory / IDENTITY} is damaged: {error}. Remove it, and choose another storage."
            ) from None

    def _identity_there(self) -> _Identity | None:
        with suppress(FileNotFoundError, msgspec.DecodeError):
            return msgspec.json.decode(self._folder.read(IDENTITY), type=_Identity)
        return None

    def _recognise_checkpoints(self) -> None:
        """Notes which checkpoints of the copy are the same here: those with the same marks, which name the content."""
        here = dict(self._files())
        for folder, names in by_checkpoint(here).items():
            if folder is not None and self._sent.keys() >= set(names) and self._has_equal(filter(mark_rank, names)):
                self._sent |= {name: here[name] for name in names}

    def _has_equal(self, names: Iterable[str]) -> bool:
        """Whether each of these files has the same content here and in the copy."""
        try:
            return all(self._folder.read(name) == read_inside(self.directory, name) for name in names)
        except FileNotFoundError:
            return False

    # ------------------------------------------------------------------ the thread

    def _run(self) -> None:
        pause, failures = 0.0, 0
        while True:
            is_last = self._closing.wait(pause)
            began = time.monotonic()
            try:
                self._look()
            except Exception as error:  # the run continues, and the next look tries again
                failures += 1
                if failures == 1:
                    logger.warning("uploading fails, and is tried again: %s", error)
                self._problem, pause = error, _BETWEEN.pause_s(failures)
                if self._is_left:
                    return
                if is_last:
                    time.sleep(pause)  # until `close` leaves the rest
                continue
            if failures:
                logger.warning("uploading works again: %s", self._folder.url)
            self._problem, failures = None, 0
            if is_last:
                return
            pause = max(_INTERVAL_S, _REST * (time.monotonic() - began))

    def _look(self) -> None:
        """Sends what has changed, then removes what is gone.

        Records are read before the directory is listed: what they name is in the list, or has been dropped since.
        """
        records = self._read_records()
        here = dict(self._files())
        checkpoints = by_checkpoint(here)
        for name in checkpoints.pop(None, ()):
            if record_rank(name) is None:
                self._send(name, here[name])
        for names in checkpoints.values():
            self._send_checkpoint({name: here[name] for name in names})
        for name, version, content in records:
            if self._sent.get(name) != version:
                self._begin_change(name)
                self._folder.write(name, content)
                self._sent[name] = version
        kept = here.keys() | {name for name, _, _ in records} | {IDENTITY}
        self._remove_all(self._sent.keys() - kept)
        self._folder.remove_drafts()

    def _remove_all(self, gone: set[str]) -> None:
        """Removes files of the copy; of a checkpoint that loses some, first the files that make it one."""
        if gone and not (self.directory / IDENTITY).is_file():
            raise StorageError(f"{self.directory} has been removed, so nothing is removed from {self._folder.url}")
        checkpoints = by_checkpoint(self._sent) if gone else {}
        self._remove_marks([folder for folder, names in checkpoints.items() if not gone.isdisjoint(names)])
        for name in gone & self._sent.keys():
            self._remove(name)

    def _read_records(self) -> list[tuple[str, _Version, bytes]]:
        """Name, version and content of the files at the top that name others, in the order of uploads."""
        names = [name for name in os.listdir(self.directory) if record_rank(name) is not None]
        found = []
        for name in sorted(names, key=lambda name: (record_rank(name), name), reverse=True):
            with suppress(FileNotFoundError, DamagedFileError):
                version = _version(self.directory / name)
                found.append((name, version, read_inside(self.directory, name)[: version[0]]))
        return found[::-1]

    def _files(self, folder: str = "") -> Iterator[tuple[str, _Version]]:
        """Yields name and version of each regular file below a folder; links are not followed."""
        with suppress(FileNotFoundError, NotADirectoryError), os.scandir(self.directory / folder) as entries:
            for entry in entries:
                name = f"{folder}/{entry.name}" if folder else entry.name
                if is_passing(entry.name) or name == IDENTITY:
                    continue
                if entry.is_dir(follow_symlinks=False):
                    yield from self._files(name)
                elif entry.is_file(follow_symlinks=False):
                    with suppress(FileNotFoundError):
                        yield name, _version(self.directory / name)

    def _send(self, name: str, version: _Version) -> bool:
        """Sends a file that has changed; False if it has been removed meanwhile."""
        if self._sent.get(name) == version:
            return True
        self._begin_change(name)
        try:
            self._folder.upload(self.directory, name)
        except (FileNotFoundError, NotADirectoryError, DamagedFileError):
            return False
        self._sent[name] = version
        return True

    def _send_checkpoint(self, files: dict[str, _Version]) -> None:
        """Sends the files of a checkpoint, its marks last; while data is replaced, there is no mark."""
        ordered = sorted(files, key=mark_rank)
        if any(self._sent.get(name) != files[name] for name in ordered if not mark_rank(name)):
            self._remove_marks(by_checkpoint(files))
        for name in ordered:
            if not self._send(name, files[name]):
                return

    def _remove_marks(self, folders: Collection[str | None]) -> None:
        """Removes the files that make a checkpoint of each of these folders of the copy, before others change."""
        for name in [name for name in self._sent if mark_rank(name) and folder_of(name) in folders]:
            self._remove(name)

    def _remove(self, name: str) -> None:
        self._begin_change(name)
        self._folder.remove(name)
        del self._sent[name]

    def _begin_change(self, name: str) -> None:
        """Notes that a file of the copy may become another, or none: an answer may be lost."""
        if self._is_left:
            raise StorageError("the rest is left for later")
        self._sent[name] = None

    # ------------------------------------------------------------------ messages

    def _lacking(self, why: str) -> str:
        here = {name: version for name, version in self._files() if self._sent.get(name) != version}
        size = sum(version[0] for version in here.values()) / 2**20
        return (
            f"{counted(len(here), 'file')} ({size:.1f} MiB) of {self.directory} have not arrived at "
            f"{self._folder.url}: {why}. They are whole in {self.directory}; send them with: "
            f"rllib upload {self.directory} {self._folder.url}"
        )


def _version(path: Path) -> _Version:
    status = os.stat(path, follow_symlinks=False)
    return status.st_size, status.st_mtime_ns, status.st_ino


def upload(directory: Path, url: str) -> None:
    """Brings the copy of a directory at a URL up to date, and returns when it is.

    Raises:
        ValueError: if something else is at the URL, or the copy is newer than the directory.
        StorageError: if it cannot be completed; says what is missing.
    """
    mirror = Mirror(directory, url)
    mirror.start()
    if lacking := mirror.close():
        raise StorageError(lacking)


def upload_checkpoint(directory: Path, url: str) -> None:
    """Writes a checkpoint to a URL, its manifest last, and removes files of an earlier one there.

    Raises:
        ValueError: if something else than a checkpoint is at the URL.
        StorageError: if it cannot be written.
    """
    folder = RemoteFolder(url)
    there = folder.names()
    names = [str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file()]
    is_checkpoint = any(mark_rank(name) for name in there if "/" not in name)
    if not is_checkpoint and not set(there) <= set(names):  # which an upload that broke off may have left
        raise ValueError(f"{folder.url} holds other files than a checkpoint. Choose another name.")
    for name in sorted(there, key=mark_rank, reverse=True):
        if mark_rank(name) or name not in names:
            folder.remove(name)
    for name in sorted(names, key=mark_rank):
        folder.upload(directory, name)
    folder.remove_drafts()


def noted_copy(directory: Path) -> str | None:
    """URL of the copy that a directory had, by its storage.json; for messages alone. None without one."""
    with suppress(OSError, DamagedFileError, msgspec.DecodeError):
        return msgspec.json.decode(read_inside(directory, IDENTITY), type=_Identity).url or None
    return None
