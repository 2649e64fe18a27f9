"""Population based training against a population whose weights are numbers."""

import json

import numpy as np
import pytest

from rllib import tune
from rllib.tune.schedulers import create_scheduler
from rllib.tune.schedulers.pbt import PopulationBasedTraining, PopulationBasedTrainingReplay
from tests.tune.simulator import PAUSED, Simulator


def _pbt(**kwargs):
    settings = {
        "time_attr": "training_iteration",
        "metric": "score",
        "mode": "max",
        "perturbation_interval": 4,
        "seed": 1,
    }
    return PopulationBasedTraining(**{**settings, "hyperparam_mutations": {"lr": tune.uniform(0.0, 10.0)}, **kwargs})


def _grow(weights, config):
    return weights + config["lr"]


def _run(scheduler, rates=(1, 2, 3, 4), rounds=40, **kwargs):
    return Simulator(scheduler, [{"lr": rate, "fixed": 7} for rate in rates], **{"step": _grow, **kwargs}).run(rounds)


@pytest.mark.parametrize("synch", [False, True])
def test_the_worst_takes_over_weights_and_hyperparameters_of_the_best(synch):
    simulator = _run(_pbt(synch=synch, resample_probability=0), rounds=4)
    if synch:
        assert simulator.exploits == [("t000", "t003")]
        worst, best = simulator.trials[0], simulator.trials[3]
        assert worst.weights == best.weights == 16 and worst.iteration == 4
        assert worst.config["lr"] in (4 * 1.2, 4 * 0.8) and worst.config["fixed"] == 7
        assert best.config["lr"] == 4
    else:
        # The first to come to an interval ranks by what the others have reported last.
        (target, source), *_ = simulator.exploits
        assert (target, source) == ("t000", "t003")
        assert simulator.trials[0].weights == 12 and simulator.trials[0].iteration == 3


def test_neighbours_in_a_list_of_arrays_are_tried():
    values = [np.array([rate, rate]) for rate in (1.0, 2.0, 3.0)]
    scheduler = _pbt(synch=True, resample_probability=0, hyperparam_mutations={"lr": values})
    configs = [{"lr": np.copy(value)} for value in values]
    simulator = Simulator(scheduler, configs, step=lambda weights, config: weights + config["lr"].sum()).run(rounds=4)
    assert simulator.exploits == [("t000", "t002")]
    assert simulator.trials[0].config["lr"].tolist() in ([2.0, 2.0], [3.0, 3.0])


def test_the_quantile_is_counted_without_a_rounding_error():
    scheduler = _pbt(synch=True, quantile_fraction=0.28)  # 25 * 0.28 is 7.000000000000001 in floating point
    assert len(_run(scheduler, rates=range(1, 26), rounds=4).exploits) == 7


@pytest.mark.parametrize("synch", [False, True])
def test_the_population_becomes_better_than_its_best_start(synch):
    simulator = _run(_pbt(synch=synch), rounds=60)
    assert max(trial.weights for trial in simulator.trials) > 4 * 60 * 1.2
    assert all(0 <= trial.config["lr"] <= 10 for trial in simulator.trials)


def test_repeats_with_the_same_seed():
    runs = [[trial.config for trial in _run(_pbt(seed=seed)).trials] for seed in (5, 5, 6)]
    assert runs[0] == runs[1] != runs[2]


def test_synchronous_trials_wait_for_one_another():
    simulator = _run(_pbt(synch=True), rounds=5, slots=2)
    assert simulator.iterations() == [4, 4, 1, 1]
    assert [trial.status for trial in simulator.trials[:2]] == [PAUSED, PAUSED]
    simulator.run(rounds=3)
    assert len(simulator.exploits) == 1


@pytest.mark.parametrize("slots", [2, 4])
@pytest.mark.parametrize("interval", [1, 4])
@pytest.mark.parametrize("quantile", [0.25, 0.5])
@pytest.mark.parametrize("synch", [False, True])
def test_trials_reach_their_end_also_where_takeovers_are_carried_out_late(synch, quantile, interval, slots):
    scheduler = _pbt(synch=synch, quantile_fraction=quantile, perturbation_interval=interval)
    simulator = _run(scheduler, rounds=400, slots=slots, max_iterations=20, is_slow=True)
    assert simulator.iterations() == [20] * 4 and simulator.exploits


def test_synchronous_trials_do_not_wait_for_a_failed_one():
    simulator = Simulator(_pbt(synch=True), [{"lr": rate} for rate in (1, 2, 3, 4)], step=_grow)
    simulator.failing = {"t002"}
    simulator.run(rounds=9)
    assert min(trial.iteration for trial in simulator.trials if trial.trial_id != "t002") == 9


def test_trials_take_turns_when_there_are_few_places():
    simulator = _run(_pbt(quantile_fraction=0), rounds=40, slots=2)
    assert max(simulator.iterations()) - min(simulator.iterations()) <= 4


def test_burn_in():
    assert _run(_pbt(burn_in_period=20), rounds=19).exploits == []
    assert _run(_pbt(burn_in_period=20), rounds=21).exploits != []


@pytest.mark.parametrize("synch", [False, True])
def test_a_trial_without_a_number_is_neither_replaced_nor_copied(synch):
    def curve(config, t):
        return float("nan") if config["lr"] == 2 and t < 10 else config["lr"]

    def without_a_number(simulator):
        return [pair for pair in simulator.exploits if "t001" in pair]

    simulator = Simulator(_pbt(synch=synch), [{"lr": rate} for rate in (4, 2, 6, 8)], curve, _grow)
    simulator.run(rounds=9)
    assert simulator.exploits and not without_a_number(simulator)
    assert without_a_number(simulator.run(rounds=20)), "its number, the lowest, has come"
    all_nan = Simulator(_pbt(synch=synch), [{"lr": 2}] * 4, curve, _grow).run(rounds=9)
    assert all_nan.exploits == []


def test_a_trial_that_has_lost_its_number_is_ranked_by_the_last_and_not_copied():
    def curve(config, t):  # the best one's number ends, as of a network that has become NaN; later it is the worst
        return float("nan") if config["lr"] == 8 and t > 1 else (8.0 if t == 1 else 7.0 + config["lr"] * t / 10)

    simulator = Simulator(_pbt(), [{"lr": rate} for rate in (1, 2, 4, 8)], curve, _grow)
    simulator.run(rounds=30)
    assert "t003" in {target for target, _ in simulator.exploits}
    before = simulator.exploits[: [target for target, _ in simulator.exploits].index("t003")]
    assert "t003" not in {source for _, source in before}


def test_mutations_of_every_kind():
    mutations = {
        "a": [1, 2, 4],
        "b": tune.choice(["x", "y"]),
        "c": lambda: 5,
        "d": {"e": tune.randint(1, 100), "f": tune.quniform(0, 1, 0.25)},
    }
    scheduler = _pbt(hyperparam_mutations=mutations)
    simulator = Simulator(scheduler, [{"a": 2} for _ in range(8)], curve=lambda config, t: config["d"]["e"])
    assert all(set(trial.config) == set("abcd") for trial in simulator.trials)
    simulator.run(rounds=80)
    for trial in simulator.trials:
        config = trial.config
        assert config["a"] in (1, 2, 4) and config["b"] in "xy" and config["d"]["f"] in (0, 0.25, 0.5, 0.75, 1)
        assert isinstance(config["d"]["e"], int) and 1 <= config["d"]["e"] <= 99


@pytest.mark.parametrize("draw, values", [(lambda: 0.05, {0}), (lambda: 7, {-1, 0, 1}), (tune.uniform(0, 1), {0})])
def test_a_whole_number_becomes_another_only_where_whole_numbers_are_drawn(draw, values):
    """0 * 1.2 is 0: a size of 0 must change, an entropy_coeff of 0 must not become 1 or -1."""
    scheduler = _pbt(hyperparam_mutations={"lr": draw}, resample_probability=0)
    simulator = Simulator(scheduler, [{"lr": 0, "q": q} for q in range(4)], curve=lambda config, t: t + config["q"])
    simulator.run(rounds=5)
    assert simulator.exploits and {json.loads(line)[5]["lr"] for line in lines_of(simulator)} <= values


def test_a_factor_stays_within_the_bounds_of_a_setting():
    """RLlib's own program for PBT multiplies a lambda of 0.95 by 1.2, which here no trial could be made of."""
    scheduler = _pbt(hyperparam_mutations={"lr": lambda: 0.95, "q": lambda: 1.0}, resample_probability=0)
    scheduler.keep_within({"lr": (0.9, 1.0), "q": (None, None)})
    configs = [{"lr": 0.95, "q": 1.0 + q} for q in range(4)]
    simulator = Simulator(scheduler, configs, curve=lambda config, t: t + config["q"])
    simulator.run(rounds=20)
    taken = [json.loads(line)[5] for line in lines_of(simulator)]
    assert {config["lr"] for config in taken} == {0.9, 1.0}


def lines_of(simulator):
    return simulator.files["pbt_global.txt"].splitlines()


def test_custom_explore_function_has_the_last_word():
    scheduler = _pbt(hyperparam_mutations=None, custom_explore_fn=lambda config: {**config, "lr": 99})
    simulator = _run(scheduler, rounds=5)
    assert simulator.trials[0].config["lr"] == 99


def test_state_survives():
    for rounds in (3, 10, 25):
        for synch in (False, True):
            whole = _run(_pbt(synch=synch), rounds=40)
            first = _run(_pbt(synch=synch), rounds=rounds)
            state = json.loads(json.dumps(first.scheduler.get_state(), allow_nan=False))
            first.scheduler = _pbt(synch=synch, seed=77)
            first.scheduler.set_state(state)
            first.run(rounds=40 - rounds)
            assert [trial.config for trial in first.trials] == [trial.config for trial in whole.trials]


def test_replay_follows_the_descent_of_the_weights(tmp_path):
    simulator = _run(_pbt(), rounds=60)
    best = max(simulator.trials, key=lambda trial: trial.weights)
    name = f"pbt_policy_{best.trial_id}.txt"
    assert len(simulator.files["pbt_global.txt"].splitlines()) == len(simulator.exploits)
    (tmp_path / name).write_text(simulator.files[name])
    replay = Simulator(PopulationBasedTrainingReplay(tmp_path / name), [{}], step=_grow)
    replay.run(rounds=best.iteration)
    assert replay.trials[0].weights == pytest.approx(best.weights)
    assert replay.trials[0].config == best.config


def test_replay_refuses_other_files(tmp_path):
    with pytest.raises(ValueError, match="There is no policy file"):
        create_scheduler("pbt_replay", policy_file=tmp_path / "none")
    (tmp_path / "x").write_text("hello")
    with pytest.raises(ValueError, match="is no policy file"):
        create_scheduler("pbt_replay", policy_file=tmp_path / "x")


@pytest.mark.parametrize(
    "kwargs, message",
    [
        ({"hyperparam_mutations": {}}, "nothing to change"),
        ({"hyperparam_mutations": {"a": {"b": 3}}}, "a/b needs a list"),
        ({"hyperparam_mutations": {"a": []}}, "a has no values"),
        ({"hyperparam_mutations": {"a": [1, tune.uniform(2, 3)]}}, "a has a search space among its values"),
        ({"hyperparam_mutations": {"a": {"b": tune.choice([{"c": tune.uniform(2, 3)}])}}}, "a/b has a search space"),
        ({"quantile_fraction": 0.7}, r"in \[0, 0.5\]"),
        ({"resample_probability": 2}, r"in \[0, 1\]"),
        ({"perturbation_interval": 0}, "> 0"),
    ],
)
def test_what_is_refused(kwargs, message):
    with pytest.raises(ValueError, match=message):
        _pbt(**kwargs)


def _falls(weights, config):
    return weights - config["lr"]


@pytest.mark.parametrize("synch", [False, True])
@pytest.mark.parametrize("saves_at, slots", [(None, 2), (None, 4), ({1}, 4), ({1, 5, 9}, 4), (range(99), 4)])
def test_a_metric_that_falls_in_training_does_not_send_trials_back_for_ever(saves_at, slots, synch):
    pbt = _pbt(perturbation_interval=1, synch=synch)
    simulator = _run(pbt, rounds=200, max_iterations=12, saves_at=saves_at, slots=slots, step=_falls)
    assert [trial.status for trial in simulator.trials] == ["TERMINATED"] * 4
    assert simulator.exploits


def test_a_clone_is_as_old_and_as_good_as_the_checkpoint_that_it_took_over():
    pbt = _pbt(perturbation_interval=4)
    simulator = _run(pbt, rates=(1, 4), rounds=4, saves_at={3})
    assert simulator.exploits == [("t000", "t001")]
    member = pbt.get_state()["members"]["t000"]
    assert (member["train_time"], member["score"], member["began_at"]) == (3, 12, 3)
    assert json.loads(simulator.files["pbt_policy_t000.txt"])[2:4] == [4, 3]


def test_a_function_without_checkpoints_is_never_copied():
    simulator = _run(_pbt(), rounds=12, saves_at=())
    assert simulator.exploits == [] and simulator.iterations() == [12] * 4


def test_a_missing_metric_is_an_error_unless_it_may_be_missing():
    with pytest.raises(ValueError, match="They have: score, training_iteration"):
        _run(_pbt(metric="other"), rounds=1)
    assert _run(_pbt(metric="other", require_attrs=False), rounds=9).exploits == []
