"""Checks of what results count, from the scripts and the steps that batches had."""

from collections import Counter
from collections.abc import Container, Mapping, Sequence

import numpy as np

from rllib import sample_batch as sb
from tests.witness.checks import Columns, Steps, life_of
from tests.witness.script import ACTION_REWARD, CRASHES, FAILURES, Family, decoded, episode

# Name of a life: (serial, number, agent).
Life = tuple[int, int, int]


def check_owners(columns: Columns, policy_id: str, policies: str, owners: dict[Life, str]) -> None:
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
    result: Mapping, family: Family, steps: Steps, owners: Mapping[Life, str], agents: Container[int]
) -> None:
    """Checks what a result counts, of a run whose batches had all steps of these agents: steps, episodes, lengths.

    Args:
        result: the last one.
        family: of the scripts.
        steps: those of all batches.
        owners: life -> policy.
        agents: those whose policies learn.
    """
    if family.num_agents > 1:
        _check_agents(result, steps, owners)
    else:
        assert result["num_agent_steps_sampled"] == result["num_env_steps_sampled"] == len(steps.counts)
    ended = {step[:2] for step in steps.counts if step[3] == life_of(family, step).length - 1}
    whole = Counter(len(episode(family, *name).events) for name in ended if not _crashed(family, name))
    lengths = Counter(result["hist_stats"]["episode_lengths"])
    if family.num_agents > 1:  # an agent may have ended before the others, and nobody need have acted
        return
    assert not lengths - whole, f"episodes of these lengths were not in the batches: {lengths - whole}"
    assert result["episodes_total"] == whole.total()
    returns = [_return_of(family, name, steps) for name in ended if not _crashed(family, name)]
    for given in result["hist_stats"]["episode_reward"]:
        nearest = min(returns, key=lambda each: abs(each - given))
        assert abs(nearest - given) < 1e-5 * given, f"no episode has the return {given}; the nearest is {nearest}"
        returns.remove(nearest)


def _check_agents(result, steps, owners):
    """Steps by agent and by policy; policies that do not learn have no rows in batches."""
    by_agent = Counter(step[2] for step in steps.counts)
    by_policy = Counter(owners[step[:3]] for step in steps.counts)
    for name, count in result["agent_steps_sampled"].items():
        agent = int(str(name)[-1])
        assert count == by_agent[agent] or agent not in by_agent, f"agent {name}: {count}, not {by_agent[agent]}"
    for policy_id, count in by_policy.items():
        assert result["policy_steps_sampled"][policy_id] == count, f"policy {policy_id}"
    assert result["num_agent_steps_sampled"] == sum(result["agent_steps_sampled"].values())


def _return_of(family, name, steps):
    life = episode(family, *name).lives[0]
    own = sum(steps.actions[(*name, 0, t)] for t in range(life.length))
    return sum(life.rewards) + ACTION_REWARD * own


def _crashed(family: Family, name: tuple[int, int]) -> bool:
    return episode(family, *name).events[-1].end in CRASHES


def check_failures(results: Sequence[Mapping], family: Family, steps: Steps, case: Mapping) -> None:
    """Checks that environments were replaced where scripts say so alone, and workers where they were killed alone."""
    failing = {step[:2] for step in steps.counts if episode(family, *step[:2]).events[-1].end in FAILURES}
    # All environments of a vector are replaced with one of them.
    at_once = case["envs"] if case["door"].startswith(("vector", "tensors")) else 1
    faulty = sum(result["num_faulty_episodes"] for result in results)
    # Of several agents an episode may fail before anybody has a row.
    assert family.num_agents > 1 or faulty <= len(failing) * at_once, (
        f"{faulty} episodes were given up, of {len(failing)} that fail"
    )
    if case["workers"]:
        restarts = results[-1]["num_remote_worker_restarts"]
        assert restarts == case["killed"], f"{restarts} restarts of workers"
