"""All environments of a worker as one gymnasium VectorEnv: the setting gym_env_vectorize_mode."""

import functools
from dataclasses import dataclass

import gymnasium
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, VectorEnv

from rllib.env.registry import EnvContext, EnvFactory, GymnasiumFactory, WrappingFactory


def by_entry_point(factory: EnvFactory) -> "EntryPointFactory":
    """The factory of an environment's own vector version.

    Raises:
        ValueError: if it has none.
    """
    if isinstance(factory, GymnasiumFactory) and factory.spec.vector_entry_point is not None:
        return EntryPointFactory(factory)
    specs = [spec for spec in gymnasium.registry.values() if spec.vector_entry_point is not None]
    having = sorted(spec.id for spec in specs if spec.namespace is None)
    raise ValueError(
        f'gym_env_vectorize_mode="vector_entry_point" needs an id of gymnasium\'s registry with a vector_entry_point, '
        f"but {factory.name} has none ({', '.join(having)} have one). Register your vector class with "
        "gymnasium.register(id, vector_entry_point=...), or give the class itself as the environment."
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
    """A factory of vectors whose environments run in a process each. Evaluation plays in single environments."""

    def make(self, context: EnvContext) -> gymnasium.Env | VectorEnv:
        if context.in_evaluation:
            return self.factory.make(context)
        makers = [functools.partial(self._make_one, context, index) for index in range(context.num_envs)]
        # The step that ends an episode is followed by the first of the next one, without a row between them.
        return AsyncVectorEnv(makers, autoreset_mode=AutoresetMode.SAME_STEP)

    def _make_one(self, context: EnvContext, index: int) -> gymnasium.Env:
        """One of the environments, in its process.

        Raises:
            ValueError: if it is a vector itself.
        """
        position = {"worker_index": context.worker_index, "num_workers": context.num_workers}
        env = self.factory.make(EnvContext(context, vector_index=index, num_envs=context.num_envs, **position))
        if isinstance(env, VectorEnv):
            raise ValueError(
                f'gym_env_vectorize_mode="async" runs single environments, but {self.name} makes a vector of '
                f'{env.num_envs}. Use .rollouts(gym_env_vectorize_mode="sync"), which takes it as it is.'
            )
        return env
