"""Elo's ratings of players."""

from collections.abc import Iterable, Mapping

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
