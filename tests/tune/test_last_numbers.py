"""What a searcher learns of trials whose last result has no number."""

import math

import pytest

from rllib import tune
from rllib.tune.search import BasicVariant, ConcurrencyLimiter


class Learning(BasicVariant):
    """Keeps what it is told at the end of trials."""

    def __init__(self):
        super().__init__()
        self.told = []

    def on_trial_complete(self, trial_id, result=None, error=False):
        super().on_trial_complete(trial_id, result, error)
        self.told.append(result and (result["loss"], result["other"]))


def results_of(config):
    for result in config["results"]:
        tune.report(result)


@pytest.mark.parametrize("wrap", [lambda search: search, lambda search: ConcurrencyLimiter(search, 1)])
@pytest.mark.parametrize("last", [{"loss": math.nan}, {"loss": None}, {}], ids=["NaN", "None", "missing"])
def test_the_newest_number_is_learned_where_the_last_result_has_none(run, last, wrap):
    """As of a metric that comes with every tenth result: a search that saw failures alone would be a random one."""
    search = Learning()
    results = [{"loss": 3.0, "other": 1}, {"loss": 2.0, "other": 2}, {**last, "other": 3}]
    run(results_of, config={"results": results}, metric="loss", mode="min", search_alg=wrap(search))
    assert search.told == [(2.0, 3)]
