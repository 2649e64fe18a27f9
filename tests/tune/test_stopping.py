import math

import pytest

from rllib.tune.stopping import StopCriterion, lookup

RESULT = {"episode_reward_mean": 120.0, "timesteps_total": 500, "info": {"learner": {"kl": 0.1}}}


def test_lookup_follows_paths():
    assert lookup(RESULT, "info/learner/kl") == 0.1
    assert lookup(RESULT, "info/learner/entropy") is None
    assert lookup(RESULT, "timesteps_total/x") is None


def test_the_first_threshold_that_is_reached_stops():
    stop = StopCriterion({"episode_reward_mean": 475, "timesteps_total": 500})
    assert stop.reached({"episode_reward_mean": 1.0, "timesteps_total": 499}) is None
    assert stop.reached(RESULT) == "timesteps_total 500 >= 500"
    assert StopCriterion({"info/learner/kl": 0.1}).reached(RESULT) == "info/learner/kl 0.1 >= 0.1"


def test_nan_and_absent_values_reach_nothing():
    stop = StopCriterion({"episode_reward_mean": -1e9, "evaluation/episode_reward_mean": 0})
    assert stop.reached({"episode_reward_mean": math.nan}) is None
    assert stop.progress({"episode_reward_mean": math.nan}) == 0.0


def test_without_thresholds_nothing_stops():
    assert StopCriterion({}).reached(RESULT) is None
    assert StopCriterion({}).progress(RESULT) == 0.0
    assert str(StopCriterion({})) == ""
    assert str(StopCriterion({"a": 1e6, "b": 0.5})) == "a >= 1,000,000 or b >= 0.5"


@pytest.mark.parametrize("threshold", ["high", True, None, math.nan, math.inf])
def test_thresholds_are_finite_numbers(threshold):
    with pytest.raises(ValueError, match="episode_reward_mean needs a number"):
        StopCriterion({"episode_reward_mean": threshold})


def test_progress_counts_steps_from_zero_and_returns_from_the_first_seen():
    stop = StopCriterion({"timesteps_total": 1000})
    assert stop.progress({"timesteps_total": 250}) == 0.25
    stop = StopCriterion({"episode_reward_mean": -100})
    assert stop.progress({"episode_reward_mean": -200.0}) == 0.0
    assert stop.progress({"episode_reward_mean": -125.0}) == 0.75
    assert stop.progress({"episode_reward_mean": -250.0}) == 0.0
    assert stop.progress({"episode_reward_mean": -90.0}) == 1.0


def test_misspelt_keys_are_refused_with_the_nearest():
    with pytest.raises(ValueError, match=r"no episode_reward_men\. Did you mean episode_reward_mean\?"):
        StopCriterion({"episode_reward_men": 475}).check_keys(RESULT)
    StopCriterion({"evaluation/episode_reward_mean": 475, "info/learner/entropy": 1}).check_keys(RESULT)


def test_a_key_that_is_no_number_is_refused():
    criterion = StopCriterion({"date": 5})
    with pytest.raises(ValueError, match=r"date must be a number in the results, but it is '2026"):
        criterion.check_keys({"date": "2026-01-01"})
