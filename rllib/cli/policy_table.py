"""The returns of each policy in evaluated episodes of several agents, as a table of text."""

import math
from collections import defaultdict
from collections.abc import Sequence

from rllib.env.episodes import Episode

# Two returns are opposite if their sum is at most this share of the larger one.
_ROUNDING = 1e-6


def policy_table(episodes: Sequence[Episode]) -> list[str]:
    """Lines of a table with a row for each policy: its agents, and mean, least and greatest return of an agent.

    Where each episode is a game of two policies with opposite returns, wins, draws and losses are columns as well.

    Args:
        episodes: finished ones; those of one agent give no lines.
    """
    returns, agents = defaultdict(list), defaultdict(dict)
    for episode in episodes:
        for (agent, policy_id), value in episode.agent_returns.items():
            returns[policy_id].append(value)
            agents[policy_id][str(agent)] = None
    if not returns:
        return []
    games = _games(episodes)
    rows = [["policy", "agents", "mean return", "min", "max", *(["win/draw/loss"] if games else [])]]
    for policy_id, values in sorted(returns.items()):
        numbers = [f"{number:.2f}" for number in (math.fsum(values) / len(values), min(values), max(values))]
        score = ["/".join(map(str, games[policy_id]))] if games else []
        rows.append([policy_id, _names(sorted(agents[policy_id])), *numbers, *score])
    widths = [max(map(len, column)) for column in zip(*rows)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]


def _names(agents: Sequence[str], most: int = 3) -> str:
    return ", ".join(agents) if len(agents) <= most else f"{len(agents)} agents"


def _games(episodes: Sequence[Episode]) -> dict[str, list[int]]:
    """Policy id -> wins, draws and losses; empty unless all episodes are zero-sum games of two policies."""
    scores: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    for episode in episodes:
        policies, values = [policy_id for _, policy_id in episode.agent_returns], list(episode.agent_returns.values())
        if len(set(policies)) != 2 or len(values) != 2:
            return {}
        if abs(sum(values)) > _ROUNDING * max(map(abs, values)):
            return {}
        for policy_id, value in zip(policies, values):
            scores[policy_id][1 if value == 0 else 0 if value > 0 else 2] += 1
    return dict(scores)
