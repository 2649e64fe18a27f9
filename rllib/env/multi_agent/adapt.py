"""Adaptation of any environment with several agents to the interface of MultiAgentEnv."""

from collections.abc import Mapping
from typing import Any

from rllib.env.agents import agent_interface
from rllib.env.multi_agent.agent_spaces import ALL, AgentID, known_agents, space_method
from rllib.env.multi_agent.multi_agent_env import MultiAgentEnv, StepResult
from rllib.env.multi_agent.old_api import reset_result, step_result
from rllib.env.multi_agent.pettingzoo_envs import ParallelPettingZooEnv, PettingZooEnv
from rllib.env.multi_agent.vector_env import OneOfVector
from rllib.env.streams.sync import NEVER, take_off_wrappers


def as_multi_agent(env) -> MultiAgentEnv:
    """An environment with several agents as a MultiAgentEnv: itself, or an adapter around it.

    Args:
        env: for which `is_multi_agent(env)` holds; it may be in gymnasium's TimeLimit. A MultiAgentVectorEnv must have
            been made with num_envs=1.

    Raises:
        TypeError: if it has a single agent, or lacks a method.
    """
    if isinstance(env, MultiAgentEnv):
        return env
    bare, limit = take_off_wrappers(env)
    if bare is not env:
        return as_multi_agent(bare) if limit == NEVER else TimeLimitedAgents(as_multi_agent(bare), limit)
    interface = agent_interface(env)
    if interface is None:
        raise TypeError(
            f"{type(env).__name__} is no environment with several agents: derive it from rllib.env.MultiAgentEnv, or "
            "give it possible_agents and the methods of PettingZoo's ParallelEnv or AECEnv"
        )
    if missing := [name for name in ("reset", "step") if not callable(getattr(env, name, None))]:
        raise TypeError(f"an environment needs reset() and step(), but {type(env).__name__} lacks {missing[0]}()")
    adapters = {"turns": PettingZooEnv, "parallel": ParallelPettingZooEnv, "arrays": OneOfVector, "dict": DictEnv}
    return adapters[interface](env)


class ExtendedObservation(dict):
    """A Dict observation that a wrapper has made of another one.

    Args:
        parts: of the observation.
        own: the other one, which policies that are written by hand get.
    """

    def __init__(self, parts: Mapping, own: Any):
        super().__init__(parts)
        self.own = own_observation(own)


def own_observation(observation: Any) -> Any:
    """The environment's own observation, of one that may be extended."""
    return observation.own if isinstance(observation, ExtendedObservation) else observation


class DictEnv(MultiAgentEnv):
    """An environment with the methods of a MultiAgentEnv that is not derived from it, such as one in a wrapper."""

    def __init__(self, env):
        self.env = env
        for name in ("observation_spaces", "action_spaces", "observation_space", "action_space"):
            setattr(self, name, getattr(env, name, None))
        self.possible_agents = known_agents(env)
        if not self.possible_agents and callable(getattr(env, "get_agent_ids", None)):
            self._agent_ids = set(env.get_agent_ids())
        for kind in ("observation", "action"):
            if method := space_method(env, kind):
                setattr(self, f"get_{kind}_space", method)
        self.metadata = getattr(env, "metadata", {})
        self.render_mode = getattr(env, "render_mode", None)

    @property
    def agents(self) -> list[AgentID]:
        return list(getattr(self.env, "agents", ()))

    @property
    def unwrapped(self):
        return getattr(self.env, "unwrapped", self.env)

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> Any:
        keywords: dict[str, Any] = {} if seed is None else {"seed": seed}
        return self.env.reset(**keywords, **({} if options is None else {"options": options}))

    def step(self, action_dict: dict[AgentID, Any]) -> StepResult:
        return self.env.step(action_dict)

    def render(self):
        return self.env.render()

    def close(self) -> None:
        if hasattr(self.env, "close"):
            self.env.close()


class TimeLimitedAgents(DictEnv):
    """An environment whose episodes are truncated, for all agents, after a number of its steps.

    Args:
        env: the environment.
        limit: the number.
    """

    def __init__(self, env: MultiAgentEnv, limit: int):
        super().__init__(env)
        self._limit, self._time = limit, 0

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> Any:
        self._time = 0
        return super().reset(seed=seed, options=options)

    def step(self, action_dict: dict[AgentID, Any]) -> StepResult:
        observations, rewards, terminateds, truncateds, infos = super().step(action_dict)
        self._time += 1
        if self._time >= self._limit and not terminateds[ALL]:
            truncateds = {**truncateds, ALL: True}
        return observations, rewards, terminateds, truncateds, infos


class FourValuesEnv(DictEnv):
    """An environment of the old API (old_api.py) with the new one."""

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[dict, dict]:
        return reset_result(self.env, seed, options)

    def step(self, action_dict: dict[AgentID, Any]) -> StepResult:
        return step_result(self.env, action_dict)
