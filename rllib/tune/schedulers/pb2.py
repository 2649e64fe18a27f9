"""Population based bandits (Parker-Holder et al. 2020, arXiv:2002.02518).

PBT whose changes are no random ones: a Gaussian process learns by how much the metric has risen in an interval, for
each setting and time, and forgets old intervals. A trial that takes over another one's state gets the settings with the
greatest upper confidence bound. Of trials that change at once, each allows for the others (the paper's eq. 7): the
deviation, not the mean, is taken as if the intervals under way had been observed already.

Departures: the kernel is fitted on a grid (gaussian_process.py); a whole interval is the unit of time; bounds may be
logarithmic. Ray's own conditions on the score besides; ours has the paper's inputs, settings and time.
"""

import contextlib
import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from rllib.runs.entries import is_number
from rllib.tune.checks import check
from rllib.tune.schedulers.gaussian_process import GaussianProcess, Kernel, fitted_kernel
from rllib.tune.schedulers.pbt import PopulationBasedTraining
from rllib.tune.search.domains import Float, Integer
from rllib.tune.search.space import is_grid

# Number of newest observations that the Gaussian process learns from.
_MOST_OBSERVATIONS = 100
# With fewer observations the kernel is not fitted: the settings spread.
_FEWEST_TO_FIT = 4
_UNFITTED = (0.4, 0.05, 0.1)
# beta_t = c1 log(c2 t) of the confidence bound (arXiv:1601.06650, section 5), t the number of observations.
_C1, _C2 = 0.8, 4.0
# Number of random candidates, and deviations of rounds of further ones around the best so far.
_CANDIDATES, _ROUNDS = 500, (0.1, 0.03, 0.01)


@dataclass
class _Interval:
    """Interval of training of a trial that is under way; `point` are its settings in the unit cube."""

    point: list[float]
    time: float
    score: float


class PB2(PopulationBasedTraining):
    """PBT that chooses settings by a Gaussian process.

    Args:
        time_attr, metric, mode: see TrialScheduler.
        perturbation_interval: time between two decisions about a trial, in units of time_attr.
        hyperparam_bounds: hyperparameter -> [low, high], a range such as tune.loguniform(low, high), whose scale is
            searched, or a nested dict. tune.randint(low, high), and two whole numbers where the configuration has one,
            give whole numbers; [0.0, 0.1] and other ranges give floats, also in place of a 0.
        quantile_fraction: share of the trials that counts as worst, and as best; at most 0.5.
        log_config: whether pbt_global.txt and pbt_policy_*.txt are written.
        require_attrs: False: results without metric or time_attr are ignored.
        synch: whether all trials wait for one another at every interval.
        custom_explore_fn: (config) -> config, called with the chosen settings.
        seed: seed of all random choices.

    Raises:
        ValueError: for bounds that are no two numbers in order, or no range.
    """

    def __init__(
        self,
        time_attr: str = "time_total_s",
        metric: str | None = None,
        mode: str | None = None,
        perturbation_interval: float = 60.0,
        hyperparam_bounds: Mapping[str, Any] | None = None,
        quantile_fraction: float = 0.25,
        log_config: bool = True,
        require_attrs: bool = True,
        synch: bool = False,
        custom_explore_fn: Callable[[dict], dict] | None = None,
        seed: int | None = None,
    ):
        if not hyperparam_bounds:
            raise ValueError(
                'PB2 needs hyperparam_bounds={"lr": [1e-5, 1e-2]}, the ranges in which it may change settings'
            )
        ranges = _ranges(hyperparam_bounds)
        super().__init__(
            time_attr,
            metric,
            mode,
            perturbation_interval,
            hyperparam_mutations=ranges,
            quantile_fraction=quantile_fraction,
            custom_explore_fn=custom_explore_fn,
            log_config=log_config,
            require_attrs=require_attrs,
            synch=synch,
            seed=seed,
        )
        self._ranges = dict(_leaves(ranges))
        # Paths with bounds such as [8, 64], in which a whole number of the configuration stays one.
        self._whole = [list(path) for path, given in _leaves(hyperparam_bounds) if _are_whole(given)]
        self._intervals: dict[str, _Interval] = {}  # of the trials that have reported and not ended
        self._observed: list[tuple[list[float], float, float]] = []  # point, time, rise of the score in an interval

    changing_argument = "hyperparam_bounds"

    def changes(self, space: Mapping[str, Any]) -> dict[str, Any]:
        """The ranges, of whole numbers where the space has some and the bounds are whole."""
        ranges = super().changes(space)
        for path in self._whole:
            domain = _at(ranges, path)
            if _holds_whole(space, path):
                _set(ranges, path, Integer(int(domain.low), int(domain.high), inclusive=True))
        return ranges

    # ------------------------------------------------------------------ observations

    def _note_progress(self, trial, is_due: bool) -> None:
        member, interval = self._member(trial), self._intervals.get(trial.trial_id)
        if not member.is_known:  # the interval lasts until there is a number
            return
        if interval is not None and not is_due:
            return
        if interval is not None and member.train_time > interval.time and math.isfinite(member.score):
            rise = (member.score - interval.score) * self._interval / (member.train_time - interval.time)
            self._observed = [
                *self._observed[1 - _MOST_OBSERVATIONS :], (interval.point, interval.time / self._interval, rise)
            ]  # fmt: skip
        self._note_takeover(trial, trial.config)

    def _note_takeover(self, trial, config: Mapping) -> None:
        member = self._member(trial)
        self._intervals.pop(trial.trial_id, None)
        if math.isfinite(member.score):  # a rise from or to infinity is no number
            self._intervals[trial.trial_id] = _Interval(self._point(config), member.train_time, member.score)

    def on_trial_complete(self, runner, trial, result=None) -> None:
        self._intervals.pop(trial.trial_id, None)
        super().on_trial_complete(runner, trial, result)

    on_trial_error = on_trial_remove = on_trial_complete

    # ------------------------------------------------------------------ explore (algorithm 2 of the paper)

    def _explored(self, trial, source, runner, rng: random.Random) -> tuple[dict[str, Any], dict[str, str]]:
        """The source's configuration with the settings of the greatest upper confidence bound."""
        start = self._member(source).train_time / self._interval
        point = self._best_point(trial.trial_id, start, np.random.default_rng(rng.getrandbits(64)))
        config = dict(source.config)
        for (path, domain), place in zip(self._ranges.items(), point):
            is_whole = list(path) in self._whole and isinstance(_at(config, path), int)
            _set(config, path, _value(domain, float(place), is_whole))
        return config, dict.fromkeys(map("/".join, self._ranges), "by the Gaussian process")

    def _best_point(self, trial_id: str, time: float, rng: np.random.Generator) -> np.ndarray:
        """The most promising point for an interval that begins at this time, in intervals: [D] in the unit cube."""
        dimensions, count = len(self._ranges), len(self._observed)
        points = np.array([point for point, *_ in self._observed]).reshape(count, dimensions)
        times = np.array([time for _, time, _ in self._observed])
        rises = np.array([rise for *_, rise in self._observed])
        values = (rises - rises.mean()) / (rises.std() or 1.0) if count else rises
        length, forgetting, noise = _UNFITTED
        kernel = Kernel((length,) * dimensions, forgetting, noise)
        if count >= _FEWEST_TO_FIT:
            kernel = fitted_kernel(points, times, values)
        pending = [each for id, each in self._intervals.items() if id != trial_id]
        all_points = np.concatenate([points, np.array([each.point for each in pending]).reshape(-1, dimensions)])
        all_times = np.concatenate([times, [each.time / self._interval for each in pending]])
        seen = GaussianProcess(kernel, points, times, values)
        imagined = GaussianProcess(kernel, all_points, all_times, np.zeros(len(all_points)))
        width = math.sqrt(_C1 * math.log(_C2 * max(count, 1)))

        def bound(candidates: np.ndarray) -> np.ndarray:
            return seen.predict(candidates, time)[0] + width * imagined.predict(candidates, time)[1]

        candidates = rng.uniform(size=(_CANDIDATES, dimensions))
        best = candidates[bound(candidates).argmax()]
        for deviation in _ROUNDS:
            steps = rng.normal(scale=deviation, size=(_CANDIDATES // 5, dimensions))
            candidates = np.concatenate([best[None], np.clip(best + steps, 0.0, 1.0)])
            best = candidates[bound(candidates).argmax()]
        return best

    def _point(self, config: Mapping) -> list[float]:
        return [_place(domain, _at(config, path), "/".join(path)) for path, domain in self._ranges.items()]

    # ------------------------------------------------------------------ state

    def debug_string(self) -> str:
        return f"PB2: {self._num_perturbations} perturbations, {len(self._observed)} observations"

    def get_state(self):
        intervals = {key: asdict(interval) for key, interval in self._intervals.items()}
        return {**super().get_state(), "intervals": intervals, "observed": self._observed}

    def set_state(self, state) -> None:
        super().set_state(state)
        self._intervals = {key: _Interval(**saved) for key, saved in state["intervals"].items()}
        self._observed = [tuple(observed) for observed in state["observed"]]


# ---------------------------------------------------------------------- bounds


def _ranges(bounds: Mapping, prefix: str = "") -> dict[str, Any]:
    """The bounds with a domain in place of each pair of numbers.

    Raises:
        ValueError: with the path of the wrong entry.
    """
    ranges: dict[str, Any] = {}
    for key, given in bounds.items():
        name = f"{prefix}{key}"
        if isinstance(given, Mapping):
            ranges[key] = _ranges(given, f"{name}/")
        elif isinstance(given, Float | Integer):
            ranges[key] = given
        else:
            is_pair = isinstance(given, list | tuple) and len(given) == 2 and all(map(is_number, given))
            rule = "[low, high] with low < high, or a range such as tune.loguniform(1e-5, 1e-2)"
            if not is_pair:
                rule += "; PopulationBasedTraining changes other settings, by its hyperparam_mutations"
            check(f"hyperparam_bounds: {name}", given, is_pair and -math.inf < given[0] < given[1] < math.inf, rule)
            ranges[key] = Float(*given)
    return ranges


def _are_whole(given) -> bool:
    """Whether these are two whole numbers, as they were written."""
    return isinstance(given, list | tuple) and all(isinstance(bound, int) for bound in given)


def _leaves(ranges: Mapping, path: tuple[str, ...] = ()):
    for key, given in ranges.items():
        if isinstance(given, Mapping):
            yield from _leaves(given, (*path, key))
        else:
            yield (*path, key), given


def _at(config: Mapping, path: Sequence[str]):
    for key in path:
        config = config[key]
    return config


def _holds_whole(space: Mapping, path: Sequence[str]) -> bool:
    """Whether a search space has a whole number, or draws one, at a path."""
    with contextlib.suppress(LookupError, TypeError):
        given = _at(space, path)
        options = given["grid_search"] if is_grid(given) else getattr(given, "values", [given])
        return all(isinstance(option, int | Integer) for option in options)
    return False


def _set(config: dict, path: Sequence[str], value) -> None:
    """Sets a value in nested dicts, which are copied on the way."""
    *way, last = path
    for key in way:
        config[key] = config = dict(config[key])
    config[last] = value


def _place(domain: Float | Integer, value, name: str) -> float:
    """The place of a value in [0, 1]; a value outside the bounds is taken as the nearest bound.

    Raises:
        ValueError: if it is no number.
    """
    check(f"{name}, one of hyperparam_bounds,", value, is_number(value), "a number in the configuration")
    value = min(max(value, domain.low), domain.high)
    low, high = domain.low, domain.high
    if domain.log:
        value, low, high = math.log(value), math.log(low), math.log(high)
    return (value - low) / (high - low) if high > low else 0.0


def _value(domain: Float | Integer, place: float, is_whole: bool = False) -> float | int:
    """The value at a place in [0, 1]: a multiple of the domain's quantum, and whole in an Integer or if `is_whole`."""
    low, high = (math.log(domain.low), math.log(domain.high)) if domain.log else (domain.low, domain.high)
    value = low + place * (high - low)
    value = math.exp(value) if domain.log else value
    if domain.q is not None:
        value = round(round(value / domain.q) * domain.q, 12)
    value = min(max(value, domain.low), domain.high)
    return round(value) if is_whole or isinstance(domain, Integer) else value
