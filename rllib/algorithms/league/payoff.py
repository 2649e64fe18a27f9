"""Results of the games between policies."""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple

from rllib.env.episodes import Episode

# Scores of a game.
WIN, DRAW, LOSS = 1.0, 0.5, 0.0


class Game(NamedTuple):
    """A game between two policies; the score is the first one's, 1 for a win, .5 for a draw, 0 for a loss."""

    policy: str
    opponent: str
    score: float


def games_of(episode: Episode) -> Iterator[Game]:
    """One game for each pair of policies that have acted in an episode: the higher return per agent wins."""
    returns: dict[str, list[float]] = {}
    for (_, policy_id), value in episode.agent_returns.items():
        returns.setdefault(policy_id, []).append(value)
    means = {policy_id: sum(values) / len(values) for policy_id, values in returns.items()}
    for one, other in combinations(sorted(means), 2):
        yield Game(one, other, DRAW if means[one] == means[other] else WIN if means[one] > means[other] else LOSS)


@dataclass
class Record:
    """Counts of the games of one policy against another."""

    wins: int = 0
    draws: int = 0
    losses: int = 0

    @property
    def games(self) -> int:
        """Number of games."""
        return self.wins + self.draws + self.losses


class PayoffTable:
    """Wins, draws and losses of each policy against each other one.

    Args:
        window: number of newest games of a pair that its win rate is computed from, since a policy that learns leaves
            its earlier results behind.
    """

    def __init__(self, window: int = 100):
        self._window = window
        # Each pair in its natural order: the score is that of the lesser id.
        self._records: dict[tuple[str, str], Record] = {}
        self._recent: dict[tuple[str, str], deque[float]] = {}

    def add(self, game: Game) -> None:
        """Counts a game."""
        pair, score = _in_order(*game)
        record = self._records.setdefault(pair, Record())
        record.wins += score == WIN
        record.draws += score == DRAW
        record.losses += score == LOSS
        self._recent.setdefault(pair, deque(maxlen=self._window)).append(score)

    def record(self, policy: str, opponent: str) -> Record:
        """All games of a policy against an opponent."""
        pair, _ = _in_order(policy, opponent)
        found = self._records.get(pair, Record())
        if pair == (policy, opponent):
            return Record(found.wins, found.draws, found.losses)
        return Record(found.losses, found.draws, found.wins)

    def win_rate(self, policy: str, opponent: str) -> float:
        """Mean score of a policy in the newest games against an opponent; .5 if they have never met."""
        pair, _ = _in_order(policy, opponent)
        recent = self._recent.get(pair)
        if not recent:
            return DRAW
        rate = sum(recent) / len(recent)
        return rate if pair == (policy, opponent) else 1.0 - rate

    def remove(self, policy: str) -> None:
        """Forgets all games of a policy."""
        for pair in [pair for pair in self._records if policy in pair]:
            del self._records[pair], self._recent[pair]

    def get_state(self) -> list[dict]:
        """The table for a checkpoint, JSON-able."""
        return [
            {"pair": list(pair), **vars(record), "recent": list(self._recent[pair])}
            for pair, record in self._records.items()
        ]

    def set_state(self, state: Sequence[Mapping]) -> None:
        """Restores the table that `get_state` returned."""
        self._records, self._recent = {}, {}
        for entry in state:
            one, other = entry["pair"]
            self._records[one, other] = Record(entry["wins"], entry["draws"], entry["losses"])
            self._recent[one, other] = deque(entry["recent"], maxlen=self._window)


def _in_order(policy: str, opponent: str, score: float = DRAW) -> tuple[tuple[str, str], float]:
    """The pair in natural order, and the score of its first policy."""
    return ((policy, opponent), score) if policy <= opponent else ((opponent, policy), 1.0 - score)
