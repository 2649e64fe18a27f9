"""What a searcher learns of trials whose last result has no number."""

import itertools
import math

import pytest

from rllib import tune
from rllib.tune.schedulers import create_scheduler
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


@pytest.mark.parametrize("scheduler", ["asha", "hyperband"])
@pytest.mark.parametrize("every", [3, 99])
def test_the_longest_time_holds_for_results_without_the_metric(run, scheduler, every):
    """As of an evaluation that comes with every third result, or never."""

    def endless(config):
        for number in itertools.count(1):
            tune.report({"other": number, **({"evaluation": {"loss": 1.0}} if number % every == 0 else {})})

    settings = {"scheduler": create_scheduler(scheduler, max_t=5), "metric": "evaluation/loss", "mode": "min"}
    if every == 99:
        with pytest.raises(ValueError, match=r"have no metric 'evaluation/loss'.*Trials cannot be compared by it"):
            run(endless, **settings)
        return
    (trial,) = run(endless, **settings).trials
    assert trial.last_result["other"] == 5 and trial.stopped_by == "the scheduler"


@pytest.mark.parametrize("wrap", [lambda search: search, lambda search: ConcurrencyLimiter(search, 1)])
@pytest.mark.parametrize("last", [{"loss": math.nan}, {"loss": None}, {}], ids=["NaN", "None", "missing"])
def test_the_newest_number_is_learned_where_the_last_result_has_none(run, last, wrap):
    """As of a metric that comes with every tenth result: a search that saw failures alone would be a random one."""
    search = Learning()
    results = [{"loss": 3.0, "other": 1}, {"loss": 2.0, "other": 2}, {**last, "other": 3}]
    run(results_of, config={"results": results}, metric="loss", mode="min", search_alg=wrap(search))
    assert search.told == [(2.0, 3)]
