"""Files that a run writes while it trains: settings, results and, by a process next to it, events and curve."""

from collections.abc import Mapping
from pathlib import Path
from weakref import WeakValueDictionary

from rllib.progress import counted
from rllib.runs.files import ResultFiles, close_all, drop_results_after, read_results, write_params
from rllib.runs.sidecar import SidecarLogger, wait_for_sidecar
from rllib.starts import note_start
from rllib.storage.file_locks import DirectoryLock

# Directory -> the log of this process that writes there.
_open_logs: "WeakValueDictionary[Path, RunLog]" = WeakValueDictionary()


class RunLog:
    """Writes the files of a run (files.py). Its directory is locked until `close`, or until the process ends.

    Args:
        directory: directory of the run; it must exist.

    Attributes:
        iteration: iteration of the newest result; before there is one, the iteration up to which results were kept.
        is_closed: whether nothing more can be written.
        notices: messages about files that could not be written.

    Raises:
        BlockingIOError: if another run is writing there.
    """

    def __init__(self, directory: Path):
        self.directory, self.iteration, self.is_closed = directory, 0, False
        self.notices: list[str] = []
        self._loggers: list = []
        try:
            self._lock = DirectoryLock(directory)
        except BlockingIOError:
            raise BlockingIOError(f"{directory} is being written by another run; end that one first") from None
        _open_logs[directory.resolve()] = self

    def forget_after(self, iteration: int) -> None:
        """Removes the results of later iterations from result.json and progress.csv; the other files follow from these.

        Raises:
            TimeoutError: if the process next to the earlier run does not end.
        """
        wait_for_sidecar(self.directory)
        drop_results_after(self.directory, iteration)
        self.iteration = iteration

    def start(self, params: Mapping, title: str) -> None:
        """Writes the settings and opens the files.

        Args:
            params: the settings.
            title: title of the curve.
        """
        write_params(self.directory, params)
        note_start(self.directory)
        self._sidecar = SidecarLogger(self.directory, title)
        self._loggers = [ResultFiles(self.directory), self._sidecar]

    def on_result(self, result: Mapping) -> None:
        """Appends a result."""
        self.iteration = result["training_iteration"]
        for logger in self._loggers:
            logger.on_result(result)

    def finish(self) -> None:
        """Tells the process next to the run that there are no more results, without waiting for its end."""
        self._sidecar.finish()

    def close(self) -> None:
        """Waits until all is written, closes the files and unlocks the directory; a second call does nothing."""
        loggers, self._loggers, self.is_closed = self._loggers, [], True
        try:
            close_all(loggers)
        finally:
            if loggers:
                self.notices = self._sidecar.notices
            self._lock.close()


def hand_over(directory: Path, iteration: int) -> bool:
    """Ends the log that this process writes in a directory, so that a run which was loaded from it continues there.

    Args:
        directory: directory of the earlier run.
        iteration: up to which its results are those of the run that continues.

    Returns:
        whether that run can continue there: no result is newer, and no other process writes there.
    """
    results = read_results(directory)
    if results and results[-1]["training_iteration"] > iteration:
        return False
    if (log := _open_logs.get(directory.resolve())) is not None:
        log.close()
    try:
        DirectoryLock(directory).close()
    except OSError:
        return False
    return True


def refuse_earlier_run(directory: Path) -> None:
    """Raises a ValueError if a run has written there: results of two runs must not be mixed."""
    if results := read_results(directory):
        raise ValueError(
            f"log_dir={str(directory)!r} holds a run of {counted(len(results), 'iteration')}. Choose another "
            "directory, remove this one, or continue that run: Algorithm.from_checkpoint with one of its checkpoints."
        )
