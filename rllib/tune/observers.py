"""Who hears how an experiment goes: callbacks, the reporter, and the log for what is said once."""

import logging
from collections.abc import Callable, Sequence
from typing import Any

from rllib.tune.callbacks import Callback
from rllib.tune.trial import Trial

logger = logging.getLogger(__name__)


class Observers:
    """Tells them.

    Args:
        callbacks: hooks.
        reporter: shows how it goes; None: nothing is shown.

    Attributes:
        trials: all so far; the experiment's own list.
        round: of the experiment's loop.
    """

    def __init__(self, callbacks: Sequence[Callback] = (), reporter=None):
        self.trials: list[Trial] = []
        self.round = 0
        self._callbacks, self._reporter = list(callbacks), reporter
        self._said: set[str] = set()

    def set_up(self, num_samples: int) -> None:
        """Once, before anything else."""
        self._call("setup", num_samples=num_samples, total_num_samples=num_samples)

    def hear(self, hook: str, **more) -> None:
        """Calls this hook of all callbacks."""
        self._call(hook, iteration=self.round, trials=self.trials, **more)

    def _call(self, hook: str, **arguments) -> None:
        for callback in self._callbacks:
            try:
                getattr(callback, hook)(**arguments)
            except Exception as error:
                error.add_note(f"raised in {type(callback).__name__}.{hook}, a callback of the experiment")
                raise

    def report(self, status: Callable[[], dict[str, Any]], done: bool = False) -> None:
        """Shows the trials, if it is time to."""
        if self._reporter is not None and self._reporter.should_report(self.trials, done=done):
            self._reporter.report(self.trials, done, status())

    def warn_once(self, topic: str, message: str) -> None:
        """Once per topic."""
        if topic not in self._said:
            self._said.add(topic)
            logger.warning("%s", message)
