"""The losses of IMPALA and APPO: closed form against autograd, and properties."""

import numpy as np
import pytest
import torch
from ppo_support import DISTRIBUTIONS
from vtrace_support import make_rows

from rllib import sample_batch as sb
from rllib.losses.appo import APPO_LOSS
from rllib.losses.impala import IMPALA_LOSS
from rllib.losses.ppo import PPO_LOSS
from rllib.losses.returns import gae
from rllib.losses.vtrace import vtrace_of_rows
from rllib.models.distributions.standard import Categorical
from rllib.models.observations.masks import LOWEST
from tests.tensor_envs import counted_waits

COMMON = {
    "gamma": 0.95,
    "vf_loss_coeff": 0.5,
    "entropy_coeff": 0.02,
    "clip_rho": 1.2,
    "clip_pg_rho": 1.1,
    "lambda_": 0.9,
}
APPO = {**COMMON, "clip_param": 0.2, "kl_coeff": 0.3}
STANDARDIZED = {"standardize_advantages": True}
LOSSES = {
    "IMPALA": (IMPALA_LOSS, COMMON),
    "APPO": (APPO_LOSS, APPO),
    "IMPALA standardized": (IMPALA_LOSS, {**COMMON, **STANDARDIZED}),
    "APPO standardized": (APPO_LOSS, {**APPO, **STANDARDIZED}),
}
BY_NAME = pytest.mark.parametrize(("loss", "settings"), LOSSES.values(), ids=LOSSES)


@BY_NAME
@pytest.mark.parametrize("distribution", DISTRIBUTIONS, ids=str)
@pytest.mark.parametrize("vtrace", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_statistics_and_gradients_agree(loss, settings, distribution, vtrace, seed):
    outputs, minibatch = make_rows(distribution, ((20, "end"), (13, "truncated"), (9, "terminated")), seed)
    settings = {**settings, "vtrace": vtrace}
    expected, gradients = loss.numpy(distribution, outputs, minibatch, **settings)
    tensors = [torch.from_numpy(output).requires_grad_() for output in outputs]
    columns = {name: torch.from_numpy(column) for name, column in minibatch.items()}
    value, statistics = loss.torch(distribution, tensors, columns, **settings)
    value.backward()
    assert len(statistics) == len(expected) == len(loss.stats)
    np.testing.assert_allclose(torch.stack(statistics).detach(), expected, atol=3e-6, rtol=1e-5)
    for tensor, gradient in zip(tensors, gradients, strict=True):
        np.testing.assert_allclose(gradient, tensor.grad, atol=1e-6)


@BY_NAME
def test_settings_may_be_tensors_whose_numbers_are_not_looked_at(loss, settings):
    """As a recorded step gives them (learners/in_torch/recorded_steps.py)."""
    outputs, minibatch = make_rows(Categorical(3))
    outputs = [torch.from_numpy(output) for output in outputs]
    columns = {name: torch.from_numpy(column) for name, column in minibatch.items()}
    expected, _ = loss.torch(Categorical(3), outputs, columns, **settings)
    numbers = {name: torch.tensor(value) for name, value in settings.items() if isinstance(value, float)}
    with counted_waits() as counts:
        value, _ = loss.torch(Categorical(3), outputs, columns, **{**settings, **numbers})
    assert set(counts) == {"operations"}
    torch.testing.assert_close(value, expected)


@BY_NAME
def test_rows_that_are_no_steps_do_not_count(loss, settings):
    """Garbage in them changes nothing but the values that are bootstrapped from; more of them change nothing."""
    distribution = Categorical(3)
    (dist_inputs, values), minibatch = make_rows(distribution)
    statistics, (d_dist_inputs, d_values) = loss.numpy(distribution, (dist_inputs, values), minibatch, **settings)
    empty = ~minibatch[sb.LOSS_MASK]
    assert not d_dist_inputs[empty].any() and not d_values[empty].any()

    def longer(column, filler):
        return np.concatenate([column, np.full((5, *column.shape[1:]), filler, column.dtype)])

    padded = {name: longer(column, 1) for name, column in minibatch.items()}
    padded[sb.LOSS_MASK][-5:] = False
    for name in (sb.ACTION_LOGP, sb.REWARDS, sb.TARGET_DIST_INPUTS):
        padded[name][~padded[sb.LOSS_MASK]] = 7
    outputs = (longer(dist_inputs, 3), longer(values, -4))
    got, gradients = loss.numpy(distribution, outputs, padded, **settings)
    np.testing.assert_allclose(got, statistics, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(gradients[0][:-5], d_dist_inputs, atol=1e-7)
    np.testing.assert_allclose(gradients[1][:-5], d_values, atol=1e-7)
    assert not gradients[0][-5:].any() and not gradients[1][-5:].any()


@BY_NAME
@pytest.mark.parametrize("vtrace", [True, False])
def test_rows_that_are_no_steps_may_have_illegal_actions(loss, settings, vtrace):
    """Of them nothing but the value is known, and a mask may forbid the action that is written there."""
    distribution, settings = Categorical(3), {**settings, "vtrace": vtrace}
    (dist_inputs, values), minibatch = make_rows(distribution)
    minibatch = {**minibatch, sb.REWARDS: minibatch[sb.REWARDS] + 10}  # advantages far from a mean of 0
    empty = ~minibatch[sb.LOSS_MASK]
    masked = dist_inputs.copy()
    masked[empty, minibatch[sb.ACTIONS][empty]] = LOWEST
    expected, gradients = loss.numpy(distribution, (dist_inputs, values), minibatch, **settings)
    got, of_masked = loss.numpy(distribution, (masked, values), minibatch, **settings)
    np.testing.assert_array_equal(got, expected)
    np.testing.assert_array_equal(of_masked[0], gradients[0])
    tensors = [torch.from_numpy(output).requires_grad_() for output in (masked, values)]
    columns = {name: torch.from_numpy(column) for name, column in minibatch.items()}
    value, statistics = loss.torch(distribution, tensors, columns, **settings)
    value.backward()
    np.testing.assert_allclose(torch.stack(statistics).detach(), expected, atol=3e-6, rtol=1e-5)
    np.testing.assert_allclose(tensors[0].grad, gradients[0], atol=1e-6)


@pytest.mark.parametrize(
    ("loss", "more"), [(IMPALA_LOSS, {}), (APPO_LOSS, {"clip_param": 0.2, "kl_coeff": 0.3})], ids=["IMPALA", "APPO"]
)
@pytest.mark.parametrize(("vtrace", "lambda_"), [(True, 1.0), (False, 1.0), (False, 0.7), (False, 0.0)])
def test_on_policy_they_are_the_actor_critic_gradient(loss, more, vtrace, lambda_):
    """With the weights that acted: -A log pi on GAE, and the squared error to GAE plus the value."""
    distribution = Categorical(3)
    (dist_inputs, values), minibatch = make_rows(distribution, ((8, "truncated"), (8, "terminated")), moved=0.0)
    minibatch[sb.TARGET_DIST_INPUTS] = dist_inputs
    settings = {"gamma": 0.95, "lambda_": lambda_, "vtrace": vtrace, "vf_loss_coeff": 0.5, "entropy_coeff": 0.02}
    _, (d_dist_inputs, d_values) = loss.numpy(distribution, (dist_inputs, values), minibatch, **settings, **more)

    steps = minibatch[sb.LOSS_MASK]
    columns = {name: column[steps] for name, column in minibatch.items()}
    in_time = [values[steps], values[1:][steps[:-1]], columns[sb.TERMINATEDS], columns[sb.TRUNCATEDS]]
    advantages, targets = gae(
        columns[sb.REWARDS].reshape(2, 8).T, *(column.reshape(2, 8).T for column in in_time), 0.95, lambda_
    )
    # PPO's gradient at ratio 1 is that of -A log pi; its value loss has no factor 1/2.
    columns |= {
        sb.ADVANTAGES: advantages.T.reshape(-1),
        sb.VALUE_TARGETS: targets.T.reshape(-1),
        sb.VF_PREDS: values[steps],
        sb.ACTION_DIST_INPUTS: dist_inputs[steps],
    }
    outputs = (dist_inputs[steps], values[steps])
    _, (expected, expected_values) = PPO_LOSS.numpy(
        distribution, outputs, columns, clip_param=0.2, kl_coeff=0.0, vf_loss_coeff=0.25, entropy_coeff=0.02
    )
    np.testing.assert_allclose(d_dist_inputs[steps], expected, atol=1e-6)
    np.testing.assert_allclose(d_values[steps], expected_values, atol=1e-6)


def slow_loss(distribution, dist_inputs, values, columns, targets, advantages, settings):
    """IMPALA's loss (arXiv:1802.01561, section 4.2), and APPO's where there is a clip_param, row by row in float64."""
    total, rows = 0.0, np.flatnonzero(columns[sb.LOSS_MASK])
    for i in rows:
        new = distribution.at(dist_inputs[i : i + 1])
        log_prob = new.log_prob(columns[sb.ACTIONS][i : i + 1])[0]
        if "clip_param" in settings:
            at_target = distribution.at(columns[sb.TARGET_DIST_INPUTS][i : i + 1].astype(np.float64))
            behaviour = np.exp(columns[sb.ACTION_LOGP][i])
            from_target = min(2.0, behaviour / np.exp(at_target.log_prob(columns[sb.ACTIONS][i : i + 1])[0]))
            ratio = from_target * np.exp(log_prob) / behaviour
            clipped = np.clip(ratio, 1 - settings["clip_param"], 1 + settings["clip_param"])
            gain = min(ratio * advantages[i], clipped * advantages[i])
            total += settings["kl_coeff"] * new.kl_from(columns[sb.TARGET_DIST_INPUTS][i : i + 1])[0]
        else:
            gain = log_prob * advantages[i]
        total += settings["vf_loss_coeff"] * 0.5 * (values[i] - targets[i]) ** 2
        total -= gain + settings["entropy_coeff"] * new.entropy()[0]
    return total / len(rows)


@BY_NAME
@pytest.mark.parametrize("distribution", DISTRIBUTIONS, ids=str)
def test_value_and_gradient_are_those_of_the_formula(loss, settings, distribution):
    """V-trace has a test of its own, so its targets are taken as they come; the rest is written out again here."""
    outputs, columns = make_rows(distribution)
    log_prob = distribution.at(columns[sb.TARGET_DIST_INPUTS] if loss is APPO_LOSS else outputs[0]).log_prob
    log_rho = log_prob(columns[sb.ACTIONS]) - columns[sb.ACTION_LOGP]
    targets, advantages = vtrace_of_rows(
        log_rho,
        outputs[1],
        columns,
        **{name: settings[name] for name in ("gamma", "clip_rho", "clip_pg_rho", "lambda_")},
    )
    if settings.get("standardize_advantages"):
        steps, ratios = columns[sb.LOSS_MASK], np.minimum(np.exp(log_rho.astype(np.float64)), settings["clip_pg_rho"])
        advantages = advantages - ratios * advantages[steps].mean(dtype=np.float64) / ratios[steps].mean()
        advantages = advantages / advantages[steps].std()
    statistics, gradients = loss.numpy(distribution, outputs, columns, **settings)
    inputs = [output.astype(np.float64) for output in outputs]

    def total():
        return slow_loss(distribution, *inputs, columns, targets, advantages, settings)

    assert statistics[0] == pytest.approx(total(), abs=1e-5)
    step = 1e-6
    for array, gradient in zip(inputs, gradients, strict=True):
        for index in np.ndindex(*array.shape):
            at = array[index]
            array[index] = at + step
            above = total()
            array[index] = at - step
            below = total()
            array[index] = at
            assert gradient[index] == pytest.approx((above - below) / (2 * step), abs=2e-6)


@pytest.mark.parametrize("distribution", DISTRIBUTIONS, ids=str)
def test_appo_without_lag_is_impala(distribution):
    """All three policies equal: the ratio is 1, and its gradient that of log pi."""
    outputs, columns = make_rows(distribution, moved=0.0)
    _, expected = IMPALA_LOSS.numpy(distribution, outputs, columns, **COMMON)
    _, gradients = APPO_LOSS.numpy(distribution, outputs, columns, **APPO)
    for gradient, impala_gradient in zip(gradients, expected, strict=True):
        np.testing.assert_allclose(gradient, impala_gradient, atol=1e-6)


def test_appo_without_lag_has_ratio_one():
    distribution = Categorical(3)
    outputs, minibatch = make_rows(distribution, moved=0.0)
    statistics, _ = APPO_LOSS.numpy(distribution, outputs, minibatch, **APPO)
    named = dict(zip(APPO_LOSS.stats, statistics))
    assert named["mean_ratio"] == pytest.approx(1, abs=1e-6) == named["mean_rho"]
    assert named["kl"] == pytest.approx(0, abs=1e-6)
    assert named["clip_fraction"] == 0


@pytest.mark.parametrize("name", ["IMPALA standardized", "APPO standardized"])
@pytest.mark.parametrize("moved", [0.0, 0.3, 2.0])
def test_a_baseline_changes_nothing(name, moved):
    """Standardised advantages are the same whatever all values are too high by, however far the policy has moved.

    A baseline that old rows had the whole of would push the policy away from the one that acted.
    """
    loss, settings = LOSSES[name]
    (dist_inputs, values), minibatch = make_rows(Categorical(3), ((1, "terminated"),) * 40, moved=moved)
    _, (expected, _) = loss.numpy(Categorical(3), (dist_inputs, values), minibatch, **settings)
    for shift in (-10, 10):
        _, (gradient, _) = loss.numpy(Categorical(3), (dist_inputs, values + np.float32(shift)), minibatch, **settings)
        np.testing.assert_allclose(gradient, expected, atol=2e-6)


@pytest.mark.parametrize("name", LOSSES)
def test_old_rows_give_the_gradient_of_the_new_policy(name):
    """Of rows by mu in which each action is as frequent as mu has it: sum_a pi(a) A(a) grad log pi(a) in direction.

    A(a) = r(a) - V are all positive, so that a baseline counts.
    """
    loss, settings = LOSSES[name]
    behaviour, new = np.array([0.6, 0.3, 0.1]), np.array([0.2, 0.3, 0.5])
    actions = np.repeat([0, 1, 2], (60, 30, 10))
    distribution = Categorical(3)
    (_, values), minibatch = make_rows(distribution, ((1, "terminated"),) * 100)
    steps = minibatch[sb.LOSS_MASK]
    minibatch[sb.ACTIONS][steps], minibatch[sb.REWARDS][steps] = actions, np.array([5.0, 7.0, 6.0])[actions]
    minibatch[sb.ACTION_LOGP][steps] = np.log(behaviour)[actions]
    dist_inputs = np.tile(np.log(new), (len(steps), 1)).astype(np.float32)
    minibatch[sb.TARGET_DIST_INPUTS] = dist_inputs
    settings = {**settings, "clip_rho": np.inf, "clip_pg_rho": np.inf, "entropy_coeff": 0.0}
    if loss is APPO_LOSS:
        settings["max_behaviour_ratio"] = 1e6
    _, (gradient, _) = loss.numpy(distribution, (dist_inputs, 0 * values), minibatch, **settings)

    returns = new @ [5.0, 7.0, 6.0]
    expected = -new * (np.array([5.0, 7.0, 6.0]) - returns)  # of a softmax, for its logits
    got = gradient.sum(0, dtype=np.float64)
    np.testing.assert_allclose(got / np.linalg.norm(got), expected / np.linalg.norm(expected), atol=1e-5)


def test_equal_advantages_become_zeros():
    """One step a sequence, all alike: standardised, nothing but the entropy moves the policy."""
    distribution = Categorical(2)
    outputs, minibatch = make_rows(distribution, ((1, "terminated"),) * 3, moved=0.0)
    minibatch[sb.REWARDS][:] = outputs[1] + 5
    settings = {**APPO, "entropy_coeff": 0.0, "standardize_advantages": True}
    _, (gradient, _) = APPO_LOSS.numpy(distribution, outputs, minibatch, **settings)
    np.testing.assert_allclose(gradient, 0, atol=1e-6)


def test_appo_gives_nothing_beyond_the_clip():
    """Two actions, the ratio far above 1 + clip_param, a positive advantage: no gradient on the policy."""
    distribution = Categorical(2)
    outputs, minibatch = make_rows(distribution, ((1, "terminated"),), moved=0.0)
    minibatch[sb.ACTIONS][:] = 0
    minibatch[sb.TARGET_DIST_INPUTS][:] = 0
    minibatch[sb.ACTION_LOGP][:] = np.log(0.5)
    minibatch[sb.REWARDS][0] = 100
    dist_inputs = np.array([[3, 0], [0, 0]], np.float32)
    settings = {**APPO, "kl_coeff": 0.0, "entropy_coeff": 0.0}
    _, (gradient, _) = APPO_LOSS.numpy(distribution, (dist_inputs, outputs[1]), minibatch, **settings)
    np.testing.assert_array_equal(gradient, 0)
