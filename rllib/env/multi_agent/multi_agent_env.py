"""Base class of environments with several agents, and the same environment with groups of agents.

    class Chat(MultiAgentEnv):
        possible_agents = ["speaker", "listener"]
        observation_spaces = {"speaker": Discrete(3), "listener": Discrete(5)}
        action_spaces = {"speaker": Discrete(5), "listener": Discrete(3)}

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            self.agents, self.number = ["speaker", "listener"], int(self.np_random.integers(3))
            return {"speaker": self.number}, {}

        def step(self, action_dict):
            if "speaker" in action_dict:
                return {"listener": action_dict["speaker"]}, {}, {"__all__": False}, {"__all__": False}, {}
            reward = float(action_dict["listener"] == self.number)
            return {}, {"speaker": reward, "listener": reward}, {"__all__": True}, {"__all__": False}, {}

The agents with an observation in the newest dict act in the next step, and no others.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import gymnasium
from gymnasium import Space, spaces

from rllib.env.multi_agent.agent_spaces import AgentID, AgentSpaces, known_agents
from rllib.env.multi_agent.groups import AgentGroups
from rllib.env.multi_agent.old_api import reset_result, step_result

# Key of the environment's state in observations of several agents, who are all shown the same.
ENV_STATE = "state"

StepResult = tuple[dict, dict, dict, dict, dict]


class _Number:
    """The number of an environment's agents of a list, unless it has assigned its own number, as with RLlib."""

    def __init__(self, of: str):
        self._of = of

    def __get__(self, env: Any, owner: type | None = None) -> int:
        return len(getattr(owner if env is None else env, self._of))


class MultiAgentEnv(gymnasium.Env):
    """An environment with several agents. Its methods take and return dicts by agent.

    Ids of agents are strings, ints or other hashable values; "__all__" and "__common__" are reserved. A subclass sets
    spaces in one of two forms, for observations and for actions: `observation_spaces`, a dict by agent; or
    `observation_space`, a Dict space by agent or one space that all agents share. Or it defines the methods
    `get_observation_space` and `get_action_space`, as where ids cannot be listed. It need not call
    `super().__init__()`.

    Attributes:
        observation_spaces, action_spaces: {agent: space}, or None.
        observation_space, action_space: a Dict space by agent, or the space of every agent; or None.
        agents: agents in play now.
        possible_agents: all agents that may ever appear, in the order in which they are counted; empty: not known.
    """

    observation_spaces: Mapping[AgentID, Space] | None = None
    action_spaces: Mapping[AgentID, Space] | None = None
    observation_space: Any = None
    action_space: Any = None
    # Tuples: a list here would be shared by all environments of all classes.
    agents: Sequence[AgentID] = ()
    possible_agents: Sequence[AgentID] = ()
    _agent_ids: Any = frozenset()

    def __init__(self):
        for name in ("agents", "possible_agents"):
            if getattr(self, name) == ():
                setattr(self, name, [])
        if not self._agent_ids:
            self._agent_ids = set()

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[dict, dict]:
        """Starts an episode. A subclass calls `super().reset(seed=seed)`, which seeds `self.np_random`.

        Returns:
            observations and infos, by agent.
        """
        super().reset(seed=seed)
        return {}, {}

    def step(self, action_dict: dict[AgentID, Any]) -> StepResult:
        """Makes one step with the actions of the agents that have an observation.

        Returns:
            by agent: observations of the agents that act next, rewards, terminateds, truncateds, infos. Terminateds
            and truncateds have the key "__all__" too: whether the episode is over for all agents.
        """
        raise NotImplementedError

    num_agents = _Number("agents")
    max_num_agents = _Number("possible_agents")

    def get_agent_ids(self) -> set[AgentID]:
        """Ids of the agents that are known: of all possible ones, else of those in play, else of Dict spaces."""
        if known := known_agents(self) or list(self.agents):
            return set(known)
        both = [space for space in (self.observation_space, self.action_space) if isinstance(space, spaces.Dict)]
        if len(both) == 2 and both[0].spaces.keys() == both[1].spaces.keys():
            return set(both[0].spaces)
        return set()

    def get_observation_space(self, agent_id: AgentID) -> Space:
        """The observation space of an agent; raises ValueError where it has none."""
        return AgentSpaces(self).observation(agent_id)

    get_observation_space.is_default = True

    def get_action_space(self, agent_id: AgentID) -> Space:
        """The action space of an agent; raises ValueError where it has none."""
        return AgentSpaces(self).action(agent_id)

    # A class may define these two in place of the attributes; what is found in the attributes is the default.
    get_action_space.is_default = True

    def observation_space_sample(self, agent_ids: Iterable[AgentID] | None = None) -> dict[AgentID, Any]:
        """Random observations, of all known agents unless some are named."""
        chosen = self.get_agent_ids() if agent_ids is None else agent_ids
        return {agent: self.get_observation_space(agent).sample() for agent in chosen}

    def action_space_sample(self, agent_ids: Iterable[AgentID] | None = None) -> dict[AgentID, Any]:
        """Random actions, of all known agents unless some are named."""
        chosen = self.get_agent_ids() if agent_ids is None else agent_ids
        return {agent: self.get_action_space(agent).sample() for agent in chosen}

    def observation_space_contains(self, x: Mapping[AgentID, Any]) -> bool:
        """Whether each observation of a dict by agent lies in its agent's space."""
        return all(self.get_observation_space(agent).contains(value) for agent, value in x.items())

    def action_space_contains(self, x: Mapping[AgentID, Any]) -> bool:
        """Whether each action of a dict by agent lies in its agent's space."""
        return all(self.get_action_space(agent).contains(value) for agent, value in x.items())

    def with_agent_groups(
        self,
        groups: Mapping[AgentID, Sequence[AgentID]],
        obs_space: Space | None = None,
        act_space: Space | None = None,
    ) -> "MultiAgentEnv":
        """This environment with groups that are one agent each; arguments and errors are those of GroupedEnv."""
        return GroupedEnv(self, groups, obs_space, act_space)


class GroupedEnv(MultiAgentEnv):
    """An environment in which groups of agents are one agent each.

    A group observes and acts in Tuple spaces, in the order of its members, who all act at the same time. Its reward is
    the sum of theirs. It ends in the step in which its last member ends: terminated if all members are terminated,
    otherwise truncated. Its info has `_group_rewards` and `_group_info`, lists in the order of members, and
    `individual_rewards` by agent.

    Args:
        env: the environment.
        groups: {group: its agents in order}; an agent that is in no group stays as it is.
        obs_space, act_space: spaces instead of the Tuple spaces, in one of the forms of a MultiAgentEnv.

    Raises:
        ValueError: if an agent is in two groups; in reset() and step(), if only some members of a group have an
            observation, a reward, a flag or an info.
    """

    def __init__(
        self,
        env: MultiAgentEnv,
        groups: Mapping[AgentID, Sequence[AgentID]],
        obs_space: Space | None = None,
        act_space: Space | None = None,
    ):
        self.env, self._groups = env, AgentGroups(groups)
        ids = self._groups.ids([*known_agents(env), *self._groups.group_of])
        self.possible_agents = ids if known_agents(env) else []
        self._agent_ids = set(ids)
        self.metadata, self.render_mode = env.metadata, env.render_mode
        if obs_space is None:
            self.observation_spaces = {group: self._groups.space(group, env.get_observation_space) for group in ids}
        else:
            self.observation_space = obs_space
        if act_space is None:
            self.action_spaces = {group: self._groups.space(group, env.get_action_space) for group in ids}
        else:
            self.action_space = act_space

    @property
    def agents(self) -> list[AgentID]:
        return self._groups.ids(self.env.agents)

    @property
    def unwrapped(self):
        return self.env.unwrapped

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[dict, dict]:
        observations, infos = reset_result(self.env, seed, options)
        return self._groups.join(observations, "observations"), self._groups.infos(infos, {})

    def step(self, action_dict: dict[AgentID, Any]) -> StepResult:
        groups = self._groups
        observations, rewards, terminateds, truncateds, infos = step_result(self.env, groups.split(action_dict))
        return (
            groups.join(observations, "observations"),
            groups.join(rewards, "rewards", sum),
            *groups.ends(terminateds, truncateds),
            groups.infos(infos, rewards),
        )

    def render(self):
        return self.env.render()

    def close(self) -> None:
        self.env.close()
