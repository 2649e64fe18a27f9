"""ActionMapper: policy space to environment space and back."""

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete, MultiBinary, MultiDiscrete
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from rllib.env import ActionMapper, make_stream, resolve
from rllib.env.actions import action_mapper
from rllib.models.action_distributions import distribution_for
from tests.env.transitions import Tape
from tests.envs import BoundedAction

FLOATS = (np.float32, np.float64)


@st.composite
def bounded_boxes(draw):
    dtype, width = draw(st.sampled_from(FLOATS)), st.floats(1e-3, 1e4)
    size = draw(st.integers(1, 4))
    low = np.array(draw(st.lists(st.floats(-1e4, 1e4), min_size=size, max_size=size)))
    high = low + np.array(draw(st.lists(width, min_size=size, max_size=size)))
    return Box(low.astype(dtype), high.astype(dtype), dtype=dtype)


def policy_actions(size, limit=1.0):
    return arrays(np.float32, (3, size), elements=st.floats(-limit, limit, width=32))


@settings(max_examples=150, deadline=None)
@given(st.data(), bounded_boxes())
def test_round_trip_in_the_policy_space(data, space):
    mapper = ActionMapper(space)
    actions = data.draw(policy_actions(space.shape[0]))
    there = mapper.to_env(actions)
    assert there.dtype == space.dtype
    # float32 holds an action of magnitude m to 1e-7 m; seen from [-1, 1] that is relative to half the range.
    half_range = (space.high.astype(float) - space.low) / 2
    resolution = 4 * np.finfo(np.float32).eps * (1 + np.maximum(abs(space.low), abs(space.high)) / half_range)
    np.testing.assert_array_less(abs(mapper.to_policy(there) - actions), np.broadcast_to(resolution, actions.shape))


@settings(max_examples=150, deadline=None)
@given(st.data(), bounded_boxes())
def test_whatever_the_policy_draws_lies_within_the_bounds(data, space):
    for action in ActionMapper(space).to_env(data.draw(policy_actions(space.shape[0], limit=2.0**100))):
        assert space.contains(action)


@settings(max_examples=100, deadline=None)
@given(st.data(), bounded_boxes())
def test_ends_of_the_policy_space_are_the_bounds(data, space):
    ends = ActionMapper(space).to_env(np.array([[-1.0], [1.0]], np.float32) * np.ones(space.shape, np.float32))
    np.testing.assert_allclose(ends, [space.low, space.high], rtol=1e-6, atol=1e-9 + 1e-6 * np.abs(space.high).max())


def test_largest_bounds_do_not_overflow():
    for dtype in FLOATS:
        limit = np.finfo(dtype).max
        space = Box(-limit, limit, (2,), dtype)
        mapped = ActionMapper(space).to_env(np.array([[-1, 1], [0, 0.5]], np.float32))
        assert np.isfinite(mapped).all()
        np.testing.assert_allclose(mapped[0], [-limit, limit], rtol=1e-6)


def test_bounds_between_two_float32_are_kept_in_float64():
    space = Box(np.array([-0.1]), np.array([0.1]), dtype=np.float64)
    for normalize in (True, False):
        mapped = ActionMapper(space, normalize, clip_actions=True).to_env(np.array([[1.0], [-1.0]], np.float32))
        assert mapped.tolist() == [[0.1], [-0.1]]


MIXED = Box(
    np.array([0, -np.inf, -np.inf, 2], np.float32),
    np.array([10, np.inf, 3, np.inf], np.float32),
)


def test_components_without_two_bounds_keep_their_values():
    mapped = ActionMapper(MIXED).to_env(np.array([[0.4, 77, -50, 60], [9, -77, 50, -60]], np.float32))
    np.testing.assert_allclose(mapped, [[7, 77, -50, 60], [10, -77, 3, 2]], rtol=1e-6)


def test_without_normalising_actions_pass_or_are_clipped():
    actions = np.array([[20, 77, 50, 0]], np.float32)
    assert ActionMapper(MIXED, normalize_actions=False).to_env(actions) is actions
    clipped = ActionMapper(MIXED, normalize_actions=False, clip_actions=True).to_env(actions)
    assert clipped.tolist() == [[10, 77, 3, 2]]


def test_stored_actions_stay_as_they_were_drawn():
    actions = np.array([[5.0, 0, 0, 5]], np.float32)
    drawn = actions.copy()
    ActionMapper(MIXED).to_env(actions)
    np.testing.assert_array_equal(actions, drawn)


def test_bounds_that_coincide():
    mapper = ActionMapper(Box(np.float32(3), np.float32(3), (1,)))
    assert mapper.to_env(np.array([[0.3]], np.float32)).tolist() == [[3.0]]
    assert np.isfinite(mapper.to_policy(np.array([[3.0]], np.float32))).all()


def test_integer_boxes_are_rounded():
    mapped = ActionMapper(Box(0, 10, (1,), np.int32)).to_env(np.array([[-1], [0.11], [1]], np.float32))
    assert mapped.dtype == np.int32
    assert mapped.ravel().tolist() == [0, 6, 10]


def test_box_without_dimensions_and_with_two():
    assert ActionMapper(Box(0, 10, ())).to_env(np.float32([0.4])).tolist() == pytest.approx([7])
    assert ActionMapper(Box(0, 10, (2, 3))).to_env(np.zeros((5, 2, 3), np.float32)).shape == (5, 2, 3)


def test_the_values_of_integer_boxes_are_counted_from_the_lowest():
    space = Box(np.array([[-2, 5], [250, 0]]), np.array([[3, 5], [255, 1]]), dtype=np.int16)
    distribution = distribution_for(space)
    assert distribution.sizes == (6, 1, 6, 2) and distribution.action_shape == (2, 2)
    mapper = action_mapper(space, distribution, True, False)
    actions = np.array([[[0, 0], [5, 1]], [[5, 0], [0, 0]]])
    mapped = mapper.to_env(actions)
    assert mapped.tolist() == [[[-2, 5], [255, 1]], [[3, 5], [250, 0]]] and mapped.dtype == np.int16
    np.testing.assert_array_equal(mapper.to_policy(mapped), actions)
    assert mapper.policy_bounds is None


@given(st.integers(-5, 5), st.integers(1, 6))
def test_discrete_starts(start, n):
    mapper = ActionMapper(Discrete(n, start=start))
    actions = np.arange(n)
    there = mapper.to_env(actions)
    assert there.tolist() == list(range(start, start + n))
    assert mapper.to_policy(there).tolist() == actions.tolist()


def test_multi_discrete_starts_and_binaries():
    mapper = ActionMapper(MultiDiscrete([2, 3], start=[5, -1]))
    there = mapper.to_env(np.array([[0, 0], [1, 2]]))
    assert there.tolist() == [[5, -1], [6, 1]]
    assert mapper.to_policy(there).tolist() == [[0, 0], [1, 2]]
    bits = np.array([[0, 1, 1]])
    assert ActionMapper(MultiBinary(3)).to_env(bits) is bits


def test_nothing_is_copied_where_nothing_is_done():
    actions = np.array([0, 1, 1])
    assert ActionMapper(Discrete(2)).to_env(actions) is actions


def test_environments_see_only_actions_of_their_space():
    """P12 raises outside [0, 10]; seven is its best action."""
    with make_stream(resolve(BoundedAction), num_envs=3, seeds=[0, 1, 2]) as stream:
        tape = Tape(stream)
        tape.reset()
        mapper = ActionMapper(stream.action_space)
        tape.step(mapper.to_env(np.array([[0.4], [-900], [900]], np.float32)))
        assert tape.rewards.tolist() == pytest.approx([0, -4.9, -0.9], abs=1e-5)
