"""Results of environments with several agents, in the form of the new API whichever they have.

The old one has observations alone from reset(), which may take no seed, and four dicts from step(). Its `dones` are
read as terminateds, unless the agent's info has "TimeLimit.truncated".
"""

from typing import Any

from rllib.env.multi_agent.agent_spaces import ALL
from rllib.env.streams.legacy import call_reset


def reset_result(env, seed: int | None = None, options: dict | None = None) -> Any:
    """(observations, infos) of a reset. What is neither a pair nor observations is for the caller to refuse."""
    result = call_reset(env, seed, options)
    return result if is_pair(result) else (result, {})


def step_result(env, action_dict: dict) -> Any:
    """The five dicts of a step. What has neither five values nor four is handed through."""
    result = env.step(action_dict)
    return five_values(result) if isinstance(result, tuple) and len(result) == 4 else result


def is_pair(result) -> bool:
    """Whether reset() returned (observations, infos) rather than observations alone."""
    return isinstance(result, tuple) and len(result) == 2


def five_values(result: tuple) -> tuple[dict, dict, dict, dict, dict]:
    """(observations, rewards, dones, infos) as a step's result with terminateds and truncateds."""
    observations, rewards, dones, infos = result
    truncateds = {
        agent: bool(done) and bool((infos.get(agent) or {}).get("TimeLimit.truncated", False))
        for agent, done in dones.items()
        if agent != ALL
    }
    terminateds = {agent: bool(dones[agent]) and not late for agent, late in truncateds.items()}
    if ALL in dones:
        # The agents' own flags say in which way each of them has ended.
        is_over_for_time = bool(dones[ALL]) and any(truncateds.values()) and not any(terminateds.values())
        truncateds[ALL], terminateds[ALL] = is_over_for_time, bool(dones[ALL]) and not is_over_for_time
    return observations, rewards, terminateds, truncateds, infos
