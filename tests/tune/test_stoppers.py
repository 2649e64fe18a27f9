"""Values of `stop`, and the trials and experiments that they end."""

import json
import math
from datetime import timedelta

import pytest

from rllib.runs.entries import encode
from rllib.tune.experiment.stoppers import (
    CombinedStopper,
    ExperimentPlateauStopper,
    MaximumIterationStopper,
    ThresholdStopper,
    TimeoutStopper,
    TrialPlateauStopper,
    make_stopper,
    restore,
    saved,
)


def _ends_at(stopper, values, trial_id="t"):
    """The number of the result that ends the trial; None if none does."""
    answers = (stopper(trial_id, {"m": value, "training_iteration": index}) for index, value in enumerate(values, 1))
    return next((index for index, answer in enumerate(answers, 1) if answer), None)


def test_dicts_reach_into_nested_results():
    stopper = make_stopper({"a/b": 3})
    assert not stopper("t", {"a": {"b": 2}}) and stopper("t", {"a": {"b": 3}})
    assert stopper.reached("t", {"a": {"b": 3.5}}) == "a/b 3.5 >= 3"
    assert make_stopper(None).reached("t", {"a": 1}) is None


@pytest.mark.parametrize("threshold", [0, -5, -0.5])
@pytest.mark.parametrize(
    "key",
    [
        "training_iteration", "timesteps_total", "time_total_s", "episodes_total", "num_env_steps_sampled",
        "num_env_steps_sampled_lifetime", "env_runners/num_env_steps_sampled_lifetime", "agent_timesteps_total",
        "agent_steps_sampled/a", "evaluation/episodes_this_iter", "env_runners/num_episodes_lifetime",
        "learners/__all_modules__/num_env_steps_trained_lifetime", "iterations_since_restore", "time_since_restore",
    ],
)  # fmt: skip
def test_a_count_that_every_result_reaches_is_refused(key, threshold):
    with pytest.raises(ValueError, match=f"stop: {key} must be > 0"):
        make_stopper({"episode_reward_mean": 1, key: threshold})
    assert make_stopper({key: 0.5})


@pytest.mark.parametrize("key", ["episode_reward_mean", "env_runners/episode_return_mean", "m", "custom_metrics/m"])
def test_returns_and_own_metrics_may_end_below_zero(key):
    assert make_stopper({key: -5}).reached("t", {key: -4}) or "/" in key


def test_functions():
    stopper = make_stopper(lambda trial_id, result: trial_id == "x" and result["m"] > 1)
    assert stopper("x", {"m": 2}) and not stopper("y", {"m": 2}) and not stopper.stop_all()


def test_maximum_iteration_counts_each_trial():
    stopper = MaximumIterationStopper(3)
    assert _ends_at(stopper, [0] * 5, "a") == _ends_at(stopper, [0] * 5, "b") == 3


def test_timeout_ends_everything():
    now = [100.0]
    stopper = TimeoutStopper(timedelta(seconds=5), clock=lambda: now[0])
    assert not stopper.stop_all()
    now[0] = 104.9
    assert not stopper("t", {})
    now[0] = 105.0
    assert stopper("t", {}) and stopper.stop_all()


def through_json(state):
    return json.loads(encode(state))


def test_a_timeout_counts_over_resumes():
    now = [100.0]
    first, second = (make_stopper([TimeoutStopper(5, clock=lambda: now[0]), {"m": 9}]) for _ in range(2))
    assert not first.stop_all()
    now[0] = 103.0
    second.set_state(through_json(first.get_state()))
    second.add_time(0.5)  # between the state and the end
    now[0] = 200.0  # nobody ran it meanwhile
    assert not second.stop_all()
    now[0] = 201.4
    assert not second.stop_all()
    now[0] = 201.5
    assert second.stop_all()


@pytest.mark.parametrize(
    "make", [lambda: TrialPlateauStopper("m"), lambda: ExperimentPlateauStopper("m", top=3, mode="max", patience=2)]
)
@pytest.mark.parametrize("resumed_after", range(7))
def test_a_plateau_goes_on_over_resumes(make, resumed_after):
    values = [1, float("nan"), 3, 4, 4, 4, 4, 4, 4]
    first, second = make(), make()
    assert _ends_at(first, values[:resumed_after]) is None
    second.set_state(through_json(first.get_state()))
    assert _ends_at(second, values[resumed_after:]) + resumed_after == _ends_at(make(), values)


@pytest.mark.parametrize(
    "now", [TrialPlateauStopper("m"), [{"m": 9}, TrialPlateauStopper("m")], [TrialPlateauStopper("m"), {"m": 9}]]
)
def test_a_stopper_of_another_class_begins_anew(now):
    before, now = make_stopper([TimeoutStopper(5), {"m": 9}]), make_stopper(now)
    before.stop_all()
    restore(now, through_json(saved(before)))
    assert _ends_at(now, [4, 4, 4, 4, 4]) == 4


def test_trial_plateau():
    assert _ends_at(TrialPlateauStopper("m"), [1, 2, 3, 4, 4, 4, 4]) == 7
    assert _ends_at(TrialPlateauStopper("m", grace_period=6), [4] * 9) == 6
    assert _ends_at(TrialPlateauStopper("m", metric_threshold=3, mode="max"), [2] * 6 + [3] * 4) == 10
    assert _ends_at(TrialPlateauStopper("m"), [float("nan")] * 9) is None


@pytest.mark.parametrize("no_number", [{"m": math.nan}, {"m": None}, {}], ids=["NaN", "None", "missing"])
@pytest.mark.parametrize(
    "make", [lambda: TrialPlateauStopper("m"), lambda: ExperimentPlateauStopper("m", top=2, mode="max", patience=3)]
)
def test_results_without_a_number_are_no_part_of_a_plateau(make, no_number):
    """A number that comes with every third result: only these four count."""
    stopper = make()
    answers = [stopper("t", {"m": 4.0} if number % 3 == 0 else no_number) for number in range(1, 13)]
    assert answers == [False] * 11 + [True]


def test_experiment_plateau():
    for patience, end in ((0, 4), (1, 4), (2, 5), (3, 6)):  # the third 5 makes the plateau, and is its first result
        stopper = ExperimentPlateauStopper("m", top=3, mode="max", patience=patience)
        assert _ends_at(stopper, [1, 5, 5, 5, 5, 5]) == end and stopper.stop_all()
    assert _ends_at(ExperimentPlateauStopper("m", top=3), [5, 4, 3, 2, 1]) is None


def test_combined_tells_which():
    stopper = CombinedStopper({"m": 7}, MaximumIterationStopper(3), TimeoutStopper(1000))
    assert stopper.reached("t", {"m": 1, "training_iteration": 1}) is None
    assert stopper.reached("t", {"m": 1, "training_iteration": 3}) == "3 iterations"
    assert not stopper.stop_all()


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: make_stopper(3), "dict of thresholds, a function"),
        (lambda: make_stopper({"a": "b"}), "needs a number"),
        (lambda: TrialPlateauStopper("m", metric_threshold=1), "mode must be .* with metric_threshold"),
        (lambda: TrialPlateauStopper("m", num_results=2.5), "num_results must be a whole number >= 1"),
        (lambda: TrialPlateauStopper("m", std="0.1"), "std must be a number > 0, but got '0.1'"),
        (lambda: ExperimentPlateauStopper("m", top=1), "top must be > 1"),
        (lambda: ExperimentPlateauStopper("m", top="0"), "top must be a whole number > 1, but got '0'"),
        (lambda: ExperimentPlateauStopper("m", patience=True), "patience must be a whole number >= 0"),
        (lambda: MaximumIterationStopper("5"), "max_iter must be a number > 0, but got '5'"),
        (lambda: TimeoutStopper(0), "timeout must be a number of seconds > 0.*got 0"),
    ],
)
def test_what_is_refused(make, message):
    with pytest.raises((TypeError, ValueError), match=message):
        make()


# ---------------------------------------------------------------------- thresholds

RESULT = {"episode_reward_mean": 120.0, "timesteps_total": 500, "info": {"learner": {"kl": 0.1}}}


def test_the_first_threshold_that_is_reached_stops():
    stop = ThresholdStopper({"episode_reward_mean": 475, "timesteps_total": 500})
    assert stop.reached("t", {"episode_reward_mean": 1.0, "timesteps_total": 499}) is None
    assert stop.reached("t", RESULT) == "timesteps_total 500 >= 500"
    assert ThresholdStopper({"info/learner/kl": 0.1}).reached("t", RESULT) == "info/learner/kl 0.1 >= 0.1"


def test_nan_and_absent_values_reach_nothing():
    stop = ThresholdStopper({"episode_reward_mean": -1e9, "evaluation/episode_reward_mean": 0})
    assert stop.reached("t", {"episode_reward_mean": math.nan}) is None
    assert stop.progress({"episode_reward_mean": math.nan}) == 0.0


def test_without_thresholds_nothing_stops():
    assert ThresholdStopper({}).reached("t", RESULT) is None
    assert ThresholdStopper({}).progress(RESULT) == 0.0
    assert str(ThresholdStopper({})) == ""
    assert str(ThresholdStopper({"a": 1e6, "b": 0.5})) == "a >= 1,000,000 or b >= 0.5"


@pytest.mark.parametrize("threshold", ["high", True, None, math.nan, math.inf])
def test_thresholds_are_finite_numbers(threshold):
    with pytest.raises(ValueError, match="episode_reward_mean needs a number"):
        ThresholdStopper({"episode_reward_mean": threshold})


def test_progress_counts_steps_from_zero_and_returns_from_the_first_seen():
    stop = ThresholdStopper({"timesteps_total": 1000})
    assert stop.progress({"timesteps_total": 250}) == 0.25
    stop = ThresholdStopper({"episode_reward_mean": -100})
    assert stop.progress({"episode_reward_mean": -200.0}) == 0.0
    assert stop.progress({"episode_reward_mean": -125.0}) == 0.75
    assert stop.progress({"episode_reward_mean": -250.0}) == 0.0
    assert stop.progress({"episode_reward_mean": -90.0}) == 1.0


def test_misspelt_keys_are_refused_with_the_nearest():
    with pytest.raises(ValueError, match=r"no episode_reward_men\. Did you mean episode_reward_mean\?"):
        ThresholdStopper({"episode_reward_men": 475}).check_keys(RESULT)
    ThresholdStopper({"evaluation/episode_reward_mean": 475, "info/learner/entropy": 1}).check_keys(RESULT)


def test_a_key_that_is_no_number_is_refused():
    criterion = ThresholdStopper({"date": 5})
    with pytest.raises(ValueError, match=r"date must be a number in the results, but it is '2026"):
        criterion.check_keys({"date": "2026-01-01"})


def test_what_is_asked_of_results_is_known_of_stoppers_within_others():
    inner = CombinedStopper({"d": 3}, TrialPlateauStopper("e"), ExperimentPlateauStopper("f"))
    stopper = make_stopper([{"a": 1, "b/c": 2}, TimeoutStopper(5), inner])
    assert stopper.result_keys == ["a", "b/c", "d", "e", "f"]
