"""Hooks of an experiment, which run in the driver, and the object that calls them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import NoneType
from typing import Any

from rllib.storage.encoding import decode, encode
from rllib.storage.states import paired
from rllib.tune.experiment.trial import Trial


class Callback:
    """Base of callbacks: a subclass defines the hooks it needs; `info` has further keys in later versions.

    Hooks get `iteration` (of the runner's loop), `trials` (all trials) and mostly `trial`.
    """

    def setup(self, stop=None, num_samples=None, total_num_samples=None, **info) -> None:
        """Called once, before the first trial.

        Args:
            stop: the experiment's stop criteria, a Stopper.
            num_samples: number of samples, each with the whole grid; -1: without end.
            total_num_samples: number of trials, as far as the searcher knows it.
            info: `time_budget_s`, and more in later versions.
        """

    def on_step_begin(self, iteration: int, trials: list, **info) -> None:
        """The runner is about to wait for answers of trials."""

    def on_step_end(self, iteration: int, trials: list, **info) -> None:
        """The runner has processed the answers."""

    def on_trial_start(self, iteration: int, trials: list, trial, **info) -> None:
        """A trial's process has started."""

    def on_trial_restore(self, iteration: int, trials: list, trial, **info) -> None:
        """A trial continues from a checkpoint; its process has started, and on_trial_start has been called."""

    def on_trial_save(self, iteration: int, trials: list, trial, **info) -> None:
        """A trial has been saved."""

    def on_trial_result(self, iteration: int, trials: list, trial, result: Mapping[str, Any], **info) -> None:
        """A trial has a new result, which is in its files already."""

    def on_trial_complete(self, iteration: int, trials: list, trial, **info) -> None:
        """A trial has ended well."""

    def on_trial_recover(self, iteration: int, trials: list, trial, **info) -> None:
        """A trial has failed and starts again."""

    def on_trial_error(self, iteration: int, trials: list, trial, **info) -> None:
        """A trial has failed and does not start again."""

    def on_checkpoint(self, iteration: int, trials: list, trial, checkpoint, **info) -> None:
        """A trial has a new checkpoint."""

    def on_experiment_end(self, trials: list, **info) -> None:
        """The experiment has ended: no trial runs any more."""

    def get_state(self) -> dict[str, Any] | None:
        """State that is saved with the experiment now and then, and at its end: plain data and arrays. None: none."""

    def set_state(self, state: dict[str, Any]) -> None:
        """Restores the state that `get_state` returned last, in an experiment that is resumed; before `setup`."""


_HOOKS = [name for name in vars(Callback) if not name.startswith("_")]


def check_callbacks(callbacks: Any) -> None:
    """Raises TypeError for anything but a list of objects that have all hooks of a Callback."""
    rule = "callbacks must be a list of objects of classes derived from tune.Callback"
    if not isinstance(callbacks, (list, tuple, NoneType)):
        raise TypeError(f"{rule}, but got {callbacks!r:.80}")
    for callback in callbacks or ():
        if isinstance(callback, type):
            raise TypeError(f"{rule}, but got the class {callback.__name__}. Use {callback.__name__}(...).")
        if lacking := [hook for hook in _HOOKS if not callable(getattr(callback, hook, None))]:
            raise TypeError(f"{rule}, but got {callback!r:.80}, which has no {lacking[0]}")


class LoggerCallback(Callback):
    """Base of loggers: a subclass defines `log_trial_start`, `log_trial_result`, `log_trial_end` or others."""

    def log_trial_start(self, trial) -> None:
        """The trial starts, or continues."""

    def log_trial_restore(self, trial) -> None:
        """The trial continues from a checkpoint."""

    def log_trial_result(self, iteration: int, trial, result: Mapping[str, Any]) -> None:
        """The trial has a result."""

    def log_trial_save(self, trial) -> None:
        """The trial has been saved."""

    def log_trial_end(self, trial, failed: bool = False) -> None:
        """The trial has ended."""

    def on_trial_start(self, iteration, trials, trial, **info) -> None:
        self.log_trial_start(trial)

    def on_trial_restore(self, iteration, trials, trial, **info) -> None:
        self.log_trial_restore(trial)

    def on_trial_result(self, iteration, trials, trial, result, **info) -> None:
        self.log_trial_result(iteration, trial, result)

    def on_trial_save(self, iteration, trials, trial, **info) -> None:
        self.log_trial_save(trial)

    def on_trial_complete(self, iteration, trials, trial, **info) -> None:
        self.log_trial_end(trial, failed=False)

    def on_trial_error(self, iteration, trials, trial, **info) -> None:
        self.log_trial_end(trial, failed=True)


class Callbacks:
    """Calls the hooks of all callbacks, and the reporter.

    Args:
        callbacks: Callback objects.
        reporter: shows the progress; None: nothing is shown.
        trials: the experiment's own list, to which it adds.

    Attributes:
        round: of the experiment's loop, from 1 on.
    """

    def __init__(self, callbacks: Sequence[Callback], reporter, trials: list[Trial]):
        self.round = 0
        self._callbacks, self._reporter, self._trials = list(callbacks), reporter, trials
        self._left_out: list[Sequence] = []  # saved states of callbacks that this program is without

    def setup(self, **properties) -> None:
        """Calls the hook before the first trial with these properties of the experiment."""
        self._call("setup", **properties)

    def get_state(self) -> list[list]:
        """[class, state] of each callback that has a state, in a form for JSON; for `set_state`."""
        states = []
        for callback in self._callbacks:
            with _naming(callback, "get_state"):
                if (state := callback.get_state()) is None:
                    continue
                states.append([type(callback).__name__, encode(state)])
        return [*states, *self._left_out]

    def set_state(self, states: Sequence[Sequence] | None) -> None:
        """Restores the states of `get_state` in the callbacks of the same classes, in their order.

        Other states are kept, for a program that has these callbacks again.
        """
        pairs, self._left_out = paired(self._callbacks, states or ())
        for callback, state in pairs:
            with _naming(callback, "set_state"):
                callback.set_state(decode(state))

    def call(self, hook: str, **more) -> None:
        """Calls this hook of all callbacks with the round, all trials and `more`.

        Raises:
            the first error of a callback, with a note that names it, when all have been called.
        """
        self._call(hook, iteration=self.round, trials=self._trials, **more)

    def _call(self, hook: str, **arguments) -> None:
        errors = []
        for callback in self._callbacks:
            try:
                with _naming(callback, hook):
                    getattr(callback, hook)(**arguments)
            except Exception as error:
                errors.append(error)
        if errors:
            raise errors[0]

    def report(self, status: Callable[[], dict[str, Any]], done: bool = False) -> None:
        """Shows the trials, if a report is due."""
        if self._reporter is not None and self._reporter.should_report(self._trials, done=done):
            self._reporter.report(self._trials, done, status())


@contextmanager
def _naming(callback: Callback, hook: str) -> Iterator[None]:
    """Adds to an error which callback raised it."""
    try:
        yield
    except Exception as error:
        error.add_note(f"raised in {type(callback).__name__}.{hook}, a callback of the experiment")
        raise
