"""Choice of opponents, and the policy mapping of a league: who plays in an episode, and in which slot."""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, Protocol

import numpy as np

from rllib.env.multi_agent.agent_spaces import AgentID
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


# An episode's id holds the index of its environment above these bits, and its number in that environment in them.
_NUMBER_BITS = 32


@dataclass(frozen=True)
class Pairing(ByArguments):
    """A policy mapping by which one policy has one slot of an episode, and an opponent that is drawn has all others.

    In a share of the episodes the opponent is the policy itself.

    It is a function of the episode's id alone: the slot changes with each episode of an environment, and the opponent
    is drawn from a random stream of the episode. So it does not matter which worker plays the episode. Without
    opponents the policy plays against itself.

    Attributes:
        main: id of the policy.
        opponents: ids.
        probabilities: probabilities of the opponents; they sum to 1.
        agents: in the order of their slots. Empty: not known yet, and all agents of an episode have the same policy.
        seed: seed of the streams.
        self_play: probability of the policy itself as the opponent; the others share the rest.
    """

    main: str
    opponents: tuple[str, ...] = ()
    probabilities: tuple[float, ...] = ()
    agents: tuple[AgentID, ...] = ()
    seed: int = 0
    self_play: float = 0.0

    def __call__(self, agent_id: AgentID, episode, worker=None, **kwargs) -> str:
        """Id of an agent's policy in an episode.

        Raises:
            ValueError: for an agent that has no slot.
        """
        if not self.opponents:
            return self.main
        episode_id = int(episode.episode_id)
        if self.slot_of_main(episode_id) == self._slot(agent_id):
            return self.main
        return self.opponent(episode_id)

    def slot_of_main(self, episode_id: int) -> int:
        """Position in `agents` of the agent that the policy acts for."""
        environment, number = divmod(episode_id, 1 << _NUMBER_BITS)
        return (environment + number) % max(len(self.agents), 2)

    def opponent(self, episode_id: int) -> str:
        """The opponent that is drawn for an episode."""
        stream = np.random.SeedSequence(self.seed, spawn_key=(episode_id,))
        drawn = np.random.default_rng(stream).random()
        if drawn < self.self_play:
            return self.main
        return self.opponents[bisect_right(self._bounds, (drawn - self.self_play) / (1.0 - self.self_play))]

    @cached_property
    def _bounds(self) -> list[float]:
        """Upper bounds of the opponents' shares of [0, 1); the last one is 1 whatever the rounding."""
        bounds = np.cumsum(self.probabilities)
        return (bounds / bounds[-1]).tolist()

    def _slot(self, agent_id: AgentID) -> int:
        if not self.agents:
            return 0
        try:
            return self.agents.index(agent_id)
        except ValueError:
            raise ValueError(
                f"agent {agent_id!r} has no slot in the league: there are {', '.join(map(repr, self.agents))}. Use "
                "League(agents=[...]) with all agents of the environment."
            ) from None
