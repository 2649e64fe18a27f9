"""Questions to all workers of a source of samples, by the names that RLlib's sets of workers have."""

import functools
import operator
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from rllib.compat.names import absent
from rllib.did_you_mean import explains
from rllib.evaluation.hooks.env_runner import by_names


def check_function(method: str, function: Any, takes: str) -> None:
    """Refuses what workers cannot call, here and not in their processes.

    Raises:
        TypeError: if it is no function.
    """
    if not callable(function):
        raise TypeError(f"{method} needs a function{takes}, but got {function!r:.80}")


@explains(absent.WORKER_SET)
class AskedWorkers:
    """Base of the sources of samples: all questions to workers are made of `foreach_worker`."""

    @abstractmethod
    def foreach_worker(
        self,
        function: Callable,
        *args,
        local_worker: bool = True,
        remote_worker_ids: Iterable[int] | None = None,
    ) -> list:
        """[function(worker, *args) for each worker], the local one first."""

    @property
    @abstractmethod
    def num_healthy_workers(self) -> int:
        """Number of remote workers that are there."""

    def foreach_env(self, function: Callable[[Any], Any]) -> list[list]:
        """[function(environment) for each environment] of every worker, in order."""
        check_function("foreach_env", function, "(environment)")
        return self.foreach_worker(operator.methodcaller("foreach_env", function))

    def foreach_env_with_context(self, function: Callable[[Any, Any], Any]) -> list[list]:
        """[function(environment, its EnvContext) for each environment] of every worker, in order."""
        check_function("foreach_env_with_context", function, "(environment, EnvContext)")
        return self.foreach_worker(operator.methodcaller("foreach_env_with_context", function))

    def foreach_policy(self, function: Callable[[Any, str], Any]) -> list:
        """function(policy, policy id) for each policy of every worker, one after the other."""
        return self._joined("foreach_policy", function)

    def foreach_policy_to_train(self, function: Callable[[Any, str], Any]) -> list:
        """function(policy, policy id) for each policy that learns, of every worker, one after the other."""
        return self._joined("foreach_policy_to_train", function)

    foreach_trainable_policy = foreach_policy_to_train

    def _joined(self, method: str, function: Callable) -> list:
        check_function(method, function, "(policy, policy id)")
        answers = self.foreach_worker(operator.methodcaller(method, function))
        return [answer for of_worker in answers for answer in of_worker]

    def foreach_worker_with_id(
        self,
        function: Callable[[int, Any], Any],
        *,
        local_worker: bool = True,
        remote_worker_ids: Iterable[int] | None = None,
    ) -> list:
        """[function(index, worker) for each worker]; the local worker has the index 0, and is the first."""
        check_function("foreach_worker_with_id", function, "(index, worker)")
        asked = functools.partial(_with_index, function)
        return self.foreach_worker(asked, local_worker=local_worker, remote_worker_ids=remote_worker_ids)

    def foreach_env_runner(
        self,
        func: Callable | str,
        *,
        kwargs: Mapping[str, Any] | None = None,
        local_env_runner: bool = True,
        remote_worker_ids: Iterable[int] | None = None,
        healthy_only: bool = True,
        timeout_seconds: float | None = None,
        return_obj_refs: bool = False,
        mark_healthy: bool = False,
    ) -> list:
        """`foreach_worker`, by the name of Ray 2.10 and later, whose workers have the names of RLlib's EnvRunner.

        Args:
            func: function of a worker, or the name of a method of it.
            kwargs: further arguments.
            healthy_only, mark_healthy: without effect, since workers that have died are replaced before any is asked.
            timeout_seconds, return_obj_refs: refused if they ask for anything.

        Raises:
            TypeError: for the last two; all answers are waited for.
        """
        if timeout_seconds is not None or return_obj_refs:
            given = "return_obj_refs=True" if return_obj_refs else f"timeout_seconds={timeout_seconds!r}"
            raise TypeError(
                f"foreach_env_runner({given}) cannot be used: all answers are waited for, at most as long as "
                "sample_timeout_s allows. Leave it out, or use .rollouts(sample_timeout_s=...)."
            )
        if isinstance(func, str):
            func = operator.methodcaller(func, **(kwargs or {}))
        else:
            check_function("foreach_env_runner", func, "(worker), or the name of a method of workers")
            func = functools.partial(func, **(kwargs or {}))
        asked = functools.partial(by_names, func)
        return self.foreach_worker(asked, local_worker=local_env_runner, remote_worker_ids=remote_worker_ids)

    def num_remote_workers(self) -> int:
        """Number of remote workers that are there."""
        return self.num_healthy_workers

    # RLlib's names.
    num_healthy_remote_workers = num_remote_env_runners = num_healthy_remote_env_runners = num_remote_workers

    def sync_weights(self, policies: Sequence[str] | None = None, **kwargs) -> None:
        """Has no effect, for programs of RLlib: every request brings the workers the policies' present weights."""


def _with_index(function: Callable[[int, Any], Any], worker) -> Any:
    return function(worker.worker_index, worker)
