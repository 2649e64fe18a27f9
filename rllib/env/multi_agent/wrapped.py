"""Factories that wrap environments with several agents: adapted and augmented observations, and given spaces."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from gymnasium import Space

from rllib.env.agents import is_multi_agent
from rllib.env.factories.adapter import ActionRow, AdaptedFactory, Adapter, StepInputs
from rllib.env.factories.registry import EnvContext, WrappingFactory
from rllib.env.multi_agent.adapt import DictEnv, ExtendedObservation, as_multi_agent
from rllib.env.multi_agent.agent_spaces import AgentID, space_method
from rllib.env.multi_agent.agents_wrapper import AgentsWrapper
from rllib.env.multi_agent.augmented import AugmentedEnv
from rllib.env.multi_agent.multi_agent_env import MultiAgentEnv, StepResult
from rllib.env.multi_agent.old_api import reset_result, step_result
from rllib.env.streams.first_results import env_name


class AdaptedAgents(AgentsWrapper):
    """An environment with several agents, with the observations that an adapter makes of each agent's own.

    An agent's previous action is the one that it took last, and its previous reward is the sum of what it got since
    then, however many steps of the environment lie between.

    Args:
        env: the environment.
        adapter: changes the observations.

    Raises:
        ValueError: if the observations cannot be adapted.
    """

    def __init__(self, env: MultiAgentEnv, adapter: Adapter):
        super().__init__(env)
        self._adapter = adapter
        if self.possible_agents:
            adapter.refuse_agents([self._spaces.observation(agent) for agent in self.possible_agents], env_name(env))
        self._rows: dict[AgentID, ActionRow] = {}
        # Of this episode, by agent: the newest action, and the rewards since.
        self._actions: dict[AgentID, Any] = {}
        self._rewards: dict[AgentID, float] = {}

    def get_observation_space(self, agent_id: AgentID) -> Space:
        return self._adapter.space(self._spaces.observation(agent_id), self._spaces.action(agent_id))

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[dict, dict]:
        observations, infos = reset_result(self.env, seed, options)
        self._actions, self._rewards = {}, {}
        return self._adapted(observations, infos), infos

    def step(self, action_dict: dict[AgentID, Any]) -> StepResult:
        for agent, action in action_dict.items():
            self._actions[agent], self._rewards[agent] = action, 0.0
        observations, rewards, *rest = step_result(self.env, action_dict)
        for agent in self._actions:
            self._rewards[agent] += rewards.get(agent) or 0.0
        return self._adapted(observations, rest[-1]), rewards, *rest

    def _adapted(self, observations: Mapping[AgentID, Any], infos: Mapping) -> dict[AgentID, Any]:
        return {agent: self._of(agent, seen, infos.get(agent) or {}) for agent, seen in observations.items()}

    def _of(self, agent: AgentID, observation: Any, info: Mapping) -> Any:
        row = self._rows.get(agent)
        if row is None:
            row = self._rows[agent] = ActionRow(self._spaces.action(agent))
        previous = {"prev_action": self._actions.get(agent), "prev_reward": self._rewards.get(agent)}
        mask = self._adapter.mask_in(info, f"agent {agent!r}")
        adapted = self._adapter.row(observation, StepInputs(row, **previous, action_mask=mask))
        # A policy that is written by hand needs the mask, too; and what is no Dict is as it was.
        is_own = mask is not None or not isinstance(adapted, Mapping)
        return adapted if is_own else ExtendedObservation(adapted, observation)

    def render(self):
        return self.env.render()

    def close(self) -> None:
        self.env.close()


class AdaptedAgentsFactory(AdaptedFactory):
    """A factory that adapts the observations of environments with one agent or several."""

    def make(self, context: EnvContext):
        env = self.factory.make(context)
        return AdaptedAgents(as_multi_agent(env), self.adapter) if is_multi_agent(env) else self.adapted(env)


@dataclass(frozen=True)
class AugmentedAgentsFactory(WrappingFactory):
    """Makes another factory's environments with ids of the agents, or a critic's inputs, in their observations.

    Attributes:
        agent_ids, critic, left_out: see AugmentedEnv (rllib/env/multi_agent/augmented.py).
    """

    agent_ids: bool = False
    critic: str | None = None
    left_out: tuple[str, ...] = ()

    def make(self, context: EnvContext):
        env = self.factory.make(context)
        if not is_multi_agent(env):
            return env  # what follows says that it has one agent
        return AugmentedEnv(as_multi_agent(env), self.agent_ids, self.critic, self.left_out)


# Agent -> its observation space and its action space.
SpacesOf = Callable[[AgentID], tuple[Space, Space]]


class AgentsWithSpaces(DictEnv):
    """An environment whose agents have the spaces that a function names.

    Args:
        env: the environment.
        spaces_of: the function.
    """

    def __init__(self, env: MultiAgentEnv, spaces_of: SpacesOf):
        super().__init__(env)
        self._spaces_of = spaces_of

    def get_observation_space(self, agent_id: AgentID) -> Space:
        return self._spaces_of(agent_id)[0]

    def get_action_space(self, agent_id: AgentID) -> Space:
        return self._spaces_of(agent_id)[1]


@dataclass(frozen=True)
class GivenSpacesFactory(WrappingFactory):
    """Makes another factory's environments, with spaces for agents where they have none.

    Attributes:
        spaces_of: agent -> its spaces.
    """

    spaces_of: SpacesOf

    def make(self, context: EnvContext):
        env = self.factory.make(context)
        if not is_multi_agent(env):
            return env
        env = as_multi_agent(env)
        return (
            env
            if any(has_spaces(env, kind) for kind in ("observation", "action"))
            else AgentsWithSpaces(env, self.spaces_of)
        )


def has_spaces(env: MultiAgentEnv, kind: str) -> bool:
    """Whether an environment says which spaces of a kind its agents have."""
    given = getattr(env, f"{kind}_spaces"), getattr(env, f"{kind}_space")
    return any(space is not None for space in given) or space_method(env, kind) is not None
