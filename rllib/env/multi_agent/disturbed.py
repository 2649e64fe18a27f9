"""Multi-agent environments with disturbances; each agent has its own delays and noise."""

from collections.abc import Mapping
from typing import Any

from rllib.env.agents import is_multi_agent
from rllib.env.disturbances.adaptive import BoundReturn
from rllib.env.disturbances.channel import Channel
from rllib.env.disturbances.disturbed import DisturbedFactory, DrawnEpisodes
from rllib.env.disturbances.settings import Disturbances, Interval
from rllib.env.factories.registry import EnvContext
from rllib.env.multi_agent.adapt import as_multi_agent
from rllib.env.multi_agent.agent_spaces import ALL, AgentID, AgentSpaces, known_agents
from rllib.env.multi_agent.agents_wrapper import AgentsWrapper
from rllib.env.multi_agent.multi_agent_env import MultiAgentEnv, StepResult
from rllib.env.multi_agent.old_api import reset_result, step_result


class DisturbedAgents(AgentsWrapper):
    """An environment with several agents in its disturbances.

    Parameters are those of the environment. Delays count an agent's own observations and actions; noise, delays and
    drops are drawn for each agent with its first observation of an episode.

    Args:
        env, disturbances, adapts: as for DisturbedEnv.
    """

    def __init__(self, env: MultiAgentEnv, disturbances: Disturbances, adapts: bool = True):
        super().__init__(env)
        self._disturbances = disturbances
        self.drawn_episodes = DrawnEpisodes(env, disturbances, adapts)
        self._channels = {agent: self._channel_of(agent) for agent in self.possible_agents or ()}
        self._begun: set[AgentID] = set()

    def _channel_of(self, agent: AgentID) -> Channel:
        return Channel(self._disturbances, self._spaces.observation(agent), self._spaces.action(agent))

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[dict, dict]:
        self.drawn_episodes.begin(seed)
        observations, infos = reset_result(self.env, seed, options)
        self._begun.clear()
        return self._seen(observations) if _is_mapping(observations) else observations, infos

    def step(self, action_dict: dict[AgentID, Any]) -> StepResult:
        played = {agent: self._channels[agent].played(action) for agent, action in action_dict.items()}
        result = step_result(self.env, played)
        # Streams refuse other forms.
        if not isinstance(result, tuple) or len(result) != 5 or not all(map(_is_mapping, result)):
            return result
        observations, rewards, *ends, infos = result
        self.drawn_episodes.add(*rewards.values())
        if any(each.get(ALL) for each in ends):
            self.drawn_episodes.end()
        return self._seen(observations), rewards, *ends, infos

    def _seen(self, observations: Mapping[AgentID, Any]) -> dict[AgentID, Any]:
        return {agent: self._seen_by(agent, observation) for agent, observation in observations.items()}

    def _seen_by(self, agent: AgentID, observation: Any) -> Any:
        if agent not in self._channels:
            self._channels[agent] = self._channel_of(agent)
        if agent in self._begun:
            return self._channels[agent].seen(observation)
        self._begun.add(agent)
        return self._channels[agent].begin(self.drawn_episodes.rng, observation)

    def take_bound_returns(self) -> list[BoundReturn]:
        """`DrawnEpisodes.take_returns`."""
        return self.drawn_episodes.take_returns()

    def set_disturbance_ranges(self, ranges: Mapping[str, Interval]) -> None:
        """`DrawnEpisodes.set_ranges`."""
        self.drawn_episodes.set_ranges(ranges)

    def render(self):
        return self.env.render()

    def close(self) -> None:
        self.env.close()


def _is_mapping(value: Any) -> bool:
    return isinstance(value, Mapping)


class DisturbedAgentsFactory(DisturbedFactory):
    """A factory of environments with one agent or several in disturbances."""

    def disturbed(self, env: Any, context: EnvContext):
        if not is_multi_agent(env):
            return super().disturbed(env, context)
        env = as_multi_agent(env)
        spaces = AgentSpaces(env)
        for agent in known_agents(env) or ():
            self.refuse_masks(spaces.observation(agent))
        return DisturbedAgents(env, self.disturbances, adapts=not context.in_evaluation)
