"""A process next to the run that writes the files which need slow libraries: TensorBoard events and the learning curve.

It follows result.json (follower.py), so the run never waits for it. The process next to an experiment
(tune/running/trial_events.py) follows its journal and the files of each trial.
"""

import contextlib
import logging
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from rllib.storage.file_locks import lock

logger = logging.getLogger(__name__)

# Time that the run waits for the last files, and after which it says that it waits.
_CLOSE_S = 60.0
_SILENT_S = 4.0
# File that the process of a single run reads, and keeps locked until it ends.
_FOLLOWED = "result.json"


class Sidecar:
    """A process that runs until its standard input ends.

    Args:
        module: module that it runs, by `run_beside` of follower.py.
        arguments: arguments of its command line.
        what: name of its files, for notices.
        locked: a file that the process keeps locked until it ends, even if it outlives this one; or None.
        remedy: end of the notice that they were not finished in time.

    Attributes:
        notices: messages of the process about files that could not be written.
    """

    def __init__(self, module: str, arguments: list[str], what: str, locked: Path | None = None, remedy: str = ""):
        self.notices: list[str] = []
        self._command = [sys.executable, "-P", "-m", module, *arguments]
        self._what, self._locked, self._remedy = what, locked, remedy
        self._process: subprocess.Popen | None = None

    def start(self) -> None:
        """Starts the process, unless it runs."""
        if self._process is not None:
            return
        with contextlib.ExitStack() as until_started:
            inherited = []
            if self._locked is not None:
                file = until_started.enter_context(self._locked.open("rb"))
                with contextlib.suppress(BlockingIOError):  # the lock of another program must not stop the run
                    if lock(file, shared=True):
                        inherited.append(file.fileno())
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                process_group=0,  # Ctrl-C is the run's to answer
                pass_fds=inherited,
            )

    @property
    def pid(self) -> int | None:
        """Id of the process; None before the start."""
        return self._process.pid if self._process else None

    def finish(self) -> None:
        """Tells the process that there are no more results, without waiting for its end."""
        if self._process and self._process.stdin:
            self._process.stdin.close()
            self._process.stdin = None  # communicate() would use it again

    def close(self) -> None:
        """Waits until all is written, and collects `notices`."""
        if self._process is None:
            return
        self.finish()
        try:
            try:
                output, _ = self._process.communicate(timeout=min(_SILENT_S, _CLOSE_S))
            except subprocess.TimeoutExpired:
                logger.warning("waiting up to %g s for %s: the machine is busy", _CLOSE_S, self._what)
                output, _ = self._process.communicate(timeout=_CLOSE_S - _SILENT_S)
            self.notices += output.decode(errors="replace").splitlines()
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()
            self.notices.append(f"{self._what} were not finished after {_CLOSE_S:g} s{self._remedy}")
        self._process = None


class SidecarLogger(Sidecar):
    """Starts the process with the first result of a single run.

    Args:
        directory: the run's directory, in which JsonLogger writes result.json.
        title: title of the curve.
    """

    def __init__(self, directory: Path, title: str = ""):
        arguments, what = [str(directory), title], "TensorBoard events and curve"
        remedy = f": the machine is busy. Draw the curve later: rllib plot {shlex.quote(str(directory))}"
        super().__init__("rllib.runs.follower", arguments, what, directory / _FOLLOWED, remedy)

    def on_result(self, result: Mapping) -> None:
        self.start()


def wait_for_sidecar(directory: Path) -> None:
    """Waits for the end of the process next to an earlier run in this directory, which outlives a run that is killed.

    Raises:
        TimeoutError: if it runs after a minute.
    """
    followed = directory / _FOLLOWED
    if not followed.is_file():  # opening a pipe would wait
        return
    deadline = time.monotonic() + _CLOSE_S
    with followed.open("rb") as file:
        while True:
            try:
                lock(file)
                return
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise TimeoutError(
                        f"the process that writes the TensorBoard events of the earlier run in {directory} was still "
                        f"there after {_CLOSE_S:g} s; `fuser {followed}` says which one it is. End it, then start again"
                    ) from None
            time.sleep(0.02)
