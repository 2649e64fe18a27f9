"""Costs: sums of n steps, and sums of episodes."""

from collections.abc import Iterable

from rllib import sample_batch as sb
from tests.witness.checks.counters import ended_episodes
from tests.witness.checks.rows import Columns
from tests.witness.checks.steps import Steps, close, following, life_of
from tests.witness.script import Family, cost, decoded


def check_costs(columns: Columns, name: str) -> None:
    """Checks the column of costs of rows of single steps."""
    for seen, given in zip(columns[sb.OBS], columns[name]):
        step = decoded(seen)
        close(given, cost(*step), f"{step}: cost")


def check_stored_costs(batches: Iterable[Columns], family: Family, gamma: float, name: str) -> None:
    """Checks the sums of up to n costs in rows of replays, and the discounts of what followed.

    Args:
        batches: that replays took in.
        family: of the scripts.
        gamma: discount of costs per step.
        name: column of costs.
    """
    for columns in batches:
        rows = zip(*(columns[each] for each in (sb.OBS, sb.NEXT_OBS, sb.DISCOUNTS, name, sb.COST_DISCOUNTS)))
        for seen, after, reward_discount, given, discount in rows:
            step = decoded(seen)
            life = life_of(family, step)
            end = decoded(after)[3] if reward_discount else life.length
            count = end - step[3]
            wanted = sum(gamma**k * cost(*following(step, k)) for k in range(count))
            close(given, wanted, f"{step}: cost of {count} steps")
            is_terminal = life.terminated and end == life.length
            close(discount, 0.0 if is_terminal else gamma**count, f"{step}: discount of costs", 1e-6)


def check_episode_costs(result, family: Family, steps: Steps) -> None:
    """Checks the mean cost of episodes of one agent that a result reports."""
    ended, _ = ended_episodes(family, steps)
    sums = [sum(cost(*name, 0, t) for t in range(life_of(family, (*name, 0, 0)).length)) for name in ended]
    close(result["episode_cost_mean"], sum(sums) / len(sums), "mean cost of an episode")
