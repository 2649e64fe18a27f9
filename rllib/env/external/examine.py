"""Examination of an environment that drives its own loop, in the driver, before any worker starts."""

from gymnasium import Space

from rllib.env.external.checks import AGENT
from rllib.env.external.source import EpisodeSource
from rllib.env.multi_agent.examine import ExaminedAgents
from rllib.env.spaces.supported import check_spaces


def examine_external(env: EpisodeSource, name: str) -> tuple[Space | None, Space | None, ExaminedAgents | None]:
    """Returns the spaces of an external environment without starting its loop.

    Args:
        env: an environment made for this call, which closes it.
        name: name of the environment, for error messages.

    Returns:
        (observation space, action space, None) with a single agent, (None, None, agents) with several.

    Raises:
        ValueError: if a space is not supported.
        TypeError: if `ExternalEnv.__init__` was not called.
    """
    if not hasattr(env, "exchange"):
        raise TypeError(
            f"{type(env).__name__} has not called super().__init__(action_space, observation_space), as an ExternalEnv "
            "must"
        )
    env.close()
    spaces = env.observation_space, env.action_space
    if not env.has_several_agents:
        check_spaces(*spaces, name)
        return *spaces, None
    observed, acted = spaces
    if isinstance(observed, dict) != isinstance(acted, dict):
        raise ValueError(f"{name}: give both spaces by agent, or both for all agents")
    by_agent = {each: (observed[each], acted[each]) for each in observed} if isinstance(observed, dict) else {}
    for pair in by_agent.values() or [spaces]:
        check_spaces(*pair, name)
    return None, None, ExaminedAgents(name, tuple(by_agent), bool(by_agent), by_agent or {AGENT: spaces})
