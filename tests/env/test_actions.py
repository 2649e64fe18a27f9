"""ActionMapper: policy space to environment space and back."""

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array, iterate
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from rllib import PPOConfig
from rllib.env import ActionMapper, make_stream, resolve
from rllib.env.spaces.actions import action_mapper, bounded_within, of_each, one_by_one, zero_action
from rllib.env.spaces.batches import batch_of
from rllib.models.distributions.bounded_mean import BoundedMeanGaussian
from rllib.models.distributions.choose import distribution_for
from rllib.models.distributions.squashed import SquashedGaussian
from rllib.models.distributions.standard import Deterministic
from tests.env.transitions import Tape
from tests.envs import BoundedAction, SampledEnv

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


@pytest.mark.parametrize("kind", [Deterministic, BoundedMeanGaussian, SquashedGaussian])
@pytest.mark.parametrize("clip", [False, True])
def test_what_tanh_bounds_spans_the_space_without_normalising(kind, clip):
    """A policy could not take most actions of this space, nor learn from them."""
    space = Box(np.array([-2, 0], np.float32), np.array([4, 10], np.float32))
    mapper = action_mapper(space, kind((2,)), normalize_actions=False, clip_actions=clip)
    limits = np.array([[-9, 9], [9, -9]], np.float32)
    np.testing.assert_allclose(mapper.to_env(limits), [[-2, 10], [4, 0]], rtol=1e-5, atol=1e-5)
    assert (mapper.to_policy(np.array([[4, 5]], np.float32)) >= [[1 - 1e-6, 0]]).all()


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


@pytest.mark.parametrize(("clip", "expected"), [(True, [2.0, -1.5]), (False, [3.0, -1.5])])
def test_box_without_dimensions_that_is_not_normalised(clip, expected):
    mapper = ActionMapper(Box(-2, 2, ()), normalize_actions=False, clip_actions=clip)
    assert mapper.to_env(np.float32([3.0, -1.5])).tolist() == expected


@pytest.mark.parametrize("clip", [True, False])
@pytest.mark.parametrize("dtype", [np.float32, np.int8])
def test_a_run_with_a_box_without_dimensions(clip, dtype):
    spaces = {"space": Box(-1, 1, (2,)), "action_space": Box(-50, 50, (), dtype)}
    config = PPOConfig().environment(SampledEnv, env_config=spaces, normalize_actions=False, clip_actions=clip)
    config.rollouts(num_rollout_workers=0)
    config.training(train_batch_size=40, sgd_minibatch_size=40, num_sgd_iter=1, model={"fcnet_hiddens": [8]})
    with config.build() as algo:
        algo.train()
        assert np.shape(algo.compute_single_action(algo.observation_space.sample())) == ()


ONE_SIDED = [
    Box(0, np.inf, (2,)),
    Box(-np.inf, -3, (1,)),
    Box(-np.inf, np.inf, (3,)),
    Box(np.array([0, -np.inf, -1], np.float32), np.array([np.inf, 5, 1], np.float32)),
]


@pytest.mark.parametrize("space", ONE_SIDED, ids=str)
def test_bounds_that_are_advised_lie_within_the_space(space):
    advised = eval(bounded_within(space), {"Box": Box, "np": np})  # as a user would type it
    assert advised.is_bounded() and advised.shape == space.shape
    assert space.contains(advised.low) and space.contains(advised.high)
    assert (advised.low < advised.high).all()


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
    bits = np.array([[0, 1, 1]], np.int8)
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


NESTED = Dict(
    {
        "grip": Tuple([Discrete(3, start=-1), Box(-0.1, 0.1, (2, 1), np.float64)]),
        "arm": Dict(joints=MultiDiscrete([2, 3], start=[5, 0]), steps=Box(-4, 4, (2,), np.int16)),
        "lamps": MultiBinary(2),
    }
)


# Where the numbers of NESTED["grip"][1] lie in a row.
FLOATS_OF_NESTED = slice(5, 7)


def nested_rows(count):
    distribution, rng = distribution_for(NESTED), np.random.default_rng(0)
    inputs = rng.standard_normal((count, distribution.num_inputs), dtype=np.float32)
    return distribution.sample(inputs, distribution.noise(rng, count))


def nested_mapper(*how):
    return action_mapper(NESTED, distribution_for(NESTED), *(how or (True, False)))


def test_structured_actions_lie_in_their_space_and_come_back():
    rows = nested_rows(300)
    assert abs(rows[:, FLOATS_OF_NESTED]).max() > 1  # some are beyond the bounds
    there = nested_mapper().to_env(rows)
    actions = of_each(NESTED, there)
    assert len(actions) == 300 and list(actions[0]) == ["arm", "grip", "lamps"]
    for action in actions:
        assert action in NESTED
    kinds = actions[0]["arm"]["steps"], actions[0]["grip"][1], actions[0]["lamps"], actions[0]["grip"][0]
    assert [kind.dtype for kind in kinds] == [np.int16, np.float64, np.int8, np.int64]
    rows[:, FLOATS_OF_NESTED] = rows[:, FLOATS_OF_NESTED].clip(-1, 1)
    np.testing.assert_allclose(nested_mapper().to_policy(there), rows, atol=1e-6)


def test_actions_of_a_structured_space_are_stored_and_given_back():
    samples = [NESTED.sample() for _ in range(50)]
    batch = concatenate(NESTED, samples, create_empty_array(NESTED, 50))
    again = nested_mapper().to_env(nested_mapper().to_policy(batch))
    for action, back in zip(samples, of_each(NESTED, again), strict=True):
        np.testing.assert_allclose(back["grip"][1], action["grip"][1], rtol=1e-5, atol=1e-8)
        assert back["grip"][0] == action["grip"][0] and (back["lamps"] == action["lamps"]).all()
        assert all((back["arm"][key] == action["arm"][key]).all() for key in ("joints", "steps"))


def test_a_batch_has_the_form_of_gymnasiums_vector_environments():
    rows = nested_rows(4)
    batch = nested_mapper().to_env(rows)
    assert batch in batch_space(NESTED, 4)
    for one, other in zip(iterate(batch_space(NESTED, 4), batch), of_each(NESTED, batch), strict=True):
        np.testing.assert_equal(one, other)
    batch["arm"]["joints"][:] = 99  # environments may change what they get
    np.testing.assert_array_equal(rows, nested_rows(4))


def test_only_floats_are_normalised_and_clipped():
    rows = nested_rows(300)
    plain, clipped = (nested_mapper(False, clip).to_env(rows) for clip in (False, True))
    np.testing.assert_array_equal(plain["grip"][1].reshape(300, 2), rows[:, FLOATS_OF_NESTED])
    np.testing.assert_allclose(clipped["grip"][1], plain["grip"][1].clip(-0.1, 0.1))
    np.testing.assert_equal(clipped["arm"], nested_mapper().to_env(rows)["arm"])


def test_an_action_of_zeros_has_the_form_of_the_space():
    zero = zero_action(NESTED)
    np.testing.assert_equal(zero["grip"], (0, np.zeros((2, 1))))
    assert zero.keys() == NESTED.keys() and zero_action(Discrete(3, start=2)) == 0
    np.testing.assert_array_equal(zero_action(Box(1, 2, (2,))), [0, 0])


@pytest.mark.parametrize(
    "space",
    [
        Discrete(3, start=2),
        MultiDiscrete([2, 3]),
        MultiBinary(3),
        Box(-1.0, 1.0, (2,), np.float64),
        Box(0.0, 1.0, ()),
        Box(-2, 3, (), np.int8),
        MultiBinary(()),
        Tuple((Discrete(2), Box(0.0, 1.0, (2,)))),
        Dict(number=Box(0.0, 1.0, ()), steps=Box(-2, 3, (), np.int8), choice=Discrete(2), bit=MultiBinary(())),
    ],
    ids=str,
)
@pytest.mark.filterwarnings("error")  # of gymnasium, which casts numbers that are no arrays
def test_single_actions_are_of_the_space_and_in_memory_of_their_own(space):
    mapper = action_mapper(space, distribution_for(space), True, False)
    batch = mapper.to_env(mapper.to_policy(batch_of(space, [space.sample(), space.sample()])))
    single = one_by_one(space)(batch)
    assert len(single) == 2 and all(space.contains(action) for action in single)
    drawn = distribution_for(space).mode(np.zeros((2, distribution_for(space).num_inputs), np.float32))
    assert all(space.contains(action) for action in one_by_one(space)(mapper.to_env(drawn)))
    if isinstance(batch, np.ndarray) and space.shape:
        assert single[0].dtype == space.dtype and not np.shares_memory(single, batch)
