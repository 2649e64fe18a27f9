"""Trial of a candidate: compares its returns with the served policy's returns in the same period.

A candidate is promoted if the test shows that it is not worse by more than a margin; that it is not shown to be worse
is not enough. The test (betting.py) is valid for returns within the range of the known ones, for any distribution and
number of returns, and for all looks together. If the returns are too few or scattered to decide, the candidate is
dropped at the last look; the learner keeps its weights, since only the number of returns was too small. The margin is
set before the trial, from the history: if it were a multiple of the deviation of the trial's own returns, a candidate
that is worse by more could pass where this deviation happens to be large. A candidate is also dropped if all returns
are equal: it may be worse by failures too rare to be seen, and an equally good policy need not replace the served one.
"""

from collections.abc import Iterable
from enum import Enum

from rllib.serving.learning.betting import bounds_of, p_not_above
from rllib.serving.learning.welch import Sample

# Largest probability that a candidate which is worse by the margin is promoted, and that a better one is dropped early.
LEVEL = 0.05
LOOKS = 4
# A trial ends with this many times the episodes in which the last look is expected, also if one policy gets none.
PATIENCE = 10


class Verdict(Enum):
    """Outcome of a trial: the candidate is promoted, dropped, or dropped because it was shown to be worse."""

    PROMOTE = "promote"
    DROP = "drop"
    WORSE = "worse"


class Trial:
    """The returns of a candidate and of the served policy since the candidate was offered.

    Only episodes that began in the trial count: otherwise the candidate's first episodes, which are short ones, would
    be compared with long episodes of the served policy that began before the trial.

    Args:
        version: version of the candidate.
        episodes: least number of episodes of each policy at the first look; look k needs k times as many.
        margin: how much worse the candidate may be, in standard deviations of the history.
        begun_at: when it was offered (seconds).
        history: earlier returns of the served policy; with fewer than two the candidate may not be worse at all.
        share: of the episodes that the candidate acts in. After PATIENCE * LOOKS * episodes / share episodes of both,
            the candidate is dropped: where few ids are used again and again, all may be of one policy.

    Attributes:
        version, begun_at: the arguments.
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
        """Adds the return of an episode; returns the verdict once there is one, None before."""
        sample, returns = (
            (self.candidate, self.candidate_returns) if is_candidate else (self.served, self.served_returns)
        )
        sample.add(total)
        returns.append(total)
        if min(self.candidate.count, self.served.count) < (self._looks + 1) * self._episodes:
            return Verdict.DROP if self.candidate.count + self.served.count >= self._most else None
        self._looks += 1
        return self._look()

    @property
    def is_one_sided(self) -> bool:
        """Whether it has ended because one of the policies had too few episodes to be compared."""
        return not self._looks and self.candidate.count + self.served.count >= self._most

    def _look(self) -> Verdict | None:
        candidate, served = self.candidate_returns, self.served_returns
        bounds = bounds_of(candidate, served, self._history)
        if p_not_above(candidate, served, bounds, self._shift) <= LEVEL:
            return Verdict.PROMOTE
        if p_not_above(served, candidate, bounds) <= LEVEL:
            return Verdict.WORSE
        return Verdict.DROP if self._looks >= LOOKS else None
