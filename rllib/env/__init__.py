"""Environments: from ids, classes and functions to streams of transitions."""

from rllib.env.agents import is_multi_agent
from rllib.env.checkup.driver import check_environment
from rllib.env.episodes import Episode, EpisodeTracker
from rllib.env.factories.make import make_stream
from rllib.env.factories.registry import EnvContext, EnvFactory, register_env, resolve
from rllib.env.spaces.actions import ActionMapper
from rllib.env.streams.base import EnvironmentStream
from rllib.lazy_names import lazy_names

__all__ = [
    "ActionMapper",
    "EnvContext",
    "EnvFactory",
    "EnvironmentStream",
    "Episode",
    "EpisodeTracker",
    "ExternalEnv",
    "ExternalMultiAgentEnv",
    "MultiAgentEnv",
    "ParallelPettingZooEnv",
    "PettingZooEnv",
    "TaskSettableEnv",
    "check_environment",
    "is_multi_agent",
    "make_multi_agent",
    "make_stream",
    "register_env",
    "resolve",
]

# Loaded on first use: most runs have one agent in an environment that is stepped.
_LAZY = {
    "ExternalEnv": "rllib.env.external.external_env",
    "ExternalMultiAgentEnv": "rllib.env.external.external_env",
    "MultiAgentEnv": "rllib.env.multi_agent.multi_agent_env",
    "ParallelPettingZooEnv": "rllib.env.multi_agent.pettingzoo_envs",
    "PettingZooEnv": "rllib.env.multi_agent.pettingzoo_envs",
    "TaskSettableEnv": "rllib.env.factories.settable_tasks",
    "make_multi_agent": "rllib.env.multi_agent.copies",
}

__getattr__, __dir__ = lazy_names(globals(), _LAZY)
