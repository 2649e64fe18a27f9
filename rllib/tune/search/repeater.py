"""Runs every suggestion several times, for noisy objectives such as returns of different seeds."""

import statistics

from rllib.tune.checks import check_count
from rllib.tune.search.base import Searcher, announce_search

TRIAL_INDEX = "__trial_index__"


class Repeater(Searcher):
    """Runs each suggestion as several trials and reports their mean to the searcher.

    Args:
        searcher: makes the suggestions.
        repeat: number of trials per suggestion.
        set_index: whether their configurations get "__trial_index__": 0, 1, ...
    """

    def __init__(self, searcher: Searcher, repeat: int = 1, set_index: bool = True):
        check_count("repeat", repeat)
        super().__init__(searcher.metric, searcher.mode)
        self.searcher, self.repeat, self._set_index = searcher, repeat, set_index
        self._group_of: dict[str, str] = {}  # trial -> first trial of its group, while the group is under way
        self._scores: dict[str, list[float | None]] = {}  # group -> scores of its ended trials
        self._newest: tuple[str, dict] | None = None  # group and configuration
        self._given = repeat  # number of trials of the newest group

    def set_search_properties(self, metric, mode, config, **spec) -> bool:
        super().set_search_properties(metric, mode, config)
        return announce_search(self.searcher, metric, mode, config, **spec)

    def suggest(self, trial_id):
        if self._given == self.repeat:
            config = self.searcher.suggest(trial_id)
            if not isinstance(config, dict):
                return config
            self._newest, self._given = (trial_id, config), 0
            self._scores[trial_id] = []
        group, config = self._newest
        self._group_of[trial_id] = group
        self._given += 1
        return {**config, TRIAL_INDEX: self._given - 1} if self._set_index else dict(config)

    def on_trial_complete(self, trial_id, result=None, error=False) -> None:
        group = self._group_of.pop(trial_id, None)
        if group is None:
            return
        scores = self._scores[group]
        scores.append(None if error else self.score(result))
        if len(scores) < self.repeat:
            return
        del self._scores[group]
        known = [score for score in scores if score is not None]
        if known:
            mean = statistics.fmean(known)
            self.searcher.on_trial_complete(group, {self.metric: mean if self.mode == "max" else -mean})
        else:
            self.searcher.on_trial_complete(group, error=True)

    def get_state(self):
        own = {"group_of": self._group_of, "scores": self._scores, "newest": self._newest, "given": self._given}
        return {**own, "searcher": self.searcher.get_state()}

    def set_state(self, state) -> None:
        self._group_of, self._given = dict(state["group_of"]), state["given"]
        self._scores = {group: list(scores) for group, scores in state["scores"].items()}
        self._newest = tuple(state["newest"]) if state["newest"] else None
        self.searcher.set_state(state["searcher"])
