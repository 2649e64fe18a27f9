"""Environments with several agents that have no spaces: those of their agents' policies are taken."""

from collections.abc import Callable
from dataclasses import dataclass

from gymnasium import Space

from rllib.env.agents import is_multi_agent
from rllib.env.factories.registry import EnvContext, WrappingFactory
from rllib.env.multi_agent.adapt import DictEnv, as_multi_agent
from rllib.env.multi_agent.agent_spaces import AgentID, space_method
from rllib.env.multi_agent.multi_agent_env import MultiAgentEnv

# Agent -> its observation space and its action space.
SpacesOf = Callable[[AgentID], tuple[Space, Space]]


class AgentsWithSpaces(DictEnv):
    """An environment whose agents have the spaces that a function names.

    Args:
        env: the environment.
        spaces_of: the function.
    """

    def __init__(self, env: MultiAgentEnv, spaces_of: SpacesOf):
        super().__init__(env)
        self._spaces_of = spaces_of

    def get_observation_space(self, agent_id: AgentID) -> Space:
        return self._spaces_of(agent_id)[0]

    def get_action_space(self, agent_id: AgentID) -> Space:
        return self._spaces_of(agent_id)[1]


@dataclass(frozen=True)
class GivenSpacesFactory(WrappingFactory):
    """Makes another factory's environments, with spaces for agents where they have none.

    Attributes:
        spaces_of: agent -> its spaces.
    """

    spaces_of: SpacesOf

    def make(self, context: EnvContext):
        env = self.factory.make(context)
        if not is_multi_agent(env):
            return env
        env = as_multi_agent(env)
        return (
            env
            if any(has_spaces(env, kind) for kind in ("observation", "action"))
            else AgentsWithSpaces(env, self.spaces_of)
        )


def has_spaces(env: MultiAgentEnv, kind: str) -> bool:
    """Whether an environment says which spaces of a kind its agents have."""
    given = getattr(env, f"{kind}_spaces"), getattr(env, f"{kind}_space")
    return any(space is not None for space in given) or space_method(env, kind) is not None
