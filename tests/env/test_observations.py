"""How observations become rows: against gymnasium.spaces.flatten, one by one."""

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.spaces import Box, Discrete
from gymnasium.vector.utils import concatenate, create_empty_array

from rllib.env.spaces.observations import observation_column

BYTES = [
    spaces.MultiDiscrete([3, 2, 4]),
    spaces.MultiDiscrete([[3, 2], [4, 2]], start=[[1, 0], [0, -2]]),
    spaces.MultiDiscrete([3, 200], dtype=np.uint8),
    spaces.MultiDiscrete([3, 2], dtype=np.uint32, start=[1, 0]),
    spaces.MultiBinary(3),
    spaces.MultiBinary([2, 2]),
    spaces.Dict(b=Discrete(2), a=spaces.Dict(y=Box(0, 255, (2, 3), np.uint8), x=spaces.MultiBinary(2))),
    spaces.Tuple([Box(0, 1, (2,), np.bool_), spaces.MultiDiscrete([2, 300])]),
]
FLOATS = [
    spaces.Tuple([Discrete(3, start=2), Box(-1, 1, (2, 2), np.float64)]),
    spaces.Tuple(
        [Box(-1, 1, ()), spaces.Tuple([Box(0, 255, (2, 2, 3), np.uint8), Discrete(4)]), Box(-9, 9, (2,), np.int64)]
    ),
    spaces.Dict(a=Box(-1, 1, (3,)), b=spaces.Dict(c=spaces.Tuple([Discrete(2), Discrete(3)]), d=Box(0, 1, (1, 2)))),
]


@pytest.mark.parametrize("space", BYTES + FLOATS, ids=str)
def test_composite_spaces_are_flattened_like_gymnasium_does(space):
    space.seed(3)
    samples = [space.sample() for _ in range(5)]
    column = observation_column(space)
    dtype = np.uint8 if space in BYTES else np.float32
    wanted = np.array([spaces.flatten(space, sample) for sample in samples]).astype(dtype)
    assert (column.shape, column.dtype) == (wanted.shape[1:], dtype)
    rows = np.full((len(samples), 2, *column.shape), 99, dtype)  # as in a fragment, rows do not touch
    column.write_rows(samples, rows[:, 1])
    np.testing.assert_array_equal(rows[:, 1], wanted)
    assert (rows[:, 0] == 99).all()
    np.testing.assert_array_equal(column.row(samples[2]), wanted[2])
    batch = np.empty_like(wanted)
    column.write_batch(_batched(space, samples), batch)
    np.testing.assert_array_equal(batch, wanted)


def _batched(space, samples):
    """As a VectorEnv hands them out."""
    return concatenate(space, samples, create_empty_array(space, len(samples)))


@pytest.mark.parametrize(
    ("space", "shape", "dtype"),
    [
        (Box(0, 255, (4, 3, 2), np.uint8), (4, 3, 2), np.uint8),
        (Box(-1, 1, (3,), np.float32), (3,), np.float32),
        (Box(-1, 1, (3,), np.float64), (3,), np.float32),
        (Box(-9, 9, (3,), np.int64), (3,), np.int64),
        (Box(-1, 1, ()), (), np.float32),
        (Discrete(5, start=3), (), np.int64),
    ],
)
def test_plain_spaces_keep_shape_and_type(space, shape, dtype):
    column = observation_column(space)
    assert (column.shape, column.dtype) == (shape, dtype)
    space.seed(3)
    samples = [space.sample() for _ in range(4)]
    rows = np.empty((4, *shape), dtype)
    column.write_rows(samples, rows)
    np.testing.assert_array_equal(rows, np.array(samples).astype(dtype))
    batch = np.empty_like(rows)
    column.write_batch(np.array(samples), batch)
    np.testing.assert_array_equal(batch, rows)
    row = column.row(samples[1])
    assert (row.shape, row.dtype) == (shape, dtype)
    assert not np.shares_memory(row, samples[1])


@pytest.mark.parametrize("num_rows", [1, 5, 12, 13, 40])
@pytest.mark.parametrize("space", [Box(-1, 1, (4,), np.float64), Box(0, 255, (3, 2, 2), np.uint8)], ids=str)
def test_any_number_of_rows_in_any_form(num_rows, space):
    column = observation_column(space)
    space.seed(num_rows)
    samples = [space.sample() for _ in range(num_rows)]
    wanted = np.array(samples).astype(column.dtype)
    wide = np.zeros((num_rows, 3, *column.shape), column.dtype)
    for out in (np.zeros_like(wanted), wide[:, 1]):
        column.write_rows([sample.tolist() if i % 2 else sample for i, sample in enumerate(samples)], out)
        np.testing.assert_array_equal(out, wanted)


@pytest.mark.parametrize("num_rows", [2, 20])
def test_rows_that_differ_in_shape_are_refused(num_rows):
    column = observation_column(Box(-1, 1, (4,)))
    with pytest.raises(ValueError):
        column.write_rows([np.zeros(1), *[np.zeros(4)] * (num_rows - 1)], np.empty((num_rows, 4), np.float32))


def test_composite_observations_may_be_lists_and_python_numbers():
    space = spaces.Dict(a=Box(-1, 1, (2, 2)), b=Discrete(3, start=1), c=spaces.MultiDiscrete([2, 3]))
    given = {"a": [[0.5, 0], [1, -1]], "b": 2.0, "c": [1, np.int8(2)]}
    np.testing.assert_array_equal(observation_column(space).row(given), [0.5, 0, 1, -1, 0, 1, 0, 0, 1, 0, 0, 1])


@pytest.mark.parametrize("given", [{"a": 0, "b": [0, 0]}, {"a": 4, "b": [0, 0]}, {"a": 1, "b": [0, 3]}], ids=str)
def test_a_choice_outside_of_its_space_does_not_become_another(given):
    space = spaces.Dict(a=Discrete(3, start=1), b=spaces.MultiDiscrete([2, 3]))
    with pytest.raises(ValueError, match="outside its space"):
        observation_column(space).row(given)
