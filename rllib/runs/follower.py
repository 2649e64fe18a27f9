"""The process next to a run (sidecar.py): reads results as they are written, and writes events and curve.

It ends when its standard input does, which the run closes or which ends with the run. Notices go to standard output.
"""

import contextlib
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NoReturn

from rllib.extras import install_hint
from rllib.runs.drawing import RETURN, CurveLogger
from rllib.runs.events import TensorBoardLogger
from rllib.runs.files import read_goals, read_params, results_in
from rllib.storage.growing_lines import GrowingLines

_POLL_INTERVAL_S = 0.5
_NO_MATPLOTLIB = f"curve.png needs matplotlib: {install_hint('plot')}"
_NO_TENSORBOARD = "TensorBoard events need tensorboardX: pip install tensorboardX"
# Time for the last files when the run has ended; the run itself waits as long (sidecar.py).
LONGEST_END_S = 60.0


class Follower:
    """Passes the results in a directory's result.json on to loggers, which are opened when the file exists.

    If results that were passed on have been removed since, as when a trial returns to a checkpoint, the loggers are
    opened again and get all remaining results. A logger that raises gets no more results; the others do.
    """

    def __init__(self, directory: Path, open_loggers: Callable[[], list]):
        self._lines, self._open_loggers = GrowingLines(directory / "result.json"), open_loggers
        self._loggers: list | None = None
        self._last: dict = {}

    def poll(self) -> None:
        """Passes on the new results."""
        try:
            results = list(results_in(self._lines.read()))
        except FileNotFoundError:
            return
        if self._loggers is None or self._lines.was_replaced:
            self._close_loggers()
            self._loggers, self._last = self._open_loggers(), {}
        for logger in self._loggers:
            self._call(logger, lambda logger: [*map(logger.on_result, thinned(results, logger.points_per_poll))])
        self._last = results[-1] if results else self._last

    def close(self, params: Mapping | None = None) -> None:
        """Passes on the remaining results and closes the loggers.

        Args:
            params: "a/b" path -> chosen value, for TensorBoard's page of hyperparameters.
        """
        self.poll()
        for logger in self._loggers or ():
            if params is not None and hasattr(logger, "add_hparams"):
                self._call(logger, lambda logger: logger.add_hparams(params, self._last))
        self._close_loggers()

    def _close_loggers(self) -> None:
        for logger in self._loggers or ():
            self._call(logger, lambda logger: logger.close())

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
            (lambda: TensorBoardLogger.fresh(directory, wants_groups(directory)), _NO_TENSORBOARD),
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


def wants_groups(directory: Path) -> bool:
    """Whether the settings of a run ask for TensorBoard's curves in groups."""
    return read_params(directory).get("tensorboard_groups") is True


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
