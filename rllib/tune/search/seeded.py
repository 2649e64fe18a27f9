"""Gives every sample of a search another seed."""

from rllib.tune.search.base import Searcher, announce_search
from rllib.tune.search.space import SearchSpace


class Seeded(Searcher):
    """Adds `seed` to each configuration, one more for each sample, so that no trial repeats another.

    The cells of a grid share the seed of their sample: they differ only in the values of the grid.

    Args:
        searcher: makes the suggestions.
        seed: seed of the first sample.
    """

    def __init__(self, searcher: Searcher, seed: int):
        super().__init__(searcher.metric, searcher.mode)
        self.searcher, self._seed, self._count = searcher, seed, 0
        self.needs_metric, self.is_exhaustive = searcher.needs_metric, searcher.is_exhaustive
        self.max_concurrent = getattr(searcher, "max_concurrent", 0)

    def set_search_properties(self, metric, mode, config, **spec) -> bool:
        accepted = announce_search(self.searcher, metric, mode, config, **spec)
        self.metric, self.mode = self.searcher.metric, self.searcher.mode
        self._grid_size = SearchSpace(config).grid_size
        return accepted

    def suggest(self, trial_id):
        config = self.searcher.suggest(trial_id)
        if not isinstance(config, dict):
            return config
        sample, self._count = self._count // self._grid_size, self._count + 1
        return {**config, "seed": self._seed + sample}

    def on_trial_result(self, trial_id, result) -> None:
        self.searcher.on_trial_result(trial_id, result)

    def on_trial_complete(self, trial_id, result=None, error=False) -> None:
        self.searcher.on_trial_complete(trial_id, result, error)

    def get_state(self):
        return {"count": self._count, "searcher": self.searcher.get_state()}

    def set_state(self, state) -> None:
        self._count = state["count"]
        self.searcher.set_state(state["searcher"])
