"""Choice of opponents: the probability with which the learning policy meets each of them."""

from collections.abc import Callable, Sequence
from typing import Literal, Protocol

import numpy as np

from rllib.storage.by_arguments import ByArguments


class Matchmaking(Protocol):
    """Chooses opponents."""

    def probabilities(self, opponents: Sequence[str], win_rate: Callable[[str], float]) -> np.ndarray:
        """Probability of each opponent.

        Args:
            opponents: n >= 1 ids, the newest one last.
            win_rate: function of an opponent's id that returns the learning policy's mean score against it; draws
                count half, and an opponent that was never met .5.

        Returns:
            [n], which sums to 1.
        """


class Uniform(ByArguments):
    """Chooses all opponents equally often."""

    def probabilities(self, opponents: Sequence[str], win_rate: Callable[[str], float]) -> np.ndarray:
        return np.full(len(opponents), 1.0 / len(opponents))


class Latest(ByArguments):
    """Chooses the newest opponent always."""

    def probabilities(self, opponents: Sequence[str], win_rate: Callable[[str], float]) -> np.ndarray:
        return np.eye(len(opponents))[-1]


class PFSP(ByArguments):
    """Prioritized fictitious self-play (AlphaStar, Nature 2019, supplement): prefers some win rates x to others.

    Probabilities are proportional to f(x); equal, if f is 0 for all opponents.

    Args:
        weighting: "hard", f(x) = (1 - x)^p, prefers opponents that win; "variance", f(x) = x (1 - x), those of the
            learning policy's own level.
        p: exponent of "hard".

    Raises:
        ValueError: for another weighting, or an exponent that it has no use for.
    """

    def __init__(self, weighting: Literal["hard", "variance"] = "hard", p: float = 1.0):
        if weighting not in ("hard", "variance"):
            raise ValueError(f'weighting={weighting!r} must be "hard" or "variance"')
        if not 0 < p < np.inf or (weighting == "variance" and p != 1):
            raise ValueError(f'p={p} must be a positive exponent; weighting="variance" has none, so p stays 1')
        self.weighting, self.p = weighting, p

    def probabilities(self, opponents: Sequence[str], win_rate: Callable[[str], float]) -> np.ndarray:
        rates = np.array([win_rate(opponent) for opponent in opponents], np.float64)
        weights = (1 - rates) ** self.p if self.weighting == "hard" else rates * (1 - rates)
        total = weights.sum()
        return weights / total if total > 0 else np.full(len(rates), 1.0 / len(rates))


BY_NAME: dict[str, Callable[[], Matchmaking]] = {"uniform": Uniform, "latest": Latest}


def make_matchmaking(given: str | Matchmaking) -> Matchmaking:
    """The matchmaking of this name, or the given one.

    Raises:
        ValueError: if it is neither.
    """
    if isinstance(given, str) and given in BY_NAME:
        return BY_NAME[given]()
    if not callable(getattr(given, "probabilities", None)) or isinstance(given, type):
        raise ValueError(
            f'matchmaking={given!r} must be "uniform", "latest", PFSP(weighting="hard" or "variance"), or an object '
            "of your own with probabilities(opponents, win_rate)"
        )
    return given
