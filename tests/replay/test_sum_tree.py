"""The sum tree: sums, draws, and that neither drifts nor leaves the places that have a weight."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rllib.replay.sum_tree import TOP, SumTree

CAPACITIES = [1, 2, 3, 7, 64, 1000, TOP - 1, TOP, TOP + 1, 3 * TOP + 5, 20_000]


def filled(capacity, seed=0):
    """A tree with random weights, a third of them 0, and the weights."""
    rng = np.random.default_rng(seed)
    weights = rng.exponential(size=capacity) * (rng.random(capacity) < 2 / 3)
    weights[rng.integers(capacity)] = 1.0
    tree = SumTree(capacity)
    tree.set(np.arange(capacity), weights)
    return tree, weights


def expected_places(weights, fractions):
    """What a draw means: the first place whose running sum exceeds the fraction of the total."""
    ends = np.cumsum(weights)
    return np.searchsorted(ends, fractions * ends[-1], side="right")


@pytest.mark.parametrize("capacity", CAPACITIES)
def test_draws_are_those_of_running_sums(capacity):
    tree, weights = filled(capacity)
    fractions = np.random.default_rng(1).random(5000)
    drawn, expected = tree.draw(fractions), expected_places(weights, fractions)
    # Sums in another order are rounded differently: a draw at the very edge may fall on the neighbour.
    assert np.mean(drawn != expected) < 1e-3
    assert (weights[drawn] > 0).all()


@pytest.mark.parametrize("capacity", CAPACITIES)
def test_the_ends_of_the_total_are_in_range(capacity):
    tree, weights = filled(capacity)
    tiny = np.finfo(float).eps
    drawn = tree.draw(np.array([0.0, tiny, 1 - tiny / 2, 1 - tiny, np.nextafter(1.0, 0.0)]))
    with_weight = np.flatnonzero(weights)
    assert drawn[0] == with_weight[0]
    assert set(drawn[2:].tolist()) <= set(with_weight[-2:].tolist())


@pytest.mark.parametrize("capacity", CAPACITIES)
def test_a_single_weight_is_always_drawn(capacity):
    for place in {0, capacity // 2, capacity - 1}:
        tree = SumTree(capacity)
        tree.set(np.array([place]), 1e-300)
        assert set(tree.draw(np.linspace(0, 1, 50, endpoint=False)).tolist()) == {place}


def test_nothing_to_draw_from():
    with pytest.raises(ValueError, match="every weight is 0"):
        SumTree(10).draw(np.array([0.5]))


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 5000),
    st.lists(
        st.tuples(st.booleans(), st.integers(0, 10**6), st.integers(1, 300), st.integers(0, 2**32 - 1)), max_size=12
    ),
)
def test_any_sequence_of_changes_leaves_the_sums_of_the_weights(capacity, changes):
    """Scattered ones, with repetitions, and ranges; weights over twelve orders of magnitude, and zeros."""
    tree, weights = SumTree(capacity), np.zeros(capacity)
    for is_range, place, count, seed in changes:
        rng = np.random.default_rng(seed)
        new = 10 ** rng.uniform(-6, 6, count) * rng.integers(2, size=count)
        if is_range:
            start = place % capacity
            new = new[: capacity - start]
            tree.set_range(start, new)
            weights[start : start + len(new)] = new
        else:
            places = rng.integers(capacity, size=count)
            tree.set(places, new)
            for position, value in zip(places, new):
                weights[position] = value
    assert np.array_equal(tree[:], weights)
    np.testing.assert_allclose(tree.total, weights.sum(), rtol=1e-12)
    if weights.any():
        assert (weights[tree.draw(np.random.default_rng(0).random(200))] > 0).all()


def test_a_million_changes_do_not_drift():
    """Huge weights come and go; what is left is the exact sum of the small ones."""
    tree, rng = SumTree(5000), np.random.default_rng(0)
    for _ in range(250):
        places = rng.integers(5000, size=4096)
        tree.set(places, 10 ** rng.uniform(-8, 12, 4096))
    tree.set(np.arange(5000), np.full(5000, 0.25))
    assert tree.total == 1250.0
