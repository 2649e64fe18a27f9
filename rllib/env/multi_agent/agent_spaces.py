"""Ids, order and spaces of the agents of an environment."""

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, Literal

from gymnasium import Space, spaces

from rllib.did_you_mean import did_you_mean
from rllib.env.spaces.legal import MASK_KEY, legal_action
from rllib.env.streams.legacy import convert_space

AgentID = Hashable
# Keys of the dicts by agent that represent no agent: the flags of the whole episode, and the info that all share.
ALL, COMMON = "__all__", "__common__"
RESERVED = (ALL, COMMON)

Kind = Literal["observation", "action"]


def known_agents(env) -> list[AgentID]:
    """All agents that may ever appear, in the environment's order; empty where it does not say.

    The order is that of `possible_agents`, else of the spaces by agent, else the natural order of `_agent_ids`.
    """
    if possible := list(getattr(env, "possible_agents", None) or ()):
        return possible
    by_agent = getattr(env, "observation_spaces", None) or getattr(env, "action_spaces", None)
    if isinstance(by_agent, Mapping) and by_agent:
        return list(by_agent)
    return in_natural_order(getattr(env, "_agent_ids", None) or ())


def in_natural_order(agents: Iterable[AgentID]) -> list[AgentID]:
    """Agents sorted as numbers or words; ids of different types by type, then as text."""
    try:
        return sorted(agents)
    except TypeError:
        return sorted(agents, key=lambda agent: (type(agent).__name__, str(agent)))


class AgentOrder:
    """Positions of agents: the known ones first, then the others by first appearance.

    Agents that appear in the same step are put into natural order, so that the order of a dict never matters. The name
    of an agent is str(agent): by it results, checkpoints, tables of policies and commands know the agent.

    Args:
        known: agents in their order, from `known_agents`.

    Raises:
        ValueError: if two agents have the same name, such as 0 and "0"; so does `meet`.
    """

    def __init__(self, known: Iterable[AgentID] = ()):
        self._positions: dict[AgentID, int] = {}
        self._by_name: dict[str, AgentID] = {}
        for agent in known:
            self._add(agent)

    def _add(self, agent: AgentID) -> None:
        if agent in self._positions:
            return
        other = self._by_name.setdefault(str(agent), agent)
        if other != agent:
            raise ValueError(
                f"agents {other!r} and {agent!r} have the same name, {str(agent)!r}, by which results, checkpoints, "
                "policies='own' and policy_mapping_fn know them. Rename one of them in the environment."
            )
        self._positions[agent] = len(self._positions)

    def meet(self, agents: Iterable[AgentID]) -> None:
        """Gives agents that have just been seen their positions, where they have none."""
        new = [agent for agent in agents if agent not in self._positions]
        for agent in in_natural_order(new) if len(new) > 1 else new:
            self._add(agent)

    def __getitem__(self, agent: AgentID) -> int:
        return self._positions[agent]

    def __contains__(self, agent: AgentID) -> bool:
        return agent in self._positions

    def __len__(self):
        return len(self._positions)

    def __iter__(self):
        return iter(self._positions)

    def sorted(self, agents: Iterable[AgentID]) -> list[AgentID]:
        """Agents that have positions, in their order."""
        return sorted(agents, key=self._positions.__getitem__)


class AgentSpaces:
    """Spaces of the agents of an environment.

    The space of an agent is, in this order: what `get_observation_space(agent)` returns, where the environment's class
    defines it; its entry of `observation_spaces`; its entry of `observation_space`, if
    this is a Dict by agent; `observation_space` itself, which all agents share. Likewise for actions. A Dict is by
    agent if each of its keys is a known agent, or, where no agents are known, if it has an entry for each agent of the
    first observations. So Dict(observations=..., action_mask=...) is one space that all agents share.

    Args:
        env: the environment.
        first_agents: agents with an observation at the first reset; they decide if no agents are known.
    """

    def __init__(self, env, first_agents: Iterable[AgentID] = ()):
        self._name = type(getattr(env, "unwrapped", env)).__name__
        self._known, self._first = set(known_agents(env)), set(first_agents)
        self._given: dict[Kind, tuple[Mapping, Any]] = {
            "observation": _given(env, "observation"),
            "action": _given(env, "action"),
        }
        self._methods = {kind: space_method(env, kind) for kind in self._given}

    def observation(self, agent: AgentID) -> Space:
        """The observation space of an agent; raises ValueError where it has none."""
        return self._space("observation", agent)

    def action(self, agent: AgentID) -> Space:
        """The action space of an agent; raises ValueError where it has none."""
        return self._space("action", agent)

    def are_by_agent(self, kind: Kind) -> bool:
        """Whether spaces of this kind are given by agent, rather than one for all."""
        by_agent, shared = self._given[kind]
        return bool(by_agent) or self._is_by_agent(shared, self._first)

    def _space(self, kind: Kind, agent: AgentID) -> Space:
        if method := self._methods[kind]:
            return convert_space(method(agent))
        by_agent, shared = self._given[kind]
        if agent in by_agent:
            return by_agent[agent]
        if self._is_by_agent(shared, self._first or {agent}):
            by_agent, shared = shared.spaces, None
            if agent in by_agent:
                return by_agent[agent]
        if shared is None:
            raise ValueError(self._missing(kind, agent, by_agent))
        return shared

    def _is_by_agent(self, space, first_agents: set) -> bool:
        if not isinstance(space, spaces.Dict):
            return False
        keys = space.spaces.keys()
        return keys <= self._known if self._known else bool(first_agents) and first_agents <= keys

    def _missing(self, kind: Kind, agent: AgentID, by_agent: Mapping) -> str:
        listed = f"{kind}_spaces has those of {', '.join(map(repr, by_agent))}" if by_agent else f"{kind}_space is None"
        return (
            f"{self._name} has no {kind} space for agent {agent!r}: {listed}.{did_you_mean(agent, by_agent, repr)} "
            f"Set self.{kind}_spaces = {{agent: space, ...}}, or self.{kind}_space to a space that all agents share."
        )


def space_method(env, kind: Kind) -> Callable[[AgentID], Space] | None:
    """The environment's own `get_observation_space` or `get_action_space`; None where it has MultiAgentEnv's."""
    method = getattr(env, f"get_{kind}_space", None)
    return method if callable(method) and not getattr(method, "is_default", False) else None


def _given(env, kind: Kind) -> tuple[Mapping, Any]:
    """({agent: space}, shared space or None) as the environment gives them, converted from the old gym package."""
    by_agent = getattr(env, f"{kind}_spaces", None)
    shared = convert_space(getattr(env, f"{kind}_space", None))
    if not isinstance(by_agent, Mapping):
        by_agent = {}
    if isinstance(shared, Mapping) and not isinstance(shared, Space):  # a plain dict instead of a Dict space
        by_agent, shared = {**shared, **by_agent}, None
    return {agent: convert_space(space) for agent, space in by_agent.items()}, shared


def random_action(observation: Any, space: Space, mask_key: str | None = MASK_KEY) -> Any:
    """A random action of an agent; a legal one where its observation has a mask.

    Args:
        observation: a dict with the key `mask_key` has a mask; a tuple of those of a group's members may have one for
            each.
        space: space of the agent's actions; its generators draw.
        mask_key: None: there are no masks.
    """
    if isinstance(space, spaces.Tuple) and isinstance(observation, tuple) and len(observation) == len(space.spaces):
        return tuple(random_action(*each, mask_key) for each in zip(observation, space.spaces))
    has_mask = mask_key is not None and isinstance(observation, Mapping)
    return legal_action(space, observation.get(mask_key) if has_mask else None)
