"""The median stopping rule of Google Vizier (Golovin et al., KDD 2017, section 3.2.2).

A trial is stopped at time t if its best value so far is strictly worse than the median, over the other trials, of the
mean of all their reports up to t.

Departure: Vizier takes completed trials; here trials that still run, or that this rule has stopped, count as well if
they have reached t, so that the rule works for trials that run side by side. A completed trial counts at any t. Ray
takes only trials that have reached t, and leaves the results of the grace period out of the means. A trial that has had
no number yet, but NaN, continues.
"""

import bisect
import math
import statistics
from collections.abc import Mapping

from rllib.progress import counted
from rllib.runs.entries import read_number, written_number
from rllib.tune.checks import check_count, check_number
from rllib.tune.schedulers.base import TrialScheduler


class _Curve:
    """Reports of a trial: times, the mean up to each, the best value, and whether the trial has completed."""

    def __init__(self, times=(), means=(), best: float = -math.inf, is_complete: bool = False):
        self.times, self.means, self.best, self.is_complete = list(times), list(means), best, is_complete

    def add(self, time: float, score: float) -> None:
        if self.times and time <= self.times[-1]:
            # The trial has gone back to a checkpoint, and repeats its reports.
            cut = bisect.bisect_left(self.times, time)
            del self.times[cut:], self.means[cut:]
        count = len(self.means)
        self.means.append((self.means[-1] * count + score) / (count + 1) if count else score)
        self.times.append(time)
        self.best = max(self.best, score)

    def mean_up_to(self, time: float) -> float:
        """Mean of the reports up to a time; NaN without reports, or if the trial has not reached that time."""
        index = bisect.bisect_right(self.times, time)
        return self.means[index - 1] if index and (self.is_complete or self.times[-1] >= time) else math.nan


class MedianStoppingRule(TrialScheduler):
    """Stops trials that are worse than the median of the others.

    Args:
        time_attr, metric, mode: see TrialScheduler.
        grace_period: time before which no trial is stopped, in units of time_attr.
        min_samples_required: least number of other trials for a median.
        min_time_slice: time for which a trial that was paused runs before it may be paused again.
        hard_stop: False: pause instead of stopping; paused trials continue when nothing else can run.
    """

    def __init__(
        self,
        time_attr: str = "time_total_s",
        metric: str | None = None,
        mode: str | None = None,
        grace_period: float = 60.0,
        min_samples_required: int = 3,
        min_time_slice: float = 0,
        hard_stop: bool = True,
    ):
        super().__init__(metric, mode, time_attr)
        check_number("grace_period", grace_period, "")
        check_count("min_samples_required", min_samples_required)
        check_number("min_time_slice", min_time_slice, "")
        self._grace, self._min_samples = grace_period, min_samples_required
        self._min_slice, self._hard_stop = min_time_slice, hard_stop
        self._curves: dict[str, _Curve] = {}
        self._paused_at: dict[str, float] = {}
        self._stopped: list[str] = []

    def on_trial_result(self, runner, trial, result: Mapping) -> str:
        time, own = self.progress(result), self._take(trial, result)
        if time < self._grace:
            return self.CONTINUE
        others = (curve.mean_up_to(time) for key, curve in self._curves.items() if key != trial.trial_id)
        means = [mean for mean in others if not math.isnan(mean)]
        if not own.times or len(means) < self._min_samples or own.best >= statistics.median(means):
            return self.CONTINUE
        if self._hard_stop:
            self._stopped.append(trial.trial_id)
            return self.STOP
        if time - self._paused_at.get(trial.trial_id, -math.inf) < self._min_slice or not runner.waiting_trials():
            return self.CONTINUE
        self._paused_at[trial.trial_id] = time
        return self.PAUSE

    def on_trial_complete(self, runner, trial, result: Mapping) -> None:
        """Adds a trial's last result, which is reported here only, unless this rule has stopped the trial."""
        if trial.trial_id not in self._stopped:
            self._take(trial, result).is_complete = True

    def _take(self, trial, result: Mapping) -> _Curve:
        time, score = self.progress(result), self.score(result)
        curve = self._curves.setdefault(trial.trial_id, _Curve())
        if score is not None:  # NaN neither helps the trial nor spoils its mean
            curve.add(time, score)
        return curve

    def debug_string(self) -> str:
        return f"Median stopping rule: {counted(len(self._stopped), 'trial')} stopped"

    def get_state(self):
        curves = {
            key: [curve.times, list(map(written_number, curve.means)), written_number(curve.best), curve.is_complete]
            for key, curve in self._curves.items()
        }
        return {"curves": curves, "paused_at": self._paused_at, "stopped": self._stopped}

    def set_state(self, state) -> None:
        self._curves = {
            key: _Curve(times, map(read_number, means), read_number(best), *is_complete)
            for key, (times, means, best, *is_complete) in state["curves"].items()
        }
        self._paused_at, self._stopped = dict(state["paused_at"]), list(state.get("stopped", ()))
