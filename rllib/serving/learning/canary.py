"""Trial of a candidate: its returns beside those of the served policy, in the same period.

Promoted is what is shown not to be worse, by Welch's test with a margin; what is merely not shown to be worse is not.
Candidate and served policy are compared at four looks, each at a quarter of the level, so that all looks together err
with at most 5 % (Bonferroni). With few or scattered returns nothing is shown, and the candidate is dropped at the last
look.
"""

from enum import Enum

from rllib.serving.learning.welch import Sample, p_greater

# Probability with which a candidate that is worse by the margin is promoted.
LEVEL = 0.05
LOOKS = 4


class Verdict(Enum):
    """Outcome of a trial."""

    PROMOTE = "promote"
    DROP = "drop"


class Trial:
    """The returns of a candidate and of the served policy since the candidate was offered.

    Only episodes that began in the trial count: otherwise the short ones of the candidate would be compared with long
    ones of the served policy, which had begun before.

    Args:
        version: of the candidate.
        episodes: least number of episodes of each at the first look; look k needs k times as many.
        margin: how much worse the candidate may be, in standard deviations of the served policy's returns.
        begun_at: when it was offered (seconds).

    Attributes:
        version, begun_at: the same.
        served, candidate: samples of returns.
        candidate_returns: the candidate's.
    """

    def __init__(self, version: int, episodes: int, margin: float, begun_at: float = 0.0):
        self.version, self.begun_at = version, begun_at
        self._episodes, self._margin = episodes, margin
        self.served, self.candidate = Sample(), Sample()
        self.candidate_returns: list[float] = []
        self._looks = 0

    def add(self, total: float, is_candidate: bool) -> Verdict | None:
        """Adds the return of an episode; the verdict once there is one."""
        if is_candidate:
            self.candidate.add(total)
            self.candidate_returns.append(total)
        else:
            self.served.add(total)
        if min(self.candidate.count, self.served.count) < (self._looks + 1) * self._episodes:
            return None
        self._looks += 1
        return self._look()

    def _look(self) -> Verdict | None:
        level = LEVEL / LOOKS
        if p_greater(self.candidate, self.served, self._margin * self.served.deviation) <= level:
            return Verdict.PROMOTE
        is_equal = not (self.candidate.variance or self.served.variance) and self.candidate.mean == self.served.mean
        if is_equal:
            return Verdict.PROMOTE
        if self._looks >= LOOKS or p_greater(self.served, self.candidate) <= level:
            return Verdict.DROP
        return None
