"""Action distributions in numpy: closed forms, printed values, finite differences, sampling."""

import numpy as np
import pytest

from rllib.models.distributions.choose import distribution_from_json
from rllib.models.distributions.standard import Categorical, DiagGaussian, MultiCategorical

DISTRIBUTIONS = [
    Categorical(2),
    Categorical(7),
    MultiCategorical((3,)),
    MultiCategorical((2, 3, 4)),
    MultiCategorical((2, 2, 2, 2), (2, 2)),
    DiagGaussian((1,)),
    DiagGaussian((3,)),
    DiagGaussian((2, 2)),
]
identify = pytest.mark.parametrize("distribution", DISTRIBUTIONS, ids=str)


def random_inputs(distribution, rows, seed, scale=1.0):
    rng = np.random.default_rng(seed)
    return (scale * rng.standard_normal((distribution.num_inputs, rows))).T


def test_categorical_printed_values():
    p, q = np.array([[0.2, -1, 2]]), np.array([[1, 0, -0.5]])
    at_p, at_q = Categorical(3).at(p), Categorical(3).at(q)
    assert at_q.kl_from(p)[0] == pytest.approx(1.177216, abs=1e-6)
    assert at_p.entropy()[0] == pytest.approx(0.562607, abs=1e-6)
    assert at_q.entropy()[0] == pytest.approx(0.905959, abs=1e-6)


def test_a_masked_action_has_no_probability_and_breaks_nothing():
    masked = np.array([[0.2, np.finfo(np.float32).min, 2]], np.float32)
    at = Categorical(3).at(masked)
    np.testing.assert_allclose(at.probabilities, [[0.141851, 0, 0.858149]], atol=1e-6)
    assert at.entropy()[0] == pytest.approx(0.408310, abs=1e-6)
    assert np.isfinite(at.gradient(np.zeros(1, np.float32), 1.0)).all()


def test_gaussian_printed_values():
    p, q = np.array([[0.3, np.log(0.5)]]), np.array([[-0.2, np.log(1.2)]])
    at = DiagGaussian((1,)).at(q)
    assert at.kl_from(p)[0] == pytest.approx(0.549080, abs=1e-6)
    standard = DiagGaussian((1,)).at(np.zeros((1, 2)))
    assert standard.log_prob(np.zeros((1, 1)))[0] == pytest.approx(-0.918939, abs=1e-6)


def test_extreme_logits_stay_finite():
    at = Categorical(3).at(np.array([[1e4, -1e4, 0], [-1e4, -1e4, -1e4]], np.float32))
    assert np.isfinite(at.log_prob(np.array([1, 2]))).all()
    assert np.isfinite(at.entropy()).all()


def test_bandit_gradient_is_the_policy_gradient_theorem():
    """The expected gradient over all actions for theta [.2, -.3, .1] and Q [1, 0, 2]."""
    theta, q = np.array([[0.2, -0.3, 0.1]] * 3, np.float32), np.array([1.0, 0, 2], np.float32)
    at = Categorical(3).at(theta)
    at.log_prob(np.arange(3))
    weights = at.probabilities[0] * q
    np.testing.assert_allclose(at.gradient(weights).sum(0), [-0.047298, -0.270202, 0.3175], atol=1e-6)
    assert weights.sum() == pytest.approx(1.118783, abs=1e-6)


@identify
def test_gradient_by_finite_differences(distribution):
    inputs, old = random_inputs(distribution, 6, 0), random_inputs(distribution, 6, 1)
    rng = np.random.default_rng(2)
    actions = distribution.sample(old, distribution.noise(rng, 6))
    d_log_prob = rng.standard_normal(6)
    d_entropy, d_kl = 0.375, -0.75

    def objective(x):
        at = distribution.at(x)
        return np.sum(d_log_prob * at.log_prob(actions) + d_entropy * at.entropy() + d_kl * at.kl_from(old))

    at = distribution.at(inputs)
    at.log_prob(actions), at.entropy(), at.kl_from(old)
    gradient = at.gradient(d_log_prob, d_entropy, d_kl)
    step = 1e-6
    for row, column in np.ndindex(*inputs.shape):
        up, down = inputs.copy(), inputs.copy()
        up[row, column] += step
        down[row, column] -= step
        expected = (objective(up) - objective(down)) / (2 * step)
        assert gradient[row, column] == pytest.approx(expected, abs=2e-6)


@identify
def test_parts_of_the_gradient_add_up(distribution):
    inputs, old = random_inputs(distribution, 5, 3), random_inputs(distribution, 5, 4)
    actions = distribution.mode(old)
    at = distribution.at(inputs)
    weights = at.log_prob(actions)
    at.entropy(), at.kl_from(old)
    together = at.gradient(weights, 0.5, 0.25)
    apart = at.gradient(weights) + at.gradient(None, 0.5) + at.gradient(None, 0.0, 0.25)
    np.testing.assert_allclose(together, apart, atol=1e-12)


@identify
def test_divergence_from_itself_is_zero_and_else_positive(distribution):
    inputs, old = random_inputs(distribution, 50, 5), random_inputs(distribution, 50, 6)
    np.testing.assert_allclose(distribution.at(inputs).kl_from(inputs), 0, atol=1e-12)
    assert (distribution.at(inputs).kl_from(old) > 0).all()


@identify
def test_entropy_and_divergence_are_expectations_under_sampling(distribution):
    num = 200_000
    p, q = random_inputs(distribution, 1, 7, 0.5), random_inputs(distribution, 1, 8, 0.5)
    rng = np.random.default_rng(9)
    repeated = np.repeat(p, num, 0).astype(np.float32)
    actions = distribution.sample(repeated, distribution.noise(rng, num))
    log_p = distribution.at(repeated).log_prob(actions).astype(np.float64)
    log_q = distribution.at(np.repeat(q, num, 0)).log_prob(actions)
    for sample, exact in ((-log_p, distribution.at(p).entropy()), (log_p - log_q, distribution.at(q).kl_from(p))):
        assert abs(sample.mean() - exact[0]) < 5 * sample.std() / np.sqrt(num)


@identify
def test_actions_have_their_shape_type_and_place(distribution):
    inputs = random_inputs(distribution, 4, 10).astype(np.float32)
    noise = distribution.noise(np.random.default_rng(0), 4)
    out = np.empty((4, *distribution.action_shape), distribution.action_dtype)
    actions = distribution.sample(inputs, noise, out)
    assert actions is out
    assert np.array_equal(actions, distribution.sample(inputs, noise))
    assert distribution.mode(inputs).shape == actions.shape
    assert np.array_equal(distribution.sample(inputs, np.zeros_like(noise)), distribution.mode(inputs))


@identify
def test_noise_for_a_fragment_is_float32(distribution):
    noise = distribution.noise(np.random.default_rng(0), 5, 3)
    assert noise.shape[:2] == (5, 3)
    assert noise.dtype == np.float32
    assert np.isfinite(noise).all()


def test_frequencies_of_actions():
    num = 100_000
    logits = np.log(np.array([0.1, 0.2, 0.7], np.float32))
    noise = Categorical(3).noise(np.random.default_rng(11), num)
    counts = np.bincount(Categorical(3).sample(np.tile(logits, (num, 1)), noise), minlength=3)
    expected = np.array([0.1, 0.2, 0.7])
    assert (abs(counts / num - expected) < 4 * np.sqrt(expected * (1 - expected) / num)).all()


@identify
def test_memory_order_of_inputs_does_not_matter(distribution):
    inputs = random_inputs(distribution, 9, 12).astype(np.float32)
    actions = distribution.mode(random_inputs(distribution, 9, 13).astype(np.float32))
    by_feature = distribution.at(np.asfortranarray(inputs)).log_prob(actions)
    by_row = distribution.at(np.ascontiguousarray(inputs)).log_prob(actions)
    np.testing.assert_allclose(by_feature, by_row, atol=1e-6)


@identify
def test_json_round_trip(distribution):
    assert distribution_from_json(distribution.to_json()) == distribution


def test_unknown_json_is_refused():
    with pytest.raises(ValueError, match="unknown kind 'beta'"):
        distribution_from_json({"kind": "beta"})
