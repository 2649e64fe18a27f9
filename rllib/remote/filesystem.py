"""Folders in the file systems of fsspec (https://filesystem-spec.readthedocs.io), with requests that are repeated."""

import importlib
import importlib.util
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from rllib.did_you_mean import did_you_mean
from rllib.errors import StorageError
from rllib.extras import install_hint
from rllib.notices import shown
from rllib.remote.order import is_passing
from rllib.remote.url import protocol_of
from rllib.storage.foreign_files import open_inside

T = TypeVar("T")

# Package that a protocol needs in addition to fsspec.
_PACKAGES = {
    **dict.fromkeys(("s3", "s3a"), "s3fs"),
    **dict.fromkeys(("gs", "gcs"), "gcsfs"),
    **dict.fromkeys(("abfs", "abfss", "adl", "az"), "adlfs"),
    **dict.fromkeys(("sftp", "ssh"), "paramiko"),
    "oci": "ocifs",
    "oss": "ossfs",
}
# An object appears when all of it has arrived, and has no folder that would have to be made. Elsewhere a file is
# written under another name first.
_OBJECT_STORES = ("memory", "s3", "s3a", "gs", "gcs", "abfs", "abfss", "adl", "az", "oci", "oss")
# Errors that another attempt does not mend.
_LASTING = (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError, NotImplementedError, TypeError)
# Smaller files are sent as they were at one moment, though they grow meanwhile.
_READ_AT_ONCE_BYTES = 2**26


@dataclass(frozen=True)
class Patience:
    """Number of attempts at a request, and the pauses between, each twice as long as the one before.

    Attributes:
        attempts: number of attempts.
        first_pause_s, longest_pause_s: bounds of the pauses, in seconds.
    """

    attempts: int = 5
    first_pause_s: float = 0.5
    longest_pause_s: float = 15.0

    def pause_s(self, failures: int) -> float:
        """Pause after this number of failures in a row, from 1 on."""
        return min(self.longest_pause_s, self.first_pause_s * 2 ** min(failures - 1, 30))


# For requests that a caller waits for.
PATIENT = Patience()


class RemoteFolder:
    """A folder of remote storage. Its files are named by their paths below it, such as "checkpoint_000010/rng.json".

    Every request is repeated as `patience` says; then it raises a StorageError. Calls from several threads must not
    overlap.

    Args:
        url: URL of the folder, which need not exist.
        patience: with failing requests; PATIENT by default.

    Attributes:
        url: the same, without a password.
        moved_at: time.monotonic() at which the last file, or the last part of a large one, had been written.

    Raises:
        ImportError: if fsspec, or the package of the protocol, is not installed.
        ValueError: if there is no such protocol.
    """

    def __init__(self, url: str, patience: Patience | None = None):
        self.url, self._patience = shown(url), patience or PATIENT
        self._files, self._root = _opened(url)
        self._callback = importlib.import_module("fsspec.callbacks").Callback
        self._moved()
        self._is_object_store = protocol_of(url) in _OBJECT_STORES
        self._made: set[str] = set()
        # Paths of files that were not written to their end, of earlier programs, too.
        self._drafts: set[str] = set()

    def names(self) -> list[str]:
        """Names of all files; [] for a folder that does not exist."""

        def found() -> list[str]:
            self._files.invalidate_cache()
            try:
                return list(self._files.find(self._root))
            except FileNotFoundError:
                return []

        prefix, names = f"{self._root}/", []
        for path in self._repeated("listed", found):
            if path == self._root:
                raise StorageError(f"{self.url} is a file; give the folder in which it lies")
            if not path.startswith(prefix):
                raise StorageError(f"{self.url} lists {path!r:.200}, which is not in it; nothing of it is read")
            if is_passing(path.rpartition("/")[2]):
                self._drafts.add(path)
            else:
                names.append(path.removeprefix(prefix))
        return names

    def read(self, name: str) -> bytes:
        """The content of a file; raises a FileNotFoundError if there is none."""
        return self._repeated(f"read ({name})", lambda: self._files.cat_file(self._path(name)))

    def copy_to(self, name: str, file: BinaryIO) -> None:
        """Copies the content of a file into an open one; raises a FileNotFoundError if there is none."""

        def copied() -> None:
            file.seek(0)
            file.truncate()
            with self._files.open(self._path(name), "rb") as source:
                shutil.copyfileobj(source, file)

        self._repeated(f"read ({name})", copied)

    def write(self, name: str, content: bytes) -> None:
        """Replaces a file: a reader gets the old one or the new one."""
        self._placed(name, lambda path: self._files.pipe_file(path, content))

    def upload(self, directory: Path, name: str) -> None:
        """Copies DIRECTORY/NAME to the file NAME here.

        Raises:
            FileNotFoundError: if there is none any more.
            DamagedFileError: if it is a link or no regular file.
        """
        with open_inside(directory, name) as file:
            content = file.read(_READ_AT_ONCE_BYTES)
            is_whole = not file.read(1)
        if is_whole:
            self.write(name, content)
        else:
            source = str(directory / name)
            progress = self._callback(hooks={"moved": self._moved})
            self._placed(name, lambda path: self._files.put_file(source, path, callback=progress))

    def remove(self, name: str) -> None:
        """Removes a file, if it exists."""
        self._removed(self._path(name))

    def remove_drafts(self) -> None:
        """Removes what writes that broke off have left."""
        while self._drafts:
            self._removed(min(self._drafts))
            self._drafts.remove(min(self._drafts))

    def _removed(self, path: str) -> None:
        def removed() -> None:
            try:
                self._files.rm_file(path)
            except FileNotFoundError:
                return

        self._repeated(f"removed ({path})", removed)

    def _moved(self, *_, **__) -> None:
        self.moved_at = time.monotonic()

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    def _placed(self, name: str, write: Callable[[str], Any]) -> None:
        path = self._path(name)
        folder, _, last = path.rpartition("/")

        def placed() -> None:
            if self._is_object_store:
                write(path)
                return
            if folder not in self._made:
                self._files.makedirs(folder, exist_ok=True)
                self._made.add(folder)
            draft = f"{folder}/.{last}.tmp"
            self._drafts.add(draft)
            write(draft)
            self._files.mv(draft, path)
            self._drafts.discard(draft)

        try:
            self._repeated(f"written ({name})", placed)
        except FileNotFoundError as error:  # of the bucket
            raise StorageError(f"{self.url} cannot be written ({name}): {_described(error)}") from error
        self._moved()

    def _repeated(self, what: str, request: Callable[[], T]) -> T:
        """Makes a request until it succeeds; FileNotFoundError is for the caller."""
        for failures in range(1, self._patience.attempts + 1):
            try:
                return request()
            except FileNotFoundError:
                raise
            except Exception as error:  # network libraries have trees of errors of their own
                if isinstance(error, _LASTING) or failures == self._patience.attempts:
                    raise StorageError(f"{self.url} cannot be {what}: {_described(error)}") from error
            time.sleep(self._patience.pause_s(failures))
        raise AssertionError("there is an attempt")


def _opened(url: str) -> tuple[Any, str]:
    """The file system of a URL, and the folder's path in it."""
    if importlib.util.find_spec("fsspec") is None:
        raise ImportError(f"{shown(url)} needs fsspec: {install_hint('storage')}")
    import fsspec

    protocol = protocol_of(url)
    try:
        fsspec.get_filesystem_class(protocol)
    except ValueError:
        some = "s3://, gs:// and az:// are some of them."
        hint = did_you_mean(protocol, fsspec.available_protocols(), "{}://".format, otherwise=some)
        raise ValueError(f"{shown(url)}: fsspec knows no protocol {protocol!r}.{hint}") from None
    except ImportError as error:
        package = _PACKAGES.get(protocol)
        todo = f"pip install {package}" if package else str(error)
        raise ImportError(f"{shown(url)} needs a package in addition to fsspec: {todo}") from None
    files, root = fsspec.url_to_fs(url)
    return files, root.rstrip("/")


def _described(error: Exception) -> str:
    return f"{type(error).__name__}: {shown(str(error))}" if str(error) else type(error).__name__
