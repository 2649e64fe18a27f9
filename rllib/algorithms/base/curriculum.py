"""Tasks of the training environments, chosen by the setting env_task_fn after every iteration.

`make_curricula` makes all parts that change these environments during a run.
"""

import functools
import logging
import operator
from collections.abc import Callable, Mapping
from typing import Any

from rllib.algorithms.base.config import AlgorithmConfig
from rllib.algorithms.base.randomization import Randomization
from rllib.algorithms.base.sources import Source
from rllib.algorithms.base.space_rules import naming_settings
from rllib.env.disturbances.settings import Disturbances
from rllib.env.factories.settable_tasks import set_next_task, set_saved_task, summary_of, task_of
from rllib.evaluation.settings import RolloutSettings
from rllib.result import DISTURBANCES, ENV_TASK, Result
from rllib.storage.encoding import encode

logger = logging.getLogger(__name__)

_FILE = "env_tasks.json"


class Curriculum:
    """Sets the tasks of all training environments.

    Args:
        config: settings of the run, with env_task_fn.
        workers: the environments' workers.
        settings: settings of the workers, to which the present tasks are written for workers that replace others.

    Raises:
        SettingsError: if environments have no tasks that can be set.
    """

    def __init__(self, config: AlgorithmConfig, workers: Source, settings: RolloutSettings):
        self._config, self._workers, self._settings = config, workers, settings
        with naming_settings(config):
            # Tasks of each worker's environments.
            self._tasks: list[list] = workers.foreach_env(task_of)

    def summary(self) -> Any:
        """The present tasks, for a result."""
        return summary_of(self._tasks)

    def choose_next(self, result: Result) -> None:
        """Calls env_task_fn with the result of an iteration; the tasks that it chooses apply to new episodes."""
        # Without the settings: they are most of a result, and the environments' processes have them.
        known = Result({key: value for key, value in result.items() if key != "config"})
        self._set(functools.partial(set_next_task, self._config.env_task_fn, known))

    def _set(self, choose: Callable) -> None:
        """Sets the task of every environment; `choose` as for Worker.set_tasks."""
        # With remote workers, the local one is left out, as it does not sample.
        samples_here = not self._config.num_rollout_workers
        answers = self._workers.foreach_worker(operator.methodcaller("set_tasks", choose), local_worker=samples_here)
        self._tasks = [tasks for _, tasks in answers]
        for worker_index, tasks in answers:
            of_places = {(worker_index, index): task for index, task in enumerate(tasks)}
            self._settings.env_tasks.update(of_places)

    def get_state(self) -> dict[str, Any]:
        """The file of a checkpoint with the tasks, if they are data; without it a restored run resets them."""
        if not self._tasks:
            return {}
        try:
            encode(self._tasks)
        except TypeError as error:
            logger.warning("checkpoints leave out the tasks of environments, which are no plain values: %s", error)
            return {}
        return {_FILE: {"tasks": self._tasks}}

    def set_state(self, files: Mapping[str, Any]) -> None:
        """Sets the tasks of `get_state`, before the workers' episodes start again."""
        if (saved := files.get(_FILE)) and all(saved["tasks"]):
            self._set(functools.partial(set_saved_task, saved["tasks"]))


def make_curricula(
    config: AlgorithmConfig, workers: Source, settings: RolloutSettings
) -> dict[str, Curriculum | Randomization]:
    """Name of an entry of results -> part that changes the environments after every iteration.

    Args:
        config, workers, settings: as for Curriculum.
    """
    made: dict[str, Curriculum | Randomization] = {}
    if config.env_task_fn is not None:
        made[ENV_TASK] = Curriculum(config, workers, settings)
    disturbances = Disturbances.of(config.disturbances)
    if disturbances is not None and disturbances.adapt is not None:
        samples_here = not config.num_rollout_workers
        made[DISTURBANCES] = Randomization(disturbances.adapt, samples_here, workers, settings)
    return made
