"""Results of the games between policies, and Elo's ratings."""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
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


# Difference of ratings at which the better player is expected to score ten times as much as the other.
_SCALE = 400.0


def expected_score(rating: float, other: float) -> float:
    """Expected score of a player, E = 1 / (1 + 10^((R_other - R) / 400)); a win is 1, a draw .5."""
    return 1.0 / (1.0 + 10.0 ** ((other - rating) / _SCALE))


class EloRatings:
    """Ratings of players by id, updated after each game: R += K (S - E), the other way round for the opponent.

    Args:
        players: who begin with the rating `start`.
        k: K, the largest change by one game.
        start: rating of a player of whom nothing is known.
    """

    def __init__(self, players: Iterable[str] = (), k: float = 32.0, start: float = 1000.0):
        self._k, self._start = k, start
        self._ratings = dict.fromkeys(players, start)

    def __getitem__(self, player: str) -> float:
        return self._ratings[player]

    def as_dict(self) -> dict[str, float]:
        """Rating by player, in the order in which they were added."""
        return dict(self._ratings)

    def add(self, player: str, rating: float | None = None) -> None:
        """Adds a player, by default with the rating of an unknown one."""
        self._ratings[player] = self._start if rating is None else rating

    def remove(self, player: str) -> None:
        """Removes a player; the others keep their ratings."""
        del self._ratings[player]

    def add_game(self, player: str, opponent: str, score: float) -> None:
        """Updates both ratings with a game.

        Args:
            player, opponent: ids.
            score: of the player: 1 won, .5 drawn, 0 lost.
        """
        change = self._k * (score - expected_score(self._ratings[player], self._ratings[opponent]))
        self._ratings[player] += change
        self._ratings[opponent] -= change

    def get_state(self) -> dict[str, float]:
        """The ratings, for a checkpoint."""
        return self.as_dict()

    def set_state(self, state: Mapping[str, float]) -> None:
        """Restores the ratings that `get_state` returned."""
        self._ratings = dict(state)
