"""The decisions of searcher and scheduler about the results of trials, each asked for once."""

from collections.abc import Callable, Mapping
from typing import Any

from rllib.result import as_result
from rllib.runs.entries import lookup, read_number, written_number
from rllib.tune.checks import number_in
from rllib.tune.experiment.trial import Trial
from rllib.tune.objectives import Metric, is_several, names
from rllib.tune.schedulers.base import FIFOScheduler
from rllib.tune.states import ERROR, PAUSED


class Verdicts:
    """Reports results to searcher and scheduler, and keeps their decisions.

    Each result is reported once. A trial that was rolled back to its last checkpoint, after a failure or with `resume`,
    repeats results that have been judged: these are not reported again, and the decision about the last one holds.
    Results without the metrics by which trials are compared are not reported either.

    Args:
        searcher: suggests configurations.
        scheduler: decides which trials continue.
        metric: one or several by which trials are compared; None: they are not compared.
        warn_once: (topic, message) -> None, for harmless problems.

    Attributes:
        metrics: those by which searcher or scheduler compare trials.
    """

    def __init__(self, searcher, scheduler, metric: Metric | None, warn_once: Callable[[str, str], None]):
        self.searcher, self.scheduler = searcher, scheduler
        own = getattr(scheduler, "metric", None)  # with several metrics of the experiment
        self.metrics = names(metric) + [each for each in names(own) if is_several(metric) and each not in metric]
        self._warn_once = warn_once
        self._seen_metric = False
        # Trial id -> (iteration of the last result that was judged, decision); not of trials that have ended well.
        self._verdicts: dict[str, tuple[int, str]] = {}
        self._behind: set[str] = set()  # trials that may repeat results
        self._left: set[str] = set()  # trials that have ended by their last result, and whose processes are closing
        # Trial id -> the metrics in its newest result that had numbers; not of trials that have ended.
        self._numbers: dict[str, dict[str, float]] = {}

    def standing(self, trial: Trial, result: Mapping, is_new: bool = True) -> str | None:
        """The decision that holds for a result already; None: it must be reported to searcher and scheduler.

        Args:
            trial: the trial that has reported.
            result: its result.
            is_new: False for the trial's last result before an interruption, which may have been judged.
        """
        if not self._is_comparable(result):
            is_at_end = getattr(self.scheduler, "is_at_end", lambda result: False)
            return "STOP" if is_at_end(result) else "CONTINUE"
        iteration = result.get("training_iteration", 0)
        judged, decision = self._verdicts.get(trial.trial_id, (0, "CONTINUE"))
        if is_new and trial.trial_id not in self._behind:
            return None
        if is_new and iteration >= judged:
            self._behind.discard(trial.trial_id)
        if iteration > judged:
            return None
        return decision if iteration == judged else "CONTINUE"

    def report(self, runner, trial: Trial, result: dict) -> str:
        """Reports a result to searcher and scheduler; returns CONTINUE, PAUSE, STOP or NOOP."""
        iteration = result["training_iteration"]
        self._verdicts[trial.trial_id] = (iteration, "CONTINUE")
        if numbers := self._numbers_in(result):
            self._numbers[trial.trial_id] = numbers
        self.searcher.on_trial_result(trial.trial_id, result)
        decision = self.scheduler.on_trial_result(runner, trial, result)
        if decision in ("STOP", "PAUSE"):
            self._verdicts[trial.trial_id] = (iteration, decision)
        return decision

    def rolled_back(self, trial: Trial) -> None:
        """The trial continues from its last checkpoint, or starts over."""
        judged, _ = self._verdicts.get(trial.trial_id, (0, None))
        if judged > trial.last_result.get("training_iteration", 0):
            self._behind.add(trial.trial_id)

    def started(self, trial: Trial) -> None:
        """The trial is about to start; a decision to pause it is over if it has been carried out.

        One that was interrupted before it was saved repeats the result, and pauses there as it was to.
        """
        judged, decision = self._verdicts.get(trial.trial_id, (0, None))
        if decision == "PAUSE" and trial.status == PAUSED:
            self._verdicts[trial.trial_id] = (judged, "CONTINUE")
        self._left.discard(trial.trial_id)

    def adopted(self, runner, trial: Trial, iteration: int) -> None:
        """The trial continues from the checkpoint of another one, its newest now, made at this iteration."""
        self._verdicts[trial.trial_id] = (iteration, "CONTINUE")
        self._behind.discard(trial.trial_id)
        if trial.checkpoint is not None and hasattr(self.scheduler, "on_trial_takeover"):
            self.scheduler.on_trial_takeover(runner, trial, trial.checkpoint.metrics)

    def check_type(self, result: Mapping) -> None:
        """Refuses a result in which the metric is no number.

        Raises:
            NotANumberError: the result is not reported then.
        """
        for metric in self.metrics:
            number_in(result, metric, f"the metric {metric!r}")

    def see(self, result: Mapping) -> None:
        """Notes whether a result of the experiment has the metric."""
        self._seen_metric = self._seen_metric or self._is_comparable(result)

    def has_judged(self, trial: Trial) -> bool:
        """Whether the trial's last result has been reported."""
        return self._verdicts.get(trial.trial_id, (0, None))[0] == trial.last_result.get("training_iteration")

    def leave(self, runner, trial: Trial) -> None:
        """A trial has ended by its last result. Its process is still to save and to close, which `end` follows.

        Searcher and scheduler hear of it in the same event: a population must not copy what is about to be saved.
        """
        self._report_end(runner, trial)
        self._left.add(trial.trial_id)

    def end(self, runner, trial: Trial) -> None:
        """A trial has ended for good, unless it has failed and is resumed."""
        if trial.status != ERROR:
            self._verdicts.pop(trial.trial_id, None)
        self._behind.discard(trial.trial_id)
        if trial.trial_id in self._left:
            self._left.discard(trial.trial_id)
        elif trial.status == ERROR:
            self._numbers.pop(trial.trial_id, None)
            self.scheduler.on_trial_error(runner, trial)
            self.searcher.on_trial_complete(trial.trial_id, error=True)
        else:
            self._report_end(runner, trial)

    def _report_end(self, runner, trial: Trial) -> None:
        """Reports a good end: to the searcher with the newest numbers that the trial has had, if its last are NaN."""
        numbers = self._numbers.pop(trial.trial_id, None)
        comparable = bool(trial.last_result) and self._is_comparable(trial.last_result)
        if comparable:
            self.scheduler.on_trial_complete(runner, trial, trial.last_result)
        else:
            self.scheduler.on_trial_remove(runner, trial)
        result = trial.last_result if comparable else None
        if numbers and not self._numbers_in(trial.last_result):
            result = as_result({**trial.last_result, **numbers})
        self.searcher.on_trial_complete(trial.trial_id, result)

    def refuse_missing_metric(self, trial: Trial) -> None:
        """At the end of a trial: a metric that no trial has ever reported is a mistake.

        Raises:
            ValueError: if searcher or scheduler cannot do without it.
        """
        if self._seen_metric or not trial.last_result:
            return
        have = ", ".join(sorted(trial.metric_analysis))
        missing = [metric for metric in self.metrics if lookup(trial.last_result, metric) is None]
        message = f"the results of {trial} have no metric {' and '.join(map(repr, missing))}; they have: {have}"
        if getattr(self.scheduler, "needs_metric", False) or getattr(self.searcher, "needs_metric", False):
            raise ValueError(f"{message}. Trials cannot be compared by it")
        self._warn_once("metric", message)

    def total_samples(self, num_samples: int) -> int:
        """Number of trials that the searcher is going to suggest; `num_samples` if it does not know."""
        searcher: Any = self.searcher
        while searcher is not None and getattr(searcher, "total_samples", None) is None:
            searcher = getattr(searcher, "searcher", None)
        return num_samples if searcher is None else searcher.total_samples

    def get_state(self) -> dict[str, Any]:
        """State of searcher and scheduler, and their verdicts."""
        return {
            "searcher": _state(self.searcher),
            "scheduler": _state(self.scheduler),
            "verdicts": self._verdicts,
            "left": sorted(self._left),
            "numbers": {
                trial_id: {metric: written_number(number) for metric, number in numbers.items()}
                for trial_id, numbers in self._numbers.items()
            },
            "kinds": self._kinds(),
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Restores a state of `get_state`.

        Raises:
            ValueError: if the state is of another kind of searcher or scheduler.
        """
        now = self._kinds()
        for part, before in state.get("kinds", {}).items():
            if now[part] != before:
                raise ValueError(
                    f"the experiment has a {part} of kind {before}, and cannot continue with {now[part]}. Give the "
                    f"same {part} again, or let Tuner.restore take it from the experiment"
                )
        for part, saved in ((self.searcher, state["searcher"]), (self.scheduler, state["scheduler"])):
            if saved:
                part.set_state(saved)
            if (name := _that_begins_anew(part, saved)) is not None:
                self._warn_once(
                    f"state {name}",
                    f"{name} has no get_state and set_state, so it starts from scratch, without the results that the "
                    "experiment has already",
                )
        self._verdicts = {trial_id: tuple(verdict) for trial_id, verdict in state["verdicts"].items()}
        self._left = set(state.get("left", ()))
        self._numbers = {
            trial_id: {metric: read_number(number) for metric, number in numbers.items()}
            for trial_id, numbers in state.get("numbers", {}).items()
        }

    def _kinds(self) -> dict[str, str]:
        return {"search_alg": _kind(self.searcher), "scheduler": _kind(self.scheduler)}

    def _is_comparable(self, result: Mapping) -> bool:
        return all(lookup(result, metric) is not None for metric in self.metrics)

    def _numbers_in(self, result: Mapping) -> dict[str, float]:
        """The metrics of a result; {} if one of them is missing or NaN."""
        numbers = {metric: lookup(result, metric) for metric in self.metrics}
        return numbers if all(number is not None and number == number for number in numbers.values()) else {}


def _kind(part) -> str:
    """The class of a searcher or scheduler, and of the searcher that it wraps."""
    inner = getattr(part, "searcher", None)
    return type(part).__name__ + (f"({_kind(inner)})" if inner is not None else "")


def _state(part) -> dict[str, Any]:
    """State of a searcher or scheduler; {}: it has none to restore."""
    return part.get_state() if hasattr(part, "get_state") else {}


def _that_begins_anew(part, saved: Mapping[str, Any]) -> str | None:
    """The class of a searcher or scheduler, or of the searcher that it wraps, that had no state to save."""
    if saved:
        inner = getattr(part, "searcher", None)
        return None if inner is None else _that_begins_anew(inner, saved["searcher"])
    return None if type(part) is FIFOScheduler else type(part).__name__
