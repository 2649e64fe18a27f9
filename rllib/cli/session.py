"""One training run from the first iteration to its last file."""

import itertools
import logging
import re
import signal
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from rllib.cli.display import LogToDisplay, QuietDisplay
from rllib.cli.failures import Mistake, user_input
from rllib.cli.spec import RunSpec
from rllib.tune.loggers import CsvLogger, JsonLogger, write_params
from rllib.tune.sidecar import SidecarLogger
from rllib.tune.stoppers import ThresholdStopper


@dataclass
class Outcome:
    """How a run ended.

    Attributes:
        directory: where its files are.
        checkpoint: the last one.
        result: of the last iteration; None if there was none.
        reached: the threshold that ended it, None if something else did.
        signal: that interrupted it, None if none did.
        notices: what could not be written.
    """

    directory: Path
    checkpoint: Path
    result: dict | None
    reached: str | None
    signal: int | None
    notices: list[str]


class Interruption:
    """The first SIGINT or SIGTERM asks the run to stop after its iteration; the second stops it at once.

    One that is ignored (as SIGINT is for background jobs of scripts) stays ignored.
    """

    def __init__(self, display: QuietDisplay):
        self.signal: int | None = None
        self._display = display

    def __enter__(self):
        signals = [number for number in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(number) != signal.SIG_IGN]
        self._before = {number: signal.signal(number, self._handle) for number in signals}
        return self

    def __exit__(self, *exc_info) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame) -> None:
        if self.signal is not None:
            raise KeyboardInterrupt
        self.signal = number
        self._display.note("Finishing this iteration, then saving a checkpoint. Once more: stop at once, without.")


class Session:
    """Trains until the stop criterion, Ctrl-C or an error; the files are whole in each case.

    Args:
        algorithm: built, and stopped in the end.
        spec: what is trained.
        results: the run makes its directory in this one.
        display: shows how it goes.
    """

    def __init__(self, algorithm, spec: RunSpec, results: Path, display: QuietDisplay):
        self._algorithm, self._spec, self._results, self._display = algorithm, spec, results, display
        self._stop = ThresholdStopper(spec.stop)
        self._loggers: list = []
        self._result: dict | None = None
        self._reached: str | None = None
        self._checkpoint: Path | None = None

    def run(self) -> Outcome:
        """Trains.

        Raises:
            Mistake: if the directory cannot be made, or the results have no such key as the stop criterion names.
        """
        try:
            directory = make_directory(self._results, self._spec)
            try:
                return self._train(directory)
            except Exception:
                (directory / "error.txt").write_text(traceback.format_exc())
                raise
        finally:
            self._algorithm.stop()

    def _train(self, directory: Path) -> Outcome:
        title = f"{self._spec.algorithm} on {self._spec.env}"
        write_params(directory, {**self._algorithm.config.to_dict(), "seed": self._algorithm.seed})
        sidecar = SidecarLogger(directory, title)
        self._loggers = [JsonLogger(directory), CsvLogger(directory), sidecar]
        try:
            self._display.start(title, str(self._stop), str(directory))
            with Interruption(self._display) as interruption:
                while self._reached is None and interruption.signal is None:
                    self._iterate(directory)
                sidecar.finish()
                self._save(directory)
                self._algorithm.stop()
        finally:
            self._display.close()
            for logger in self._loggers:
                logger.close()
        return Outcome(directory, self._checkpoint, self._result, self._reached, interruption.signal, sidecar.notices)

    def _iterate(self, directory: Path) -> None:
        result = self._result = self._algorithm.train()
        for logger in self._loggers:
            logger.on_result(result)
        self._display.on_result(result, self._stop.progress(result))
        if result["training_iteration"] == 1:
            with user_input():
                self._stop.check_keys(result)
        self._reached = self._stop.reached("", result)
        frequency = self._spec.checkpoint_freq
        if frequency and result["training_iteration"] % frequency == 0:
            self._save(directory)

    def _save(self, directory: Path) -> None:
        """Writes the checkpoint of this iteration, unless it has been written."""
        path = directory / f"checkpoint_{self._result['training_iteration'] if self._result else 0:06}"
        if path != self._checkpoint:
            self._algorithm.save(path)
            self._checkpoint = path


def refuse_used_name(results: Path, spec: RunSpec) -> None:
    """Raises Mistake if there is a run of that name, before anything is started for the new one."""
    if spec.name and (results / _file_name(spec.name)).exists():
        raise Mistake(f"{results / _file_name(spec.name)} exists already; give this run another --name")


def make_directory(results: Path, spec: RunSpec) -> Path:
    """A new directory for the run: RESULTS/NAME, or RESULTS/ALGORITHM_ENV_DATE.

    Raises:
        Mistake: if a run of that name has been there before, or it cannot be made.
    """
    refuse_used_name(results, spec)
    name = _file_name(spec.name or f"{spec.algorithm}_{spec.env}_{datetime.now():%Y-%m-%d_%H-%M-%S}")
    for number in itertools.count(1):
        directory = results / (name if number == 1 else f"{name}_{number}")
        try:
            directory.mkdir(parents=True)
            return directory
        except FileExistsError:
            continue  # of another run that began in this second
        except OSError as error:
            raise Mistake(f"cannot make the directory of the run: {error}") from error


def _file_name(name: str) -> str:
    return re.sub(r"[^\w.+-]+", "_", name)


@contextmanager
def shown_logs(display: QuietDisplay, verbose: bool) -> Iterator[None]:
    """Meanwhile the display shows what the library tells once per run, and with `verbose` everything."""
    handler = LogToDisplay(display)
    loggers = [logging.getLogger(package) for package in ("rllib", "runtime")]
    for logger in loggers:
        logger.setLevel(logging.DEBUG if verbose else logging.INFO)
        logger.addHandler(handler)
        logger.propagate = False
    try:
        yield
    finally:
        for logger in loggers:
            logger.setLevel(logging.NOTSET)
            logger.removeHandler(handler)
            logger.propagate = True
