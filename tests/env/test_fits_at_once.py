"""The quick check of observations and actions says yes only where the whole check finds nothing."""

import gymnasium
import numpy as np
import pytest

from rllib.env.spaces.supported import fits_at_once, mismatch, too_large

FLOATS, BYTES = gymnasium.spaces.Box(-1, 1, (2,)), gymnasium.spaces.Box(0, 255, (2,), np.uint8)
DOUBLES, CHOICE = gymnasium.spaces.Box(-1, 1, (2,), np.float64), gymnasium.spaces.Discrete(3, start=1)
USUAL = [
    (FLOATS, np.array([0.5, 7.0], np.float32)),
    (FLOATS, np.array([0.5, 7.0])),
    (FLOATS, [0.5, 1]),
    (FLOATS, [0, 1]),
    (DOUBLES, [0.5, 1e8]),
    (BYTES, np.array([0, 255], np.uint8)),
    (CHOICE, 1),
    (CHOICE, 3),
]
OTHERS = [
    *[(FLOATS, value) for value in ([np.nan, 0.0], [0.0, np.inf], [1e39, 0.0], [1e30, 0.0])],
    *[(FLOATS, value) for value in ([10**18, 0], np.array([0, -(2**63)]), np.array([2**63, 0], np.uint64))],
    *[(FLOATS, value) for value in ([0.0], "ab", ["a", "b"], [[0.0], [0]])],
    *[(FLOATS, value) for value in ([[0.0], [0.0, 1.0]], None, {"a": 1}, np.float32(1))],
    (BYTES, [0, 256]),
    (BYTES, np.array([0.5, 1.0])),
    *[(CHOICE, value) for value in (0, 4, 1.5, True, None)],
    (gymnasium.spaces.Dict(a=FLOATS), {"a": [0.0, 0.0]}),
]


@pytest.mark.parametrize("space, value", USUAL)
def test_usual_values_fit_at_once(space, value):
    assert fits_at_once(space, value, bounded=False)
    assert mismatch(space, value, bounded=False) is None and too_large(space, value, "observation") is None


@pytest.mark.parametrize("bounded", [True, False])
@pytest.mark.parametrize("space, value", OTHERS)
def test_others_are_left_to_the_whole_check(space, value, bounded):
    assert not fits_at_once(space, value, bounded=bounded)


def test_bounds_are_left_to_the_whole_check():
    assert not fits_at_once(FLOATS, np.array([0.5, 7.0], np.float32))
