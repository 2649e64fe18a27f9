"""What results count: steps, episodes, returns and lengths."""

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Mapping

from tests.witness.checks.steps import Steps
from tests.witness.script import ACTION_REWARD, CRASHED, Episode, Family, episode

# Largest action of the scripts' environments.
MOST = 1


def check_counters(result: Mapping, family: Family, steps: Steps, policy_of=None) -> None:
    """Checks what a result counts, of a run whose batches had all steps.

    Args:
        result: the last one.
        family: of the scripts.
        steps: those of all batches.
        policy_of: gives the policy's id of an agent, where there are several policies.
    """
    assert result["num_agent_steps_sampled"] == len(steps.counts), (
        f"{result['num_agent_steps_sampled']} steps of agents are counted, and batches had {len(steps.counts)}"
    )
    _check_episodes(result, family, steps)
    if family.num_agents == 1:
        assert result["num_env_steps_sampled"] == len(steps.counts), "steps of environments"
        return
    by_agent = Counter(str(agent) for _, _, agent, _ in steps.counts)
    given = {str(agent): count for agent, count in result["agent_steps_sampled"].items()}
    assert given == by_agent, f"steps by agent: {given}, not {dict(by_agent)}"
    if policy_of is not None:
        by_policy = Counter(policy_of(agent) for _, _, agent, _ in steps.counts)
        assert result["policy_steps_sampled"] == by_policy, f"steps by policy, not {dict(by_policy)}"
        _check_policies(result, family, steps, policy_of)


def _check_episodes(result: Mapping, family: Family, steps: Steps) -> None:
    """Episodes of the result are those of the batches, with their lengths and returns."""
    ended, maybe = ended_episodes(family, steps)
    # An environment that replaces one that failed has a serial of its own, which no row tells if all are dropped.
    may_be_unknown = CRASHED in family.ends and family.num_agents > 1
    total, most = result["episodes_total"], math.inf if may_be_unknown else len(ended) + len(maybe)
    assert len(ended) <= total <= most, f"{total} episodes, not {len(ended)} to {most}"
    left = defaultdict(list)
    for name in (*ended, *maybe):
        low, high = _return(family, name, steps)
        left[len(episode(family, *name).events)].append((low, high))
    for length, given in zip(result["hist_stats"]["episode_lengths"], result["hist_stats"]["episode_reward"]):
        fitting = [bounds for bounds in left[length] if bounds[0] <= given <= bounds[1]]
        if not fitting and may_be_unknown:
            continue
        assert fitting, f"no episode of {length} steps has the return {given}; those that are left: {left[length]}"
        left[length].remove(fitting[0])


def ended_episodes(family: Family, steps: Steps) -> tuple[list, list]:
    """Names (serial, number) of episodes that have ended, and of those that may have: their rows are complete."""
    newest: dict[int, int] = defaultdict(int)
    for serial, number, *_ in steps.counts:
        newest[serial] = max(newest[serial], number)
    ended, maybe = [], []
    for serial, last in newest.items():
        for number in itertools.count():
            script = episode(family, serial, number)
            is_void = script.events[-1].end == CRASHED
            lives = script.lives.items()
            # The last one of several agents may go on after their rows; those behind it may have had none.
            whole = all(steps.counts[serial, number, agent, life.length - 1] for agent, life in lives if life.length)
            if number > last and (is_void or any(life.length for _, life in lives)):
                break
            if not is_void and (number < last or (whole and family.num_agents == 1)):
                ended.append((serial, number))
            elif not is_void and whole:
                maybe.append((serial, number))
            if number == last and (is_void or not whole):
                break
    return ended, maybe


def _return(family: Family, name: tuple[int, int], steps: Steps, agents=None) -> tuple[float, float]:
    """Least and largest return of an episode: actions that no row has are not known. `agents`: None: of all."""
    script: Episode = episode(family, *name)
    low = high = 0.0
    taken = Counter()
    for event in script.events:
        low += sum(reward for agent, reward in event.rewards.items() if agents is None or agent in agents)
        for agent in event.acting:
            if agents is None or agent in agents:
                taken[agent] += 1
    high = low
    for agent, count in taken.items():
        known = [steps.actions[(*name, agent, i)] for i in range(count) if (*name, agent, i) in steps.actions]
        low += ACTION_REWARD * sum(known)
        high += ACTION_REWARD * (sum(known) + MOST * (count - len(known)))
    return low, high


def _check_policies(result: Mapping, family: Family, steps: Steps, policy_of) -> None:
    """Returns of agents by policy: each agent that has had an observation in an episode has one."""
    ended, maybe = ended_episodes(family, steps)
    for policy_id in result["policy_reward_mean"]:
        left = []
        for name in (*ended, *maybe):
            script = episode(family, *name)
            present = {*script.first, *(agent for event in script.events for agent in event.seen)}
            left += [_return(family, name, steps, {a}) for a in present if policy_of(a) == policy_id]
        for given in result["hist_stats"][f"policy_{policy_id}_reward"]:
            fitting = [bounds for bounds in left if bounds[0] <= given <= bounds[1]]
            assert fitting, f"no agent of the policy {policy_id!r} has the return {given}"
            left.remove(fitting[0])
