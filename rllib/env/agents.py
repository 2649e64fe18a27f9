"""Recognition of environments with several agents, or a loop of their own, by what they offer: no class is imported."""

from typing import Literal

from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker, TimeLimit

# dict: MultiAgentEnv, whose methods take and return dicts by agent; parallel and turns: PettingZoo's ParallelEnv and
# AECEnv; arrays: MultiAgentVectorEnv.
AgentInterface = Literal["dict", "parallel", "turns", "arrays"]
# Wrappers that leave dicts by agent as they are; others may make an environment with one agent.
STANDARD_WRAPPERS = (TimeLimit, OrderEnforcing, PassiveEnvChecker)
# By what an environment serves its agents, which adapters change: the one inside an adapter does not speak for it.
INTERFACE_NAMES = frozenset({
    "action_space", "action_spaces", "agent_iter", "agent_selection", "agents", "get_action_space", "get_agent_ids",
    "get_observation_space", "num_envs", "observation_space", "observation_spaces", "possible_agents",
})  # fmt: skip


def agent_interface(env) -> AgentInterface | None:
    """The interface by which an environment serves several agents; None for one with a single agent."""
    while type(env) in STANDARD_WRAPPERS:
        env = env.env
    if callable(getattr(env, "agent_iter", None)):
        return "turns"
    if callable(getattr(env, "observation_space", None)):
        return "parallel"
    if hasattr(env, "possible_agents"):
        return "arrays" if hasattr(env, "num_envs") else "dict"
    return "dict" if callable(getattr(env, "get_agent_ids", None)) else None


def is_multi_agent(env) -> bool:
    """Whether an environment has several agents: a MultiAgentEnv, PettingZoo's of both kinds, a MultiAgentVectorEnv."""
    return agent_interface(env) is not None


def is_external(env) -> bool:
    """Whether an environment drives its own loop: an ExternalEnv, or the policy server of clients."""
    asks = callable(getattr(env, "start_episode", None)) and callable(getattr(env, "get_action", None))
    return asks or callable(getattr(env, "describe_silence", None))
