"""Asynchronous successive halving, ASHA (arXiv:1810.05934).

A bracket s has rungs at grace_period eta^(s + k), k = 0, 1, ..., below max_t. A trial that reaches a rung continues if
it is among the best 1/eta of all that have reached it so far, itself included: the best floor(n / eta) of n, but at
least one, since the first trial that comes has nothing to be compared with.

Departures from the paper, as in Ray and Optuna: trials are stopped rather than paused, so one that was stopped early
cannot be promoted later; a trial is compared with the best ones at that time. Ray interpolates a percentile of the
others' values. A trial without a number at a rung (NaN) is compared at its next number, at the highest rung that it has
passed by then.
"""

import bisect
import itertools
from collections.abc import Mapping

from rllib.progress import counted
from rllib.runs.entries import read_number, written_number
from rllib.tune.checks import check_count, check_number
from rllib.tune.schedulers.base import TrialScheduler, whole_again


class AsyncHyperBandScheduler(TrialScheduler):
    """ASHA.

    Args:
        time_attr, metric, mode: see TrialScheduler.
        max_t: time at which trials are stopped (R in the paper), in units of time_attr.
        grace_period: time before which no trial is stopped (r).
        reduction_factor: one of this number of trials continues (eta).
        brackets: number of brackets; bracket s starts halving at grace_period eta^s.
        stop_last_trials: whether trials end at max_t.
    """

    def __init__(
        self,
        time_attr: str = "training_iteration",
        metric: str | None = None,
        mode: str | None = None,
        max_t: float = 100,
        grace_period: float = 1,
        reduction_factor: float = 4,
        brackets: int = 1,
        stop_last_trials: bool = True,
    ):
        super().__init__(metric, mode, time_attr)
        check_number("grace_period", grace_period, "> 0", above=0)
        check_number("max_t", max_t, f">= grace_period={grace_period}", least=grace_period)
        check_number("reduction_factor", reduction_factor, "> 1", above=1)
        check_count("brackets", brackets)
        self.max_t, self.eta, self._stop_last = max_t, reduction_factor, stop_last_trials
        # Lowest rung first: (milestone, {trial_id: score}).
        self.brackets = [
            [(t, {}) for t in _milestones(grace_period, max_t, reduction_factor, s)] for s in range(brackets)
        ]
        # The same scores in order, so that no result sorts those of all trials.
        self._ascending: list[list[list[float]]] = [[[] for _ in bracket] for bracket in self.brackets]
        self._bracket_of: dict[str, int] = {}
        self._sizes = [0] * brackets  # number of trials in each bracket
        self._num_stopped = 0

    def on_trial_add(self, runner, trial) -> None:
        """Assigns the trial to the bracket that is furthest behind its share.

        HyperBand gives a bracket with k rungs eta^k / (k + 1) shares (arXiv:1603.06560, algorithm 1).
        """
        if trial.trial_id in self._bracket_of:
            return
        shares = [self.eta ** len(rungs) / (len(rungs) + 1) for rungs in self.brackets]
        trials = len(self._bracket_of) + 1
        deficits = [share / sum(shares) * trials - size for share, size in zip(shares, self._sizes)]
        furthest = deficits.index(max(deficits))
        self._bracket_of[trial.trial_id] = furthest
        self._sizes[furthest] += 1

    def on_trial_result(self, runner, trial, result: Mapping) -> str:
        time, score = self.progress(result), self.score(result)
        if time >= self.max_t and self._stop_last:
            return self.STOP
        self.on_trial_add(runner, trial)
        bracket = self._bracket_of[trial.trial_id]
        passed = [place for place, (milestone, _) in enumerate(self.brackets[bracket]) if milestone <= time]
        if score is None or not passed or trial.trial_id in self.brackets[bracket][passed[-1]][1]:
            return self.CONTINUE
        self.brackets[bracket][passed[-1]][1][trial.trial_id] = score
        ascending = self._ascending[bracket][passed[-1]]
        bisect.insort(ascending, score)
        worst_that_continues = ascending[-max(int(whole_again(len(ascending) / self.eta)), 1)]
        if score >= worst_that_continues and score > -float("inf"):
            return self.CONTINUE
        self._num_stopped += 1
        return self.STOP

    def is_at_end(self, result: Mapping) -> bool:
        return self._stop_last and self.has_reached(result, self.max_t)

    def debug_string(self) -> str:
        rungs = "; ".join(
            f"bracket {s}: "
            + ", ".join(f"{counted(len(scores), 'trial')} at {milestone:g}" for milestone, scores in bracket)
            for s, bracket in enumerate(self.brackets)
        )
        return f"ASHA: {counted(self._num_stopped, 'trial')} stopped; {rungs}"

    def get_state(self):
        scores = [
            [{trial_id: written_number(score) for trial_id, score in scores.items()} for _, scores in bracket]
            for bracket in self.brackets
        ]
        return {"scores": scores, "bracket_of": self._bracket_of, "num_stopped": self._num_stopped}

    def set_state(self, state) -> None:
        for bracket, saved in zip(self.brackets, state["scores"]):
            for (_, scores), kept in zip(bracket, saved):
                scores.clear()
                scores.update({trial_id: read_number(score) for trial_id, score in kept.items()})
        self._ascending = [[sorted(scores.values()) for _, scores in bracket] for bracket in self.brackets]
        self._bracket_of, self._num_stopped = dict(state["bracket_of"]), state["num_stopped"]
        self._sizes = [0] * len(self.brackets)
        for bracket in self._bracket_of.values():
            self._sizes[bracket] += 1


def _milestones(grace_period: float, max_t: float, eta: float, s: int) -> list[float]:
    times = (whole_again(grace_period * eta ** (s + k)) for k in itertools.count())
    return list(itertools.takewhile(lambda t: t < max_t, times))


ASHAScheduler = AsyncHyperBandScheduler
