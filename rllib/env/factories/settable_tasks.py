"""Environments whose task can be set between episodes, and the curriculum that sets it, as RLlib has both."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import VectorEnv

from rllib.config.conflicts import Unfit
from rllib.env.factories.registry import EnvContext, WrappingFactory


class TaskSettableEnv(gymnasium.Env):
    """Base of environments with tasks, such as levels or goals; `.environment(env_task_fn=...)` sets them.

    Any environment that has these methods will do.
    """

    def sample_tasks(self, n_tasks: int) -> list:
        """Draws tasks."""
        raise NotImplementedError(f"{type(self).__name__} needs a method sample_tasks(n_tasks) that returns tasks")

    def get_task(self) -> Any:
        """The present task."""
        raise NotImplementedError(f"{type(self).__name__} needs a method get_task() that returns the present task")

    def set_task(self, task: Any) -> None:
        """Sets the task of the episodes that begin from now on."""
        raise NotImplementedError(f"{type(self).__name__} needs a method set_task(task)")


@dataclass(frozen=True)
class TaskFactory(WrappingFactory):
    """A factory whose environments take over the task of those in whose place they are made.

    Attributes:
        tasks: (index of the worker, index of the environment in it) -> its present task. It is changed in place.
    """

    tasks: Mapping[tuple[int, int], Any]

    def make(self, context: EnvContext):
        env = self.factory.make(context)
        if self.tasks and not context.in_evaluation:
            of_vector = getattr(env.unwrapped, "envs", [env]) if isinstance(env, VectorEnv) else [env]
            for index, each in enumerate(of_vector, context.vector_index):
                if (place := (context.worker_index, index)) in self.tasks:
                    _set(getattr(each, "unwrapped", each), self.tasks[place])
        return env


def task_of(env: Any) -> Any:
    """The present task of an environment, in its wrappers.

    Raises:
        Unfit: (a ValueError) if it has no tasks that env_task_fn could set.
    """
    own = getattr(env, "unwrapped", env)
    if not (callable(getattr(own, "get_task", None)) and callable(getattr(own, "set_task", None))):
        raise Unfit(
            "env_task_fn needs environments with the methods get_task and set_task, but "
            f"{type(own).__name__} has none.",
            "Derive it from rllib.env.TaskSettableEnv, or leave env_task_fn out.",
            {"env_task_fn": None},
        )
    return own.get_task()


def set_next_task(task_fn: Callable, result: Mapping[str, Any], env: Any, context: EnvContext) -> Any:
    """Sets the task that env_task_fn chooses for one environment, unless it has that task; returns the task.

    Args:
        task_fn: task_fn(result, environment, context) -> task.
        result: result of the iteration that has ended.
        env: the environment, in its wrappers.
        context: context of the environment.
    """
    own = getattr(env, "unwrapped", env)
    task = task_fn(result, own, context)
    _set(own, task)
    return task


def set_saved_task(tasks: Sequence[Sequence[Any]], env: Any, context: EnvContext) -> Any:
    """Sets the task that an environment had in a checkpoint, unless it has that task; returns the task.

    Args:
        tasks: tasks of the environments of each worker. An environment that the checkpoint does not know gets the task
            of another one.
        env: the environment, in its wrappers.
        context: context of the environment.
    """
    of_worker = tasks[max(context.worker_index - 1, 0) % len(tasks)]
    task = of_worker[context.vector_index % len(of_worker)]
    _set(getattr(env, "unwrapped", env), task)
    return task


def _set(env: Any, task: Any) -> None:
    if not _are_equal(task, env.get_task()):
        env.set_task(task)


def summary_of(tasks: Sequence[Sequence[Any]]) -> Any:
    """Tasks of all environments as one value for results: the common task, else the mean of numbers, else all tasks."""
    every = [task for of_worker in tasks for task in of_worker]
    first = every[0] if every else None
    if all(_are_equal(task, first) for task in every):
        return first
    are_numbers = all(isinstance(task, Real) and not isinstance(task, bool) for task in every)
    return float(sum(every) / len(every)) if are_numbers else every


def _are_equal(task: Any, other: Any) -> bool:
    """Whether two tasks are equal; False where they cannot be compared, as arrays in a dict cannot."""
    try:
        return np.array_equal(task, other)
    except ValueError:
        return False
