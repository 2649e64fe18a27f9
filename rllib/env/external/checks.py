"""Checks of the observations and actions that external loops report, against the spaces of the policy.

`Spaces` is one space for all agents, or a dict agent -> space.
"""

from collections.abc import Callable, Mapping
from typing import Any

from gymnasium import Space

from rllib.env.multi_agent.agent_spaces import RESERVED, AgentID
from rllib.env.spaces.supported import fits_at_once, logged_action, mismatch, too_large

# The agent of an environment with a single agent.
AGENT = "agent0"

Spaces = Space | Mapping[AgentID, Space]


def check_observation(spaces: Spaces, observation: Any, agent: AgentID = AGENT) -> None:
    """Raises ValueError for an observation outside of its agent's space; bounds are not checked."""
    space = space_of_agent(spaces, agent, "observation")
    if fits_at_once(space, observation, bounded=False):
        return
    problem = mismatch(space, observation, bounded=False) or too_large(space, observation, "observation")
    if problem:
        raise ValueError(_of_agent(problem, agent))


def logged_action_of(spaces: Spaces, action: Any, agent: AgentID = AGENT) -> Any:
    """Converts an action that the policy has not chosen to an element of its space; raises ValueError if it is none."""
    space = space_of_agent(spaces, agent, "action")
    if fits_at_once(space, action):
        return action
    try:
        return logged_action(space, action)
    except ValueError as error:
        raise ValueError(_of_agent(str(error), agent)) from None


def space_of_agent(spaces: Spaces, agent: AgentID, kind: str) -> Space:
    """The space of an agent; raises ValueError for an unknown agent. `kind`: "observation" or "action"."""
    space = spaces
    if isinstance(spaces, dict):  # agent -> space; gymnasium's spaces are no dicts
        if agent not in spaces:
            known = ", ".join(map(repr, spaces))
            raise ValueError(f"there is no agent {agent!r:.80}; there are {kind} spaces of {known}")
        space = spaces[agent]
    if agent in RESERVED:
        raise ValueError(f"{agent!r} is a reserved key, not the id of an agent, and has no {kind}")
    return space


def check_masks(mask_problem: Callable[..., str | None] | None, observations: Mapping, logged: Mapping | None) -> None:
    """Raises ValueError for agents without a legal action, and for logged actions that are not legal.

    Args:
        mask_problem: as the attribute of EpisodeSource.
        observations: agent -> observation.
        logged: agent -> logged action; None: no action was logged.
    """
    if mask_problem is None:
        return
    for agent, each in observations.items():
        given = () if logged is None else (logged[agent],)
        if problem := mask_problem(agent, each, *given):
            raise ValueError(_of_agent(problem, agent))


def check_logged_agents(observations: Mapping, actions: Mapping) -> None:
    """Raises ValueError unless the same agents have an observation and an action."""
    if actions.keys() != observations.keys():
        raise ValueError(
            f"log_action needs an action for each agent with an observation: {list(observations)!s:.200}, but got "
            f"{list(actions)!s:.200}"
        )


def _of_agent(problem: str, agent: AgentID) -> str:
    return problem if agent == AGENT else f"{problem} (agent {agent!r})"
