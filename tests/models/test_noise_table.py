"""The noise table: bounds, and sums of directions."""

import numpy as np
import pytest

from rllib.evaluation.evolution.noise_table import NoiseTable


@pytest.mark.parametrize(("size", "dimension"), [(10, 10), (10, 1), (1000, 999), (5000, 37)])
def test_every_drawn_direction_lies_within_the_table(size, dimension):
    table = NoiseTable.draw(size, np.random.default_rng(0))
    for seed in range(20):
        indices = table.draw_indices(np.random.default_rng(seed), 200, dimension)
        assert indices.min() >= 0 and indices.max() + dimension <= size, f"seed {seed}"
        for index in indices[:20]:
            assert table.direction(int(index), dimension).shape == (dimension,)
    assert {0, size - dimension} <= set(table.draw_indices(np.random.default_rng(1), 100_000, dimension).tolist())


@pytest.mark.parametrize("index", [-1, 8, 1000])
def test_directions_beyond_the_table_are_refused(index):
    with pytest.raises(ValueError, match="does not lie within a noise table of 10"):
        NoiseTable(np.zeros(10, np.float32)).direction(index, 3)


def test_a_table_shorter_than_a_direction_is_refused():
    with pytest.raises(ValueError, match="noise_size=10 must be at least"):
        NoiseTable(np.zeros(10, np.float32)).draw_indices(np.random.default_rng(0), 1, 11)


def test_equal_seeds_draw_equal_tables():
    first, again, other = (NoiseTable.draw(1000, np.random.default_rng(seed)) for seed in (3, 3, 4))
    assert np.array_equal(first.values, again.values) and not np.array_equal(first.values, other.values)
    assert first.values.dtype == np.float32
    assert abs(first.values.mean()) < 0.15 and abs(first.values.std() - 1) < 0.1


@pytest.mark.parametrize("count", [1, 64, 65, 200])
def test_a_combination_is_the_sum_of_its_directions(count):
    table, rng = NoiseTable.draw(3000, np.random.default_rng(0)), np.random.default_rng(count)
    coefficients = rng.normal(size=count) * (rng.random(count) < 0.7)
    indices = table.draw_indices(rng, count, 50)
    expected = sum(c * table.direction(i, 50).astype(np.float64) for c, i in zip(coefficients, indices.tolist()))
    np.testing.assert_allclose(table.combination(coefficients, indices, 50), expected, atol=1e-4)


def test_a_combination_of_nothing_is_zero():
    table = NoiseTable.draw(100, np.random.default_rng(0))
    np.testing.assert_array_equal(table.combination(np.zeros(4), np.zeros(4, int), 7), np.zeros(7))
