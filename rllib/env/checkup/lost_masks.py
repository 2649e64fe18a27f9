"""Masks of legal actions that wrappers or connectors would leave out of observations."""

from typing import Any

import gymnasium
from gymnasium import Space

from rllib.config.conflicts import Unfit
from rllib.env.agents import is_multi_agent
from rllib.env.multi_agent.adapt import as_multi_agent
from rllib.env.multi_agent.agent_spaces import AgentSpaces, known_agents
from rllib.models.distributions.choose import distribution_for
from rllib.models.observations.masks import has_key, num_choices


def refuse_lost_mask(mask_key: str | None, setting: str, given: Any, changed: Any) -> None:
    """Refuses wrappers or connectors that leave out the mask that an environment's observations have.

    Args:
        mask_key: key of the mask in Dict observations; None: there is none to lose.
        setting: that asked for the wrappers; its default is None.
        given: the environment, of one agent or of several that it names.
        changed: the same one in the wrappers.

    Raises:
        Unfit: if the policy would take illegal actions.
    """
    if mask_key is None or given is changed:
        return
    after = _spaces_by_agent(changed)
    for agent, (space, actions) in _spaces_by_agent(given).items():
        if agent not in after or not has_key(space, mask_key) or has_key(after[agent][0], mask_key):
            continue
        if num_choices(distribution_for(actions)):
            whose = "" if agent is None else f" of agent {agent!r}"
            raise Unfit(
                f"{setting} makes observations{whose} without the mask of legal actions: those of the environment have "
                f"the key {mask_key!r}, but the policy would read {after[agent][0]!s:.200}.",
                f"Leave it out, since networks read Dict observations as they are; or keep the mask under {mask_key!r} "
                "in a Dict, next to the changed part. With .environment(action_mask_key=None) the policy knows of no "
                "illegal actions.",
                {setting: None},
                {"action_mask_key": None},
            )


def _spaces_by_agent(env: Any) -> dict[Any, tuple[Space, Space]]:
    """Observation and action space of each agent that an environment names; of the only one under None."""
    if not is_multi_agent(env):
        return {None: (env.observation_space, env.action_space)} if isinstance(env, gymnasium.Env) else {}
    agents = as_multi_agent(env)
    of = AgentSpaces(agents)
    return {agent: (of.observation(agent), of.action(agent)) for agent in known_agents(agents)}
