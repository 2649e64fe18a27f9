"""One training run from the first iteration to its last file."""

import itertools
import logging
import re
import signal
import traceback
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from rllib.cli.display import LogToDisplay, QuietDisplay
from rllib.cli.failures import Mistake, user_input
from rllib.cli.spec import RunSpec
from rllib.tune.loggers import CsvLogger, JsonLogger, write_params
from rllib.tune.sidecar import SidecarLogger
from rllib.tune.stopping import StopCriterion


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
    """The first SIGINT or SIGTERM asks the run to stop after its iteration; the second stops it at once."""

    def __init__(self, display: QuietDisplay):
        self.signal: int | None = None
        self._display = display

    def __enter__(self):
        self._before = {number: signal.signal(number, self._handle) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *exc_info) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame) -> None:
        if self.signal is not None:
            raise KeyboardInterrupt
        self.signal = number
        self._display.note("Finishing this iteration, then saving a checkpoint. Once more: stop at once, without.")


def train(algorithm, spec: RunSpec, directory: Path, display: QuietDisplay) -> Outcome:
    """Trains until the stop criterion, Ctrl-C or an error; the files are whole in each case.

    Raises:
        Mistake: if the results have no such key as the stop criterion names.
    """
    stop = StopCriterion(spec.stop)
    title = f"{spec.algorithm} on {spec.env}"
    sidecar = SidecarLogger(directory, title)
    loggers = [JsonLogger(directory), CsvLogger(directory), sidecar]
    write_params(directory, algorithm.config.to_dict())
    result, reached, checkpoint = None, None, None
    try:
        display.start(title, str(stop), str(directory))
        with Interruption(display) as interruption:
            while reached is None and interruption.signal is None:
                result = algorithm.train()
                for logger in loggers:
                    logger.on_result(result)
                display.on_result(result, stop.progress(result))
                if result["training_iteration"] == 1:
                    with user_input():
                        stop.check_keys(result)
                reached = stop.reached(result)
                if spec.checkpoint_freq and result["training_iteration"] % spec.checkpoint_freq == 0:
                    checkpoint = _save(algorithm, directory, result)
            sidecar.finish()
            if checkpoint is None or checkpoint != _checkpoint_path(directory, result):
                checkpoint = _save(algorithm, directory, result)
    except Exception:
        (directory / "error.txt").write_text(traceback.format_exc())
        raise
    finally:
        display.close()
        algorithm.stop()
        for logger in loggers:
            logger.close()
    return Outcome(directory, checkpoint, result, reached, interruption.signal, sidecar.notices)


def _checkpoint_path(directory: Path, result: dict | None) -> Path:
    return directory / f"checkpoint_{result['training_iteration'] if result else 0:06}"


def _save(algorithm, directory: Path, result: dict | None) -> Path:
    return Path(algorithm.save(_checkpoint_path(directory, result)))


def make_directory(results: Path, spec: RunSpec) -> Path:
    """A new directory for the run: RESULTS/NAME, or RESULTS/ALGORITHM_ENV_DATE.

    Raises:
        Mistake: if a run of that name has been there before, or it cannot be made.
    """
    name = spec.name or f"{spec.algorithm}_{spec.env}_{datetime.now():%Y-%m-%d_%H-%M-%S}"
    name = re.sub(r"[^\w.+-]+", "_", name)
    for number in itertools.count(1):
        directory = results / (name if number == 1 else f"{name}_{number}")
        try:
            directory.mkdir(parents=True)
            return directory
        except FileExistsError:
            if spec.name:
                raise Mistake(f"{directory} exists already; give this run another --name") from None
        except OSError as error:
            raise Mistake(f"cannot make the directory of the run: {error}") from error


def show_logs(display: QuietDisplay, verbose: bool) -> None:
    """From now on the display shows what the library tells once per run, and with `verbose` everything."""
    for package in ("rllib", "runtime"):
        logger = logging.getLogger(package)
        logger.setLevel(logging.DEBUG if verbose else logging.INFO)
        logger.addHandler(LogToDisplay(display))
        logger.propagate = False
