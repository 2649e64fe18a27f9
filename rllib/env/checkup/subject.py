"""The environment that is checked, and what the checks share."""

import contextlib
import copy
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import gymnasium
from gymnasium.vector import VectorEnv

from rllib.env.agents import is_multi_agent
from rllib.env.factories.registry import EnvContext, EnvFactory, resolve
from rllib.env.factories.wrapped import WrappedFactory, resolve_wrappers
from rllib.env.multi_agent.adapt import as_multi_agent
from rllib.env.spaces.legal import MASK_KEY, legal_action
from rllib.env.streams.first_results import env_name
from rllib.env.streams.legacy import LegacyEnvironment, adapt_spaces

SEED = 7
COMPARED_STEPS = 64  # at most, of the checks that repeat episodes


class Subject:
    """An environment that is being checked.

    Attributes:
        env: the environment, adapted where it needs an adapter.
        given: the environment as it was made.
        factory: what makes another one; None if only this one was given.
        measured: for the report.
        is_legacy: whether reset() or step() have the form of the old gym API.
        short: number of steps of the checks that repeat episodes.
        is_repeatable: whether equal seeds and actions gave equal episodes; None if it was not tried.
    """

    def __init__(self, env, env_config, env_wrappers, num_envs: int, steps: int):
        is_made = isinstance(env, gymnasium.Env | VectorEnv) or (hasattr(env, "step") and not isinstance(env, type))
        self.factory: EnvFactory | None = None if is_made else resolve(env)
        if self.factory and (wrappers := resolve_wrappers(env_wrappers)):
            self.factory = WrappedFactory(self.factory, wrappers)
        self.env = self.given = env if is_made else None
        self.name = self.factory.name if self.factory else env_name(env)
        self.env_config, self.num_envs, self.steps = dict(env_config or {}), num_envs, steps
        self.measured: dict[str, Any] = {}
        self.is_legacy, self.is_repeatable, self.short = False, None, COMPARED_STEPS

    def make(self, **config):
        """A further environment; the caller closes it."""
        return self.factory.make(EnvContext({**self.env_config, **config}, num_envs=max(1, self.num_envs)))

    @contextlib.contextmanager
    def another(self) -> Iterator[Any]:
        """A further environment, closed at the end of the block; the same one if there is no other."""
        env = self.env if self.factory is None else self.adapted(self.make())
        try:
            yield env
        finally:
            if env is not self.env:
                close(env)

    def adapted(self, env):
        """The environment in the form of the new API."""
        if is_multi_agent(env):
            return as_multi_agent(env)
        env = adapt_spaces(env)
        return LegacyEnvironment(env) if self.is_legacy and not isinstance(env, LegacyEnvironment) else env

    def actions(self, env) -> Callable:
        """(observation) -> random action, the same ones each time; legal ones where the observation has a mask."""
        space = copy.deepcopy(env.action_space)
        space.seed(SEED)

        def draw(observation):
            return legal_action(space, observation.get(MASK_KEY) if isinstance(observation, Mapping) else None)

        return draw


def close(env) -> None:
    """Closes an environment that can be closed."""
    if hasattr(env, "close"):
        env.close()
