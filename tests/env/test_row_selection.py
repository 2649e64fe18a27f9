"""Rows of one space out of those of another one that has more parts, and their structure."""

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple
from gymnasium.vector.utils import concatenate, create_empty_array

from rllib.env.spaces.observations import observation_column
from rllib.env.spaces.row_selection import RowSelection, structured

ARM, SEEN = Box(-1, 1, (2,), np.float32), Box(0, 255, (2, 2), np.uint8)
WHOLE = Dict({
    "arm": ARM, "camera": SEEN, "goal": Discrete(3, start=2), "modes": MultiDiscrete([2, 3]), "on": MultiBinary(2),
    "pair": Tuple((Box(0, 1, (), np.float64), Discrete(2))),
})  # fmt: skip


def drawn(space, count=4):
    space.seed(0)
    return [space.sample() for _ in range(count)]


def rows_of(space, observations):
    return np.stack([observation_column(space).row(each) for each in observations])


@pytest.mark.parametrize("keys", [["arm"], ["camera"], ["pair", "goal"], ["on", "modes", "arm"], list(WHOLE.spaces)])
def test_parts_by_their_keys(keys):
    wanted, observations = Dict({key: WHOLE[key] for key in keys}), drawn(WHOLE)
    select = RowSelection(WHOLE, wanted)
    parts = [{key: each[key] for key in keys} for each in observations]
    found = select(rows_of(WHOLE, observations))
    np.testing.assert_array_equal(found, rows_of(wanted, parts))
    assert (found.dtype, found.shape[1:]) == (select.dtype, select.shape)
    assert select.takes_all is (len(keys) == len(WHOLE.spaces))


def test_the_whole_of_an_observation_under_a_key():
    """As adapters put it, in the space that is given, or in the one that is wanted."""
    outer = Dict({"observations": ARM, "action_mask": Box(0, 1, (2,), np.float32)})
    rows = rows_of(outer, drawn(outer))
    np.testing.assert_array_equal(RowSelection(outer, ARM)(rows), rows[:, 2:])
    nested, inner = Dict({"observations": WHOLE, "prev_rewards": Box(-1, 1, (1,))}), Dict({"goal": WHOLE["goal"]})
    observations = drawn(nested)
    found = RowSelection(nested, inner)(rows_of(nested, observations))
    np.testing.assert_array_equal(found, rows_of(inner, [each["observations"] for each in observations]))


def test_the_whole_of_an_observation_under_a_key_of_its_own():
    """Where the wanted observations have no keys, or others."""
    given = Dict({"seen": ARM, "whole": Box(-1, 1, (3,), np.float32)})
    rows = rows_of(given, drawn(given))
    np.testing.assert_array_equal(RowSelection(given, Box(-1, 1, (3,), np.float32), "whole")(rows), rows[:, 2:])
    with pytest.raises(ValueError, match="there is no observation"):
        RowSelection(given, Box(-1, 1, (3,), np.float32))
    image = Dict({"picture": SEEN, "seen": ARM})
    observations = drawn(image)
    found = RowSelection(image, SEEN, "picture")(rows_of(image, observations))
    np.testing.assert_array_equal(found, [each["picture"] for each in observations])
    assert found.dtype == np.uint8


def test_other_bounds_are_the_same_observations():
    assert RowSelection(ARM, Box(-np.inf, np.inf, (2,), np.float32)).takes_all
    assert RowSelection(Box(-1, 1, (2,), np.float64), ARM)(np.zeros((3, 2), np.float32)).dtype == np.float32


@pytest.mark.parametrize(
    ("given", "wanted", "named"),
    [
        (WHOLE, Dict({"leg": ARM}), "leg"),
        (WHOLE, Dict({"arm": Box(-1, 1, (3,))}), "arm"),
        (WHOLE, Dict({"goal": Discrete(4, start=2)}), "goal"),
        (WHOLE, Dict({"goal": Discrete(3)}), "goal"),
        (WHOLE, ARM, "there is no observation"),
        (ARM, Dict({"arm": ARM}), "they are Box"),
        (ARM, Box(-1, 1, (3,)), "they are Box"),
        (Discrete(3), Discrete(4), "they are Discrete"),
        (Dict({"observations": Discrete(3), "m": ARM}), Discrete(3), "they are Dict"),
    ],
)
def test_what_is_not_there(given, wanted, named):
    with pytest.raises(ValueError, match=named):
        RowSelection(given, wanted)


@pytest.mark.parametrize("space", [WHOLE, Tuple((WHOLE, ARM)), ARM, SEEN, Discrete(3, start=2), MultiDiscrete([2, 3])])
def test_structure_of_rows(space):
    observations = drawn(space)
    found = structured(space, rows_of(space, observations))
    expected = concatenate(space, observations, create_empty_array(space, 4))

    def same(one, other):
        if isinstance(other, dict):
            return one.keys() == other.keys() and all(same(one[key], other[key]) for key in other)
        if isinstance(other, tuple):
            return len(one) == len(other) and all(map(same, one, other))
        return np.allclose(one, other) and one.shape == other.shape

    assert same(found, expected)
