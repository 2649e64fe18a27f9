"""Searcher and scheduler: what they hear of the trials, and what they say.

They hear of each result once. A trial that has gone back to its last checkpoint, after a failure or with `resume`,
reports again what they have judged: such results are kept from them, and what they said to the last one holds. Results
without the metric by which trials are compared are kept from them, too.
"""

from typing import Any

from rllib.tune.experiment import ExperimentDirectory
from rllib.tune.experiment_callbacks import Observers
from rllib.tune.loggers import lookup
from rllib.tune.schedulers.base import FIFOScheduler
from rllib.tune.trial import ERROR, Trial

# Iteration of the last result that was judged, and the decision.
Verdict = tuple[int, str]


class TrialDecisions:
    """Asks and tells searcher and scheduler.

    Args:
        searcher: suggests configurations.
        scheduler: decides which trials go on.
        metric: by which trials are compared; None where nobody compares.
        observers: hear of a metric that is missing, if that does no harm.
        directory: its journal has each result before they hear of it.
    """

    def __init__(self, searcher, scheduler, metric: str | None, observers: Observers, directory: ExperimentDirectory):
        self.searcher, self.scheduler = searcher, scheduler
        self._metric, self._observers, self._directory = metric, observers, directory
        self._seen_metric = False
        self._verdicts: dict[str, Verdict] = {}  # of trials that have not ended well
        self._behind: set[str] = set()  # trials that do again what was judged

    def decide(self, runner, trial: Trial, result: dict) -> str:
        """What becomes of the trial after this result: CONTINUE, PAUSE, STOP or NOOP."""
        if not self._is_comparable(result):
            return "CONTINUE"
        iteration = result["training_iteration"]
        if trial.trial_id in self._behind:
            judged, decision = self._verdicts[trial.trial_id]
            if iteration >= judged:
                self._behind.discard(trial.trial_id)
            if iteration <= judged:
                return decision if iteration == judged else "CONTINUE"
        self._directory.result_came(trial, iteration)
        return self.hear(runner, trial, result)

    def hear(self, runner, trial: Trial, result: dict) -> str:
        """`decide` without a look at what was said before."""
        iteration = result["training_iteration"]
        self._verdicts[trial.trial_id] = (iteration, "CONTINUE")
        self.searcher.on_trial_result(trial.trial_id, result)
        decision = self.scheduler.on_trial_result(runner, trial, result)
        if decision in ("STOP", "PAUSE"):
            self._verdicts[trial.trial_id] = (iteration, decision)
        return decision

    def standing_verdict(self, runner, trial: Trial) -> str:
        """The decision on the trial's last result, which is made now if the driver ended before it was."""
        judged, decision = self._verdicts.get(trial.trial_id, (0, "CONTINUE"))
        iteration = trial.last_result.get("training_iteration", 0)
        if iteration > judged:
            return self.decide(runner, trial, trial.last_result)
        return decision if iteration == judged else "CONTINUE"

    def goes_back(self, trial: Trial) -> None:
        """The trial goes on from its last checkpoint, or starts over."""
        judged, _ = self._verdicts.get(trial.trial_id, (0, None))
        if judged > trial.last_result.get("training_iteration", 0):
            self._behind.add(trial.trial_id)

    def goes_on(self, trial: Trial) -> None:
        """The trial may go on after a pause."""
        judged, decision = self._verdicts.get(trial.trial_id, (0, None))
        if decision == "PAUSE":
            self._verdicts[trial.trial_id] = (judged, "CONTINUE")

    def goes_over(self, trial: Trial, iteration: int) -> None:
        """The trial goes on from another one's checkpoint, at this iteration."""
        self._verdicts[trial.trial_id] = (iteration, "CONTINUE")
        self._behind.discard(trial.trial_id)

    def see(self, result: dict) -> None:
        """Any result: the last ones of trials, which need no decision, and those of a resumed experiment among them."""
        self._seen_metric = self._seen_metric or self._is_comparable(result)

    def end(self, runner, trial: Trial) -> None:
        """A trial has ended for good, unless it has failed and is resumed."""
        if trial.status != ERROR:
            self._verdicts.pop(trial.trial_id, None)
        self._behind.discard(trial.trial_id)
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
        self._observers.warn_once("metric", message)

    def get_state(self) -> dict[str, Any]:
        """All that they know, and their verdicts."""
        return {
            "searcher": _state(self.searcher),
            "scheduler": _state(self.scheduler),
            "verdicts": self._verdicts,
            "kinds": self._kinds(),
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Goes on where `get_state` was called.

        Raises:
            ValueError: if it was called with a searcher or scheduler of another kind.
        """
        now = self._kinds()
        for part, before in state.get("kinds", {}).items():
            if now[part] != before:
                raise ValueError(
                    f"the experiment has a {part} of kind {before}, and cannot go on with {now[part]}. Give the same "
                    f"{part} again, or let Tuner.restore take it from the experiment"
                )
        for part, saved in ((self.searcher, state["searcher"]), (self.scheduler, state["scheduler"])):
            if saved:
                part.set_state(saved)
            if (name := _that_begins_anew(part, saved)) is not None:
                self._observers.warn_once(
                    f"state {name}",
                    f"{name} has no get_state and set_state, so it begins anew: it knows nothing of the experiment's "
                    "results so far",
                )
        self._verdicts = {trial_id: tuple(verdict) for trial_id, verdict in state["verdicts"].items()}

    def _kinds(self) -> dict[str, str]:
        return {"search_alg": _kind(self.searcher), "scheduler": _kind(self.scheduler)}

    def _is_comparable(self, result: dict) -> bool:
        return self._metric is None or lookup(result, self._metric) is not None


def _kind(part) -> str:
    """The class of a searcher or scheduler, and of the searcher that it wraps."""
    inner = getattr(part, "searcher", None)
    return type(part).__name__ + (f"({_kind(inner)})" if inner is not None else "")


def _state(part) -> dict[str, Any]:
    """What a searcher or scheduler remembers; {}: it has nothing to go on with."""
    return part.get_state() if hasattr(part, "get_state") else {}


def _that_begins_anew(part, saved: dict[str, Any]) -> str | None:
    """The class of a searcher or scheduler, or of the searcher that it wraps, that had no state to save."""
    if saved:
        inner = getattr(part, "searcher", None)
        return None if inner is None else _that_begins_anew(inner, saved["searcher"])
    return None if type(part) is FIFOScheduler else type(part).__name__
