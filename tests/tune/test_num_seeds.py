"""Trials of several seeds: tune.run(..., num_seeds=3)."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from rllib import tune
from rllib.errors import TuneError
from rllib.storage.encoding import decode, encode
from rllib.tune.reporting.reporters import CLIReporter
from rllib.tune.running.seeds import Merger, median_of
from rllib.tune.schedulers import AsyncHyperBandScheduler, HyperBandScheduler

pytestmark = pytest.mark.usefixtures("two_cpus")


class Climber(tune.Trainable):
    """Climbs by rate + seed in each step."""

    def setup(self, config):
        self.height = 0.0

    def step(self):
        if self.config["seed"] == self.config.get("failing") and self.iteration == 1 and not self.config.get("mark"):
            raise ArithmeticError("slipped")
        self.height += self.config["rate"] + self.config["seed"]
        return {"height": self.height, "timesteps_total": 10 * (self.iteration + 1)}

    def save_checkpoint(self, checkpoint_dir):
        return {"height": self.height}

    def load_checkpoint(self, checkpoint):
        self.height = checkpoint["height"]


def lines(trial):
    return [json.loads(line) for line in (Path(trial.logdir) / "result.json").read_text().splitlines()]


def test_a_trial_is_the_median_of_its_seeds(run):
    analysis = run(
        Climber, config={"rate": 1.0, "seed": 3}, num_seeds=3, stop={"training_iteration": 2}, checkpoint_at_end=True,
        metric="height", mode="max",
    )  # fmt: skip
    (trial,) = analysis.trials
    first, second = lines(trial)
    assert (first["height"], second["height"], second["timesteps_total"]) == (5, 10, 20)
    assert {seed: numbers["height"] for seed, numbers in second["seeds"].items()} == {"3": 8, "4": 10, "5": 12}
    assert second["training_iteration"] == 2 and second["time_total_s"] > 0
    checkpoint = Path(analysis.best_checkpoint.path)
    assert sorted(path.name for path in checkpoint.glob("seed_*")) == ["seed_3", "seed_4", "seed_5"]
    assert tune.Checkpoint(checkpoint / "seed_5").to_dict() == {"height": 12}
    text = CLIReporter(metric="height").text([trial], {"scheduler": "FIFOScheduler", "directory": "d", "used": {},
                                                       "total": {}, "elapsed_s": 0})  # fmt: skip
    assert "seeds 8 to 12" in text
    headings, rows, _ = CLIReporter(metric="height").rows([trial])
    assert rows[0][headings.index("of seeds")] == "8 to 12"


def test_asha_prunes_all_seeds_of_a_trial_together(run):
    analysis = run(
        Climber, config={"rate": tune.grid_search([3.0, 1.0])}, num_seeds=2, stop={"training_iteration": 4},
        metric="height", mode="max", scheduler=AsyncHyperBandScheduler(max_t=4, grace_period=1, reduction_factor=2),
        max_concurrent_trials=1,
    )  # fmt: skip
    good, bad = analysis.trials
    assert [len(lines(trial)) for trial in (good, bad)] == [4, 1]
    assert all(len(result["seeds"]) == 2 for trial in (good, bad) for result in lines(trial))


def test_a_seed_that_fails_ends_its_trial_and_is_named(run):
    settings = {"num_seeds": 2, "stop": {"training_iteration": 3}}
    with pytest.raises(TuneError, match="slipped"):
        run(Climber, config={"rate": 1.0, "failing": 1}, name="failing", **settings)
    analysis = run(
        Climber, config={"rate": 1.0, "failing": tune.grid_search([1, 9])}, raise_on_failed_trial=False, **settings
    )
    failed, other = analysis.trials
    assert (failed.status, other.status) == ("ERROR", "TERMINATED")
    assert "This was seed 1" in failed.error
    assert len(lines(failed)) == 1


def test_a_failed_trial_starts_again_with_all_seeds_from_its_checkpoint(run, tmp_path):
    class Once(Climber):
        def step(self):
            mark = Path(self.config["place"])
            if self.config["seed"] == 1 and self.iteration == 2 and not mark.exists():
                mark.touch()
                raise ArithmeticError("slipped")
            return super().step()

    analysis = run(
        Once, config={"rate": 1.0, "place": str(tmp_path / "mark")}, num_seeds=2, stop={"training_iteration": 4},
        checkpoint_freq=1, max_failures=1, metric="height", mode="max",
    )  # fmt: skip
    (trial,) = analysis.trials
    assert trial.num_failures == 1
    assert [result["height"] for result in lines(trial)] == [1.5, 3, 4.5, 6]
    assert {seed: numbers["height"] for seed, numbers in lines(trial)[-1]["seeds"].items()} == {"0": 4, "1": 8}


class Uneven(Climber):
    """Seed 1 is twice as fast as seed 0; in step 3 of seed 0 the first run of a trial with a `mark` breaks."""

    def step(self):
        mark = self.config.get("mark")
        if mark and self.config["seed"] == 0 and self.iteration == 2 and not Path(mark).exists():
            Path(mark).touch()
            raise ArithmeticError("slipped")
        result = super().step()
        steps = (1 + self.config["seed"]) * (self.iteration + 1)
        return {**result, "timesteps_total": steps, "done": steps >= 6}


def uneven(config):
    """The same as a function."""
    start = tune.get_checkpoint().to_dict()["step"] if tune.get_checkpoint() else 0
    for step in range(start + 1, 7):
        if config["mark"] and config["seed"] == 0 and step == 3 and not Path(config["mark"]).exists():
            Path(config["mark"]).touch()
            raise ArithmeticError("slipped")
        result = {"height": step * (1.0 + config["seed"]), "timesteps_total": (1 + config["seed"]) * step}
        tune.report(result, checkpoint=tune.Checkpoint.from_dict({"step": step}))


@pytest.mark.parametrize("trainable, freq", [(Uneven, 1), (uneven, 0)])
def test_the_medians_of_a_trial_that_starts_again_are_the_same(run, tmp_path, trainable, freq):
    """A seed that is ahead counts with its earlier results, and one that is done stays done."""
    settings = {"num_seeds": 2, "checkpoint_freq": freq, "max_failures": 1}
    unbroken = run(trainable, config={"rate": 1.0, "mark": ""}, **settings).trials[0]
    broken = run(trainable, config={"rate": 1.0, "mark": str(tmp_path / "mark")}, **settings).trials[0]
    assert broken.num_failures == 1 and len(lines(broken)) == 6
    for result, expected in zip(lines(broken), lines(unbroken), strict=True):
        assert [result[key] for key in ("timesteps_total", "height", "seeds")] == [
            expected[key] for key in ("timesteps_total", "height", "seeds")
        ]


def test_the_medians_of_a_trial_that_was_paused_are_the_same(run):
    settings = {"config": {"rate": tune.grid_search([1.0, 2.0])}, "num_seeds": 2, "metric": "height", "mode": "max"}
    best = [
        max(run(Uneven, scheduler=scheduler, **settings).trials, key=lambda trial: trial.config["rate"])
        for scheduler in (None, HyperBandScheduler(max_t=4, reduction_factor=2))
    ]
    unbroken, paused = ([(result["timesteps_total"], result["height"]) for result in lines(trial)] for trial in best)
    assert len(paused) > 1 and paused == unbroken[: len(paused)]


def test_functions_save_all_seeds_together(run):
    def climb(config):
        start = tune.get_checkpoint().to_dict()["step"] if tune.get_checkpoint() else 0
        for step in range(start + 1, 4):
            tune.report({"height": step * (1 + config["seed"])}, checkpoint=tune.Checkpoint.from_dict({"step": step}))

    analysis = run(climb, config={}, num_seeds=3, metric="height", mode="max")
    (trial,) = analysis.trials
    assert trial.status == "TERMINATED"
    assert [result["height"] for result in lines(trial)] == [2, 4, 6]
    checkpoint = Path(trial.checkpoint_path(trial.checkpoint))
    assert [tune.Checkpoint(checkpoint / f"seed_{seed}").to_dict() for seed in range(3)] == [{"step": 3}] * 3


def test_population_based_training_takes_over_all_seeds(run):
    pbt = tune.schedulers.PopulationBasedTraining(
        time_attr="training_iteration", perturbation_interval=1, hyperparam_mutations={"rate": [1.0, 50.0]}, seed=0,
        quantile_fraction=0.5,
    )  # fmt: skip
    analysis = run(
        Climber, config={"rate": tune.grid_search([1.0, 50.0])}, num_seeds=2, scheduler=pbt, metric="height",
        mode="max", stop={"training_iteration": 3},
    )  # fmt: skip
    last = {trial.config["rate"]: lines(trial)[-1]["seeds"] for trial in analysis.trials}
    heights = [numbers["height"] for seeds in last.values() for numbers in seeds.values()]
    assert min(heights) > 100, "the worse trial has taken over the better one's weights, seed by seed"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_seeds": 0}, "num_seeds must be a whole number >= 1"),
        ({"num_seeds": 1.5}, "num_seeds must be a whole number >= 1"),
        ({"num_seeds": 2, "config": {"seed": tune.grid_search([1, 2])}}, "seed must be a whole number"),
        ({"num_seeds": 2, "config": {"seed": "one"}}, "seed must be a whole number, but got 'one'"),
    ],
)
def test_bad_input_is_refused(run, settings, message):
    with pytest.raises((ValueError, TypeError), match=message):
        run(Climber, **{"config": {"rate": 1.0}, **settings})


def test_an_experiment_continues_with_its_own_number_of_seeds(run):
    settings = {"config": {"rate": 1.0}, "stop": {"training_iteration": 1}, "name": "first"}
    run(Climber, num_seeds=2, **settings)
    with pytest.raises(ValueError, match="has num_seeds=2, and cannot continue with 3"):
        run(Climber, num_seeds=3, resume=True, **settings)


def result(steps, value, **more):
    return {"timesteps_total": steps, "value": value, **more}


def test_seeds_that_are_ahead_count_with_their_results_at_equal_steps():
    merger = Merger([0, 1])
    assert merger.merged({0: result(100, 1.0), 1: result(60, 5.0)})["timesteps_total"] == 60
    merged = merger.merged({0: result(200, 2.0), 1: result(120, 7.0)})
    assert (merged["timesteps_total"], merged["value"]) == (120, 4.0), "seed 0 as it was at 100"
    merged = merger.merged({0: result(300, 3.0), 1: result(310, 9.0)})
    assert (merged["timesteps_total"], merged["value"]) == (300, 5.0), "seed 1 as it was at 120"
    assert merged["seeds"]["1"]["timesteps_total"] == 120


def test_a_seed_that_is_done_early_keeps_its_last_result():
    merger = Merger([0, 1])
    merger.merged({0: result(10, 1.0), 1: result(10, 2.0)})
    assert "done" not in merger.merged({0: {"no_report": True, "done": True}, 1: result(20, 4.0)})
    assert merger.unfinished == [1]
    merged = merger.merged({1: result(30, 9.0, done=True)})
    assert (merged["value"], merged["timesteps_total"], merged["done"]) == (5.0, 30, True)
    assert Merger([0]).merged({0: {"no_report": True, "done": True}}) == {"done": True, "no_report": True}


def test_a_merger_continues_from_its_state_as_data():
    one, other = Merger([0, 1]), Merger([0, 1])
    more = {"array": np.arange(2), "number": np.float32(1.5), "object": object(), "nan": math.nan, "date": "today"}
    for merger in (one, other):
        merger.merged({0: result(60, 1.0, **more, text="x", nested={"list": [1, 2]}), 1: result(20, 2.0)})
    state = encode(one.get_state())
    one = Merger([0, 1])
    one.set_state(decode(json.loads(json.dumps(state))))
    merged, expected = (
        merger.merged({0: result(90, 5.0), 1: result(40, 4.0, nested={"list": [3]})}) for merger in (one, other)
    )
    for key in ("timesteps_total", "value", "number", "text", "nested"):
        assert merged[key] == expected[key]
    assert merged["array"].tolist() == [0, 1] and math.isnan(merged["nan"]) and "object object" in merged["object"]


def test_a_checkpoint_at_which_all_seeds_are_done_can_be_continued():
    merger = Merger([0, 1])
    merger.merged({seed: result(10, 1.0, done=True) for seed in (0, 1)})
    following = Merger([0, 1])
    following.set_state(merger.get_state())
    assert following.unfinished == [0, 1]


def test_medians_are_taken_key_by_key_without_nan():
    merged = median_of([
        {"a": 1, "b": {"c": math.nan}, "d": [1], "e": "x", "f": True},
        {"a": 5, "b": {"c": 2.0}, "d": [2, 3], "e": "y", "f": False},
        {"a": 2, "b": {"c": 4.0, "g": 7}, "d": [], "e": "z", "f": True},
    ])  # fmt: skip
    assert merged == {"a": 2, "b": {"c": 3.0, "g": 7}, "d": [1, 2, 3], "e": "x", "f": True}
    assert math.isnan(median_of([math.nan, math.nan]))
