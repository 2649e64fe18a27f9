"""What a process beside a run does (sidecar.py): it reads results as they are written, and writes what takes longer.

It ends when its standard input does: when the run closes it, or has died. Its notices go to its standard output.
"""

import math
import os
import select
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import msgspec

from rllib.runs.drawing import CurveLogger
from rllib.runs.files import TensorBoardLogger

_POLL_INTERVAL_S = 0.5


class Follower:
    """Passes the results in a directory's result.json on to loggers, which are opened when the file is there."""

    def __init__(self, directory: Path, open_loggers: Callable[[], list]):
        self._directory, self._open_loggers = directory, open_loggers
        self._file = None
        self.loggers: list = []
        self.last: dict = {}

    def poll(self) -> None:
        if self._file is None:
            try:
                self._file = open(self._directory / "result.json", "rb")  # noqa: SIM115 (closed in close())
            except FileNotFoundError:
                return
            self.loggers = self._open_loggers()
        results = list(complete_lines(self._file))
        for logger in self.loggers:
            for result in thinned(results, logger.points_per_poll):
                logger.on_result(result)
        self.last = results[-1] if results else self.last

    def close(self, params: Mapping | None = None) -> None:
        """Passes on the rest and closes the loggers.

        Args:
            params: "a/b" path -> what was chosen for a trial, which TensorBoard shows beside what the trial reached.
        """
        self.poll()
        for logger in self.loggers:
            if params is not None:
                logger.add_hparams(params, self.last)
            logger.close()
        if self._file is not None:
            self._file.close()


def follow_run(directory: Path, title: str) -> None:
    """Follows a single run until standard input ends."""

    def loggers() -> list:
        opened = []
        for make, missing in (
            (lambda: TensorBoardLogger(directory), "TensorBoard events need tensorboardX: pip install tensorboardX"),
            (lambda: CurveLogger(directory, title), "curve.png needs matplotlib: pip install 'rllib[plot]'"),
        ):
            try:
                opened.append(make())
            except ImportError:
                print(missing, flush=True)
        return opened

    follower = Follower(directory, loggers)
    for _ in rounds():
        follower.poll()
    follower.close()


def rounds() -> Iterator[None]:
    """Now and then, and once more when standard input has ended."""
    ended = False
    while not ended:
        ended = bool(select.select([sys.stdin], [], [], _POLL_INTERVAL_S)[0])
        yield


def thinned(results: list, most: int) -> list:
    """At most this number of them, evenly chosen, the last one included."""
    step = -(-len(results) // most) or 1
    return results[::-1][::step][::-1]


def complete_lines(file, end: float = math.inf) -> Iterator:
    """The JSON lines that have been written since the last call; half a line waits for its end.

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
    """Calls follow(*arguments), which returns when standard input ends, and ends this process; says what went wrong."""
    os.nice(10)
    try:
        follow(*arguments)
    except ImportError:
        print("TensorBoard events need tensorboardX: pip install tensorboardX")
    except Exception as error:
        print(f"TensorBoard events and curve are incomplete: {type(error).__name__}: {error}")
    sys.stdout.flush()
    os._exit(0)  # all files are closed; taking numpy and matplotlib apart would keep the run waiting


if __name__ == "__main__":
    run_beside(follow_run, Path(sys.argv[1]), sys.argv[2])
