"""The decisions of searcher and scheduler about the results of trials, each asked for once."""

from collections.abc import Callable, Mapping
from typing import Any

from rllib.runs.entries import lookup
from rllib.tune.checks import number_in
from rllib.tune.experiment.trial import Trial
from rllib.tune.schedulers.base import FIFOScheduler
from rllib.tune.states import ERROR


class Verdicts:
    """What searcher and scheduler hear of the trials, and what they have decided.

    They hear of each result once. A trial that has gone back to its last checkpoint, after a failure or with `resume`,
    repeats results that they have judged: these are not passed on, and the decision about the last of them holds.
    Results without the metric by which trials are compared are not passed on either.

    Args:
        searcher: suggests configurations.
        scheduler: decides which trials go on.
        metric: by which trials are compared; None where nobody compares.
        warn_once: (topic, message) -> None, for what does no harm.
    """

    def __init__(self, searcher, scheduler, metric: str | None, warn_once: Callable[[str, str], None]):
        self.searcher, self.scheduler = searcher, scheduler
        self._metric, self._warn_once = metric, warn_once
        self._seen_metric = False
        # Trial id -> (iteration of the last result that was judged, decision); not of trials that have ended well.
        self._verdicts: dict[str, tuple[int, str]] = {}
        self._behind: set[str] = set()  # trials that may repeat results

    def standing(self, trial: Trial, result: Mapping, is_new: bool = True) -> str | None:
        """The decision that holds for a result, without asking; None: searcher and scheduler must hear of it.

        Args:
            trial: which.
            result: of it.
            is_new: False: the trial's last result before it was interrupted, which may have been judged.
        """
        if not self._is_comparable(result):
            return "CONTINUE"
        iteration = result.get("training_iteration", 0)
        judged, decision = self._verdicts.get(trial.trial_id, (0, "CONTINUE"))
        if is_new and trial.trial_id not in self._behind:
            return None
        if is_new and iteration >= judged:
            self._behind.discard(trial.trial_id)
        if iteration > judged:
            return None
        return decision if iteration == judged else "CONTINUE"

    def hear(self, runner, trial: Trial, result: dict) -> str:
        """Tells searcher and scheduler of a result; the decision is CONTINUE, PAUSE, STOP or NOOP."""
        iteration = result["training_iteration"]
        self._verdicts[trial.trial_id] = (iteration, "CONTINUE")
        self.searcher.on_trial_result(trial.trial_id, result)
        decision = self.scheduler.on_trial_result(runner, trial, result)
        if decision in ("STOP", "PAUSE"):
            self._verdicts[trial.trial_id] = (iteration, decision)
        return decision

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

    def check_type(self, result: Mapping) -> None:
        """Refuses a result in which the metric is something else than a number.

        Raises:
            NotANumberError: then neither searcher nor scheduler hear of it.
        """
        if self._metric is not None:
            number_in(result, self._metric, f"the metric {self._metric!r}")

    def see(self, result: Mapping) -> None:
        """Any result of the experiment: notes whether it has the metric."""
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
        self._warn_once("metric", message)

    def get_state(self) -> dict[str, Any]:
        """What searcher and scheduler know, and their verdicts."""
        return {
            "searcher": _state(self.searcher),
            "scheduler": _state(self.scheduler),
            "verdicts": self._verdicts,
            "kinds": self._kinds(),
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
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
                self._warn_once(
                    f"state {name}",
                    f"{name} has no get_state and set_state, so it begins anew: it knows nothing of the experiment's "
                    "results so far",
                )
        self._verdicts = {trial_id: tuple(verdict) for trial_id, verdict in state["verdicts"].items()}

    def _kinds(self) -> dict[str, str]:
        return {"search_alg": _kind(self.searcher), "scheduler": _kind(self.scheduler)}

    def _is_comparable(self, result: Mapping) -> bool:
        return self._metric is None or lookup(result, self._metric) is not None


def _kind(part) -> str:
    """The class of a searcher or scheduler, and of the searcher that it wraps."""
    inner = getattr(part, "searcher", None)
    return type(part).__name__ + (f"({_kind(inner)})" if inner is not None else "")


def _state(part) -> dict[str, Any]:
    """What a searcher or scheduler remembers; {}: it has nothing to go on with."""
    return part.get_state() if hasattr(part, "get_state") else {}


def _that_begins_anew(part, saved: Mapping[str, Any]) -> str | None:
    """The class of a searcher or scheduler, or of the searcher that it wraps, that had no state to save."""
    if saved:
        inner = getattr(part, "searcher", None)
        return None if inner is None else _that_begins_anew(inner, saved["searcher"])
    return None if type(part) is FIFOScheduler else type(part).__name__
