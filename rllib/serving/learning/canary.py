"""Trial of a candidate: its returns compared with those of the served policy, in the same period.

Promoted is what is shown not to be worse, with a margin; what is merely not shown to be worse is not. The test
(betting.py) holds for all returns within the range of those that are known, whatever their distribution and however few
they are, and at all looks together. With few or scattered returns nothing is shown, and the candidate is dropped at the
last look; the learner keeps what it has learned, since only the returns were too few. The margin is fixed before the
trial, by the history: a deviation of the trial's own returns would vary with them, and where it happens to be large, a
candidate would pass that is worse by more than the margin. A candidate is dropped as well if
all returns are the same: failures that are too rare to be seen would make it worse, and a policy that is as good need
not replace another.
"""

from collections.abc import Iterable
from enum import Enum

from rllib.serving.learning.betting import bounds_of, p_not_above
from rllib.serving.learning.welch import Sample

# Probability with which a candidate that is worse by the margin is promoted, and a better one dropped early; at most.
LEVEL = 0.05
LOOKS = 4
# A trial ends with this many times the episodes in which the last look is expected: those of one policy do not come.
PATIENCE = 10


class Verdict(Enum):
    """Outcome of a trial: the candidate is promoted, dropped, or dropped because it was shown to be worse."""

    PROMOTE = "promote"
    DROP = "drop"
    WORSE = "worse"


class Trial:
    """The returns of a candidate and of the served policy since the candidate was offered.

    Only episodes that began in the trial count: otherwise the short ones of the candidate would be compared with long
    ones of the served policy, which had begun before.

    Args:
        version: of the candidate.
        episodes: least number of episodes of each at the first look; look k needs k times as many.
        margin: how much worse the candidate may be, in standard deviations of the history.
        begun_at: when it was offered (seconds).
        history: earlier returns of the served policy; with fewer than two the candidate may not be worse at all.
        share: of the episodes that the candidate acts in. After PATIENCE * LOOKS * episodes / share episodes of both,
            the candidate is dropped: where few ids are used again and again, all may be of one policy.

    Attributes:
        version, begun_at: the same.
        served, candidate: samples of returns.
        served_returns, candidate_returns: the returns themselves.
    """

    def __init__(
        self,
        version: int,
        episodes: int,
        margin: float,
        begun_at: float = 0.0,
        history: Iterable[float] = (),
        share: float = 0.5,
    ):
        self.version, self.begun_at = version, begun_at
        self._history = list(history)
        self._episodes, self._shift = episodes, margin * Sample.of(self._history).deviation
        self.served, self.candidate = Sample(), Sample()
        self.served_returns: list[float] = []
        self.candidate_returns: list[float] = []
        self._looks, self._most = 0, PATIENCE * LOOKS * episodes / share

    def add(self, total: float, is_candidate: bool) -> Verdict | None:
        """Adds the return of an episode; the verdict once there is one."""
        sample, returns = (
            (self.candidate, self.candidate_returns) if is_candidate else (self.served, self.served_returns)
        )
        sample.add(total)
        returns.append(total)
        if min(self.candidate.count, self.served.count) < (self._looks + 1) * self._episodes:
            return Verdict.DROP if self.candidate.count + self.served.count >= self._most else None
        self._looks += 1
        return self._look()

    def _look(self) -> Verdict | None:
        candidate, served = self.candidate_returns, self.served_returns
        bounds = bounds_of(candidate, served, self._history)
        if p_not_above(candidate, served, bounds, self._shift) <= LEVEL:
            return Verdict.PROMOTE
        if p_not_above(served, candidate, bounds) <= LEVEL:
            return Verdict.WORSE
        return Verdict.DROP if self._looks >= LOOKS else None
