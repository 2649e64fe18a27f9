"""Quarantine of rewards, until the returns of the served policy in the same period look normal.

The served policy does not change, so its returns keep their distribution unless the rewards or the environment change.
Episodes of all policies are gathered in blocks, which end after a number of episodes of the served policy. If its mean
return in a block differs sharply from its history, the block is put into quarantine, and learning pauses. A candidate
that has learned from inverted rewards would look better than the served policy as long as rewards are inverted: a
comparison of both policies in the same period does not show the error, but the fall of the served policy's returns
does.

A block is released when the next block has passed, too. The first block that passes after a pause stays in quarantine.
The reason for both: the rewards may have changed in the middle of a block.
"""

from collections import deque
from collections.abc import Iterable

from rllib.serving.learning.decisions import Episode
from rllib.serving.learning.welch import Sample, p_greater

# A block is unusual if the two-sided p-value of its difference to the history is at most this ...
ALARM_P = 1e-4
# ... and the difference is large: more than this multiple of the standard deviation, and of the mean.
LEAST_DEVIATIONS, LEAST_PART = 0.5, 0.1
# Number of blocks after which the history is representative of a policy. The first episodes that end are the short
# ones, so until then a block is unusual only if its mean also lies outside of the range of all returns.
BLOCKS_OF_HISTORY = 3
_MOST_RETURNS = 500
# Number of steps after which a block ends even without enough episodes of the served policy.
MOST_STEPS = 50_000


class Vetting:
    """Holds episodes back until the served policy's returns in the same period were found to be normal.

    Args:
        block_episodes: number of the served policy's episodes in a block.
        history: earlier returns of the served policy.

    Attributes:
        is_paused: whether the newest block was unusual.
        why: the reason for the newest pause.
        num_quarantined: steps of all episodes that were put into quarantine.
    """

    def __init__(self, block_episodes: int, history: Iterable[float] = ()):
        self._block_episodes = block_episodes
        self._history = deque(history, _MOST_RETURNS)
        self._new_blocks = BLOCKS_OF_HISTORY
        self._block: list[Episode] = []
        self._returns: list[float] = []
        # The previous block, which has passed, and its returns.
        self._held: tuple[list[Episode], list[float]] | None = None
        self._released: list[Episode] = []
        self.is_paused, self.why, self.num_quarantined = False, "", 0

    @property
    def history(self) -> list[float]:
        """Returns of the served policy in blocks that were released, the oldest first."""
        return list(self._history)

    @property
    def num_held(self) -> int:
        """Number of steps that are held back."""
        return sum(len(each.steps) for each in self._block + (self._held[0] if self._held else []))

    def take(self) -> list[Episode]:
        """Returns the episodes released since the last call."""
        released, self._released = self._released, []
        return released

    def add(self, episode: Episode, is_served: bool) -> None:
        """Adds an episode.

        Args:
            episode: a complete one.
            is_served: whether the served policy alone has acted in it.
        """
        self._block.append(episode)
        if is_served and episode.is_whole:
            self._returns.append(episode.total)
        if len(self._returns) >= self._block_episodes:
            self._end_block()
        elif sum(len(each.steps) for each in self._block) > MOST_STEPS:
            self._quarantine(f"too few of its episodes have ended within {MOST_STEPS:,} steps")

    def change(self, returns: Iterable[float]) -> None:
        """Begins with another served policy, of which these returns are known; what is held stays held."""
        held = self._held[0] if self._held else []
        self._block, self._returns, self._held = held + self._block, [], None
        self._history = deque(returns, _MOST_RETURNS)
        self._new_blocks = BLOCKS_OF_HISTORY

    def resume(self) -> None:
        """Takes the level of the next blocks as the usual one."""
        self._history.clear()
        self._new_blocks, self.is_paused = BLOCKS_OF_HISTORY, False

    def _end_block(self) -> None:
        if why := self._unusual():
            self._quarantine(why)
        elif self.is_paused:
            self.is_paused = False
            self._drop()
        else:
            if self._held is not None:
                self._release(*self._held)
            self._held = self._block, self._returns
            self._block, self._returns = [], []

    def _unusual(self) -> str | None:
        """Reason why the block differs from the history; None if it does not, or if there is no history."""
        if len(self._history) < 2:
            return None
        usual, now = Sample.of(self._history), Sample.of(self._returns)
        # A few returns may be equal by chance: their variance is taken to be at least the history's.
        now.squares = max(now.variance, usual.variance) * (now.count - 1)
        difference = abs(now.mean - usual.mean)
        p = 2 * min(p_greater(now, usual), p_greater(usual, now))
        is_large = difference > max(LEAST_DEVIATIONS * usual.deviation, LEAST_PART * abs(usual.mean))
        if self._new_blocks and min(self._history) <= now.mean <= max(self._history):
            return None
        if p > ALARM_P or not is_large:
            return None
        return f"its mean return is {now.mean:.4g}, but has been {usual.mean:.4g}"

    def _release(self, episodes: list[Episode], returns: list[float]) -> None:
        self._released += episodes
        if self._new_blocks:
            self._new_blocks -= 1
            if not self._new_blocks:  # drops the returns of the trial, whose first ended episodes were the short ones
                newest = self.history[-(BLOCKS_OF_HISTORY - 1) * self._block_episodes :]
                self._history = deque(newest, _MOST_RETURNS)
        self._history.extend(returns)

    def _quarantine(self, why: str) -> None:
        self.is_paused, self.why = True, why
        self._drop()

    def _drop(self) -> None:
        """Drops the block and the previous one."""
        self.num_quarantined += self.num_held
        self._block, self._returns, self._held = [], [], None
