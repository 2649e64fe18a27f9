"""Base of the schedulers, which decide at every result whether a trial continues, waits or ends.

A scheduler is pure logic: it uses no clock, process or file. trials.py calls it, and so does a simulator in the tests.
It reads of trials `trial_id`, `config`, `status`, `last_result` and `evaluated_params`.
"""

import math
from collections.abc import Mapping
from typing import Any, Protocol

from rllib.runs.entries import lookup
from rllib.tune.checks import check_mode
from rllib.tune.search.base import joined_objective, metric_value
from rllib.tune.states import PENDING


class Runner(Protocol):
    """Interface of the experiment for schedulers.

    Attributes:
        trials: all trials, in the order of creation.
    """

    trials: list

    def waiting_trials(self) -> list:
        """Trials that are PENDING or PAUSED and may start, the one that has waited longest first.

        One that is to take over a state that is still being saved is left out.
        """

    def has_resources_for(self, trial) -> bool:
        """Whether the trial could start at once."""

    def pause_trial(self, trial) -> None:
        """Takes a checkpoint and frees the trial's actor; the trial is PAUSED."""

    def stop_trial(self, trial) -> None:
        """Ends the trial (TERMINATED), whatever it is doing."""

    def exploit(self, trial, source, config: Mapping[str, Any]) -> None:
        """Lets `trial` continue from the newest state of `source`, with this configuration.

        A source that is at a step is saved after it. When the state is copied, the scheduler's `on_trial_takeover` has
        its numbers. If the source ends by that step, the trial continues with its own state.
        """

    def saved_state(self, trial) -> Mapping[str, float] | None:
        """Numbers of the result that belongs to the state which `exploit` would copy from this trial.

        None: the state is saved when it is needed, at the trial's latest result. {}: there is no state.
        """

    def write_file(self, name: str, text: str, append: bool = False) -> None:
        """Writes (or appends to) a file in the experiment's directory."""


class TrialScheduler:
    """Decides which trials run; this base class starts them in their order and runs each to its end.

    Args:
        metric: result key or "a/b" path; None: tune.run's.
        mode: "max" or "min"; None: tune.run's.
        time_attr: result key or "a/b" path that counts a trial's progress; it must never decrease.
    """

    CONTINUE, PAUSE, STOP, NOOP = "CONTINUE", "PAUSE", "STOP", "NOOP"
    needs_metric = True
    # The argument that says what it may change.
    changing_argument = ""

    def __init__(self, metric: str | None = None, mode: str | None = None, time_attr: str = "training_iteration"):
        self.metric, self.mode, self.time_attr = metric, check_mode(mode), time_attr

    def set_search_properties(self, metric: str | None, mode: str | None) -> bool:
        """Sets what tune.run optimises.

        Raises:
            ValueError: if metric or mode is needed and missing, or contradicts the scheduler's own.
        """
        self.metric, self.mode = joined_objective(self, metric, mode, self.needs_metric)
        return True

    def changes(self, space: Mapping[str, Any]) -> Mapping[str, Any]:
        """Values that it may give to trials of a search space, as a search space."""
        return {}

    def keep_within(self, bounds: Mapping[str, Any]) -> None:
        """Says between which numbers settings of the trainable lie.

        Args:
            bounds: setting -> [low, high], None: without a bound; or, for a dict of settings, such a dict.
        """

    def on_trial_add(self, runner: Runner, trial) -> None:
        """A trial has joined the experiment."""

    def on_trial_result(self, runner: Runner, trial, result: Mapping) -> str:
        """A trial has reported; returns CONTINUE, PAUSE, STOP or NOOP (the scheduler has commanded the runner)."""
        return self.CONTINUE

    def on_trial_takeover(self, runner: Runner, trial, result: Mapping[str, float]) -> None:
        """A trial continues from the state for which `exploit` has asked; `result` has the numbers of that state."""

    def on_trial_error(self, runner: Runner, trial) -> None:
        """A trial has failed for good."""

    def on_trial_remove(self, runner: Runner, trial) -> None:
        """A trial has ended while it was waiting."""

    def on_trial_complete(self, runner: Runner, trial, result: Mapping) -> None:
        """A trial has ended by itself or by a stop condition."""

    def choose_trial_to_run(self, runner: Runner):
        """The first trial that has not started yet and fits, else the first paused one; None without one."""
        new_first = sorted(runner.waiting_trials(), key=lambda trial: trial.status != PENDING)
        return next(filter(runner.has_resources_for, new_first), None)

    def debug_string(self) -> str:
        """One line for the status table."""
        return type(self).__name__

    def get_state(self) -> dict[str, Any]:
        """State from which `set_state` continues exactly, as data that JSON can hold."""
        return {}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Restores a state of `get_state`."""

    def score(self, result: Mapping) -> float | None:
        """The metric of a result, higher is better; None if it is NaN: no number yet, which is not a bad number.

        A return is NaN until the first episode ends, for instance. What is decided by the metric waits for a number.

        Raises:
            ValueError: if the results have no such metric, with the metrics that they have.
        """
        value = metric_value(result, self.metric)
        if math.isnan(value):
            return None
        return value if self.mode == "max" else -value

    def is_at_end(self, result: Mapping) -> bool:
        """Whether a trial ends with this result whatever its metric is; asked of results that lack the metric."""
        return False

    def has_reached(self, result: Mapping, time: float) -> bool:
        """Whether the time_attr of a result is this time or later; False if it is missing."""
        value = lookup(result, self.time_attr)
        return value is not None and value >= time

    def progress(self, result: Mapping) -> float:
        """The time_attr of a result.

        Raises:
            ValueError: if the results have no such key, with the keys that they have.
        """
        return metric_value(result, self.time_attr)


def whole_again(number: float) -> float:
    """The number to twelve digits, so that products and quotients which are whole are whole numbers.

    729 * 3**-5 is 3.0000000000000004, which a trial at iteration 3 would not have reached.
    """
    return float(f"{number:.12g}")


class FIFOScheduler(TrialScheduler):
    """Trials start in their order and run to their end."""

    needs_metric = False
