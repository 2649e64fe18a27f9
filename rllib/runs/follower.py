"""The process beside a run (sidecar.py): reads results as they are written, and writes events and curve.

It ends when its standard input does, which the run closes or which ends with the run. Notices go to standard output.
"""

import contextlib
import logging
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NoReturn

import msgspec

from rllib.runs.drawing import RETURN, CurveLogger
from rllib.runs.events import TensorBoardLogger
from rllib.runs.files import UNREADABLE, read_goals, read_params

_POLL_INTERVAL_S = 0.5
_NO_MATPLOTLIB = "curve.png needs matplotlib: pip install 'rllib[plot]'"
_NO_TENSORBOARD = "TensorBoard events need tensorboardX: pip install tensorboardX"
# Time for the last files when the run has ended; the run itself waits as long (sidecar.py).
LONGEST_END_S = 60.0
# Number of bytes before the position that must not have changed.
_FINGERPRINT_BYTES = 4096


class Follower:
    """Passes the results in a directory's result.json on to loggers, which are opened when the file exists.

    If results that were passed on have been removed since, as when a trial returns to a checkpoint, the loggers are
    opened anew and get all remaining results. A logger that raises gets no more results; the others do.
    """

    def __init__(self, directory: Path, open_loggers: Callable[[], list]):
        self._directory, self._open_loggers = directory, open_loggers
        self._file = self._unbuffered = None
        self._loggers: list = []
        self._fingerprint = b""
        self._last: dict = {}

    def poll(self) -> None:
        """Passes on the new results."""
        if self._file is None or self._was_cut():
            self._close_files()
            try:
                self._file = open(self._directory / "result.json", "rb")  # noqa: SIM115 (closed in _close_files)
                self._unbuffered = open(self._file.name, "rb", buffering=0)  # noqa: SIM115 (closed in _close_files)
            except FileNotFoundError:
                return
            self._loggers, self._last = self._open_loggers(), {}
        results = self._new_results()
        for logger in self._loggers:
            self._call(logger, lambda logger: [*map(logger.on_result, thinned(results, logger.points_per_poll))])
        self._last = results[-1] if results else self._last
        self._fingerprint = self._before_position(min(self._file.tell(), _FINGERPRINT_BYTES))

    def close(self, params: Mapping | None = None) -> None:
        """Passes on the remaining results and closes the loggers.

        Args:
            params: "a/b" path -> chosen value, for TensorBoard's page of hyperparameters.
        """
        self.poll()
        for logger in self._loggers:
            if params is not None and hasattr(logger, "add_hparams"):
                self._call(logger, lambda logger: logger.add_hparams(params, self._last))
        self._close_files()

    def _close_files(self) -> None:
        for logger in self._loggers:
            self._call(logger, lambda logger: logger.close())
        for file in (self._file, self._unbuffered):
            if file is not None:
                file.close()

    def _new_results(self) -> list[dict]:
        """Reads the new results. Lines that hold none are skipped here; `read_results` warns of them."""
        results = []
        while True:
            try:
                results.extend(result for result in complete_lines(self._file) if isinstance(result, dict))
                return results
            except UNREADABLE:
                continue

    def _was_cut(self) -> bool:
        return self._before_position(len(self._fingerprint)) != self._fingerprint

    def _before_position(self, length: int) -> bytes:
        """This number of bytes before the position, as they are now: not what was buffered when they were read."""
        self._unbuffered.seek(self._file.tell() - length)
        return self._unbuffered.read(length)

    def _call(self, logger, call: Callable) -> None:
        try:
            call(logger)
        except Exception as error:
            self._loggers = [each for each in self._loggers if each is not logger]
            print(f"{logger.what} incomplete: {type(error).__name__}: {error}", flush=True)


def follow_run(directory: Path, title: str) -> None:
    """Follows a single run until standard input ends."""
    rounds, goals = until_input_ends(), read_goals(directory)

    def loggers() -> list:
        opened = []
        for make, missing in (
            (lambda: TensorBoardLogger.anew(directory), _NO_TENSORBOARD),
            (lambda: CurveLogger(directory, title, goals.get(RETURN)), _NO_MATPLOTLIB),
        ):
            try:
                opened.append(make())
            except ImportError:
                print(missing, flush=True)
        return opened

    follower = Follower(directory, loggers)
    for _ in rounds:
        follower.poll()
    follower.close(read_params(directory))


def until_input_ends() -> Iterator[None]:
    """Yields twice a second, and a last time when standard input has ended.

    A minute after that the process is ended, even if a disk does not answer: it must not outlive its run for ever.
    """
    ended = threading.Event()

    def watch() -> NoReturn:
        sys.stdin.buffer.read()
        ended.set()
        time.sleep(LONGEST_END_S)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
    return _rounds(ended)


def _rounds(ended: threading.Event) -> Iterator[None]:
    is_last = False
    while not is_last:
        is_last = ended.wait(_POLL_INTERVAL_S)
        yield


def thinned(results: list, most: int) -> list:
    """Chooses at most `most` results, evenly spaced, with the last one."""
    step = -(-len(results) // most) or 1
    return results[::-1][::step][::-1]


def complete_lines(file, end: float = math.inf) -> Iterator:
    """Yields the JSON lines written since the last call; an unfinished line waits for its end.

    Args:
        file: open for reading bytes.
        end: position at which to stop.
    """
    while file.tell() < end and (line := file.readline()):
        if not line.endswith(b"\n"):
            file.seek(-len(line), os.SEEK_CUR)
            return
        yield msgspec.json.decode(line)


def run_beside(follow: Callable, *arguments) -> None:
    """Calls follow(*arguments), which returns when standard input ends, prints its exception, and ends the process."""
    if hasattr(os, "nice"):  # not on Windows
        os.nice(10)
    logging.basicConfig(stream=sys.stdout, format="%(message)s")
    try:
        follow(*arguments)
    except ImportError:
        print(_NO_TENSORBOARD)
    except Exception as error:
        print(f"TensorBoard events and curve are incomplete: {type(error).__name__}: {error}")
    finally:  # even if nothing reads standard output any more
        with contextlib.suppress(OSError):
            sys.stdout.flush()
        os._exit(0)  # all files are closed; taking numpy and matplotlib apart would keep the run waiting


if __name__ == "__main__":
    run_beside(follow_run, Path(sys.argv[1]), sys.argv[2])
