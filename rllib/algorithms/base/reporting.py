"""Writes an algorithm's results to files in log_dir and to trackers, by the settings of `.reporting()`."""

import re
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from rllib.algorithms.base.wiring import environment_name
from rllib.config.config_object import ConfigObject
from rllib.config.conflicts import Mistake
from rllib.errors import NotFiniteError
from rllib.notices import shown
from rllib.remote.url import is_url, place_of
from rllib.result import Result
from rllib.runs.files import keep_failing_batch
from rllib.runs.run_log import RunLog, refuse_earlier_run
from rllib.runs.trackers import TRACKERS, check_package

# Pattern of options that hold a login, such as api_key.
_SECRET = re.compile(r"api_?key|token|password|secret|credential", re.IGNORECASE)


class Reporting:
    """Writes results to files and trackers; opens them with the first iteration, so that acting alone writes nothing.

    Args:
        algorithm: the Algorithm whose results are written.

    Attributes:
        failed: whether an exception has ended the run.

    Raises:
        ImportError: if a package is missing.
        ValueError: if log_dir is a URL, or the options of a tracker hold a login.
    """

    def __init__(self, algorithm):
        self._algorithm, self.failed = algorithm, False
        config = algorithm.config
        self._options = {name: options for name in TRACKERS if (options := config[name]) is not None}
        self._log: RunLog | None = None
        self._trackers: list = []
        for name, options in self._options.items():
            _refuse_login(config, name, options)
            check_package(name)
        if config.log_dir is not None and is_url(place_of(config.log_dir)):
            raise config.error(
                Mistake(
                    f"log_dir={shown(config.log_dir)!r} must be a directory of this machine.",
                    ("log_dir",),
                    ({"log_dir": None},),
                    advice="rllib train --storage-path and tune.RunConfig(storage_path=...) keep a copy in remote "
                    "storage.",
                )
            )

    def prepare(self) -> None:
        """Before an iteration: opens files and trackers; opens the files again if a restore has set the run back."""
        algorithm = self._algorithm
        if algorithm.config.log_dir is not None:
            iteration = algorithm.metrics.iteration
            place = algorithm.directory
            log = self._log
            if log is None or log.is_closed or log.iteration != iteration or log.directory != place:
                self._open_log(place, iteration)
        if not self._trackers:
            self._trackers = [TRACKERS[name](*self._described(), **each) for name, each in self._options.items()]

    @property
    def is_open(self) -> bool:
        """Whether files of the run are being written."""
        return self._log is not None

    def _open_log(self, directory: Path, iteration: int) -> None:
        if self._log is not None:
            self._log.close()
        elif not iteration:
            refuse_earlier_run(directory)
        directory.mkdir(parents=True, exist_ok=True)
        self._log = RunLog(directory)
        self._log.forget_after(iteration)
        self._log.start(*self._described())

    def _described(self) -> tuple[dict, str]:
        """(all settings with the algorithm's name, title)."""
        algorithm, name = self._algorithm, type(self._algorithm).__name__
        params = {"algorithm": name, **algorithm.config.to_dict(), "seed": algorithm.seed}
        return params, f"{name} on {environment_name(algorithm.config)}"

    def on_result(self, result: Result) -> None:
        """Writes the result of an iteration."""
        for each in filter(None, [self._log, *self._trackers]):
            each.on_result(result)

    def on_not_finite(self, error: NotFiniteError) -> None:
        """Writes the batch of an update that failed next to the results."""
        if self._log is not None:
            keep_failing_batch(self._log.directory, error)

    def stop(self) -> None:
        """Closes files and trackers, after all data was written and sent."""
        trackers, self._trackers = self._trackers, []
        with ExitStack() as closed:  # closes each of them even if another raises
            if self._log is not None:
                closed.callback(self._log.close)
            for tracker in reversed(trackers):
                closed.callback(tracker.close, self.failed)


def _refuse_login(config: ConfigObject, name: str, options: Mapping[str, Any]) -> None:
    """Raises a ValueError if options of this tracker hold a login: settings are written to files and checkpoints."""
    for option, value in options.items():
        if _SECRET.search(option) or (isinstance(value, str) and shown(value) != value):
            raise config.error(
                Mistake(
                    f"{name}: {option} would be written to params.json and into every checkpoint.",
                    (name,),
                    ({name: {other: options[other] for other in options if other != option}},),
                    advice=f"Leave the login out of the settings: {TRACKERS[name].login}.",
                )
            )
