"""The closed form of the PPO loss: against the paper's formula row by row in float64, and by finite differences."""

import numpy as np
import pytest
from ppo_support import DISTRIBUTIONS, SETTINGS, make_minibatch

from rllib import sample_batch as sb
from rllib.losses.ppo import PPO_LOSS, STATS, adapted_kl_coeff, ppo_gradient
from rllib.models.distributions.standard import Categorical

each_distribution = pytest.mark.parametrize("distribution", DISTRIBUTIONS, ids=str)


def slow_loss(
    distribution, dist_inputs, values, minibatch, clip_param, kl_coeff, vf_loss_coeff, entropy_coeff, vf_clip
):
    """arXiv:1707.06347, equations 7 to 9, one row after the other, in float64."""
    total, rows = 0.0, len(values)
    for i in range(rows):
        at = distribution.at(np.asarray(dist_inputs[i : i + 1], np.float64))
        column = {name: column[i].astype(np.float64) for name, column in minibatch.items() if name != sb.ACTIONS}
        ratio = np.exp(at.log_prob(minibatch[sb.ACTIONS][i : i + 1])[0] - column[sb.ACTION_LOGP])
        advantage = column[sb.ADVANTAGES]
        surrogate = min(ratio * advantage, np.clip(ratio, 1 - clip_param, 1 + clip_param) * advantage)
        value, old, target = values[i], column[sb.VF_PREDS], column[sb.VALUE_TARGETS]
        value_loss = (value - target) ** 2
        if vf_clip is not None:
            value_loss = max(value_loss, (old + np.clip(value - old, -vf_clip, vf_clip) - target) ** 2)
        kl = at.kl_from(column[sb.ACTION_DIST_INPUTS][None])[0]
        total += -surrogate + kl_coeff * kl + vf_loss_coeff * value_loss - entropy_coeff * at.entropy()[0]
    return total / rows


@each_distribution
@pytest.mark.parametrize("vf_clip", [0.4, None])
def test_value_and_gradient(distribution, vf_clip):
    (dist_inputs, values), minibatch = make_minibatch(distribution, 24)
    settings = {**SETTINGS, "vf_clip_param": vf_clip}
    statistics, d_dist_inputs, d_values = ppo_gradient(distribution, dist_inputs, values, minibatch, **settings)
    arguments = [SETTINGS[name] for name in ("clip_param", "kl_coeff", "vf_loss_coeff", "entropy_coeff")]

    def loss(x, v):
        return slow_loss(distribution, x, v, minibatch, *arguments, vf_clip)

    x, v = dist_inputs.astype(np.float64), values.astype(np.float64)
    assert statistics[0] == pytest.approx(loss(x, v), abs=1e-6)
    step = 1e-6
    for index in np.ndindex(*x.shape):
        up, down = x.copy(), x.copy()
        up[index] += step
        down[index] -= step
        assert d_dist_inputs[index] == pytest.approx((loss(up, v) - loss(down, v)) / (2 * step), abs=1e-6)
    for index in range(len(v)):
        up, down = v.copy(), v.copy()
        up[index] += step
        down[index] -= step
        assert d_values[index] == pytest.approx((loss(x, up) - loss(x, down)) / (2 * step), abs=1e-6)


def statistics_of(distribution, outputs, minibatch, **changed):
    values, _ = PPO_LOSS.numpy(distribution, outputs, minibatch, **{**SETTINGS, **changed})
    return dict(zip(STATS, values, strict=True))


@each_distribution
def test_an_unmoved_policy(distribution):
    (_, values), minibatch = make_minibatch(distribution, moved=0)
    outputs = minibatch[sb.ACTION_DIST_INPUTS], values
    statistics = statistics_of(distribution, outputs, minibatch)
    assert statistics["kl"] == pytest.approx(0, abs=1e-6)
    assert statistics["clip_fraction"] == 0
    assert statistics["policy_loss"] == pytest.approx(-minibatch[sb.ADVANTAGES].mean(), abs=1e-6)
    assert PPO_LOSS.identity_error(distribution.at, outputs, minibatch) < 1e-6


def test_tampered_log_probabilities_show():
    outputs, minibatch = make_minibatch(Categorical(3), moved=0)
    minibatch[sb.ACTION_LOGP] = np.roll(minibatch[sb.ACTION_LOGP], 1)
    assert PPO_LOSS.identity_error(Categorical(3).at, outputs, minibatch) > 0.1


def test_statistics():
    (dist_inputs, values), minibatch = make_minibatch(Categorical(3), 200)
    minibatch[sb.VALUE_TARGETS] += values
    statistics = statistics_of(Categorical(3), (dist_inputs, values), minibatch)
    targets = minibatch[sb.VALUE_TARGETS].astype(np.float64)
    log_prob = Categorical(3).at(dist_inputs).log_prob(minibatch[sb.ACTIONS])
    ratio = np.exp(log_prob - minibatch[sb.ACTION_LOGP])
    assert statistics["vf_explained_var"] == pytest.approx(1 - (targets - values).var() / targets.var(), abs=1e-5)
    assert statistics["clip_fraction"] == pytest.approx(np.mean(abs(ratio - 1) > 0.2), abs=1e-6)
    assert 0 < statistics["clip_fraction"] < 1


def test_explained_variance_of_large_and_of_equal_targets():
    (dist_inputs, values), minibatch = make_minibatch(Categorical(3), 200)
    minibatch[sb.VALUE_TARGETS] = values * np.float32(1.1) + np.float32(1000)
    large = statistics_of(Categorical(3), (dist_inputs, values + np.float32(1000)), minibatch)
    assert large["vf_explained_var"] == pytest.approx(1 - 0.1**2 / 1.1**2, abs=1e-3)
    minibatch[sb.VALUE_TARGETS] = np.full_like(values, 3)
    assert statistics_of(Categorical(3), (dist_inputs, values), minibatch)["vf_explained_var"] == 0


def test_ratio_beyond_the_clip_stops_the_gradient():
    minibatch = {
        sb.ACTIONS: np.array([0, 0]),
        sb.ACTION_LOGP: np.log(np.array([0.5, 0.5], np.float32)),
        sb.ACTION_DIST_INPUTS: np.zeros((2, 2), np.float32),
        sb.ADVANTAGES: np.array([1, -1], np.float32),
        sb.VALUE_TARGETS: np.zeros(2, np.float32),
        sb.VF_PREDS: np.zeros(2, np.float32),
    }
    moved = np.log(np.array([[0.9, 0.1], [0.9, 0.1]], np.float32))
    settings = {"clip_param": 0.2, "kl_coeff": 0.0, "vf_loss_coeff": 0.0, "entropy_coeff": 0.0}
    _, gradient, _ = ppo_gradient(Categorical(2), moved, np.zeros(2, np.float32), minibatch, **settings)
    assert not gradient[0].any()  # nothing to gain from more of a good action
    assert gradient[1].any()  # but a bad one is still pushed back


def test_value_clip_keeps_the_gradient_when_rounding_orders_the_squares_wrongly():
    """Within the limit both errors are the same but for rounding, at every scale of the values."""
    rng = np.random.default_rng(0)
    for scale in (1e-3, 1.0, 1e3):
        (dist_inputs, _), minibatch = make_minibatch(Categorical(2), 500)
        old = (scale * rng.standard_normal(500)).astype(np.float32)
        values = old + np.float32(0.01 * scale) * rng.standard_normal(500).astype(np.float32)
        minibatch[sb.VF_PREDS], minibatch[sb.VALUE_TARGETS] = old, old + np.float32(scale)
        clipped = ppo_gradient(Categorical(2), dist_inputs, values, minibatch, **{**SETTINGS, "vf_clip_param": scale})
        free = ppo_gradient(Categorical(2), dist_inputs, values, minibatch, **{**SETTINGS, "vf_clip_param": None})
        assert np.array_equal(clipped[2], free[2])


def test_infinite_value_clip_is_none():
    outputs, minibatch = make_minibatch(Categorical(2))
    assert statistics_of(Categorical(2), outputs, minibatch, vf_clip_param=np.inf) == statistics_of(
        Categorical(2), outputs, minibatch, vf_clip_param=None
    )


def test_permuting_the_targets_changes_the_loss():
    outputs, minibatch = make_minibatch(Categorical(2))
    before = statistics_of(Categorical(2), outputs, minibatch)["vf_loss"]
    minibatch[sb.VALUE_TARGETS] = np.roll(minibatch[sb.VALUE_TARGETS], 1)
    assert statistics_of(Categorical(2), outputs, minibatch)["vf_loss"] != pytest.approx(before, rel=1e-3)


def test_order_of_rows_does_not_matter():
    (dist_inputs, values), minibatch = make_minibatch(Categorical(3))
    order = np.random.default_rng(0).permutation(len(values))
    shuffled = {name: column[order] for name, column in minibatch.items()}
    before = statistics_of(Categorical(3), (dist_inputs, values), minibatch)
    after = statistics_of(Categorical(3), (dist_inputs[order], values[order]), shuffled)
    assert after == pytest.approx(before, abs=1e-6)


def test_a_single_row_is_finite():
    outputs, minibatch = make_minibatch(Categorical(2), rows=1)
    statistics, gradients = PPO_LOSS.numpy(Categorical(2), outputs, minibatch, **SETTINGS)
    assert np.isfinite(statistics).all()
    assert all(np.isfinite(gradient).all() for gradient in gradients)


def test_a_column_vector_of_values_is_refused():
    (dist_inputs, values), minibatch = make_minibatch(Categorical(2))
    with pytest.raises(ValueError, match=r"must all be \[B\]"):
        ppo_gradient(Categorical(2), dist_inputs, values[:, None], minibatch, **SETTINGS)


@pytest.mark.parametrize(
    ("kl", "expected"),
    [(0.0, 0.3), (0.0099, 0.3), (0.0101, 0.6), (0.02, 0.6), (0.0399, 0.6), (0.0401, 0.9), (5.0, 0.9)],
)
def test_kl_coefficient_rises_by_half_above_twice_the_target_and_halves_below_half_of_it(kl, expected):
    assert adapted_kl_coeff(0.6, kl, kl_target=0.02) == pytest.approx(expected, abs=1e-12)
