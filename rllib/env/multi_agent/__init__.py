"""Environments with several agents: their base class, adapters to it, and checks of their steps."""

from rllib.env.multi_agent.adapt import as_multi_agent
from rllib.env.multi_agent.agent_spaces import AgentID, AgentOrder, AgentSpaces
from rllib.env.multi_agent.checks import BrokenRule, CheckedAgents
from rllib.env.multi_agent.copies import make_multi_agent
from rllib.env.multi_agent.multi_agent_env import ENV_STATE, GroupedEnv, MultiAgentEnv
from rllib.env.multi_agent.vector_env import MultiAgentVectorEnv

__all__ = [
    "ENV_STATE",
    "AgentID",
    "AgentOrder",
    "AgentSpaces",
    "BrokenRule",
    "CheckedAgents",
    "GroupedEnv",
    "MultiAgentEnv",
    "MultiAgentVectorEnv",
    "as_multi_agent",
    "make_multi_agent",
]
