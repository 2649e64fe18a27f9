"""Groups of agents: dicts by agent as dicts in which each group is one agent, and back."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gymnasium import Space, spaces

from rllib.env.multi_agent.agent_spaces import AgentID

REWARDS_KEY, INFOS_KEY, BY_AGENT_KEY = "_group_rewards", "_group_info", "individual_rewards"


class AgentGroups:
    """A division of agents into groups whose members act together. An agent that is in no group represents itself.

    Args:
        groups: {group: its agents in order}.

    Raises:
        ValueError: if an agent is in two groups, or a group is empty.
    """

    def __init__(self, groups: Mapping[AgentID, Sequence[AgentID]]):
        self.groups = {group: list(members) for group, members in groups.items()}
        self.group_of: dict[AgentID, AgentID] = {}
        for group, members in self.groups.items():
            if not members:
                raise ValueError(f"group {group!r} has no members. Leave it out, or name its agents.")
            for agent in members:
                if agent in self.group_of:
                    raise ValueError(
                        f"Agent id {agent} is in multiple groups: {self.group_of[agent]!r} and {group!r}. "
                        "An agent belongs to one group at most."
                    )
                self.group_of[agent] = group

    def ids(self, agents: Sequence[AgentID]) -> list[AgentID]:
        """Groups and single agents, each group instead of its first member."""
        return list(dict.fromkeys(self.group_of.get(agent, agent) for agent in agents))

    def space(self, group: AgentID, space_of: Callable[[AgentID], Space]) -> Space:
        """Tuple space of a group, in the order of its members; the space of an agent that represents itself."""
        if group not in self.groups:
            return space_of(group)
        return spaces.Tuple([space_of(agent) for agent in self.groups[group]])

    def join(
        self, values: Mapping[AgentID, Any], what: str, combine: Callable[[list], Any] = tuple
    ) -> dict[AgentID, Any]:
        """A dict by agent with the values of each group's members combined. "__all__" is handed through.

        Args:
            values: of agents.
            what: name of the values, for the error.
            combine: makes one value of those of all members, in their order.

        Raises:
            ValueError: if only some members of a group have a value.
        """
        joined: dict[AgentID, Any] = {}
        for agent, value in values.items():
            group = self.group_of.get(agent)
            if group is None:
                joined[agent] = value
            elif group not in joined:
                joined[group] = combine(self._of_members(group, values, what))
        return joined

    def split(self, actions: Mapping[AgentID, Any]) -> dict[AgentID, Any]:
        """Actions by agent, from those of groups and single agents."""
        by_agent: dict[AgentID, Any] = {}
        for group, action in actions.items():
            if group in self.groups:
                by_agent.update(zip(self.groups[group], action, strict=True))
            else:
                by_agent[group] = action
        return by_agent

    def infos(self, infos: Mapping[AgentID, dict], rewards: Mapping[AgentID, float]) -> dict[AgentID, dict]:
        """Infos in which a group's has its members' rewards and infos, in their order, and their rewards by agent."""
        joined = self.join(infos, "infos", lambda members: {INFOS_KEY: members})
        for group, members in self.groups.items():
            if members[0] in rewards:
                given = {agent: rewards[agent] for agent in members}
                info = joined.setdefault(group, {INFOS_KEY: [{} for _ in members]})
                info |= {REWARDS_KEY: list(given.values()), BY_AGENT_KEY: given}
        return joined

    def ends(
        self, terminateds: Mapping[AgentID, bool], truncateds: Mapping[AgentID, bool]
    ) -> tuple[dict[AgentID, bool], dict[AgentID, bool]]:
        """Both flags by group. "__all__" is handed through.

        A group is terminated if all members are. It is truncated if all are, or if each of them has ended in one way or
        the other.
        """
        terminated = self.join(terminateds, "terminateds", all)
        truncated = self.join(truncateds, "truncateds", all)
        for group, members in self.groups.items():
            has_ended = (terminateds.get(agent) or truncateds.get(agent) for agent in members)
            if not terminated.get(group) and group in truncated and all(has_ended):
                truncated[group] = True
        return terminated, truncated

    def _of_members(self, group: AgentID, values: Mapping, what: str) -> list:
        members = self.groups[group]
        if missing := [agent for agent in members if agent not in values]:
            present = [agent for agent in members if agent in values]
            raise ValueError(
                f"group {group!r} got {what} of {present}, but not of {missing}: members of a group act together. "
                "Let the environment return them for all members in the same step, or take the agents out of the group."
            )
        return [values[agent] for agent in members]
