"""A process beside the run that writes what needs slow libraries: TensorBoard events and the learning curve.

It follows result.json, which the run writes anyway, so that the run never waits for it (follower.py); an experiment's
(tune/sidecar.py) follows its journal and the files of each trial.
"""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

# How long the run waits for the last files.
_CLOSE_S = 60.0


class Sidecar:
    """The process, which runs until its standard input ends.

    Args:
        module: that it runs, by `run_beside` of follower.py.
        arguments: of its command line.
        what: it writes, for notices.

    Attributes:
        notices: of the process: what could not be written.
    """

    def __init__(self, module: str, arguments: list[str], what: str):
        self.notices: list[str] = []
        self._command = [sys.executable, "-m", module, *arguments]
        self._what = what
        self._process: subprocess.Popen | None = None

    def start(self) -> None:
        """Starts the process, if it has not been started."""
        if self._process is None:
            self._process = subprocess.Popen(
                self._command,
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
        """Says that there are no more results, without waiting."""
        if self._process and self._process.stdin:
            self._process.stdin.close()
            self._process.stdin = None  # communicate() would use it again

    def close(self) -> None:
        """Waits until all is written; `notices` says what could not be."""
        if self._process is None:
            return
        self.finish()
        try:
            said, _ = self._process.communicate(timeout=_CLOSE_S)
            self.notices += said.decode(errors="replace").splitlines()
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()
            self.notices.append(f"{self._what} were not finished after {_CLOSE_S:g} s")
        self._process = None


class SidecarLogger(Sidecar):
    """Starts the process with the first result of a single run.

    Args:
        directory: the run's directory, in which JsonLogger writes result.json.
        title: of the curve.
    """

    def __init__(self, directory: Path, title: str = ""):
        super().__init__("rllib.runs.follower", [str(directory), title], "TensorBoard events and curve")

    def on_result(self, result: Mapping) -> None:
        self.start()
