"""Files that follow one another while a run continues, by RLlib's names: output-TIME_RUN_worker-W_N.json."""

import functools
import math
import os
import secrets
import signal
import threading
import time
import weakref
from collections.abc import Collection, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from rllib.offline.writing.open_files import StepFile, draft_of
from rllib.offline.writing.open_writers import writers
from rllib.offline.writing.step_formats import JSON, open_steps
from rllib.sample_batch import NEXT_OBS, OBS, MultiAgentBatch, SampleBatch
from rllib.storage.local_path import local_path

MAX_FILE_SIZE = 64 << 20
MAX_FILE_SECONDS = 60.0
PACKED = (OBS, NEXT_OBS)


def new_run_id() -> str:
    """Part of the names of a run's files: the time, and a few random characters."""
    return f"{datetime.now():%Y-%m-%d_%H-%M-%S}_{secrets.token_hex(3)}"


class RollingWriter:
    """Writes batches of steps into files of a directory, each of limited size and age.

    A file is there when it is whole: when the next one begins, when this process reads the directory, or with `close`,
    which the end of the program calls as well, also by SIGTERM, unless the program handles that signal. Files of
    earlier runs stay.

    Args:
        directory: directory of the files; it is made.
        format_: one of FORMATS.
        metadata: facts about the steps.
        worker_index: in the names.
        run_id: in the names; by default a new one.
        max_file_size: bytes after which the next file begins: of the file (JSON), or of its columns in memory.
        max_rows_per_file: steps after which it begins; None: any number.
        max_file_seconds: age of a file with which it begins: a process that is killed loses the open file.
        packed: columns that JSON packs.

    Attributes:
        directory: directory of the files, absolute.

    Raises:
        OSError: if there cannot be such a directory.
    """

    def __init__(
        self,
        directory: str | os.PathLike,
        format_: str,
        metadata: Mapping[str, Any],
        *,
        worker_index: int = 0,
        run_id: str | None = None,
        max_file_size: int = MAX_FILE_SIZE,
        max_rows_per_file: int | None = None,
        max_file_seconds: float = MAX_FILE_SECONDS,
        packed: Collection[str] = PACKED,
    ):
        self.directory = local_path(directory)
        self.directory.mkdir(parents=True, exist_ok=True)
        self._format, self._metadata, self._packed = format_, metadata, packed
        self._max_bytes, self._max_rows, self._max_s = max_file_size, max_rows_per_file, max_file_seconds
        self._began = 0.0  # when the open file began (s)
        self._prefix, self._number = f"output-{run_id or new_run_id()}_worker-{worker_index}", 0
        # The file that is open; it is closed with the program, if it is not closed before.
        self._open: list[StepFile] = []
        weakref.finalize(self, _close_all, self._open)
        _close_when_terminated(self)

    def write(self, batch: SampleBatch | Mapping[str, np.ndarray] | MultiAgentBatch) -> None:
        """Adds steps that followed one another in an environment.

        Raises:
            OSError: if they cannot be written; the message names the file.
            ValueError: for a batch of several policies, and for steps with other columns than those before.
        """
        columns = _of_one_policy(batch)
        if not self._open:
            self._open.append(open_steps(self._next_path(), self._format, self._metadata, self._packed))
            self._began = time.monotonic()
        (file,) = self._open
        file.add(columns)
        is_large = file.size_bytes >= self._max_bytes or file.rows >= (self._max_rows or math.inf)
        if is_large or time.monotonic() - self._began >= self._max_s:
            self._roll()

    def close(self) -> None:
        """Puts the open file in its place."""
        self._roll()

    def _roll(self) -> None:
        if self._open:
            self._open.pop().close()

    def _next_path(self) -> Path:
        """A free name: a worker that was replaced continues behind the files of the one before.

        The lines of a killed worker stay in its draft.
        """
        while True:
            path = self.directory / f"{self._prefix}_{self._number}.{self._format}"
            self._number += 1
            if not (path.exists() or draft_of(path).exists()):
                return path


def _close_when_terminated(writer: RollingWriter) -> None:
    """Lets SIGTERM close the writer's file before it ends the process, where nothing else handles the signal."""
    writers.add(writer)
    is_main = threading.current_thread() is threading.main_thread()
    if is_main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, functools.partial(_close_and_die, os.getpid()))


def _close_and_die(process: int, number: int, frame) -> None:
    signal.signal(number, signal.SIG_DFL)
    try:
        for writer in list(writers) if os.getpid() == process else ():  # a fork has the handler, but not the files
            writer.close()
    finally:
        os.kill(os.getpid(), number)


def _close_all(files: list[StepFile]) -> None:
    while files:
        files.pop().close()


def _of_one_policy(batch) -> Mapping[str, np.ndarray]:
    if not isinstance(batch, MultiAgentBatch):
        return batch
    if len(batch.policy_batches) != 1:
        raise ValueError(
            f"a file holds the steps of one policy, but the batch has {', '.join(map(repr, batch.policy_batches))}. "
            "Write each with its own writer."
        )
    return next(iter(batch.policy_batches.values()))


class JsonWriter(RollingWriter):
    """Writes batches as RLlib's JSON, a line each, by the arguments of RLlib's JsonWriter.

    Args:
        path: directory of the files.
        ioctx: IOContext of the worker that writes; None: there is none.
        max_file_size: bytes after which the next file begins.
        compress_columns: columns that are packed, where lz4 is installed.
    """

    def __init__(
        self,
        path: str | os.PathLike,
        ioctx: Any = None,
        max_file_size: int = MAX_FILE_SIZE,
        compress_columns: Collection[str] = PACKED,
    ):
        worker_index = 0 if ioctx is None else ioctx.worker_index
        super().__init__(
            path, JSON, {}, worker_index=worker_index, max_file_size=max_file_size, packed=compress_columns
        )
