import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rllib.config.sections import at_least
from rllib.schedules import Schedule, values_of


def test_a_number_is_constant():
    schedule = Schedule(0.3)
    assert schedule(0) == schedule(10**9) == 0.3


def test_points_are_joined_by_lines_and_the_last_value_stays():
    schedule = Schedule([[0, 1.0], [100, 0.0], [200, 0.5]])
    assert [schedule(t) for t in (-5, 0, 25, 100, 150, 200, 10_000)] == [1.0, 1.0, 0.75, 0.0, 0.25, 0.5, 0.5]


def test_numpy_steps_and_tuples_are_fine():
    assert Schedule(((0, 1), (4, 0)))(1) == 0.75


LINEAR = {"type": "linear", "initial": 0.5, "final": 0.1, "timesteps": 100}
EXPONENTIAL = {"type": "exponential", "initial": 0.5, "decay_rate": 0.01, "timesteps": 100}


def test_a_line_ends_and_an_exponential_goes_on():
    linear, exponential = Schedule(LINEAR), Schedule(EXPONENTIAL)
    assert [linear(t) for t in (-5, 0, 25, 100, 10_000)] == pytest.approx([0.5, 0.5, 0.4, 0.1, 0.1])
    assert [exponential(t) for t in (-5, 0, 50, 100, 200)] == pytest.approx([0.5, 0.5, 0.05, 0.005, 5e-5])


def test_piecewise_is_what_points_are():
    points = [[0, 1.0], [100, 0.0]]
    assert Schedule({"type": "piecewise", "points": points})(25) == Schedule(points)(25) == 0.75


def test_a_function_of_the_timestep():
    assert Schedule(lambda timestep: 1 / (1 + timestep))(3) == 0.25
    with pytest.raises(ValueError, match="must return a number, but gave None at 7"):
        Schedule(lambda timestep: None if timestep else 1.0)(7)


@pytest.mark.parametrize("number", [math.inf, np.float32("inf"), np.float64("nan"), np.float16("inf"), 10**400])
def test_numbers_that_are_not_finite_are_refused(number):
    for value in (number, [[0, number]], lambda timestep: number):
        with pytest.raises(ValueError, match="a schedule must "):
            Schedule(value)


@pytest.mark.filterwarnings("error")
def test_numpy_numbers_are_numbers():
    assert Schedule(lambda timestep: np.float32(0.5))(3) == Schedule(np.float16(0.5))(3) == Schedule(np.int8(1))(0) / 2


def test_a_function_keeps_to_what_is_allowed():
    falling = Schedule(lambda timestep: 1e-3 * (1 - timestep / 100), "lr", at_least(0))
    assert falling(100) == 0
    with pytest.raises(ValueError, match=r"^lr=<function .* must return a number >= 0, but gave -0.001 at 200 "):
        falling(200)


@pytest.mark.parametrize(
    "function",
    [
        lambda share: share * 1e-3,
        lambda share: 1e-4 + 9e-4 * share,
        lambda share: (1 - share) * 0.1,
        lambda share: max(share, 0.1) * 1e-3,
        lambda share: share**0.5,
        lambda share: 1e-3 if share > 0.5 else 1e-4,
        lambda share: 1e-3 * math.exp(5 * (share - 1)),
        lambda share: 5e-4 * (1 - math.cos(math.pi * share)),
    ],
)
def test_a_function_of_the_remaining_share_of_the_run_is_refused(function):
    with pytest.raises(ValueError, match=r"must be a function of the number of sampled steps, .*Stable-Baselines3"):
        Schedule(function)


@pytest.mark.parametrize(
    "function",
    [
        lambda t: 1e-3 * (1 - t / 1e6),
        lambda t: 1e-3 * max(0, 1 - t / 1e6),
        lambda t: 1e-3 * min(1, t / 1e5),
        lambda t: 1e-3 * math.exp(-t / 1e5),
        lambda t: 1e-3 if t < 1e5 else 1e-4,
        lambda t: (1 + t) ** -0.5,
        lambda t: [0.3, 0.2, 0.1][t],
        lambda t: 0,
    ],
)
def test_a_function_of_the_steps_is_taken(function):
    assert Schedule(function)(0) == function(0)


def test_the_numbers_of_each_form():
    assert values_of(0.3) == [0.3]
    assert values_of([[0, 1.0], [5, 2.0]]) == values_of({"type": "piecewise", "points": [[0, 1.0], [5, 2.0]]}) == [1, 2]
    assert values_of(LINEAR) == [0.5, 0.1]
    assert values_of(EXPONENTIAL) == [0.5]
    assert values_of(lambda timestep: timestep + 2.0) == [2.0]


@pytest.mark.parametrize(
    ("value", "rule"),
    [
        ({"type": "cosine"}, "must have as its 'type' one of linear, exponential, piecewise, not 'cosine'"),
        ({"initial": 1.0}, "must have as its 'type' one of"),
        ({"type": "linear", "initial": 1.0}, "of type 'linear' must have initial, final, timesteps, not initial"),
        ({**LINEAR, "start": 3}, "of type 'linear' must have initial, final, timesteps, not"),
        ({**LINEAR, "final": "0"}, "must have a number as its 'final', not '0'"),
        ({**LINEAR, "timesteps": 0}, "must have a positive number as its 'timesteps', not 0"),
        ({**EXPONENTIAL, "decay_rate": -1.0}, "must have a positive number as its 'decay_rate'"),
        ({"type": "piecewise", "points": [[1, 0.5]]}, "must start at timestep 0, not at 1"),
        ({"type": "piecewise", "points": 3}, "must have points"),
        (lambda timestep: "0.1", "must return a number for each timestep, not '0.1'"),
        (lambda timestep: 1 / timestep, "at 0 it raised ZeroDivisionError"),
        (lambda: 0.1, "at 0 it raised TypeError"),
        ([[1, 0.5], [2, 0.1]], "must start at timestep 0, not at 1"),
        ([[0, 0.5], [10, 0.1], [10, 0.2]], "must have increasing timesteps, but 10 follows 10"),
        ([0.1, 0.2], "must have points of two numbers"),
        ([[0, 0.1, 0.2]], "must have points of two numbers"),
        ([[0, "0.1"]], "must have points of two numbers"),
        ([[0, float("nan")]], "must have points of two numbers"),
        ([], "must be a number or points"),
        ("0.1", "must be a number or points"),
        (True, "must be a number or points"),
        (None, "must be a number or points"),
    ],
)
def test_what_is_no_schedule_is_refused_with_the_rule(value, rule):
    with pytest.raises(ValueError, match=rule):
        Schedule(value)


values = st.floats(-1e6, 1e6)


@settings(deadline=None)
@given(st.dictionaries(st.integers(1, 10**7), values, max_size=6), values, st.integers(0, 2 * 10**7))
def test_values_stay_between_the_neighbouring_points(later, first, timestep):
    points = [[0, first], *([t, later[t]] for t in sorted(later))]
    value = Schedule(points)(timestep)
    before = [v for t, v in points if t <= timestep][-1]
    after = next((v for t, v in points if t >= timestep), before)
    assert min(before, after) - 1e-6 <= value <= max(before, after) + 1e-6
    assert all(Schedule(points)(t) == v for t, v in points)
