"""A process beside the run that writes what needs slow libraries: TensorBoard events and the curve.

It follows result.json, which the run writes anyway, so that the run never waits for it. It ends when its standard input
does: when the run closes it, or has died. What it has to say goes to its standard output.
"""

import math
import os
import select
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec

from rllib.tune.curve import CurveLogger
from rllib.tune.loggers import TensorBoardLogger

_POLL_INTERVAL_S = 0.5


class Sidecar:
    """A python process that runs a module of ours until its standard input ends.

    Args:
        module: its name.
        arguments: of the command line.
        what: it writes, for notices.
        timeout_s: how long `close` waits for the last files.

    Attributes:
        notices: what the process said: what could not be written.
    """

    def __init__(self, module: str, arguments: list[str], what: str, timeout_s: float = 60.0):
        self.notices: list[str] = []
        self._command = [sys.executable, "-m", module, *arguments]
        self._what, self._timeout_s = what, timeout_s
        self._process: subprocess.Popen | None = None

    def start(self, *more: str) -> None:
        """Starts the process, with further arguments, if it has not been started."""
        if self._process is None:
            self._process = subprocess.Popen(
                [*self._command, *more],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                process_group=0,  # Ctrl-C is the run's to answer
            )

    @property
    def pid(self) -> int | None:
        """Of the process; None before the start."""
        return self._process.pid if self._process else None

    def finish(self) -> None:
        """Tells the process that there are no more results, without waiting."""
        if self._process and self._process.stdin:
            self._process.stdin.close()
            self._process.stdin = None  # communicate() would use it again

    def close(self) -> None:
        """Waits until all is written; `notices` says what could not be."""
        if self._process is None:
            return
        self.finish()
        try:
            said, _ = self._process.communicate(timeout=self._timeout_s)
            self.notices += said.decode(errors="replace").splitlines()
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()
            self.notices.append(f"{self._what} were not finished after {self._timeout_s:g} s")
        self._process = None


class SidecarLogger(Sidecar):
    """Starts the process with the first result and ends it with the run.

    Args:
        directory: the run's directory, in which JsonLogger writes result.json.
        title: of the curve.
        timeout_s: how long `close` waits for the last files.
    """

    def __init__(self, directory: Path, title: str = "", timeout_s: float = 60.0):
        super().__init__("rllib.tune.sidecar", [str(directory), title], "TensorBoard events and curve", timeout_s)

    def on_result(self, result: Mapping) -> None:
        """Starts the process if it does not run yet."""
        self.start()


def main(directory: Path, title: str) -> None:
    """Follows result.json until standard input ends."""
    os.nice(10)
    loggers = _loggers(directory, title)
    with open(directory / "result.json", "rb") as file:
        ended = False
        while not ended:
            ended = bool(select.select([sys.stdin], [], [], _POLL_INTERVAL_S)[0])
            results = list(complete_lines(file))
            for logger in loggers:
                for result in thinned(results, logger.points_per_poll):
                    logger.on_result(result)
    for logger in loggers:
        logger.close()


def thinned(results: list, most: int) -> list:
    """At most so many of them, evenly chosen, the last one included."""
    step = -(-len(results) // most) or 1
    return results[::-1][::step][::-1]


def _loggers(directory: Path, title: str) -> list:
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


def complete_lines(file, end: float = math.inf):
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


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]), sys.argv[2])
    except Exception as error:
        print(f"TensorBoard events and curve are incomplete: {type(error).__name__}: {error}")
    sys.stdout.flush()
    os._exit(0)  # all files are closed; taking numpy and matplotlib apart would keep the run waiting
