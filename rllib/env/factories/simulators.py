"""EnvPool as the simulator of gymnasium's ids, and the line of the log where it would be faster."""

import importlib.util
from collections.abc import Mapping
from typing import Any

from rllib.env.factories.registry import EnvFactory, GymnasiumFactory, SuiteFactory

# Ids of gymnasium whose observations, rewards and ends EnvPool's version repeats step by step
# (tests/env/test_envpool_dynamics.py). Names alone do not say so: other versions of a task have other rewards.
SAME_DYNAMICS = frozenset({
    "CartPole-v1", "MountainCar-v0", "MountainCarContinuous-v0", "Pendulum-v1", "Acrobot-v1", "HalfCheetah-v5",
    "Hopper-v5", "Walker2d-v5", "Swimmer-v5", "InvertedPendulum-v5",
})  # fmt: skip
# Keys of env_config that mean the same in both.
_SHARED_KEYS = frozenset({"max_episode_steps"})


def simulated(factory: EnvFactory, simulator: str | None) -> EnvFactory:
    """The factory of the environments in another simulator.

    Args:
        factory: of the setting `env`.
        simulator: word of a suite; None: the environment's own.

    Raises:
        ValueError: if the environment is no id of gymnasium's registry.
    """
    if simulator is None or (isinstance(factory, SuiteFactory) and factory.word == simulator):
        return factory
    if not isinstance(factory, GymnasiumFactory):
        raise ValueError(
            f"simulator={simulator!r} simulates ids of gymnasium, such as CartPole-v1, but the environment is "
            f"{factory.name}. Leave it out, or give the id."
        )
    # A game's namespace is ALE, which EnvPool leaves out.
    return SuiteFactory(simulator, factory.spec.id.removeprefix("ALE/"))


def faster_simulator(factory: EnvFactory, env_config: Mapping[str, Any]) -> str | None:
    """A sentence on a simulator that is installed, has the same dynamics, and takes this env_config; None without."""
    if not isinstance(factory, GymnasiumFactory) or factory.spec.id not in SAME_DYNAMICS:
        return None
    if not env_config.keys() <= _SHARED_KEYS or importlib.util.find_spec("envpool") is None:
        return None
    name = factory.spec.id
    return f'EnvPool has the dynamics of {name} and steps faster: .environment("{name}", simulator="envpool")'
