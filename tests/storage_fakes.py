"""Remote storage in memory that loses connections, and checks after every change that it names nothing it lacks."""

import hashlib
import json
import random

import fsspec
from fsspec.implementations.local import LocalFileSystem
from fsspec.implementations.memory import MemoryFileSystem

from rllib.remote.filesystem import Patience

MARK = "/manifest.json"


class Shaky(MemoryFileSystem):
    """fsspec's file system in memory, at shaky://.

    Attributes:
        loss: share of the requests that fail.
        changes: ("write" or "remove", path) of each change.
        faults: checkpoints that had a manifest, and not what it names, after a change.
        refuses: an error that every request raises; None: none.
    """

    protocol = "shaky"
    store: dict = {}  # noqa: RUF012 (as the base class has it)
    pseudo_dirs = [""]  # noqa: RUF012
    loss, refuses = 0.0, None
    changes: list = []  # noqa: RUF012
    faults: list = []  # noqa: RUF012
    dice = random.Random(0)

    @classmethod
    def _strip_protocol(cls, path):
        return MemoryFileSystem._strip_protocol(str(path).replace("shaky://", "memory://", 1))

    @classmethod
    def begin(cls, loss: float = 0.0) -> None:
        """Empties it."""
        cls.store.clear()
        cls.pseudo_dirs[:] = [""]
        cls.changes.clear()
        cls.faults.clear()
        cls.loss, cls.refuses, cls.dice = loss, None, random.Random(0)

    def _request(self) -> None:
        if self.refuses is not None:
            raise self.refuses
        if self.dice.random() < self.loss:
            raise ConnectionError("the connection is lost")

    def find(self, path, **options):
        self._request()
        return super().find(path, **options)

    def cat_file(self, path, *arguments, **options):
        self._request()
        return super().cat_file(path, *arguments, **options)

    def pipe_file(self, path, value, **options):
        self._request()
        super().pipe_file(path, value, **options)
        self.changes.append(("write", self._strip_protocol(path)))
        self._check()
        self._request()  # the answer is lost

    def rm_file(self, path):
        self._request()
        super().rm_file(path)
        self.changes.append(("remove", self._strip_protocol(path)))
        self._check()

    def mv(self, path1, path2, **options):
        content = super().cat_file(path1)
        self.pipe_file(path2, content)
        super().rm_file(path1)

    def _check(self) -> None:
        """A checkpoint with a manifest is whole."""
        for path in [path for path in self.store if path.endswith(MARK)]:
            folder = path.removesuffix(MARK)
            for name, entry in json.loads(self.store[path].getvalue())["files"].items():
                file = self.store.get(f"{folder}/{name}")
                if file is None or hashlib.sha256(file.getvalue()).hexdigest() != entry["sha256"]:
                    self.faults.append((path, name))


class Disk(LocalFileSystem):
    """Files of this machine at disk:///PATH, as if they were remote."""

    protocol = "disk"

    @classmethod
    def _strip_protocol(cls, path):
        return LocalFileSystem._strip_protocol(str(path).removeprefix("disk://"))


fsspec.register_implementation("shaky", Shaky, clobber=True)
fsspec.register_implementation("disk", Disk, clobber=True)


def content_of(url: str) -> dict[str, bytes]:
    """Name -> content of every file in a folder of shaky:// or memory://."""
    files, root = fsspec.url_to_fs(url)
    found = {path: file.getvalue() for path, file in list(files.store.items()) if path.startswith(f"{root}/")}
    return {path.removeprefix(f"{root}/"): content for path, content in found.items()}


def at_once(monkeypatch) -> None:
    """Takes the pauses out of uploads and downloads."""
    monkeypatch.setattr("rllib.remote.filesystem.PATIENT", Patience(attempts=20, first_pause_s=0.0))
    monkeypatch.setattr("rllib.remote.mirror._REQUESTS", Patience(attempts=2, first_pause_s=0.0))
    monkeypatch.setattr("rllib.remote.mirror._BETWEEN", Patience(first_pause_s=0.01, longest_pause_s=0.01))
    monkeypatch.setattr("rllib.remote.mirror._INTERVAL_S", 0.02)
