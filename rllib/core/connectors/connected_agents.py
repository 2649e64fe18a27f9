"""Environments with several agents whose observations pass through connectors, those of all agents at once."""

import itertools
from collections.abc import Sequence
from typing import Any

from gymnasium import Space, spaces

from rllib.core.connectors.connector import ConnectorEpisode
from rllib.core.connectors.pieces import MultiAgentObservationPreprocessor
from rllib.core.connectors.rows import in_space
from rllib.env.multi_agent.agent_spaces import AgentID
from rllib.env.multi_agent.agents_wrapper import AgentsWrapper
from rllib.env.multi_agent.multi_agent_env import MultiAgentEnv, StepResult
from rllib.env.multi_agent.old_api import reset_result, step_result


class ConnectedAgents(AgentsWrapper):
    """An environment with several agents, with the observations that preprocessors make of all agents' own.

    Args:
        env: the environment.
        pieces: preprocessors, in their order.

    Raises:
        ValueError: if the environment does not name its agents.
    """

    def __init__(self, env: MultiAgentEnv, pieces: Sequence[MultiAgentObservationPreprocessor]):
        super().__init__(env)
        self._pieces = pieces
        if not self.possible_agents:
            raise ValueError(
                f"{type(pieces[0]).__name__} reads the spaces of all agents, but {type(env).__name__} does not say who "
                "there is. Give it possible_agents, and a space for each."
            )
        observed = spaces.Dict({agent: self._spaces.observation(agent) for agent in self.possible_agents})
        acted = spaces.Dict({agent: self._spaces.action(agent) for agent in self.possible_agents})
        for piece in pieces:
            piece.connect(observed, acted)
            observed = piece.observation_space
        self._observed = observed
        self._numbers = itertools.count()
        self._episode: ConnectorEpisode | None = None

    def get_observation_space(self, agent_id: AgentID) -> Space:
        return self._observed[agent_id]

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[dict, dict]:
        observations, infos = reset_result(self.env, seed, options)
        self._episode = ConnectorEpisode(next(self._numbers), observations, infos)
        return self._seen(), infos

    def step(self, action_dict: dict[AgentID, Any]) -> StepResult:
        observations, rewards, *rest = step_result(self.env, action_dict)
        self._episode.add_env_step(observations, action_dict, rewards, rest[-1])
        return self._seen(), rewards, *rest

    def _seen(self) -> dict[AgentID, Any]:
        """The newest observations, through all pieces."""
        episode = self._episode
        for piece in self._pieces:
            changed = piece.preprocess(observations=episode.get_observations(-1), episode=episode)
            episode.set_observations(new_data=in_space(piece.observation_space, changed), at_indices=-1)
        return episode.get_observations(-1)

    def render(self):
        return self.env.render()

    def close(self) -> None:
        self.env.close()
