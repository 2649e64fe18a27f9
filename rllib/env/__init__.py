"""Environments: from ids, classes and functions to streams of transitions."""

from rllib.env.actions import ActionMapper
from rllib.env.checks import check_environment
from rllib.env.episodes import Episode, EpisodeTracker
from rllib.env.registry import EnvContext, EnvFactory, register_env, resolve
from rllib.env.stream import EnvironmentStream
from rllib.env.vector import make_stream

__all__ = [
    "ActionMapper",
    "EnvContext",
    "EnvFactory",
    "EnvironmentStream",
    "Episode",
    "EpisodeTracker",
    "check_environment",
    "make_stream",
    "register_env",
    "resolve",
]
