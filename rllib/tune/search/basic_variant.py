"""Grid and random search: the default."""

import random
import sys
from collections.abc import Mapping, Sequence

from rllib.tune.checks import check_number
from rllib.tune.search.base import Searcher, with_point
from rllib.tune.search.space import SearchSpace


class BasicVariant(Searcher):
    """Every combination of the grids, num_samples times, with the rest drawn at random each time.

    Args:
        points_to_evaluate: configurations, or parts of them, to try first; each counts as a sample, with the whole grid
            that it leaves open.
        max_concurrent: largest number of trials that run at once; 0: as many as fit.
        constant_grid_search: draw the same random values for all of the grid's combinations.
        random_state: seed; the same seed draws the same configurations. None: numpy's global generator decides.
    """

    needs_metric = False
    is_exhaustive = True

    def __init__(
        self,
        points_to_evaluate: Sequence[Mapping] | None = None,
        max_concurrent: int = 0,
        constant_grid_search: bool = False,
        random_state=None,
    ):
        super().__init__()
        check_number("max_concurrent", max_concurrent, ">= 0 (0: no limit)", least=0, whole=True)
        self.max_concurrent, self.constant_grid_search = max_concurrent, constant_grid_search
        self._points = list(points_to_evaluate or ())
        self._seed = _seed(random_state)
        self._next = 0
        self._live: set[str] = set()
        self._space: SearchSpace | None = None
        self._of_points: list[tuple[SearchSpace, int]] = []  # space that a point leaves open, and cell of its grid
        self._total: int | None = None

    def set_search_properties(self, metric, mode, config, num_samples: int = 1, **spec) -> bool:
        super().set_search_properties(metric, mode, config)
        self._space = SearchSpace(config)
        if isinstance(num_samples, bool) or not isinstance(num_samples, int) or (num_samples < 1 and num_samples != -1):
            raise ValueError(f"num_samples={num_samples!r} draws nothing: give a number >= 1, or -1 for no end")
        spaces = [SearchSpace(with_point(config, point)) for point in self._points]
        if num_samples != -1:
            spaces = spaces[:num_samples]
        self._of_points = [(space, cell) for space in spaces for cell in range(space.grid_size)]
        if num_samples != -1:
            self._total = len(self._of_points) + (num_samples - len(spaces)) * self._space.grid_size
        return True

    def further_spaces(self, space):
        return [with_point(space, point) for point in self._points]

    @property
    def total_samples(self) -> int | None:
        """Number of configurations; None: without end."""
        return self._total

    def suggest(self, trial_id):
        if self._space is None:
            raise ValueError("BasicVariant has no search space yet: call set_search_properties first")
        if self._total is not None and self._next >= self._total:
            return self.FINISHED
        if self.max_concurrent and len(self._live) >= self.max_concurrent:
            return None
        number, self._next = self._next, self._next + 1
        self._live.add(trial_id)
        if number < len(self._of_points):
            space, cell = self._of_points[number]
            first = number - cell if self.constant_grid_search else number
            return space.variant(cell, f"point/{self._seed}/{first}", self.constant_grid_search)
        return self._space.variant(number - len(self._of_points), self._seed, self.constant_grid_search)

    def on_trial_complete(self, trial_id, result=None, error=False) -> None:
        self._live.discard(trial_id)

    def get_state(self):
        return {"next": self._next, "seed": self._seed, "live": sorted(self._live)}

    def set_state(self, state) -> None:
        self._next, self._seed, self._live = state["next"], state["seed"], set(state["live"])


def _seed(random_state) -> int:
    if random_state is None:
        # Scripts call numpy.random.seed for repeatable searches; without numpy, Python's generator.
        numpy_random = getattr(sys.modules.get("numpy"), "random", None)
        return int(numpy_random.randint(2**31 - 1)) if numpy_random else random.getrandbits(31)
    if hasattr(random_state, "integers"):
        return int(random_state.integers(2**31 - 1))
    if hasattr(random_state, "randint"):
        return int(random_state.randint(0, 2**31 - 1))
    if isinstance(random_state, int):
        return random_state
    raise TypeError(f"random_state must be a whole number or a random generator, but got {random_state!r}")
