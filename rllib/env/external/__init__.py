"""Environments that drive their own loop, and ask for actions."""

from rllib.env.external.external_env import ExternalEnv, ExternalMultiAgentEnv

__all__ = ["ExternalEnv", "ExternalMultiAgentEnv"]
