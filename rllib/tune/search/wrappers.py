"""Searchers that wrap another one: a limit of trials under way, repetitions, and seeds."""

import math
import statistics

from rllib.tune.checks import check_count
from rllib.tune.objectives import names
from rllib.tune.search.base import Searcher, announce_search, metric_value
from rllib.tune.search.space import SearchSpace

TRIAL_INDEX = "__trial_index__"


class _Wrapper(Searcher):
    """A searcher that takes metric, mode and reports as another one does.

    Args:
        searcher: makes the suggestions.
    """

    def __init__(self, searcher: Searcher):
        super().__init__(searcher.metric, searcher.mode)
        self.searcher = searcher
        self.needs_metric, self.is_exhaustive = searcher.needs_metric, searcher.is_exhaustive
        self.takes_several = getattr(searcher, "takes_several", False)

    def set_search_properties(self, metric, mode, config, **spec) -> bool:
        accepted = announce_search(self.searcher, metric, mode, config, **spec)
        self.metric, self.mode = self.searcher.metric, self.searcher.mode
        return accepted

    def on_trial_result(self, trial_id, result) -> None:
        self.searcher.on_trial_result(trial_id, result)


class ConcurrencyLimiter(_Wrapper):
    """Limits the number of trials under way: the fewer, the more results each suggestion is based on.

    Args:
        searcher: makes the suggestions.
        max_concurrent: the largest number of trials under way.
        batch: the next suggestions are made when all of the last have ended, and are reported to the searcher together.
    """

    def __init__(self, searcher: Searcher, max_concurrent: int, batch: bool = False):
        check_count("max_concurrent", max_concurrent)
        super().__init__(searcher)
        self.max_concurrent, self._batch = max_concurrent, batch
        self._live: dict[str, None] = {}  # in order; the values mean nothing
        self._held: dict[str, tuple] = {}  # trial of a batch -> report to come to the searcher

    def suggest(self, trial_id):
        if len(self._live) >= self.max_concurrent:
            return None
        config = self.searcher.suggest(trial_id)
        if isinstance(config, dict):
            self._live[trial_id] = None
        return config

    def on_trial_complete(self, trial_id, result=None, error=False) -> None:
        if trial_id not in self._live:
            return
        if not self._batch:
            del self._live[trial_id]
            self.searcher.on_trial_complete(trial_id, result, error)
            return
        kept = None
        if result is not None and self.metric is not None:
            values = {name: metric_value(result, name) for name in names(self.metric)}
            kept = {name: None if math.isnan(value) else value for name, value in values.items()}
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

    def held_configs(self):
        return [self._newest[1]] if self._newest else []

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


class Seeded(_Wrapper):
    """Adds `seed` to each configuration, one more for each sample, so that no trial repeats another.

    The cells of a grid share the seed of their sample: they differ only in the values of the grid.

    Args:
        searcher: makes the suggestions.
        seed: seed of the first sample.
    """

    def __init__(self, searcher: Searcher, seed: int):
        super().__init__(searcher)
        self._seed, self._count = seed, 0
        self.max_concurrent = getattr(searcher, "max_concurrent", 0)

    def set_search_properties(self, metric, mode, config, **spec) -> bool:
        self._grid_size = SearchSpace(config).grid_size
        return super().set_search_properties(metric, mode, config, **spec)

    def suggest(self, trial_id):
        config = self.searcher.suggest(trial_id)
        if not isinstance(config, dict):
            return config
        sample, self._count = self._count // self._grid_size, self._count + 1
        return {**config, "seed": self._seed + sample}

    def on_trial_complete(self, trial_id, result=None, error=False) -> None:
        self.searcher.on_trial_complete(trial_id, result, error)

    def get_state(self):
        return {"count": self._count, "searcher": self.searcher.get_state()}

    def set_state(self, state) -> None:
        self._count = state["count"]
        self.searcher.set_state(state["searcher"])
