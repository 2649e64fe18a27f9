"""Searcher and scheduler: what they hear of the trials, and what they say.

Results without the metric by which trials are compared are kept from them.
"""

from typing import Any

from rllib.tune.audience import Audience
from rllib.tune.stopping import lookup
from rllib.tune.trial import ERROR, Trial


class Judge:
    """Asks and tells searcher and scheduler.

    Args:
        searcher: suggests configurations.
        scheduler: decides which trials go on.
        metric: by which trials are compared; None where nobody compares.
        audience: hears of a metric that is missing, if that does no harm.
    """

    def __init__(self, searcher, scheduler, metric: str | None, audience: Audience):
        self.searcher, self.scheduler = searcher, scheduler
        self._metric, self._audience = metric, audience
        self._seen_metric = False

    def decide(self, runner, trial: Trial, result: dict) -> str:
        """What becomes of the trial after this result: CONTINUE, PAUSE, STOP or NOOP."""
        if not self._is_comparable(result):
            return "CONTINUE"
        self.searcher.on_trial_result(trial.trial_id, result)
        return self.scheduler.on_trial_result(runner, trial, result)

    def see(self, result: dict) -> None:
        """Any result, the last ones of trials among them, which need no decision."""
        self._seen_metric = self._seen_metric or self._is_comparable(result)

    def end(self, runner, trial: Trial) -> None:
        """A trial has ended for good."""
        if trial.status == ERROR:
            self.scheduler.on_trial_error(runner, trial)
            self.searcher.on_trial_complete(trial.trial_id, error=True)
            return
        comparable = bool(trial.last_result) and self._is_comparable(trial.last_result)
        if comparable:
            self.scheduler.on_trial_complete(runner, trial, trial.last_result)
        else:
            self.scheduler.on_trial_remove(runner, trial)
        self.searcher.on_trial_complete(trial.trial_id, trial.last_result if comparable else None)

    def refuse_missing_metric(self, trial: Trial) -> None:
        """At the end of a trial: a metric that no trial has ever reported is a mistake.

        Raises:
            ValueError: if searcher or scheduler cannot do without it.
        """
        if self._seen_metric or not trial.last_result:
            return
        have = ", ".join(sorted(trial.metric_analysis))
        message = f"the results of {trial} have no metric {self._metric!r}; they have: {have}"
        if getattr(self.scheduler, "needs_metric", False) or getattr(self.searcher, "needs_metric", False):
            raise ValueError(f"{message}. Trials cannot be compared by it")
        self._audience.warn_once("metric", message)

    def get_state(self) -> dict[str, Any]:
        """All that they know."""
        return {"searcher": self.searcher.get_state(), "scheduler": self.scheduler.get_state()}

    def set_state(self, state: dict[str, Any]) -> None:
        """Goes on where `get_state` was called."""
        self.searcher.set_state(state["searcher"])
        self.scheduler.set_state(state["scheduler"])

    def _is_comparable(self, result: dict) -> bool:
        return self._metric is None or lookup(result, self._metric) is not None
