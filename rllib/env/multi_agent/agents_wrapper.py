"""Base of environments with several agents around another one, which change what goes in or comes out."""

from collections.abc import Sequence

from gymnasium import Space

from rllib.env.multi_agent.agent_spaces import AgentID, AgentSpaces, known_agents
from rllib.env.multi_agent.multi_agent_env import MultiAgentEnv


class AgentsWrapper(MultiAgentEnv):
    """An environment with the agents and the spaces of another one; subclasses change what they are for.

    Args:
        env: the other one.
    """

    def __init__(self, env: MultiAgentEnv):
        self.env, self._spaces = env, AgentSpaces(env)
        self.possible_agents = known_agents(env)
        self.metadata, self.render_mode = env.metadata, env.render_mode

    @property
    def agents(self) -> Sequence[AgentID]:
        return self.env.agents

    @property
    def unwrapped(self):
        return self.env.unwrapped

    def get_observation_space(self, agent_id: AgentID) -> Space:
        return self._spaces.observation(agent_id)

    def get_action_space(self, agent_id: AgentID) -> Space:
        return self._spaces.action(agent_id)

    def get_agent_ids(self) -> set[AgentID]:
        return self.env.get_agent_ids()
