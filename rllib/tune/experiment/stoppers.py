"""Stoppers, which end a trial or the whole experiment: the values of `stop`.

tune.run(..., stop={"training_iteration": 50})                     thresholds, as in `rllib train`
tune.run(..., stop=lambda trial_id, result: result["loss"] > 9)    a function
tune.run(..., stop=CombinedStopper(MaximumIterationStopper(50), TimeoutStopper(600)))
"""

import inspect
import math
import statistics
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import timedelta
from typing import Any

from rllib.progress import counted
from rllib.result import counts_from_zero
from rllib.runs.entries import is_number, lookup, read_number, scalar, written_number
from rllib.tune.checks import check, check_count, check_key, check_mode, check_number, number_in, seconds


class Stopper:
    """Decides after every result whether the trial ends; one object serves all trials of an experiment."""

    def __call__(self, trial_id: str, result: Mapping) -> bool:
        """Whether the trial ends."""
        raise NotImplementedError

    def stop_all(self) -> bool:
        """Whether the whole experiment ends; called several times a second."""
        return False

    def reached(self, trial_id: str, result: Mapping) -> str | None:
        """Reason for which the trial ends, in words; None: it continues."""
        return str(self) if self(trial_id, result) else None

    @property
    def result_keys(self) -> list[str]:
        """Result keys that the stopper reads."""
        return []

    @property
    def time_limit_s(self) -> float | None:
        """The time_total_s at which a trial ends, even if it does not answer; None: no limit."""
        return None

    def get_state(self) -> Any:
        """All that `set_state` needs to continue in a resumed experiment, as data that JSON can hold."""
        return None

    def set_state(self, state: Any) -> None:
        """Restores a state of `get_state`; None: the initial state."""

    def add_time(self, seconds: float) -> None:
        """Counts time for which the experiment ran after `get_state`, until it was interrupted."""

    def __str__(self):
        return type(self).__name__


def threshold_reached(thresholds: Mapping[str, float], result: Mapping) -> str | None:
    """A sentence with the threshold that a result has reached; None without one. NaN reaches nothing.

    Raises:
        NotANumberError: if the value in the result is no number.
    """
    for key, threshold in thresholds.items():
        value = number_in(result, key, f"stop: {key}")
        if value is not None and value >= threshold:
            return f"{key} {value:,.6g} >= {threshold:,.10g}"
    return None


class ThresholdStopper(Stopper):
    """Ends a trial, or a run of `rllib train`, as soon as one result key reaches its threshold.

    Args:
        thresholds: result key or "a/b" path -> the value at which to stop; empty: never.

    Raises:
        ValueError: if a threshold is no finite number, or one of a count or time that every result reaches.
    """

    def __init__(self, thresholds: Mapping[str, float]):
        self.thresholds = {key: scalar(threshold) for key, threshold in thresholds.items()}
        for key, threshold in self.thresholds.items():
            if isinstance(threshold, bool) or not isinstance(threshold, (int, float)) or not math.isfinite(threshold):
                raise ValueError(f"stop: {key} needs a number to be reached, but got {thresholds[key]!r}")
            if threshold <= 0 and counts_from_zero(key):
                raise ValueError(f"stop: {key} must be > 0, but got {thresholds[key]!r}, which every result reaches")
        self._first: dict[str, float] = {}

    def __str__(self):
        return " or ".join(f"{key} >= {threshold:,.10g}" for key, threshold in self.thresholds.items())

    @property
    def time_limit_s(self) -> float | None:
        return self.thresholds.get("time_total_s")

    @property
    def result_keys(self) -> list[str]:
        return list(self.thresholds)

    def check_keys(self, result: Mapping) -> None:
        """Refuses keys that results like this first one will never have, and values that are no numbers.

        Raises:
            ValueError: naming the nearest key of the result.
        """
        for key in self.thresholds:
            check_key(result, key, "stop")
            number_in(result, key, f"stop: {key}")

    def __call__(self, trial_id, result) -> bool:
        return self.reached(trial_id, result) is not None

    def reached(self, trial_id: str, result: Mapping) -> str | None:
        return threshold_reached(self.thresholds, result)

    def progress(self, result: Mapping) -> float:
        """Fraction, in [0, 1], of the way to the nearest threshold.

        Returns are measured from the first return, all else (steps, iterations, seconds) from 0.
        """
        return max((self._fraction(result, *item) for item in self.thresholds.items()), default=0.0)

    def _fraction(self, result: Mapping, key: str, threshold: float) -> float:
        value = lookup(result, key)
        if not is_number(value):
            return 0.0
        start = self._first.setdefault(key, value if "return" in key or "reward" in key else 0.0)
        if value >= threshold:
            return 1.0
        return max(0.0, (value - start) / (threshold - start)) if threshold > start else 0.0


class FunctionStopper(Stopper):
    """Ends a trial when function(trial_id, result) is true, and the experiment when its `stop_all()` is."""

    def __init__(self, function: Callable[[str, Mapping], bool]):
        if not callable(function):
            raise TypeError(f"stop needs a function of trial_id and result, but got {function!r}")
        with suppress(ValueError):  # of some builtins the arguments are not known
            signature = inspect.signature(function)
            try:
                signature.bind("trial_id", {})
            except TypeError:
                raise TypeError(
                    f"stop needs a function of trial_id and result, two arguments, but {self._name_of(function)} has "
                    f"{signature}"
                ) from None
        self._function = function

    def __call__(self, trial_id, result) -> bool:
        return bool(self._function(trial_id, result))

    def stop_all(self) -> bool:
        return hasattr(self._function, "stop_all") and bool(self._function.stop_all())

    def __str__(self):
        return self._name_of(self._function)

    @staticmethod
    def _name_of(function: Callable) -> str:
        return getattr(function, "__name__", type(function).__name__)


class MaximumIterationStopper(Stopper):
    """Ends a trial after `max_iter` iterations."""

    def __init__(self, max_iter: int):
        check_number("max_iter", max_iter, "> 0", above=0)
        self._max, self._counts = max_iter, Counter()

    def __call__(self, trial_id, result) -> bool:
        # A trial that continues from a checkpoint is counted by its iteration, not from 0.
        self._counts[trial_id] = result.get("training_iteration") or self._counts[trial_id] + 1
        return self._counts[trial_id] >= self._max

    def __str__(self):
        return counted(self._max, "iteration")


class NoopStopper(Stopper):
    """Ends no trial."""

    def __call__(self, trial_id, result) -> bool:
        return False


class TimeoutStopper(Stopper):
    """Ends the experiment after a time, counted from the first call.

    The time that a resumed experiment has used before counts.

    Args:
        timeout: seconds, or a timedelta.
        clock: in place of time.monotonic.
    """

    _clock = staticmethod(time.monotonic)  # not an attribute of objects, which would be written into a journal

    def __init__(self, timeout: float | timedelta, clock: Callable[[], float] | None = None):
        self._timeout_s = seconds(timeout, "timeout")
        self._begin, self._used_before_s = None, 0.0
        if clock is not None:
            self._clock = clock

    def __call__(self, trial_id, result) -> bool:
        return self.stop_all()

    def stop_all(self) -> bool:
        if self._begin is None:
            self._begin = self._clock()
        return self._used_s() >= self._timeout_s

    def _used_s(self) -> float:
        return self._used_before_s + (0.0 if self._begin is None else self._clock() - self._begin)

    def get_state(self) -> float:
        return self._used_s()

    def set_state(self, state: float | None) -> None:
        self._used_before_s, self._begin = state or 0.0, None

    def add_time(self, seconds: float) -> None:
        self._used_before_s += seconds

    def __str__(self):
        return f"timeout of {self._timeout_s:g} s"


class _PlateauStopper(Stopper):
    """Base of the stoppers that watch a metric; results without a number of it (missing, None, NaN) are not counted."""

    _metric: str

    @property
    def result_keys(self) -> list[str]:
        return [self._metric]

    def _value(self, result: Mapping) -> float | None:
        value = number_in(result, self._metric, f"The metric {self._metric!r}")
        return None if value is None or math.isnan(value) else float(value)


class TrialPlateauStopper(_PlateauStopper):
    """Ends a trial whose metric no longer moves.

    Args:
        metric: result key or "a/b" path; results without a number of it are not counted.
        std: the standard deviation below which the last results count as level.
        num_results: how many last results.
        grace_period: the least number of results before a trial ends.
        metric_threshold: level trials end only when their metric is at least (mode "max") or at most ("min") this.
        mode: needed with metric_threshold.
    """

    def __init__(
        self,
        metric: str,
        std: float = 0.01,
        num_results: int = 4,
        grace_period: int = 4,
        metric_threshold: float | None = None,
        mode: str | None = None,
    ):
        check_mode(mode)
        check_number("std", std, "> 0", above=0)
        check_count("num_results", num_results)
        check_number("grace_period", grace_period, ">= 0", least=0)
        if metric_threshold is not None:
            check_number("metric_threshold", metric_threshold, "")
            check("mode", mode, mode is not None, "'max' or 'min' with metric_threshold")
        self._metric, self._std, self._grace = metric, std, grace_period
        self._threshold, self._mode = metric_threshold, mode
        self._counts, self._num_results = Counter(), num_results
        self._recent: dict[str, list[float]] = {}

    def __call__(self, trial_id, result) -> bool:
        value = self._value(result)
        if value is None:
            return False
        recent = self._recent[trial_id] = [*self._recent.get(trial_id, ()), value][-self._num_results :]
        self._counts[trial_id] += 1
        if self._threshold is not None and not (
            value >= self._threshold if self._mode == "max" else value <= self._threshold
        ):
            return False
        if (
            self._counts[trial_id] < self._grace
            or len(recent) < self._num_results
            or not all(map(math.isfinite, recent))
        ):
            return False
        return statistics.pstdev(recent) < self._std

    def get_state(self) -> dict[str, list]:
        return {
            trial_id: [count, list(map(written_number, self._recent[trial_id]))]
            for trial_id, count in self._counts.items()
        }

    def set_state(self, state: Mapping[str, list] | None) -> None:
        self._counts.clear()
        self._recent.clear()
        for trial_id, (count, recent) in (state or {}).items():
            self._counts[trial_id] = count
            self._recent[trial_id] = list(map(read_number, recent))

    def __str__(self):
        return f"a plateau of {self._metric}"


class ExperimentPlateauStopper(_PlateauStopper):
    """Ends the experiment when its best values no longer change.

    Args:
        metric: result key or "a/b" path; results without a number of it are not counted.
        std: standard deviation of the best values below which they count as level.
        top: number of best values.
        mode: "min" or "max".
        patience: number of results that the plateau must last, the one that completes it included; 0 is the same as 1.
    """

    def __init__(self, metric: str, std: float = 0.001, top: int = 10, mode: str = "min", patience: int = 0):
        check("mode", check_mode(mode), mode is not None, "'max' or 'min'")
        check_number("top", top, "> 1", above=1, whole=True)
        check_number("patience", patience, ">= 0", least=0, whole=True)
        check_number("std", std, "> 0", above=0)
        self._metric, self._std, self._top, self._patience = metric, std, top, patience
        self._sign = 1 if mode == "max" else -1
        self._best: list[float] = []
        self._level_for = 0

    def __call__(self, trial_id, result) -> bool:
        value = self._value(result)
        if value is None:
            return self.stop_all()
        if math.isfinite(value):
            self._best = sorted([*self._best, self._sign * value], reverse=True)[: self._top]
        is_level = len(self._best) == self._top and statistics.pstdev(self._best) <= self._std
        self._level_for = self._level_for + 1 if is_level else 0
        return self.stop_all()

    def stop_all(self) -> bool:
        return self._level_for >= max(self._patience, 1)

    def get_state(self) -> list:
        return [self._level_for, self._best]

    def set_state(self, state: list | None) -> None:
        self._level_for, self._best = state or (0, [])

    def __str__(self):
        return f"a plateau of the best {self._metric}"


class CombinedStopper(Stopper):
    """Ends a trial, or the experiment, as soon as one of several stoppers does."""

    def __init__(self, *stoppers):
        self._stoppers = [make_stopper(stopper) for stopper in stoppers]

    def __call__(self, trial_id, result) -> bool:
        return self.reached(trial_id, result) is not None

    def reached(self, trial_id, result) -> str | None:
        # All of them are called, since they remember results.
        reasons = [stopper.reached(trial_id, result) for stopper in self._stoppers]
        return next(filter(None, reasons), None)

    @property
    def result_keys(self) -> list[str]:
        return [key for stopper in self._stoppers for key in stopper.result_keys]

    @property
    def time_limit_s(self) -> float | None:
        return min((limit for stopper in self._stoppers if (limit := stopper.time_limit_s) is not None), default=None)

    def stop_all(self) -> bool:
        return any([stopper.stop_all() for stopper in self._stoppers])

    def get_state(self) -> list:
        return [saved(stopper) for stopper in self._stoppers]

    def set_state(self, state: list | None) -> None:
        for stopper, own in zip(self._stoppers, state or ()):
            restore(stopper, own)

    def add_time(self, seconds: float) -> None:
        for stopper in self._stoppers:
            stopper.add_time(seconds)

    def __str__(self):
        return " or ".join(map(str, self._stoppers))


def saved(stopper: Stopper) -> list:
    """[class, state], for `restore`."""
    return [type(stopper).__name__, stopper.get_state()]


def restore(stopper: Stopper, saved: list | None) -> None:
    """Restores a state of `saved`; a stopper of another class, which the user has given since, starts again."""
    if saved and saved[0] == type(stopper).__name__:
        stopper.set_state(saved[1])


def make_stopper(stop) -> Stopper:
    """Makes a stopper of a dict of thresholds, a function of (trial_id, result), a list of both, a Stopper, or None.

    Raises:
        TypeError, ValueError: for anything else.
    """
    if isinstance(stop, Stopper):
        return stop
    if stop is None or isinstance(stop, Mapping):
        return ThresholdStopper(stop or {})
    if isinstance(stop, (list, tuple)):
        return CombinedStopper(*stop)
    if not callable(stop):
        raise TypeError(
            f"stop must be a dict of thresholds, a function of trial_id and result, or a Stopper, but got {stop!r}"
        )
    return FunctionStopper(stop)
