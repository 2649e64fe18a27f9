"""Players of board games that are written by hand: opponents of a known strength."""

import functools

import numpy as np

from rllib.env.tasks.connect_four import BITS_OF_COLUMN, COLUMNS, ROWS, has_four
from rllib.env.tasks.tic_tac_toe import LINES
from rllib.hand_written import HandWrittenPolicy

_BITS = 1 << np.arange(9)
_LINES = tuple(sum(1 << square for square in line) for line in LINES)
_FULL = 2**9 - 1


class TicTacToeMinimax(HandWrittenPolicy):
    """A perfect player of TicTacToe, which never loses.

    It prefers a win to a draw, and a draw to a loss, whatever number of moves they take. Of equally good squares it
    draws one; with `config={"deterministic": True}` it takes the first.
    """

    def compute_actions(self, observations, state_batches=None, **kwargs):
        return [self._square(observation["observation"]) for observation in observations]

    def _square(self, marks: np.ndarray) -> int:
        own, other = (int(_BITS @ marks[..., player].ravel().astype(np.int64)) for player in (0, 1))
        best = best_squares(own, other)
        return best[0] if self.config.get("deterministic") else best[self.rng.integers(len(best))]


def best_squares(own: int, other: int) -> list[int]:
    """Squares after which the mover's result is the best that perfect play can reach.

    Args:
        own, other: marks of the mover and of the other player, bit i for square i.
    """
    values = {square: -_value(other, own | 1 << square) for square in range(9) if not (own | other) & 1 << square}
    best = max(values.values())
    return [square for square, value in values.items() if value == best]


@functools.cache
def _value(own: int, other: int) -> int:
    """Result of perfect play for the player who moves next: 1 for a win, 0, or -1."""
    if any(other & line == line for line in _LINES):
        return -1
    if own | other == _FULL:
        return 0
    return max(-_value(other, own | 1 << square) for square in range(9) if not (own | other) & 1 << square)


class ConnectFourOneAhead(HandWrittenPolicy):
    """A player of ConnectFour that looks one move ahead: it wins if it can, else blocks, else draws a legal column."""

    def compute_actions(self, observations, state_batches=None, **kwargs):
        return [self._column(**observation) for observation in observations]

    def _column(self, observation: np.ndarray, action_mask: np.ndarray) -> int:
        legal = np.flatnonzero(action_mask).tolist()
        heights = observation.sum((0, 2))
        # Bits of the board: bottom row first, with the empty one on top of each column.
        bits = 1 << np.arange(COLUMNS)[None, :] * BITS_OF_COLUMN + np.arange(ROWS)[::-1, None]
        for player in (0, 1):
            marks = int((bits * observation[..., player]).sum())
            for column in legal:
                if has_four(marks | 1 << column * BITS_OF_COLUMN + int(heights[column])):
                    return column
        return legal[self.rng.integers(len(legal))] if legal else 0
