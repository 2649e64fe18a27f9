"""Welch's test against closed forms, and the canary's decisions on returns that are known."""

import math

import pytest

from rllib.serving.learning.arms import is_canary
from rllib.serving.learning.canary import Trial, Verdict
from rllib.serving.learning.welch import Sample, p_greater, t_tail


@pytest.mark.parametrize("t", [-3.0, -0.5, 0.0, 0.7, 2.0, 40.0])
def test_the_tail_has_its_closed_forms(t):
    assert t_tail(t, 1) == pytest.approx(0.5 - math.atan(t) / math.pi, rel=1e-9)  # Cauchy
    assert t_tail(t, 2) == pytest.approx(0.5 - t / (2 * math.sqrt(2 + t * t)), rel=1e-9, abs=1e-12)
    normal = 0.5 * math.erfc(t / math.sqrt(2))
    assert t_tail(t, 1e7) == pytest.approx(normal, rel=1e-4, abs=1e-12)


def test_the_tail_has_the_tables_quantiles():
    for freedom, quantile in ((5, 2.015), (10, 1.812), (30, 1.697)):
        assert t_tail(quantile, freedom) == pytest.approx(0.05, abs=1e-4)


def test_welch_by_hand():
    first, second = Sample.of([1, 2, 3, 4, 5]), Sample.of([2, 4, 6])
    assert (first.mean, first.variance, second.mean, second.variance) == (3, 2.5, 4, 4)
    # t = -1 / sqrt(1/2 + 4/3); f = (11/6)^2 / (1/16 + 8/9)
    freedom = (11 / 6) ** 2 / (0.25 / 4 + (16 / 9) / 2)
    assert p_greater(first, second) == pytest.approx(t_tail(-1 / math.sqrt(11 / 6), freedom))
    assert p_greater(first, second, shift=1.0) == 0.5
    assert p_greater(first, second) + p_greater(second, first) == pytest.approx(1)


def test_without_variance_the_means_decide():
    low, high = Sample.of([1, 1]), Sample.of([2, 2])
    assert (p_greater(high, low), p_greater(low, high), p_greater(low, low)) == (0, 1, 0.5)


def test_one_value_is_not_enough():
    with pytest.raises(ValueError, match="needs two values of each, but there are 1 and 2"):
        p_greater(Sample.of([1]), Sample.of([1, 2]))


def verdict_of(candidate, served, episodes=10, margin=0.25):
    """The verdict on returns that come in turn, and the number of episodes of the candidate until it."""
    trial = Trial(1, episodes, margin)
    for number, (one, other) in enumerate(zip(candidate, served), start=1):
        for total, is_candidate in ((other, False), (one, True)):
            if (verdict := trial.add(total, is_candidate)) is not None:
                return verdict, number
    return None, len(candidate)


SPREAD = [9, 11] * 40  # mean 10, deviation 1


def test_a_better_candidate_is_promoted_at_the_first_look():
    assert verdict_of([each + 5 for each in SPREAD], SPREAD) == (Verdict.PROMOTE, 10)


def test_a_worse_candidate_is_dropped_at_the_first_look():
    assert verdict_of([each - 5 for each in SPREAD], SPREAD) == (Verdict.DROP, 10)


def test_an_equal_one_is_promoted_when_the_margin_can_be_shown():
    # t = margin * s / sqrt(2 s^2 / n) must reach 2.3 or so (1.25 %): n = 2 (2.3 / margin)^2; a margin of 1: n > 10.
    assert verdict_of(SPREAD, SPREAD, margin=1.0) == (Verdict.PROMOTE, 20)
    # With a margin of a quarter n would be 170, beyond the last look.
    assert verdict_of(SPREAD, SPREAD, margin=0.25) == (Verdict.DROP, 40)


def test_equal_returns_without_variance_are_promoted():
    assert verdict_of([500] * 40, [500] * 40) == (Verdict.PROMOTE, 10)


def test_one_enormous_reward_promotes_nobody():
    worse = [each - 0.5 for each in SPREAD]
    worse[3] = 1e9
    assert verdict_of(worse, SPREAD) == (Verdict.DROP, 40)


def test_the_canary_has_its_share_of_the_episodes():
    ids = [f"episode {number}" for number in range(10_000)]
    chosen = [each for each in ids if is_canary(each, b"key", 0.1)]
    assert abs(len(chosen) - 1000) < 5 * math.sqrt(900)
    assert chosen == [each for each in ids if is_canary(each, b"key", 0.1)]
    assert set(chosen) < {each for each in ids if is_canary(each, b"key", 0.2)}
    assert chosen != [each for each in ids if is_canary(each, b"another", 0.1)]
