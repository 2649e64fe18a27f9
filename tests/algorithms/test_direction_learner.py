"""Steps along random directions: uphill, with the penalty at its own scale, and restorable."""

import numpy as np
import pytest

from rllib.algorithms.families.evolution import DirectionLearner
from rllib.errors import LearnerError
from rllib.evaluation.evolution.noise_table import NoiseTable
from rllib.learners.updates.optimizers import SGD, Adam
from rllib.losses.evolution import centred_ranks, es_coefficients

SIZE = 8


def learner(optimizer=SGD) -> DirectionLearner:
    table = NoiseTable.draw(20_000, np.random.default_rng(0))
    return DirectionLearner(np.zeros(SIZE, np.float32), table, optimizer(SIZE))


def ascent(made: DirectionLearner, goal: np.ndarray, steps: int, lr: float, shape=lambda returns: returns) -> None:
    """Climbs -|theta - goal|^2."""
    rng = np.random.default_rng(1)
    for _ in range(steps):
        indices = made._noise.draw_indices(rng, 30, SIZE)  # private: the noise table is the learner's own
        directions = np.stack([made._noise.direction(int(i), SIZE) for i in indices])
        returns = np.stack([-np.square(made.weights + s * 0.05 * directions - goal).sum(1) for s in (1, -1)], axis=1)
        made.update(indices, es_coefficients(shape(returns), 0.05), lr=lr, decay=0.0)


@pytest.mark.parametrize(("optimizer", "lr"), [(SGD, 0.05), (Adam, 0.05)])
def test_a_quadratic_is_climbed(optimizer, lr):
    made, goal = learner(optimizer), np.linspace(-1, 1, SIZE).astype(np.float32)
    ascent(made, goal, 200, lr)
    np.testing.assert_allclose(made.weights, goal, atol=0.05)


def test_a_quadratic_is_climbed_by_ranks():
    made, goal = learner(Adam), np.linspace(-1, 1, SIZE).astype(np.float32)
    ascent(made, goal, 400, 0.02, centred_ranks)
    np.testing.assert_allclose(made.weights, goal, atol=0.1)


def test_the_penalty_shrinks_weights_by_its_own_coefficient():
    made = learner()
    made.weights[:] = 2.0
    stats = made.update(np.array([0]), np.array([0.0]), lr=0.1, decay=0.5)
    np.testing.assert_allclose(made.weights, 2.0 * (1 - 0.1 * 0.5), rtol=1e-6)
    length = np.linalg.norm(np.full(SIZE, 2.0))
    np.testing.assert_allclose(stats["grad_norm"], 0.5 * length, rtol=1e-5)
    np.testing.assert_allclose(stats["weights_norm"], 0.95 * length, rtol=1e-5)
    np.testing.assert_allclose(stats["update_ratio"], 0.05 / 0.95, rtol=1e-4)


def test_a_step_is_the_coefficient_times_the_direction():
    made = learner()
    made.update(np.array([5]), np.array([2.0]), lr=0.5, decay=0.0)
    np.testing.assert_allclose(made.weights, made._noise.direction(5, SIZE), rtol=1e-6)


def test_state_is_taken_over_exactly():
    first, second = learner(Adam), learner(Adam)
    goal = np.ones(SIZE, np.float32)
    ascent(first, goal, 5, 0.1)
    second.set_state(first.get_state())
    second.weights[:] = first.weights
    for made in (first, second):
        ascent(made, goal, 5, 0.1)
    np.testing.assert_array_equal(first.weights, second.weights)
    with pytest.raises(ValueError, match=r"adam\.m"):
        learner(SGD).set_state(first.get_state())


def test_what_is_not_finite_is_refused_and_moves_nothing():
    made = learner()
    with pytest.raises(LearnerError, match="not finite"):
        made.update(np.array([5]), np.array([np.inf]), lr=0.5, decay=0.0)
    np.testing.assert_array_equal(made.weights, 0)
