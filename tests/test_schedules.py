import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rllib.schedules import Schedule


def test_a_number_is_constant():
    schedule = Schedule(0.3)
    assert schedule(0) == schedule(10**9) == 0.3


def test_points_are_joined_by_lines_and_the_last_value_stays():
    schedule = Schedule([[0, 1.0], [100, 0.0], [200, 0.5]])
    assert [schedule(t) for t in (-5, 0, 25, 100, 150, 200, 10_000)] == [1.0, 1.0, 0.75, 0.0, 0.25, 0.5, 0.5]


def test_numpy_steps_and_tuples_are_fine():
    assert Schedule(((0, 1), (4, 0)))(1) == 0.75


@pytest.mark.parametrize(
    ("value", "rule"),
    [
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
