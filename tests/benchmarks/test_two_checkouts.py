"""The comparison of two checkouts says which one is slower, for rates and for times."""

import pytest
from two_checkouts import line


@pytest.mark.parametrize(
    ("unit", "less_is_better", "this", "verdict"),
    [
        ("env steps/s", False, 80.0, "slower"),
        ("env steps/s", False, 120.0, "faster"),
        ("ms", True, 120.0, "slower"),
        ("ms", True, 80.0, "faster"),
        ("ms", True, 103.0, "same"),
    ],
)
def test_a_figure_is_called_slower_by_its_unit(unit, less_is_better, this, verdict):
    assert line("what", unit, less_is_better, [(this, 100.0)] * 3)[-1] == verdict


def test_the_ratio_is_the_median_of_the_rounds_and_the_spread_their_ends():
    what, unit, ours, other, ratio, spread, _ = line("calls", "1/s", False, [(1.0, 1.0), (9.0, 3.0), (4.0, 2.0)])
    assert (what, unit, ours, other, ratio, spread) == ("calls", "1/s", "4", "2", "2.00", "1.00-3.00")
