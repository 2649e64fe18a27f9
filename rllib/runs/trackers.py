"""Runs in experiment trackers, Weights & Biases and MLflow: settings, results, and success or failure."""

import importlib.util
import time
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any

from rllib.runs.entries import finite_numbers, settings_by_path

# Largest numbers of entries in one request to MLflow, and of characters of a setting.
_MOST_METRICS, _MOST_PARAMS, _MOST_CHARACTERS = 1000, 100, 6000


class WandbRun:
    """A run of Weights & Biases. Numbers are drawn by environment steps.

    Args:
        params: the settings.
        name: of the run.
        options: further arguments of wandb.init, such as project, group, mode="offline" and tags.
    """

    def __init__(self, params: Mapping[str, Any], name: str, **options):
        import wandb

        self._run = wandb.init(**{"config": dict(_texts(params)), "name": name, "reinit": "create_new", **options})

    def on_result(self, result: Mapping) -> None:
        """Sends the numbers."""
        self._run.log(finite_numbers(result), step=_step(result))

    def close(self, failed: bool = False) -> None:
        """Ends the run when all is sent, or written if it is offline."""
        self._run.finish(exit_code=int(failed))


class MlflowRun:
    """A run of MLflow. Numbers are drawn by environment steps.

    Args:
        params: the settings.
        name: of the run.
        tracking_uri: of the server, or a file's; None: what MLFLOW_TRACKING_URI says.
        experiment_name: made if there is none.
        tags: of the run.
    """

    def __init__(
        self,
        params: Mapping[str, Any],
        name: str,
        tracking_uri: str | None = None,
        experiment_name: str = "rllib",
        tags: Mapping[str, str] | None = None,
    ):
        from mlflow import MlflowClient
        from mlflow.entities import Metric, Param

        self._client, self._metric = MlflowClient(tracking_uri), Metric
        experiment = self._client.get_experiment_by_name(experiment_name)
        number = experiment.experiment_id if experiment else self._client.create_experiment(experiment_name)
        self._id = self._client.create_run(number, run_name=name, tags=dict(tags or {})).info.run_id
        texts = (Param(key, str(value)[:_MOST_CHARACTERS]) for key, value in _texts(params))
        while some := list(islice(texts, _MOST_PARAMS)):
            self._client.log_batch(self._id, params=some)

    def on_result(self, result: Mapping) -> None:
        """Sends the numbers."""
        now, step = int(1000 * time.time()), _step(result)
        metrics = (self._metric(key, value, now, step) for key, value in finite_numbers(result).items())
        while some := list(islice(metrics, _MOST_METRICS)):
            self._client.log_batch(self._id, metrics=some)

    def close(self, failed: bool = False) -> None:
        """Ends the run."""
        self._client.set_terminated(self._id, "FAILED" if failed else "FINISHED")


TRACKERS: dict[str, Callable[..., WandbRun | MlflowRun]] = {"wandb": WandbRun, "mlflow": MlflowRun}


def check_package(name: str) -> None:
    """Raises an ImportError that says what to install, if the package of this tracker is missing."""
    if importlib.util.find_spec(name) is None:
        raise ImportError(f"logging to {name} needs its package: pip install 'rllib[{name}]'")


def _texts(params: Mapping):
    """Yields settings by "a/b" path: numbers and texts as they are, other values by their repr."""
    for key, value in settings_by_path(params):
        yield key, value if isinstance(value, (bool, int, float, str)) or value is None else repr(value)


def _step(result: Mapping) -> int:
    return int(result.get("timesteps_total") or result.get("training_iteration", 0))
