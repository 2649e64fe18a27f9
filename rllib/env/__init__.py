"""Environments: from ids, classes and functions to streams of transitions."""

import importlib

from rllib.did_you_mean import missing
from rllib.env.agents import is_multi_agent
from rllib.env.checkup.driver import check_environment
from rllib.env.episodes import Episode, EpisodeTracker
from rllib.env.factories.make import make_stream
from rllib.env.factories.registry import EnvContext, EnvFactory, register_env, resolve
from rllib.env.spaces.actions import ActionMapper
from rllib.env.streams.base import EnvironmentStream

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


def __getattr__(name: str):
    if name not in _LAZY:
        raise missing(__name__, name, __all__, None)
    globals()[name] = value = getattr(importlib.import_module(_LAZY[name]), name)
    return value
