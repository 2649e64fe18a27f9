"""Several objectives: the Pareto front, its searchers, and what is refused."""

import json
import random
import statistics

import pytest

from rllib import tune
from rllib.errors import NoBestTrialError
from rllib.tune.objectives import checked_objective, pareto_front
from rllib.tune.reporting.analysis import ExperimentAnalysis
from rllib.tune.reporting.runs import read_objective
from rllib.tune.schedulers import create_scheduler
from rllib.tune.search import BasicVariant, ConcurrencyLimiter, Repeater, create_searcher

METRICS, MODES = ["gain", "cost"], ["max", "min"]
BOTH = {"metric": METRICS, "mode": MODES}


def trade(config):
    """Gain and cost rise with x, and only cost with waste: the front is waste = 0."""
    return {"gain": config["x"], "cost": config["x"] ** 2 + config["waste"]}


def _dominates(one, other):
    better = [(a - b) * (1 if mode == "max" else -1) for a, b, mode in zip(one, other, MODES)]
    return min(better) >= 0 and max(better) > 0


def test_the_front_is_what_nothing_dominates():
    rng = random.Random(0)
    points = [(rng.randint(0, 9), rng.randint(0, 9)) for _ in range(60)]
    slow = [i for i, point in enumerate(points) if not any(_dominates(other, point) for other in points)]
    assert pareto_front(points, MODES) == slow and 1 < len(slow) < 60
    assert pareto_front([(1.0, float("nan")), (0.0, 1.0), (0.0, 1.0)], MODES) == [1, 2]
    assert pareto_front([], MODES) == []
    assert pareto_front([[3.0], [1.0], [3.0]], ["max"]) == [0, 2]


@pytest.fixture(scope="module")
def analysis(tmp_path_factory):
    space = {"x": tune.grid_search([0.0, 1.0, 2.0]), "waste": tune.grid_search([0.0, 1.5])}
    return tune.run(trade, config=space, metric=METRICS, mode=MODES, name="front", verbose=0,
                    storage_path=tmp_path_factory.mktemp("objectives"))  # fmt: skip


def test_the_front_of_an_experiment_also_from_its_directory(analysis):
    for each in (analysis, ExperimentAnalysis(analysis.experiment_path)):
        front = each.best_trials
        assert [trial.last_result["gain"] for trial in front] == [2.0, 1.0, 0.0]
        assert all(trial.config["waste"] == 0.0 for trial in front)
        assert [trial.config["x"] for trial in each.get_best_trials("cost", "min")] == [0.0]
        assert each.get_best_trial("cost").config == {"x": 0.0, "waste": 0.0}
        with pytest.raises(NoBestTrialError, match=r"gain \(max\) and cost \(min\).*get_best_trials\(\)"):
            each.best_trial  # noqa: B018
        with pytest.raises(NoBestTrialError, match=r"has the metric 'gane'.* Did you mean gain"):
            each.get_best_trials(["gane", "cost"], MODES)


def test_results_of_a_tuner(tmp_path):
    results = tune.Tuner(
        trade,
        param_space={"x": tune.grid_search([1.0, 2.0]), "waste": tune.grid_search([0.0, 9.0])},
        tune_config=tune.TuneConfig(metric=METRICS, mode=MODES),
        run_config=tune.RunConfig(name="t", storage_path=tmp_path, verbose=0),
    ).fit()
    assert [result.metrics["gain"] for result in results.get_best_results()] == [2.0, 1.0]
    with pytest.raises(NoBestTrialError, match=r"get_best_results\(\)"):
        results.get_best_result()
    restored = tune.Tuner.restore(tmp_path / "t", trade)
    assert [result.metrics["cost"] for result in restored.fit().get_best_results()] == [4.0, 1.0]


def test_the_table_names_the_front(analysis, capsys):
    reporter = tune.CLIReporter(metric_columns=["gain", "cost"], parameter_columns=["x", "waste"])
    reporter.set_objective(METRICS, MODES)
    status = {"scheduler": "FIFOScheduler", "directory": "d", "used": {}, "total": {}, "elapsed_s": 1.0}
    reporter.report(analysis.trials, True, status)
    lines = capsys.readouterr().out.splitlines()
    at = lines.index("Pareto front, 3 of 6 trials:")
    assert [line.split(" with ")[1] for line in lines[at + 1 : at + 4]] == [
        f"gain={x}, cost={x**2} and x={x}, waste=0" for x in (2, 1, 0)
    ]
    assert sum(line.endswith("*") for line in lines) == 3


def test_plots_of_the_front(analysis, tmp_path):
    pytest.importorskip("matplotlib")
    page = analysis.plot(tmp_path / "front.html").read_text()
    assert "Pareto front" in page and "best gain so far" not in page
    assert "Pareto front" not in analysis.plot(tmp_path / "one.html", metric="cost").read_text()
    assert read_objective(analysis.experiment_path) == (METRICS, MODES)
    with pytest.raises(ValueError, match="best is drawn of one metric"):
        analysis.plot(tmp_path / "x.html", kinds="best")
    with pytest.raises(ValueError, match="front is drawn of several metrics, not of 'cost'"):
        analysis.plot(tmp_path / "x.html", metric="cost", kinds="front")


@pytest.mark.parametrize("name", ["nsga2", "tpe"])
def test_searchers_approach_the_front(name):
    pytest.importorskip("optuna")
    searcher = create_searcher(name, seed=1, **({"population_size": 8} if name == "nsga2" else {}))
    searcher.set_search_properties(METRICS, MODES, {"x": tune.uniform(0, 1), "waste": tune.uniform(0, 1)})
    wastes = []
    for number in range(80):
        config = searcher.suggest(f"t{number}")
        wastes.append(config["waste"])
        searcher.on_trial_complete(f"t{number}", trade(config))
    assert statistics.mean(wastes[-40:]) < 0.35  # 0.5 at random


@pytest.mark.parametrize("name", ["nsga2", "tpe"])
def test_a_saved_search_goes_on_exactly(name):
    pytest.importorskip("optuna")
    space = {"x": tune.uniform(0, 1), "waste": tune.uniform(0, 1)}

    settings = {"population_size": 5} if name == "nsga2" else {"n_startup_trials": 4}

    def begun():
        searcher = create_searcher(name, seed=0, **settings)
        searcher.set_search_properties(METRICS, MODES, space)
        return searcher

    def play(searcher, numbers):
        configs = []
        for number in numbers:
            configs.append(searcher.suggest(f"t{number}"))
            result = {**trade(configs[-1]), **({"cost": float("nan")} if number == 3 else {})}
            searcher.on_trial_complete(f"t{number}", result)
        return configs

    whole = play(begun(), range(24))
    first, second = begun(), begun()
    assert play(first, range(11)) == whole[:11]
    second.set_state(json.loads(json.dumps(first.get_state())))
    assert play(second, range(11, 24)) == whole[11:]


def test_a_batch_reports_all_metrics():
    pytest.importorskip("optuna")
    limited = ConcurrencyLimiter(create_searcher("nsga2", seed=0), 2, batch=True)
    limited.set_search_properties(METRICS, MODES, {"x": tune.uniform(0, 1), "waste": tune.uniform(0, 1)})
    for name in ("a", "b"):
        limited.suggest(name)
    for name in ("a", "b"):
        limited.on_trial_complete(name, {"gain": 1.0, "cost": 2.0})
    assert [trial["values"] for trial in limited.get_state()["searcher"]["trials"]] == [[1.0, 2.0]] * 2


def test_a_scheduler_with_a_metric_of_its_own(tmp_path):
    def climb(config):
        for step in range(4):
            tune.report(gain=(step + 1) * config["x"], cost=config["x"])

    settings = {"config": {"x": tune.grid_search([3.0, 2.0, 1.0])}, "verbose": 0, "storage_path": tmp_path}
    asha = create_scheduler("asha", metric="gain", max_t=4, grace_period=1, reduction_factor=3)
    analysis = tune.run(climb, metric=METRICS, mode=MODES, scheduler=asha, max_concurrent_trials=1, **settings)
    assert [trial.last_result["training_iteration"] for trial in analysis.trials] == [4, 1, 1]
    assert asha.mode == "max"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"metric": METRICS}, r"mode must be one of 'max' and 'min' for each of metric=\['gain', 'cost'\]"),
        ({"metric": METRICS, "mode": ["max"]}, "for each of metric"),
        ({"metric": METRICS, "mode": ["max", "least"]}, "for each of metric"),
        ({"metric": "gain", "mode": MODES}, "one mode for one metric"),
        ({"metric": ["gain", "gain"], "mode": MODES}, "different result keys"),
        ({"metric": [], "mode": "max"}, "different result keys"),
        ({"metric": ["gain", 3], "mode": MODES}, "3 is among them"),
        ({**BOTH, "scheduler": "asha"}, r"by one metric.*AsyncHyperBandScheduler\(metric='gain'"),
        ({**BOTH, "scheduler": "median_stopping"}, "MedianStoppingRule compares trials by one"),
        ({**BOTH, "search_alg": "cmaes"}, 'sampler="cmaes" optimises one metric'),
        ({"metric": ["gain", "coast"], "mode": MODES}, "metric: the results have no coast. Did you mean cost"),
    ],
)  # fmt: skip
def test_what_is_refused(settings, message, tmp_path):
    if settings.get("search_alg"):
        pytest.importorskip("cmaes")
    with pytest.raises((ValueError, TypeError), match=message):
        tune.run(trade, config={"x": tune.uniform(0, 1), "waste": 0.0}, verbose=0, storage_path=tmp_path, **settings)


def test_a_repeater_takes_one_metric():
    with pytest.raises(ValueError, match="Repeater compares trials by one metric"):
        Repeater(BasicVariant(), 2).set_search_properties(METRICS, MODES, {"x": tune.uniform(0, 1)})


@pytest.mark.parametrize("given", [(["gain"], ["max"]), (["gain"], "max"), ("gain", ["max"])])
def test_a_list_of_one_is_one_metric(given):
    assert checked_objective(*given) == ("gain", "max")
