"""Population based bandits against populations whose weights are numbers."""

import json
import random
import statistics

import pytest

from rllib import tune
from rllib.tune.schedulers import PB2, PopulationBasedTraining, PopulationBasedTrainingReplay, create_scheduler
from tests.tune.simulator import Simulator

BOUNDS = {"x": [0.0, 1.0], "y": [0.0, 1.0]}


def _pb2(**kwargs):
    return PB2(**{"time_attr": "training_iteration", "metric": "score", "mode": "max", "perturbation_interval": 1,
                  "hyperparam_bounds": BOUNDS, "seed": 1, **kwargs})  # fmt: skip


class Moving(Simulator):
    """Weights rise the most near an x that moves from 0.2 to 0.8, and y = 0.5."""

    def _step(self, trial):
        best_x = 0.2 + 0.6 * trial.iteration / self.max_iterations
        self.step = lambda weights, at: weights + 1 - 25 * (at["x"] - best_x) ** 2 - 25 * (at["y"] - 0.5) ** 2
        super()._step(trial)


def _moving(scheduler, seed, rounds=30, size=4):
    rng = random.Random(seed)
    configs = [{"x": rng.random(), "y": rng.random()} for _ in range(size)]
    return Moving(scheduler, configs, max_iterations=rounds).run()


def test_follows_a_moving_optimum_better_than_random_changes():
    def best(make, **settings):
        runs = [_moving(make(time_attr="training_iteration", metric="score", mode="max", perturbation_interval=1,
                             seed=seed, **settings), seed) for seed in range(4)]  # fmt: skip
        return statistics.mean(max(trial.weights for trial in run.trials) for run in runs)

    ranges = {key: tune.uniform(0, 1) for key in BOUNDS}
    random_changes = best(PopulationBasedTraining, hyperparam_mutations=ranges)
    assert best(PB2, hyperparam_bounds=BOUNDS) > random_changes + 3


def test_the_changes_of_one_round_keep_apart():
    scheduler = _pb2(synch=True, quantile_fraction=0.5)
    simulator = _moving(scheduler, seed=0, rounds=4, size=8)
    assert len(simulator.exploits) >= 4
    places = [(trial.config["x"], trial.config["y"]) for trial in simulator.trials]
    assert len(set(places)) == len(places)


def test_settings_keep_their_bounds_types_and_places():
    bounds = {
        "lr": tune.loguniform(1e-5, 1e-1),
        "model": {"size": [8, 64], "rate": tune.quniform(0, 1, 0.25)},
        "epochs": tune.randint(1, 30),
    }
    model = {"size": 16, "kind": "a"}
    starts = [{"lr": lr, "model": model, "epochs": 3, "fixed": [1]} for lr in (1e-4, 1e-3, 1e-2)]
    simulator = Simulator(_pb2(hyperparam_bounds=bounds), starts, curve=lambda at, t: t * at["lr"]).run(12)
    assert simulator.exploits and model == {"size": 16, "kind": "a"}
    for trial in simulator.trials:
        config = trial.config
        assert 1e-5 <= config["lr"] <= 1e-1 and config["fixed"] == [1] and config["model"]["kind"] == "a"
        assert isinstance(config["model"]["size"], int) and 8 <= config["model"]["size"] <= 64
        assert config["model"]["rate"] in (0, 0.25, 0.5, 0.75, 1)
        assert isinstance(config["epochs"], int) and 1 <= config["epochs"] <= 29


@pytest.mark.parametrize("bounds", [[0.0, 0.1], [0, 0.1], tune.uniform(0, 0.1)], ids=str)
def test_a_range_of_floats_gives_floats_in_place_of_a_whole_number(bounds):
    starts = [{"entropy_coeff": 0, "rate": rate} for rate in (1, 2, 3, 4)]
    scheduler = _pb2(hyperparam_bounds={"entropy_coeff": bounds})
    curve = lambda at, t: t * at["rate"] - abs(at["entropy_coeff"] - 0.05)  # noqa: E731
    simulator = Simulator(scheduler, starts, curve).run(12)
    explored = [json.loads(line)[5]["entropy_coeff"] for line in simulator.files["pbt_global.txt"].splitlines()]
    assert any(0 < value < 0.1 for value in explored)
    assert all(type(value) is float and 0 <= value <= 0.1 for value in explored)


def test_a_rise_is_counted_from_the_state_that_was_taken_over():
    simulator = _moving(_pb2(perturbation_interval=2, hyperparam_bounds={"x": [0, 1]}), seed=0, rounds=12)
    observed = simulator.scheduler.get_state()["observed"]
    # An interval's steps rise by 1 at the most, whatever height another trial's weights brought.
    assert observed and all(rise <= 2.0 for *_, rise in observed)
    assert max(trial.weights for trial in simulator.trials) > 2


def test_nan_is_no_observation():
    curve = lambda config, t: float("nan") if t % 3 == 0 else t * config["x"]  # noqa: E731
    simulator = Simulator(_pb2(), [{"x": x, "y": 0.5} for x in (0.1, 0.5, 0.9)], curve).run(12)
    state = simulator.scheduler.get_state()
    assert simulator.exploits and json.dumps([state["observed"], state["intervals"]], allow_nan=False)


@pytest.mark.parametrize("synch", [False, True])
def test_repeats_by_seed_and_state_survives(synch):
    whole, again = (_moving(_pb2(synch=synch), seed=3, rounds=10) for _ in range(2))
    configs = [trial.config for trial in whole.trials]
    assert configs == [trial.config for trial in again.trials]
    first = Moving(_pb2(synch=synch), [dict(trial.evaluated_params) for trial in whole.trials], max_iterations=10)
    first.run(5)
    state = json.loads(json.dumps(first.scheduler.get_state(), allow_nan=False))
    first.scheduler = _pb2(synch=synch, seed=77)
    first.scheduler.set_state(state)
    first.run()
    assert [trial.config for trial in first.trials] == configs


def test_its_policy_files_are_replayed(tmp_path):
    simulator = _moving(_pb2(), seed=0, rounds=12)
    best = max(simulator.trials, key=lambda trial: trial.weights)
    policy = tmp_path / f"pbt_policy_{best.trial_id}.txt"
    policy.write_text(simulator.files[policy.name])
    replay = Moving(PopulationBasedTrainingReplay(policy), [{}], max_iterations=12).run()
    assert replay.trials[0].config == best.config


@pytest.mark.parametrize(
    "kwargs, message",
    [
        ({"hyperparam_bounds": {}}, "PB2 needs hyperparam_bounds"),
        ({"hyperparam_bounds": {"a": [1, 1]}}, r"a must be \[low, high\] with low < high"),
        ({"hyperparam_bounds": {"a": {"b": [1, 2, 3]}}}, "a/b must be .* PopulationBasedTraining changes other"),
        ({"hyperparam_bounds": {"a": tune.choice([1, 2])}}, "PopulationBasedTraining changes other"),
        ({"hyperparam_bounds": {"a": [0, float("inf")]}}, "low < high"),
        ({"quantile_fraction": 0.7}, r"in \[0, 0.5\]"),
        ({"perturbation_interval": 0}, "> 0"),
    ],
)
def test_what_is_refused(kwargs, message):
    with pytest.raises(ValueError, match=message):
        create_scheduler("pb2", **{"hyperparam_bounds": BOUNDS, **kwargs})


def test_a_setting_that_is_no_number_is_refused():
    with pytest.raises(ValueError, match="x, one of hyperparam_bounds, must be a number in the configuration"):
        Simulator(_pb2(), [{"x": [[0, 1e-3]], "y": 0.1}]).run(1)
