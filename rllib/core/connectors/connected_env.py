"""Environments whose observations and actions pass through connectors."""

import inspect
import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium
from gymnasium import spaces
from gymnasium.vector import VectorEnv

from rllib.config.conflicts import Unfit
from rllib.core.columns import Columns
from rllib.core.connectors.connector import (
    ConnectorEpisode,
    ConnectorPipelineV2,
    ConnectorV2,
    observation_column,
)
from rllib.core.connectors.pieces import (
    DefaultPiece,
    FlattenObservations,
    MeanStdFilter,
    MultiAgentObservationPreprocessor,
)
from rllib.core.connectors.rows import batched, first_row, in_space
from rllib.env.agents import is_multi_agent
from rllib.env.factories.registry import EnvContext, WrappingFactory
from rllib.env.streams.first_results import env_name
from rllib.env.streams.legacy import as_gymnasium

# (env, spaces, device) -> a piece, or a list of them.
MakePieces = Callable[..., Any]


@dataclass(frozen=True)
class ConnectedFactory(WrappingFactory):
    """A factory that puts connectors around another factory's environments.

    Attributes:
        env_to_module: makes the pieces that observations pass; None: there are none.
        module_to_env: makes the pieces that actions pass; None: there are none.
        check: function (environment, the same with connectors) that raises where these do not fit; None: all do.
    """

    env_to_module: MakePieces | None
    module_to_env: MakePieces | None
    check: Callable[[Any, Any], None] | None = None

    def make(self, context: EnvContext) -> Any:
        """One new environment.

        Raises:
            ValueError: if it is a vector or none of gymnasium's, or has several agents and a piece that changes
                observations; or by the check.
        """
        env = as_gymnasium(self.factory.make(context))
        try:
            connected = self._connected(env)
            if self.check is not None:
                self.check(env, connected)
            return connected
        except Exception:
            env.close()
            raise

    def _connected(self, env: Any) -> Any:
        if isinstance(env, VectorEnv):
            raise ValueError(
                f"connectors are around single environments, but {self.name} makes a vector of {env.num_envs}. Change "
                "the observations where it is made."
            )
        if not is_multi_agent(env) and not isinstance(env, gymnasium.Env):
            raise ValueError(
                f"connectors are around environments of gymnasium, but {self.name} makes {env_name(env)}, which is "
                "none. Change the observations where they are made, or leave the connectors out."
            )
        pieces = [made_pieces(make, env) for make in (self.env_to_module, self.module_to_env)]
        return self._connected_agents(env, pieces) if is_multi_agent(env) else ConnectedEnv(env, *pieces)

    def _connected_agents(self, env: Any, pieces: list[list[ConnectorV2]]) -> Any:
        for piece in itertools.chain(*pieces):
            if not isinstance(piece, _FOR_SEVERAL_AGENTS):
                raise Unfit(
                    f"the connector {type(piece).__name__} is for environments with one agent, but {self.name} has "
                    "several.",
                    "Derive it from MultiAgentObservationPreprocessor, which gets the observations of all agents, or "
                    "change them in the environment (docs/guide/multi_agent.md).",
                    {"env_to_module_connector": None, "module_to_env_connector": None},
                )
        kinds = [isinstance(piece, MultiAgentObservationPreprocessor) for piece in pieces[0]]
        if kinds != sorted(kinds, reverse=True):
            raise ValueError(
                "a MultiAgentObservationPreprocessor comes after another connector, but reads what the environment "
                "gives. Put it in front."
            )
        in_front = [each for each in pieces[0] if isinstance(each, MultiAgentObservationPreprocessor)]
        changing = in_front + [each.by_agent() for each in pieces[0] if isinstance(each, FlattenObservations)]
        if not changing:
            return env
        from rllib.core.connectors.connected_agents import ConnectedAgents
        from rllib.env.multi_agent.adapt import as_multi_agent

        return ConnectedAgents(as_multi_agent(env), changing)


_FOR_SEVERAL_AGENTS = (FlattenObservations, MeanStdFilter, DefaultPiece, MultiAgentObservationPreprocessor)


class ConnectedEnv(gymnasium.Wrapper):
    """One environment whose observations and actions pass through connectors.

    Args:
        env: the environment.
        env_to_module: pieces that observations pass, in their order.
        module_to_env: pieces that actions pass on their way to the environment, in its own units.
    """

    def __init__(self, env: gymnasium.Env, env_to_module: list[ConnectorV2], module_to_env: list[ConnectorV2]):
        super().__init__(env)
        self._to_module = ConnectorPipelineV2(env.observation_space, env.action_space, connectors=env_to_module)
        self._to_env = ConnectorPipelineV2(env.observation_space, env.action_space, connectors=module_to_env)
        self.observation_space, self.action_space = self._to_module.observation_space, self._to_env.action_space
        self._numbers = itertools.count()
        self._episode: ConnectorEpisode | None = None

    @classmethod
    def of(
        cls,
        env: gymnasium.Env,
        env_to_module_connector: MakePieces | None = None,
        module_to_env_connector: MakePieces | None = None,
    ) -> "ConnectedEnv":
        """An environment for a loop of your own, with the connectors of a config: its observations are the policy's.

        Args:
            env: the environment.
            env_to_module_connector, module_to_env_connector: as in the config.
        """
        return cls(env, *(made_pieces(make, env) for make in (env_to_module_connector, module_to_env_connector)))

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Any, dict]:
        observation, info = self.env.reset(seed=seed, options=options)
        self._episode = ConnectorEpisode(next(self._numbers), observation, info)
        return self._seen(), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict]:
        taken = self._taken(action) if self._to_env.connectors else action
        observation, reward, terminated, truncated, info = self.env.step(taken)
        self._episode.add_env_step(observation, taken, reward, info)
        self._episode.is_terminated, self._episode.is_truncated = bool(terminated), bool(truncated)
        return self._seen(), reward, terminated, truncated, info

    def _seen(self) -> Any:
        """The newest observation, through all pieces."""
        episode, shared = self._episode, {}
        for piece in self._to_module.connectors:
            before = episode.get_observations(-1)
            batch = {Columns.OBS: batched(before)}
            batch = piece(
                rl_module=None, batch=batch, episodes=[episode], explore=None, shared_data=shared, metrics=None
            )
            rows, after = observation_column(batch, type(piece).__name__), episode.get_observations(-1)
            # A piece changes the episode, or the batch.
            changed = first_row(rows) if after is before else after
            episode.set_observations(new_data=in_space(piece.observation_space, changed), at_indices=-1)
        return episode.get_observations(-1)

    def _taken(self, action: Any) -> Any:
        batch = {Columns.ACTIONS: batched(action)}
        batch = self._to_env(
            rl_module=None, batch=batch, episodes=[self._episode], explore=None, shared_data={}, metrics=None
        )
        if not isinstance(batch, Mapping) or not {Columns.ACTIONS, Columns.ACTIONS_FOR_ENV} & batch.keys():
            raise TypeError(
                f"module_to_env_connector must return a batch with {Columns.ACTIONS!r}, but returned {batch!r:.80}"
            )
        actions = batch.get(Columns.ACTIONS_FOR_ENV, batch.get(Columns.ACTIONS))
        return in_space(self.env.action_space, first_row(actions))


def made_pieces(make: MakePieces | None, env: Any) -> list[ConnectorV2]:
    """The pieces that a user's function makes, pipelines taken apart.

    Args:
        make: function (env, spaces, device), or (env); None: there are none.
        env: the environment; None where it is not made yet.

    Raises:
        TypeError: if it returns anything else.
    """
    if make is None:
        return []
    of_spaces = {}
    if env is not None and hasattr(env, "observation_space"):
        pair = env.observation_space, env.action_space
        of_spaces = {"__env__": pair, "__env_single__": pair}
    takes = len(inspect.signature(make).parameters)
    made = make(*(_AsVector.of(env), of_spaces, None)[:takes])
    pieces = list(made) if isinstance(made, list | tuple) else [made]
    for piece in pieces:
        if not isinstance(piece, ConnectorV2):
            raise TypeError(
                f"a connector must be a rllib.core.ConnectorV2, or a list of them, but the function gave {made!r:.80}"
            )
    return [part for piece in pieces for part in _parts(piece)]


def _parts(piece: ConnectorV2) -> list[ConnectorV2]:
    if not isinstance(piece, ConnectorPipelineV2):
        return [piece]
    return [part for inner in piece.connectors for part in _parts(inner)]


class _AsVector:
    """An environment with the names of spaces that a vector of it would have."""

    def __init__(self, env: Any):
        self._env = env

    @classmethod
    def of(cls, env: Any) -> Any:
        return None if env is None else cls(env)

    @property
    def single_observation_space(self) -> spaces.Space:
        return self._env.observation_space

    @property
    def single_action_space(self) -> spaces.Space:
        return self._env.action_space

    def __getattr__(self, name: str) -> Any:
        return getattr(self._env, name)
