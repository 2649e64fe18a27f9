"""Conditions under which a league freezes a copy of the policy that learns."""

from collections import deque
from typing import Literal

from rllib.storage.by_arguments import ByArguments


class SnapshotCondition(ByArguments):
    """Base class of conditions; a subclass overrides `holds`, and the other methods where it counts games."""

    def add_game(self, score: float, is_latest: bool) -> None:
        """Counts a game of the learning policy.

        Args:
            score: 1 won, .5 drawn, 0 lost.
            is_latest: whether the opponent was the newest one.
        """

    def holds(self, iteration: int) -> bool:
        """Whether a snapshot is due after this iteration, the first of which is 1."""
        raise NotImplementedError

    def start_over(self, iteration: int) -> None:
        """Notes that a snapshot was taken after this iteration."""

    def get_state(self) -> dict:
        """The state for a checkpoint, JSON-able."""
        return {}

    def set_state(self, state: dict) -> None:
        """Restores the state that `get_state` returned."""


class WinRate(SnapshotCondition):
    """A snapshot is due when the learning policy wins: its mean score reaches a threshold, a draw counting half.

    Args:
        threshold: from above .5 to 1.
        games: number of newest games that the mean is computed from; with fewer since the last snapshot none is due.
        against: "latest", the games against the newest opponent count; "all", those against any.

    Raises:
        ValueError: for a value out of its range.
    """

    def __init__(self, threshold: float = 0.9, games: int = 100, against: Literal["latest", "all"] = "latest"):
        if not 0.5 < threshold <= 1:
            raise ValueError(
                f"threshold={threshold} must lie above 0.5, the score of a copy against itself, and at most at 1"
            )
        if games < 1:
            raise ValueError(f"games={games} must be at least 1")
        if against not in ("latest", "all"):
            raise ValueError(f'against={against!r} must be "latest" or "all"')
        self.threshold, self.games, self.against = threshold, games, against
        self._scores: deque[float] = deque(maxlen=games)

    def add_game(self, score: float, is_latest: bool) -> None:
        if is_latest or self.against == "all":
            self._scores.append(score)

    def holds(self, iteration: int) -> bool:
        return len(self._scores) == self.games and sum(self._scores) >= self.threshold * self.games

    def start_over(self, iteration: int) -> None:
        self._scores.clear()

    def get_state(self) -> dict:
        return {"scores": list(self._scores)}

    def set_state(self, state: dict) -> None:
        self._scores = deque(state["scores"], maxlen=self.games)


class Every(SnapshotCondition):
    """A snapshot is due at fixed intervals.

    Args:
        iterations: from one snapshot to the next.

    Raises:
        ValueError: if it is less than 1.
    """

    def __init__(self, iterations: int = 20):
        if iterations < 1:
            raise ValueError(f"iterations={iterations} must be at least 1")
        self.iterations = iterations
        self._last = 0

    def holds(self, iteration: int) -> bool:
        return iteration - self._last >= self.iterations

    def start_over(self, iteration: int) -> None:
        self._last = iteration

    def get_state(self) -> dict:
        return {"last": self._last}

    def set_state(self, state: dict) -> None:
        self._last = state["last"]
