"""Rewards of any type of number, written as float32."""

import numpy as np
import pytest

from rllib.env.streams.rewards import write_rewards


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("as_array", [False, True])
@pytest.mark.parametrize(
    "reward",
    [np.uint8(200), np.int8(-100), np.float16(60000), np.float32(3e38), np.float64(-1.5), np.bool_(True), 2, True],
)
def test_narrow_numbers_are_written_as_they_are(reward, as_array):
    """Their sum would overflow in their own type; under `np.errstate(over="raise")`, it would be an error."""
    out, given = np.zeros(4, np.float32), [reward] * 4
    with np.errstate(all="raise"):
        write_rewards(np.array(given) if as_array else given, out)
    np.testing.assert_array_equal(out, np.float32(reward))


@pytest.mark.parametrize(
    ("reward", "told"),
    [
        (np.float16("inf"), "must be finite"),
        (float("nan"), "must be finite"),
        ("1.0", "must be a number"),
        (1j, "must be a number"),
        (None, "must be a number"),
    ],
)
def test_what_is_no_finite_number_is_refused_with_its_environment(reward, told):
    with pytest.raises(ValueError, match=f"environment 7: the reward {told}"):
        write_rewards([1.0, reward, reward], np.zeros(3, np.float32), 6)


def test_what_no_float32_can_hold_is_refused():
    with np.errstate(all="raise"), pytest.raises(ValueError, match=r"in float32 as well, but step\(\) returned 1e\+39"):
        write_rewards([1e39, 1.0], np.zeros(2, np.float32))


def test_opposite_infinities_do_not_cancel():
    with pytest.raises(ValueError, match="environment 0: the reward must be finite"):
        write_rewards([np.inf, -np.inf], np.zeros(2, np.float32))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("reward", [1e39, np.inf, np.nan])
def test_an_array_of_what_no_float32_can_hold_is_refused_without_a_warning(reward):
    with pytest.raises(ValueError, match="environment 1: the reward must be finite, in float32 as well"):
        write_rewards(np.array([1.0, reward]), np.zeros(2, np.float32))
