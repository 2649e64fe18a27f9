"""Limits the number of suggestions under way."""

from rllib.tune.checks import check_count
from rllib.tune.search.base import Searcher, announce_search


class ConcurrencyLimiter(Searcher):
    """Limits the number of trials under way: the fewer, the more results each suggestion is based on.

    Args:
        searcher: makes the suggestions.
        max_concurrent: the largest number of trials under way.
        batch: the next suggestions are made when all of the last have ended, and are reported to the searcher together.
    """

    def __init__(self, searcher: Searcher, max_concurrent: int, batch: bool = False):
        check_count("max_concurrent", max_concurrent)
        super().__init__(searcher.metric, searcher.mode)
        self.searcher, self.max_concurrent, self._batch = searcher, max_concurrent, batch
        self.needs_metric, self.is_exhaustive = searcher.needs_metric, searcher.is_exhaustive
        self._live: dict[str, None] = {}  # in order; the values mean nothing
        self._held: dict[str, tuple] = {}  # trial of a batch -> report to come to the searcher

    def set_search_properties(self, metric, mode, config, **spec) -> bool:
        accepted = announce_search(self.searcher, metric, mode, config, **spec)
        self.metric, self.mode = self.searcher.metric, self.searcher.mode
        return accepted

    def suggest(self, trial_id):
        if len(self._live) >= self.max_concurrent:
            return None
        config = self.searcher.suggest(trial_id)
        if isinstance(config, dict):
            self._live[trial_id] = None
        return config

    def on_trial_result(self, trial_id, result) -> None:
        self.searcher.on_trial_result(trial_id, result)

    def on_trial_complete(self, trial_id, result=None, error=False) -> None:
        if trial_id not in self._live:
            return
        if not self._batch:
            del self._live[trial_id]
            self.searcher.on_trial_complete(trial_id, result, error)
            return
        kept = None
        if result is not None and self.metric is not None:
            score = self.searcher.score(result)
            kept = {self.metric: score if score is None or self.mode == "max" else -score}
        self._held[trial_id] = (kept, error)
        if len(self._held) == len(self._live):
            for held_id, (held, failed) in self._held.items():
                self.searcher.on_trial_complete(held_id, held, failed)
            self._live, self._held = {}, {}

    def get_state(self):
        return {"live": list(self._live), "held": self._held, "searcher": self.searcher.get_state()}

    def set_state(self, state) -> None:
        self._live = dict.fromkeys(state["live"])
        self._held = {trial_id: tuple(held) for trial_id, held in state["held"].items()}
        self.searcher.set_state(state["searcher"])
