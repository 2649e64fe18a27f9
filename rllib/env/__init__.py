"""Environments: from ids, classes and functions to streams of transitions."""

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
    "check_environment",
    "make_stream",
    "register_env",
    "resolve",
]
