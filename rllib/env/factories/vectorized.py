"""Factories for the setting gym_env_vectorize_mode: a registered vector version, or a process for each environment."""

from dataclasses import dataclass
from functools import partial

import gymnasium
from gymnasium.vector import VectorEnv

from rllib.config.conflicts import Unfit
from rllib.env.factories.make import make_environment
from rllib.env.factories.registry import EnvContext, EnvFactory, GymnasiumFactory, WrappingFactory
from rllib.env.streams.process import EnvironmentProcess


def by_entry_point(factory: EnvFactory) -> "EntryPointFactory":
    """The factory of an environment's own vector version.

    Raises:
        Unfit: (a ValueError) if it has none.
    """
    if isinstance(factory, GymnasiumFactory) and factory.spec.vector_entry_point is not None:
        return EntryPointFactory(factory)
    specs = [spec for spec in gymnasium.registry.values() if spec.vector_entry_point is not None]
    having = sorted(spec.id for spec in specs if spec.namespace is None)
    raise Unfit(
        f'gym_env_vectorize_mode="vector_entry_point" needs an id of gymnasium\'s registry with a vector_entry_point, '
        f"but {factory.name} has none ({', '.join(having)} have one).",
        "Register your vector class with gymnasium.register(id, vector_entry_point=...), or give the class itself as "
        "the environment.",
        {"gym_env_vectorize_mode": "sync"},
    )


@dataclass(frozen=True)
class EntryPointFactory(WrappingFactory):
    """A factory of the vector version that a registered environment has. Evaluation plays in single environments."""

    factory: GymnasiumFactory

    def make(self, context: EnvContext) -> gymnasium.Env | VectorEnv:
        if context.in_evaluation:
            return self.factory.make(context)
        mode = gymnasium.VectorizeMode.VECTOR_ENTRY_POINT
        return gymnasium.make_vec(self.factory.spec, context.num_envs, vectorization_mode=mode, **context)


@dataclass(frozen=True)
class AsyncFactory(WrappingFactory):
    """A factory of environments that run in a process each.

    Attributes:
        timeout_s: longest time that a call of step() or reset() may take (seconds); None: unlimited.
    """

    timeout_s: float | None = None

    def make(self, context: EnvContext) -> EnvironmentProcess:
        place = f"environment {context.vector_index} of {context.worker}"
        return EnvironmentProcess(partial(self._make_one, context), place, self.name, self.timeout_s)

    def _make_one(self, context: EnvContext) -> gymnasium.Env:
        """The environment, in its process.

        Raises:
            Unfit: (a ValueError) if it is a vector itself.
        """
        env = make_environment(self.factory, context)
        if isinstance(env, VectorEnv):
            raise Unfit(
                f'gym_env_vectorize_mode="async" runs single environments, but {self.name} makes a vector of '
                f"{env.num_envs}.",
                'Use .rollouts(gym_env_vectorize_mode="sync"), which takes it as it is.',
                {"gym_env_vectorize_mode": "sync"},
            )
        return env
