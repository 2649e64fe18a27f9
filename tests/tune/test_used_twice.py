"""Objects that are given to two experiments: the second one begins with them as with new ones."""

import threading

import pytest

from rllib import tune
from rllib.tune.schedulers import create_scheduler
from rllib.tune.search import BasicVariant, ConcurrencyLimiter, OptunaSearch, Repeater
from tests.tune.climber import Climber

_TIMES = {"time_attr": "training_iteration"}
SCHEDULERS = {
    "asha": lambda: create_scheduler("asha", max_t=4, reduction_factor=2),
    "hyperband": lambda: create_scheduler("hyperband", max_t=4, reduction_factor=2),
    "median": lambda: create_scheduler("median_stopping", **_TIMES, grace_period=1, min_samples_required=1),
    "pbt": lambda: create_scheduler("pbt", **_TIMES, perturbation_interval=1, seed=0,
                                    hyperparam_mutations={"rate": [1.0, 2.0]}),
    "pb2": lambda: create_scheduler("pb2", **_TIMES, perturbation_interval=1, seed=0,
                                    hyperparam_bounds={"rate": [1.0, 4.0]}),
}  # fmt: skip
SEARCHERS = {
    "random": lambda: BasicVariant(random_state=1),
    "limited": lambda: ConcurrencyLimiter(BasicVariant(random_state=1), 1, batch=True),
    "optuna": lambda: OptunaSearch(seed=1),
    "repeated": lambda: ConcurrencyLimiter(Repeater(OptunaSearch(seed=1), 2), 2),
}
STOPPERS = {
    "plateau": lambda: [{"training_iteration": 4}, tune.TrialPlateauStopper("height", num_results=2, std=1.5)],
    "plateau of all": lambda: [{"training_iteration": 3}, tune.ExperimentPlateauStopper("height", top=2, std=9)],
    "count": lambda: tune.CombinedStopper(tune.MaximumIterationStopper(2), tune.TimeoutStopper(1000)),
}
RATES = {"rate": tune.grid_search([4.0, 3.0, 1.0])}
DRAWN = {"rate": tune.uniform(1.0, 2.0)}


def outcome(trials):
    return [(trial.config, trial.last_result.get("training_iteration"), trial.stopped_by) for trial in trials]


@pytest.mark.parametrize(
    "make, settings",
    [
        *((make, {"scheduler": make, "config": RATES}) for make in SCHEDULERS.values()),
        *((make, {"search_alg": make, "config": DRAWN, "num_samples": 4}) for make in SEARCHERS.values()),
        *((make, {"stop": make, "config": RATES}) for make in STOPPERS.values()),
    ],
    ids=[*SCHEDULERS, *SEARCHERS, *STOPPERS],
)
def test_a_second_experiment_is_as_the_first(run, make, settings):
    used = {key: make() if value is make else value for key, value in settings.items()}
    fixed = {"metric": "height", "mode": "max", "max_concurrent_trials": 1}
    first, second = (
        outcome(run(Climber, **{"stop": {"training_iteration": 4}, **fixed, **used}).trials) for _ in range(2)
    )
    assert second == first


def test_a_tuner_fits_twice(tmp_path):
    tuner = tune.Tuner(
        Climber, param_space=RATES,
        tune_config=tune.TuneConfig(metric="height", mode="max", scheduler=SCHEDULERS["asha"](),
                                    search_alg=BasicVariant(), max_concurrent_trials=1),
        run_config=tune.RunConfig(storage_path=tmp_path, verbose=0, stop=tune.MaximumIterationStopper(4)),
    )  # fmt: skip
    first, second = (outcome([result.trial for result in tuner.fit()]) for _ in range(2))
    assert first == second and [iterations for _, iterations, _ in first] == [4, 1, 1]
    restored = tune.Tuner.restore(max(tmp_path.iterdir()), Climber)
    assert outcome([result.trial for result in restored.fit()]) == second


def test_the_metric_of_the_first_experiment_is_not_the_second_ones(run):
    scheduler, search = SCHEDULERS["asha"](), ConcurrencyLimiter(OptunaSearch(seed=1), 1)
    for metric, mode in (("height", "max"), ("rate", "min")):
        run(Climber, scheduler=scheduler, search_alg=search, config=DRAWN, metric=metric, mode=mode,
            stop={"training_iteration": 1})  # fmt: skip
        assert (scheduler.metric, scheduler.mode) == (metric, mode) == (search.metric, search.mode)


def test_after_an_experiment_the_object_holds_it(run):
    """As users look at their objects, and save them, when an experiment has ended."""
    search = BasicVariant(random_state=1)
    run(Climber, config=RATES, search_alg=search, stop={"training_iteration": 1})
    assert search.get_state()["next"] == 3


def test_a_state_that_is_restored_is_kept(run, tmp_path):
    search, settings = BasicVariant(random_state=1), {"config": DRAWN, "stop": {"training_iteration": 1}}
    first = [trial.config for trial in run(Climber, search_alg=search, num_samples=2, **settings).trials]
    search.save(tmp_path / "search.json")
    search.restore(tmp_path / "search.json")
    further = [trial.config for trial in run(Climber, search_alg=search, num_samples=3, **settings).trials]
    assert len(further) == 1 and further[0] not in first


class Uncopyable(BasicVariant):
    def __init__(self):
        super().__init__()
        self.lock = threading.Lock()


class Nested(tune.Stopper):
    """Runs an experiment with the same scheduler while its own runs."""

    def __init__(self, run, scheduler):
        self.run, self.scheduler = run, scheduler

    def __call__(self, trial_id, result):
        self.run(Climber, config={"rate": 1.0}, scheduler=self.scheduler, metric="height", mode="max")


def test_what_cannot_begin_anew_is_refused(run):
    search = Uncopyable()
    settings = {"config": {"rate": 1.0}, "search_alg": search, "stop": {"training_iteration": 1}}
    with pytest.raises(ValueError, match="cannot stand in an option"):  # one that does not begin uses nothing
        run(Climber, **{**settings, "config": {"rate": tune.choice([tune.grid_search([1.0])])}})
    run(Climber, **settings)
    with pytest.raises(ValueError, match=r"search_alg: this Uncopyable was used .* Make a new one"):
        run(Climber, **settings)


def test_an_object_in_use_is_refused(run):
    scheduler = SCHEDULERS["asha"]()
    with pytest.raises(ValueError, match="scheduler: an experiment that runs is using this AsyncHyperBandScheduler"):
        run(Climber, config={"rate": 1.0}, scheduler=scheduler, metric="height", mode="max",
            stop=Nested(run, scheduler))  # fmt: skip


def test_a_reporter_shows_the_metric_of_each_experiment(run, capsys):
    reporter = tune.CLIReporter()
    for metric in ("height", "rate"):
        run(Climber, config=RATES, metric=metric, mode="max", progress_reporter=reporter, verbose=1,
            stop={"training_iteration": 1})  # fmt: skip
        assert f"Current best trial: Climber_0 with {metric}=4" in capsys.readouterr().out.replace("_rate=4", "")
