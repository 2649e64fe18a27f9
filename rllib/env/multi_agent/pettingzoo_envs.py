"""PettingZoo's environments as MultiAgentEnvs. Nothing here imports PettingZoo: the objects are given."""

from typing import Any

from gymnasium import Space

from rllib.env.multi_agent.agent_spaces import ALL, AgentID
from rllib.env.multi_agent.multi_agent_env import MultiAgentEnv, StepResult


class _Adapted(MultiAgentEnv):
    """Parts that both adapters share.

    Args:
        env: PettingZoo's environment.
    """

    def __init__(self, env):
        self.env = env
        self.possible_agents = list(getattr(env, "possible_agents", ()))
        self.observation_spaces = {agent: env.observation_space(agent) for agent in self.possible_agents}
        self.action_spaces = {agent: env.action_space(agent) for agent in self.possible_agents}
        self.metadata = getattr(env, "metadata", None) or {}
        self.render_mode = getattr(env, "render_mode", None)

    @property
    def agents(self) -> list[AgentID]:
        return list(self.env.agents)

    @property
    def unwrapped(self):
        return self.env.unwrapped

    def get_observation_space(self, agent_id: AgentID) -> Space:
        return self.env.observation_space(agent_id)

    def get_action_space(self, agent_id: AgentID) -> Space:
        return self.env.action_space(agent_id)

    @property
    def state_space(self) -> Space | None:
        """Space of `state()`; None where the environment gives none."""
        return getattr(self.env, "state_space", None)

    def state(self):
        """The state of the whole environment, which no agent sees."""
        return self.env.state()

    def render(self):
        return self.env.render()

    def close(self) -> None:
        self.env.close()

    def _meet_agents(self) -> None:
        """Reads the spaces of agents that the environment has not named before."""
        for agent in self.env.agents:
            if agent not in self.observation_spaces:
                self.observation_spaces[agent] = self.env.observation_space(agent)
                self.action_spaces[agent] = self.env.action_space(agent)


class ParallelPettingZooEnv(_Adapted):
    """PettingZoo's ParallelEnv, whose agents all act in each step.

    An agent that has ended gives its final observation in that step. When no agents are left, the episode is over:
    terminated if all that were left have terminated in the last step, else truncated.

    Args:
        env: the ParallelEnv.
    """

    def __init__(self, env):
        super().__init__(env)
        self.par_env = env

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[dict, dict]:
        observations, infos = self.env.reset(seed=seed, options=options)
        self._meet_agents()
        return dict(observations), dict(infos)

    def step(self, action_dict: dict[AgentID, Any]) -> StepResult:
        before = self.env.agents[:]
        observations, rewards, terminations, truncations, infos = self.env.step(action_dict)
        after, agents = self.env.agents, dict.fromkeys(before)
        if after != before:
            self._meet_agents()
            agents.update(dict.fromkeys(after))
        # Some environments continue to return entries of agents that have ended earlier: their rewards count.
        observations, terminateds, truncateds, infos = [
            dict(values) if values.keys() == agents.keys() else {a: values[a] for a in agents if a in values}
            for values in (observations, terminations, truncations, infos)
        ]
        is_over = not after
        has_terminated = is_over and all(terminateds.values())
        terminateds[ALL], truncateds[ALL] = has_terminated, is_over and not has_terminated
        return observations, dict(rewards), terminateds, truncateds, infos


class PettingZooEnv(_Adapted):
    """PettingZoo's AECEnv: in each step one agent acts, the one that has an observation.

    A step's rewards are what that action has brought every agent, those that have ended included. Agents that have
    ended give their final observations in that step. They may stay in `agents` until their turn, in which they are
    stepped with None, as PettingZoo asks for.

    Args:
        env: the AECEnv.
    """

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[dict, dict]:
        self.env.reset(seed=seed, options=options)
        self._ended: set[AgentID] = set()
        self._meet_agents()
        return self._turn(), dict(self.env.infos)

    def step(self, action_dict: dict[AgentID, Any]) -> StepResult:
        env = self.env
        if list(action_dict) != [env.agent_selection]:
            given = f"there are actions of {list(action_dict)}" if action_dict else "there is no action"
            raise ValueError(
                f"it is the turn of agent {env.agent_selection!r}, but {given}. Give one action, of the agent that "
                "has an observation."
            )
        env.step(action_dict[env.agent_selection])
        self._meet_agents()
        # Not `_cumulative_rewards`, which start again for the agent that acts.
        rewards, infos = dict(env.rewards), dict(env.infos)
        terminateds, truncateds = (
            {agent: bool(flag) for agent, flag in flags.items() if agent not in self._ended}
            for flags in (env.terminations, env.truncations)
        )
        ended = [agent for agent in terminateds if terminateds[agent] or truncateds[agent]]
        observations = {agent: env.observe(agent) for agent in ended}
        self._ended.update(ended)
        while env.agents and (env.terminations[env.agent_selection] or env.truncations[env.agent_selection]):
            env.step(None)
        observations |= self._turn()
        is_over = not env.agents
        has_terminated = is_over and all(terminateds.values())
        terminateds[ALL], truncateds[ALL] = has_terminated, is_over and not has_terminated
        return observations, rewards, terminateds, truncateds, infos

    def _turn(self) -> dict[AgentID, Any]:
        """Observation of the agent that acts next; empty where none is left."""
        env = self.env
        return {env.agent_selection: env.observe(env.agent_selection)} if env.agents else {}
