"""A worker as RLlib's new API stack has it: `algo.env_runner`, that of `foreach_env_runner` and of hooks."""

from collections.abc import Callable, Mapping
from typing import Any

import gymnasium
from gymnasium.wrappers import TimeLimit

from rllib.evaluation.hooks.base_env import BaseEnv
from rllib.policy import Policy


class Environments(BaseEnv):
    """The environments of a worker for a loop of the program's own: with the limits of their ids, as gymnasium's."""

    @property
    def envs(self) -> list:
        """The environments; a worker takes TimeLimit off, whose steps it counts itself."""
        envs = super().envs
        limits = getattr(self._stream, "time_limits", [None] * len(envs))
        limited = (limit if isinstance(env, gymnasium.Env) else None for env, limit in zip(envs, limits, strict=True))
        return [TimeLimit(env, limit) if limit else env for env, limit in zip(envs, limited)]


class EnvRunnerNames:
    """A worker by the names that RLlib's EnvRunner has for what a RolloutWorker has otherwise.

    Everything else is read from the worker, and set there. It equals the worker.

    Args:
        worker: a worker of any kind.
        policies: policies of the algorithm, with the present weights; the worker gets them when it samples. None: the
            worker's.

    Attributes:
        worker: see the arguments.
    """

    def __init__(self, worker: Any, policies: Mapping[str, Policy] | None = None):
        self.__dict__.update(worker=worker, _policies=worker.policies if policies is None else policies)

    @property
    def env(self) -> Any:
        """The environments together: `env.envs[i]`, also as `env.unwrapped.envs[i]`."""
        return Environments(self.worker.stream)

    @property
    def num_envs(self) -> int:
        """Number of its environments."""
        return self.worker.stream.num_envs

    def sample(self, **asked: Any) -> Any:
        """The worker's `sample`: a fragment, as rows, and its report.

        Raises:
            TypeError: for RLlib's arguments, such as num_episodes.
        """
        if asked:
            given = ", ".join(f"{name}={value!r:.40}" for name, value in asked.items())
            raise TypeError(
                f"env_runner.sample({given}) cannot be used: a worker samples rollout_fragment_length steps of each "
                "environment, and returns (rows, report). Use algo.evaluate() for whole episodes, or "
                "algo.make_player() in a loop of your own."
            )
        return self.worker.sample()

    @property
    def module(self) -> Any:
        """The module of the policy, with the present weights; of several policies a dict by id."""
        from rllib.core.modules.module_of_policy import module_of, modules_of

        policies = list(self._policies.values())
        return module_of(policies[0]) if len(policies) == 1 else modules_of(self._policies)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.worker, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.worker, name, value)

    def __eq__(self, other: object) -> bool:
        return self.worker is (other.worker if isinstance(other, EnvRunnerNames) else other)

    def __hash__(self) -> int:
        return hash(self.worker)

    def __repr__(self) -> str:
        return repr(self.worker)


def by_names(function: Callable, worker: Any) -> Any:
    """function(the worker by the names of RLlib's EnvRunner)."""
    return function(EnvRunnerNames(worker))
