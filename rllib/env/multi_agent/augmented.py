"""Observations of agents with more in them: which agent it is, and what a centralised critic reads."""

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
from gymnasium import Space, spaces

from rllib.config.conflicts import Unfit
from rllib.env.multi_agent.adapt import ExtendedObservation
from rllib.env.multi_agent.agent_parts import AGENT_ID, OBSERVATION, AgentParts
from rllib.env.multi_agent.agent_spaces import AgentID, AgentSpaces, known_agents
from rllib.env.multi_agent.agents_wrapper import AgentsWrapper
from rllib.env.multi_agent.multi_agent_env import ENV_STATE, MultiAgentEnv, StepResult
from rllib.env.multi_agent.old_api import reset_result, step_result


class AugmentedEnv(AgentsWrapper):
    """An environment with several agents whose observations get further parts.

    Args:
        env: the environment; it has possible_agents.
        agent_ids: observations get a one-hot of the agent's position in possible_agents.
        critic: what observations get as `state`, which the value reads and the policy does not: "joint", the flat
            observations of all agents, own first, each with a 1 (zeros where an agent has none); "state", the
            environment's `state()`, or `infos["__common__"]["state"]`.
        left_out: keys of Dict observations that "joint" does not have, since no policy reads them.

    Raises:
        Unfit: (a ValueError) if the environment does not say which agents there are, or observations cannot be
            extended.
    """

    def __init__(
        self, env: MultiAgentEnv, agent_ids: bool = False, critic: str | None = None, left_out: Collection[str] = ()
    ):
        super().__init__(env)
        if not self.possible_agents:
            what = "agent_id_in_observation" if agent_ids else "centralized_critic"
            raise Unfit(
                f"{what} needs to know all agents, but {type(env).__name__} has no possible_agents.",
                f"Set it to the list of all agents that may ever appear, or leave {what} out.",
                {what: False},
            )
        self._own = {agent: self._spaces.observation(agent) for agent in self.possible_agents}
        self.action_spaces = {agent: self._spaces.action(agent) for agent in self.possible_agents}
        state_space = _state_space(env) if critic == "state" else None
        self.augmentation = Augmentation(self._own, agent_ids, critic, state_space, left_out)
        self.observation_spaces = self.augmentation.spaces

    def get_observation_space(self, agent_id: AgentID) -> Space:
        return self.observation_spaces[agent_id]

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[dict, dict]:
        observations, infos = reset_result(self.env, seed, options)
        return self._augmented(observations, infos), infos

    def step(self, action_dict: dict[AgentID, Any]) -> StepResult:
        observations, *rest = step_result(self.env, action_dict)
        return self._augmented(observations, rest[-1]), *rest

    def _augmented(self, observations: Mapping[AgentID, Any], infos: Mapping) -> dict[AgentID, Any]:
        state = None
        if self.augmentation.critic == "state":
            common = infos.get("__common__") or {}
            state = common["state"] if "state" in common else self.env.unwrapped.state()
        return self.augmentation.of_all(observations, state)

    def render(self):
        return self.env.render()

    def close(self) -> None:
        self.env.close()


class Augmentation:
    """Further parts of agents' observations, and the spaces that they have then.

    Args:
        own: agent -> the space of the environment.
        agent_ids, critic: as for AugmentedEnv.
        state_space: space of what the critic reads, where that is the environment's state.
        left_out: as for AugmentedEnv.
    """

    def __init__(
        self,
        own: Mapping[AgentID, Space],
        agent_ids: bool,
        critic: str | None,
        state_space: Space | None = None,
        left_out: Collection[str] = (),
    ):
        self._own, self._agents, self.critic = dict(own), list(own), critic
        self._one_hot = np.eye(len(self._agents), dtype=np.float32) if agent_ids else None
        # What policies read of these, which a critic reads of all agents.
        self._read = {agent: _without(space, left_out) for agent, space in own.items()}
        self._widths = {agent: spaces.flatdim(space) for agent, space in self._read.items()}
        for agent, space in self._read.items():
            _check_extendable(agent, space, agent_ids, critic)
        self._state_space = state_space
        self.spaces = {agent: self._space(agent) for agent in self._agents}

    def _space(self, agent: AgentID) -> Space:
        own = self._own[agent]
        parts = dict(own.spaces) if isinstance(own, spaces.Dict) else {OBSERVATION: own}
        if self._one_hot is not None:
            parts[AGENT_ID] = spaces.Box(0, 1, (len(self._agents),), np.float32)
        if self.critic == "joint":
            width = sum(self._widths.values()) + len(self._agents)
            parts[ENV_STATE] = spaces.Box(-np.inf, np.inf, (width,), np.float32)
        elif self.critic == "state" and ENV_STATE not in parts:
            parts[ENV_STATE] = self._state_space
        return spaces.Dict(parts)

    def of_all(self, observations: Mapping[AgentID, Any], state: Any = None) -> dict[AgentID, Any]:
        """The observations of one step with their further parts; `state` is the environment's."""
        flat = {}
        if self.critic == "joint":
            flat = {agent: spaces.flatten(self._read[agent], seen) for agent, seen in observations.items()}
        return {agent: self._one(agent, seen, flat, state) for agent, seen in observations.items()}

    @property
    def parts(self) -> AgentParts:
        """What adds the parts to the observation of one agent outside of training."""
        agents = () if self._one_hot is None else tuple(map(str, self._agents))
        return AgentParts(agents, self.critic is not None)

    def _one(self, agent: AgentID, observation: Any, flat: Mapping[AgentID, np.ndarray], state: Any) -> dict[str, Any]:
        parts = dict(observation) if isinstance(self._own[agent], spaces.Dict) else {OBSERVATION: observation}
        if self._one_hot is not None:
            parts[AGENT_ID] = self._one_hot[self._agents.index(agent)]
        if self.critic == "joint":
            others = [each for each in self._agents if each != agent]
            joint = [
                part
                for each in (agent, *others)
                for part in ((flat[each], (1.0,)) if each in flat else (np.zeros(self._widths[each]), (0.0,)))
            ]
            parts[ENV_STATE] = np.concatenate(joint, dtype=np.float32, casting="unsafe")
        elif self.critic == "state" and ENV_STATE not in parts:
            parts[ENV_STATE] = state
        return ExtendedObservation(parts, observation)


def _without(space: Space, keys: Collection[str]) -> Space:
    """The space without keys of a Dict."""
    if not isinstance(space, spaces.Dict):
        return space
    return spaces.Dict({key: part for key, part in space.spaces.items() if key not in keys})


def _check_extendable(agent: AgentID, space: Space, agent_ids: bool, critic: str | None) -> None:
    leaves = space.spaces.values() if isinstance(space, spaces.Dict) else [space]
    if any(isinstance(leaf, spaces.Box) and len(leaf.shape) > 1 for leaf in leaves):
        asked = [*["agent_id_in_observation"] * agent_ids, *["centralized_critic"] * bool(critic)]
        raise Unfit(
            f"agent {agent!r} observes {space}, but {' and '.join(asked)} can only extend flat observations.",
            f"Leave {' and '.join(asked)} out, or let the environment give features.",
            dict.fromkeys(asked, False),
        )
    if agent_ids and isinstance(space, spaces.Dict) and AGENT_ID in space.spaces:
        raise Unfit(
            f"agent {agent!r} observes the key {AGENT_ID!r}, which agent_id_in_observation would add.",
            "Rename it, or leave agent_id_in_observation out.",
            {"agent_id_in_observation": False},
        )
    if critic and isinstance(space, spaces.Dict) and (late := [key for key in space.spaces if key > ENV_STATE]):
        raise Unfit(
            f"agent {agent!r} observes the key {late[0]!r}, which stands behind {ENV_STATE!r}; what the critic alone "
            "reads has to be the last part.",
            "Rename it, or leave centralized_critic out.",
            {"centralized_critic": False},
        )


def _state_space(env: MultiAgentEnv) -> Space:
    """The space of the environment's state.

    Raises:
        Unfit: (a ValueError) if it has none.
    """
    space = getattr(env, "state_space", None) or getattr(env.unwrapped, "state_space", None)
    if space is None:
        own = AgentSpaces(env)
        first = own.observation(known_agents(env)[0])
        if isinstance(first, spaces.Dict) and ENV_STATE in first.spaces:
            return first.spaces[ENV_STATE]
        raise Unfit(
            f"centralized_critic='state' reads the environment's state, but {type(env).__name__} has no state_space.",
            "Set it, and return the state by state() or infos['__common__']['state']; or use centralized_critic=True.",
            {"centralized_critic": True},
        )
    return space
