"""Runs in experiment trackers: settings, results by environment steps, and success or failure.

| setting | class       | package     | options                                                              |
|---------|-------------|-------------|----------------------------------------------------------------------|
| wandb   | WandbRun    | wandb       | arguments of wandb.init: project, group, mode="offline", tags        |
| mlflow  | MlflowRun   | mlflow      | tracking_uri, experiment_name, tags                                  |
| trackio | TrackioRun  | trackio     | arguments of trackio.init: project, group, space_id                  |
| comet   | CometRun    | comet_ml    | arguments of comet_ml.start: project_name, workspace, online=False   |
| clearml | ClearmlRun  | clearml     | arguments of Task.create: project_name, task_type; tags, offline     |

A further tracker is a subclass of TrackedRun and a row of TRACKERS.
"""

import contextvars
import importlib
import importlib.util
import logging
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Any, ClassVar

from rllib.extras import install_hint
from rllib.runs.entries import finite_numbers, settings_by_path

# Largest numbers of entries in one request to MLflow, and of characters of a setting.
_MOST_METRICS, _MOST_PARAMS, _MOST_CHARACTERS = 1000, 100, 6000
# Characters that MLflow does not accept in a name, and the longest name.
_NOT_IN_NAMES, _LONGEST_NAME = re.compile(r"[^\w.\- :/]"), 250
# Number of results in a row that could not be sent, after which no more are tried: each may wait for a server.
_MOST_FAULTS = 3
# Name of the project, where a tracker needs one and none is given.
_PROJECT = "rllib"
# Without these, ClearML reads the command line, and records what the process prints and which libraries it uses.
_QUIET = {
    "reuse_last_task_id": False,
    "auto_connect_arg_parser": False,
    "auto_connect_frameworks": False,
    "auto_connect_streams": False,
    "auto_resource_monitoring": False,
}


logger = logging.getLogger(__name__)


class TrackedRun(ABC):
    """A run in a tracker. A subclass sends to it; numbers are drawn by environment steps.

    The tracker's faults are warnings, so that no training ends by them, but for those of the beginning.

    Args:
        params: the settings.
        name: name of the run.
        options: options of the tracker.

    Attributes:
        package: that is imported.
        login: how the tracker gets the user's login, for messages.
    """

    package: ClassVar[str]
    login: ClassVar[str]

    def __init__(self, params: Mapping[str, Any], name: str, /, **options):
        self._name, self._faults = name, 0
        self._begin(importlib.import_module(self.package), dict(_texts(params)), name, **options)

    def on_result(self, result: Mapping) -> None:
        """Sends the numbers."""
        if self._faults < _MOST_FAULTS:
            self._tried("a result could not be sent", self._send, finite_numbers(result), _step(result))

    def close(self, failed: bool = False) -> None:
        """Ends the run when all is sent, or written if it is offline."""
        self._tried("the run could not be closed", self._end, failed)

    def _tried(self, problem: str, call: Callable[..., None], *arguments) -> None:
        try:
            call(*arguments)
        except Exception as error:  # any error of the tracker's library
            self._faults += 1
            last = "; no further results are sent to it" if self._faults == _MOST_FAULTS else ""
            logger.warning("%s, %s: %s%s: %s: %s", self.package, self._name, problem, last, type(error).__name__, error)
        else:
            self._faults = 0

    @abstractmethod
    def _begin(self, library, settings: dict[str, Any], name: str, /, **options) -> None:
        """Opens the run. All but the options are given by position, so that an option may have any name.

        Args:
            library: the package.
            settings: "a/b" path -> number, text, bool or None.
            name: name of the run.
            options: options of the tracker.
        """

    @abstractmethod
    def _send(self, numbers: dict[str, float], step: int) -> None:
        """Sends the numbers of a result, by "a/b" path."""

    @abstractmethod
    def _end(self, failed: bool) -> None:
        """Closes the run."""


class WandbRun(TrackedRun):
    """A run of Weights & Biases."""

    package, login = "wandb", "wandb login, or WANDB_API_KEY in the environment"

    def _begin(self, library, settings: dict[str, Any], name: str, /, **options) -> None:
        self._run = library.init(**{"config": settings, "name": name, "reinit": "create_new", **options})

    def _send(self, numbers: dict[str, float], step: int) -> None:
        self._run.log(numbers, step=step)

    def _end(self, failed: bool) -> None:
        self._run.finish(exit_code=int(failed))


class MlflowRun(TrackedRun):
    """A run of MLflow. The server is what MLFLOW_TRACKING_URI says, if `tracking_uri` is None."""

    package, login = "mlflow", "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD in the environment"

    def _begin(
        self,
        library,
        settings: dict[str, Any],
        name: str,
        /,
        tracking_uri: str | None = None,
        experiment_name: str = _PROJECT,
        tags: Mapping[str, str] | None = None,
    ) -> None:
        entities = importlib.import_module("mlflow.entities")
        self._client, self._metric = library.MlflowClient(tracking_uri), entities.Metric
        experiment = self._client.get_experiment_by_name(experiment_name)
        number = experiment.experiment_id if experiment else self._client.create_experiment(experiment_name)
        self._id = self._client.create_run(number, run_name=name, tags=dict(tags or {})).info.run_id
        texts = (entities.Param(_mlflow_name(key), str(value)[:_MOST_CHARACTERS]) for key, value in settings.items())
        while some := list(islice(texts, _MOST_PARAMS)):
            self._client.log_batch(self._id, params=some)

    def _send(self, numbers: dict[str, float], step: int) -> None:
        now = int(1000 * time.time())
        metrics = (self._metric(_mlflow_name(key), value, now, step) for key, value in numbers.items())
        while some := list(islice(metrics, _MOST_METRICS)):
            self._client.log_batch(self._id, metrics=some)

    def _end(self, failed: bool) -> None:
        self._client.set_terminated(self._id, "FAILED" if failed else "FINISHED")


def _mlflow_name(key: str) -> str:
    """The key as a name that MLflow takes: "success (%)" is "success ___". It refuses all results with another one."""
    parts = _NOT_IN_NAMES.sub("_", key).split("/")
    return "/".join(part if part.strip(".") else "_" for part in parts)[:_LONGEST_NAME]


class TrackioRun(TrackedRun):
    """A run of Trackio, which keeps it on this machine, or in a Space of the Hugging Face Hub.

    Trackio has no state of failure, so a run that failed gets the number `failed` = 1.
    """

    package, login = "trackio", "hf auth login, or HF_TOKEN in the environment"

    def _begin(self, library, settings: dict[str, Any], name: str, /, **options) -> None:
        given = {"project": _PROJECT, "config": settings, "name": name, **options}
        # In the context of this thread, init() would end the run of another trial.
        self._run, self._step = contextvars.Context().run(lambda: library.init(**given)), 0

    def _send(self, numbers: dict[str, float], step: int) -> None:
        self._step = step
        self._run.log(numbers, step=step)

    def _end(self, failed: bool) -> None:
        if failed:
            self._run.log({"failed": 1}, step=self._step)
        self._run.finish()


class CometRun(TrackedRun):
    """An experiment of Comet."""

    package, login = "comet_ml", "comet login, or COMET_API_KEY in the environment"

    def _begin(
        self, library, settings: dict[str, Any], name: str, /, tags: Sequence[str] | None = None, **options
    ) -> None:
        self._experiment = library.start(**{"mode": "create", "project_name": _PROJECT, **options})
        self._experiment.set_name(name)
        self._experiment.add_tags(list(tags or ()))
        self._experiment.log_parameters(settings)

    def _send(self, numbers: dict[str, float], step: int) -> None:
        self._experiment.log_metrics(numbers, step=step)

    def _end(self, failed: bool) -> None:
        self._experiment.log_other("status", "failed" if failed else "finished")
        self._experiment.end()


class ClearmlRun(TrackedRun):
    """A task of ClearML. Several may run in one process, so nothing that the process prints is part of one.

    Offline, ClearML has one task at a time.
    """

    package, login = "clearml", "clearml-init, or CLEARML_API_ACCESS_KEY and CLEARML_API_SECRET_KEY"

    def _begin(
        self,
        library,
        settings: dict[str, Any],
        name: str,
        /,
        offline: bool = False,
        tags: Sequence[str] | None = None,
        **options,
    ) -> None:
        given = {"project_name": _PROJECT, "task_name": name, **options}
        if offline:
            library.Task.set_offline(offline_mode=True)
            # Else it forks while one of its threads starts git, and `close` may wait 300 s for that thread.
            library.Task._report_subprocess_enabled = False
            self._task = library.Task.init(**{**_QUIET, **given})
        else:
            self._task = library.Task.create(**given)
        if tags:
            self._task.add_tags(list(tags))
        self._task.set_parameters(settings)
        self._task.mark_started(force=True)
        self._logger = self._task.get_logger()

    def _send(self, numbers: dict[str, float], step: int) -> None:
        for key, value in numbers.items():
            group, _, series = key.rpartition("/")
            self._logger.report_scalar(group or key, series, value, iteration=step)

    def _end(self, failed: bool) -> None:
        self._task.flush(wait_for_uploads=True)
        if failed:
            self._task.mark_failed(status_reason="the run has failed")
        else:
            self._task.mark_completed()
        self._task.close()  # writes the archive of one that is offline


TRACKERS: dict[str, type[TrackedRun]] = {
    "wandb": WandbRun,
    "mlflow": MlflowRun,
    "trackio": TrackioRun,
    "comet": CometRun,
    "clearml": ClearmlRun,
}


def check_package(name: str) -> None:
    """Raises an ImportError that says what to install, if the package of this tracker is missing."""
    if importlib.util.find_spec(TRACKERS[name].package) is None:
        raise ImportError(f"logging to {name} needs its package: {install_hint(name)}")


def _texts(params: Mapping):
    """Yields settings by "a/b" path: numbers and texts as they are, other values by their repr."""
    for key, value in settings_by_path(params):
        yield key, value if isinstance(value, (bool, int, float, str)) or value is None else repr(value)


def _step(result: Mapping) -> int:
    return int(result.get("timesteps_total") or result.get("training_iteration", 0))
