"""What results count: steps, episodes, returns and lengths, failures; and whose rows the steps of agents are."""

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np

from rllib import sample_batch as sb
from tests.witness.checks.rows import Columns
from tests.witness.checks.steps import Steps
from tests.witness.script import ACTION_REWARD, CRASHES, FAILURES, HUNG, Episode, Family, decoded, episode

# Name of a life: (serial, number, agent).
LifeName = tuple[int, int, int]


def check_owners(columns: Columns, policy_id: str, policies: str, owners: dict[LifeName, str]) -> None:
    """Checks that a life's rows are all of one policy, and of the right one.

    Args:
        columns: of a batch.
        policy_id: of the policy that it is for.
        policies: kind of the mapping, see grid.POLICIES.
        owners: life -> its policy so far; is extended.
    """
    rows = np.asarray(columns[sb.OBS]).reshape(-1, columns[sb.OBS].shape[-1])
    for life in {decoded(row)[:3] for row in rows if row.any()}:
        assert owners.setdefault(life, policy_id) == policy_id, f"{life} is of {owners[life]} and of {policy_id}"
        if policies == "own":
            assert policy_id.endswith(str(life[2])), f"{life} is of {policy_id}"
        if policies == "frozen":
            assert policy_id == "learner" and life[2] == 0, f"{life} is of {policy_id}"


def check_counters(
    result: Mapping,
    family: Family,
    steps: Steps,
    owners: Mapping[LifeName, str] | None = None,
    agents: Collection[int] | None = None,
    bounds: tuple[float, float] = (0.0, 1.0),
    num_environments: int = 0,
) -> None:
    """Checks what a result counts, of a run whose batches had all steps of the agents that learn.

    Args:
        result: the last one.
        family: of the scripts.
        steps: those of all batches.
        owners: life -> its policy, where there are several policies.
        agents: those whose policies learn; None: all.
        bounds: least and largest number of an action.
        num_environments: number of environments that the run has had, those before a restore among them.
    """
    agents = range(family.num_agents) if agents is None else agents
    if family.num_agents == 1:
        assert result["num_env_steps_sampled"] == len(steps.counts), "steps of environments"
        assert result["num_agent_steps_sampled"] == len(steps.counts), (
            f"{result['num_agent_steps_sampled']} steps of agents are counted, and batches had {len(steps.counts)}"
        )
    else:
        _check_agents(result, steps, owners, agents)
    _check_episodes(result, family, steps, agents, bounds, num_environments)
    if owners and family.num_agents > 1 and len(agents) == family.num_agents:
        _check_policies(result, family, steps, owners, bounds)


def _check_agents(
    result: Mapping, steps: Steps, owners: Mapping[LifeName, str] | None, agents: Collection[int]
) -> None:
    """Steps by agent and by policy."""
    counted = {int(str(name)[-1]): count for name, count in result["agent_steps_sampled"].items()}
    by_agent = Counter(agent for _, _, agent, _ in steps.counts)
    given = {agent: count for agent, count in counted.items() if agent in agents}
    assert given == by_agent, f"steps by agent: {given}, not {dict(by_agent)}"
    assert result["num_agent_steps_sampled"] == sum(counted.values())
    if owners is not None:
        by_policy = Counter(owners[step[:3]] for step in steps.counts)
        given = {name: count for name, count in result["policy_steps_sampled"].items() if name in by_policy}
        assert given == by_policy, f"steps by policy: {given}, not {dict(by_policy)}"


def _check_episodes(
    result: Mapping,
    family: Family,
    steps: Steps,
    agents: Collection[int],
    bounds: tuple[float, float],
    num_environments: int,
) -> None:
    """Episodes of the result are those of the batches, with their lengths and returns."""
    ended, maybe = ended_episodes(family, steps, agents)
    # An environment that replaces one that failed has a serial of its own. No row tells it if all are dropped, or if
    # the agents that learn have none until this one fails as well, be it in reset() after a whole episode.
    untold = CRASHES if len(agents) == family.num_agents else FAILURES
    may_be_unknown = bool({*untold} & {*family.ends}) and family.num_agents > 1
    # Nor is there a row of an environment in whose episodes no agent that learns has acted.
    is_unseen = len({serial for serial, *_ in steps.counts}) < num_environments
    may_be_unknown |= is_unseen and len(agents) < family.num_agents
    total, most = result["episodes_total"], math.inf if may_be_unknown else len(ended) + len(maybe)
    assert len(ended) <= total <= most, f"{total} episodes, not {len(ended)} to {most}"
    left = defaultdict(list)
    for name in (*ended, *maybe):
        left[len(episode(family, *name).events)].append(_return(family, name, steps, bounds))
    given = defaultdict(list)
    for length, total in zip(result["hist_stats"]["episode_lengths"], result["hist_stats"]["episode_reward"]):
        given[length].append(total)
    for length, totals in given.items():
        unknown = _unmatched(totals, left[length])
        assert not unknown or may_be_unknown, f"no episodes of {length} steps have the returns {unknown}"


def ended_episodes(family: Family, steps: Steps, agents: Collection[int] | None = None) -> tuple[list, list]:
    """Names (serial, number) of episodes that have ended, and of those that may have: their rows are complete.

    Args:
        family: of the scripts.
        steps: those of all batches.
        agents: those whose steps batches hold; None: all.
    """
    newest: dict[int, int] = defaultdict(int)
    for serial, number, *_ in steps.counts:
        newest[serial] = max(newest[serial], number)
    ended, maybe = [], []
    for serial, last in newest.items():
        for number in itertools.count():
            script = episode(family, serial, number)
            is_void = script.events[-1].end in CRASHES
            lives = {i: life for i, life in script.lives.items() if life.length and (agents is None or i in agents)}
            # The last one of several agents may go on after their rows; those behind it may have had none.
            whole = all(steps.counts[serial, number, agent, life.length - 1] for agent, life in lives.items())
            if number > last and (is_void or lives):
                break
            if not is_void and (number < last or (whole and family.num_agents == 1)):
                ended.append((serial, number))
            elif not is_void and whole:
                maybe.append((serial, number))
            if number == last and (is_void or not whole):
                break
    return ended, maybe


def _return(
    family: Family, name: tuple[int, int], steps: Steps, bounds: tuple[float, float], agents=None
) -> tuple[float, float]:
    """Least and largest return of an episode: actions that no row has are not known. `agents`: None: of all."""
    script: Episode = episode(family, *name)
    total, num_unknown = 0.0, 0
    taken = Counter()
    for event in script.events:
        total += sum(reward for agent, reward in event.rewards.items() if agents is None or agent in agents)
        taken.update(agent for agent in event.acting if agents is None or agent in agents)
    for agent, count in taken.items():
        known = [steps.actions[(*name, agent, i)] for i in range(count) if (*name, agent, i) in steps.actions]
        total += ACTION_REWARD * sum(known)
        num_unknown += count - len(known)
    low, high = (total + ACTION_REWARD * num_unknown * bound for bound in bounds)
    return low, high


def _unmatched(given: Iterable[float], bounds: Iterable[tuple[float, float]]) -> list[float]:
    """Returns that have no counterpart in a largest matching of returns and their least and largest values."""
    left, unmatched = sorted(bounds, key=lambda each: each[1]), []
    for total in sorted(given):
        # But for the rounding of float32.
        match = next((each for each in left if each[0] - 1e-5 * each[0] <= total <= each[1] + 1e-5 * each[1]), None)
        if match is None:
            unmatched.append(total)
        else:
            left.remove(match)
    return unmatched


def _check_policies(
    result: Mapping, family: Family, steps: Steps, owners: Mapping[LifeName, str], bounds: tuple[float, float]
) -> None:
    """Returns of agents by policy: each agent that has had an observation in an episode has one."""
    ended, maybe = ended_episodes(family, steps)
    may_be_unknown = bool({*CRASHES} & {*family.ends})
    for policy_id in result["policy_reward_mean"]:
        left = []
        for name in (*ended, *maybe):
            script = episode(family, *name)
            present = {*script.first, *(agent for event in script.events for agent in event.seen)}
            # The policy of an agent without rows is not known.
            own = {agent for agent in present if owners.get((*name, agent), policy_id) == policy_id}
            left += [_return(family, name, steps, bounds, {agent}) for agent in own]
        unknown = _unmatched(result["hist_stats"][f"policy_{policy_id}_reward"], left)
        assert not unknown or may_be_unknown, f"no agents of the policy {policy_id!r} have the returns {unknown}"


def check_failures(results: Sequence[Mapping], family: Family, steps: Steps, case: Mapping) -> None:
    """Checks that environments were replaced where scripts say so alone, and workers where they were killed alone."""
    failing = {step[:2] for step in steps.counts if episode(family, *step[:2]).events[-1].end in FAILURES}
    # All environments of a vector are replaced with one of them.
    at_once = case["envs"] if case["door"].startswith(("vector", "tensors")) else 1
    faulty = sum(result["num_faulty_episodes"] for result in results)
    # Of several agents an episode may fail before anybody has a row, and slow calls are taken for hangs.
    assert family.num_agents > 1 or HUNG in family.ends or faulty <= len(failing) * at_once, (
        f"{faulty} episodes were given up, of {len(failing)} that fail"
    )
    if case["workers"]:
        restarts = results[-1]["num_remote_worker_restarts"]
        # A round that does not wait for a worker may be over before its death is known.
        least = case["killed"] and case["quorum"] == 1
        assert least <= restarts <= case["killed"], f"{restarts} restarts of workers"
