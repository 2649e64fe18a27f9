"""Implicit quantile networks: numpy, torch and the paper's formula in float64 agree, in values, loss and gradients."""

import numpy as np
import pytest
import torch

from rllib import sample_batch as sb
from rllib.learners.learner import make_learner
from rllib.learners.updates.objective import Objective
from rllib.losses.quantiles import QuantileLoss
from rllib.models.architectures import spec_from_json
from rllib.models.dense.network_spec import NetworkSpec
from rllib.models.distributions.q_values import QValues
from rllib.models.implicit.layout import middles
from rllib.models.implicit.spec import ImplicitQuantiles
from rllib.models.observations.encoders import BoxEncoder
from rllib.policy import Policy
from rllib.sample_batch import SampleBatch

torch.set_num_threads(1)
COUNT, COSINES, ROWS, ACTIONS = 5, 7, 6, 3


def make_policy(behind=(), dueling=False, before=(8,), layer_norm=False, noisy=0):
    hiddens = (*before, *behind)
    spec = NetworkSpec(
        BoxEncoder((4,)),
        QValues(ACTIONS, dueling, COUNT, quantiles=True, implicit=True),
        hiddens,
        ("tanh",) * len(before) + ("relu",) * len(behind),
        critic=False,
        vf_share_layers=True,
        layer_norm=layer_norm,
        initializer="uniform",
        architecture=ImplicitQuantiles(COUNT, COSINES, len(behind)),
        noisy_layers=noisy,
    )
    return Policy(spec, rng=np.random.default_rng(0))


def make_batch(seed=1):
    rng = np.random.default_rng(seed)
    return SampleBatch(
        {
            sb.OBS: rng.standard_normal((ROWS, 4), np.float32),
            sb.ACTIONS: rng.integers(ACTIONS, size=ROWS),
            sb.TARGET_QUANTILES: rng.standard_normal((ROWS, 4), np.float32) * 3,
            sb.WEIGHTS: rng.random(ROWS, np.float32) + np.float32(0.5),
        }
    )


def reference(policy, batch, behind, dueling, before):
    """The paper's network and equation 3 in plain torch, float64: the quantiles [A, n, B], the loss, its gradient."""
    flat = torch.from_numpy(policy.weights.astype(np.float64)).requires_grad_()
    named = dict(policy.layout.named_parameters(flat))
    levels = torch.from_numpy(policy.layer_noise[-COUNT:].astype(np.float64))
    if policy.spec.noisy_layers:
        drawn = np.zeros(policy.layout.size)
        drawn[policy.layout.plain.size :] = policy.layer_noise[:-COUNT]
        for name, noise in policy.layout.named_parameters(drawn).items():
            if name.endswith("_sigma"):
                mean = name.removesuffix("_sigma")
                named[mean] = named[mean] + named[name] * torch.from_numpy(noise)
    psi = torch.from_numpy(batch[sb.OBS].astype(np.float64))
    for index in range(len(before)):
        layer = f"features.shared.hidden_{index}"
        psi = torch.tanh(psi @ named[f"{layer}.weight"].T + named[f"{layer}.bias"])
    psi = psi @ named["features.policy.head.weight"].T + named["features.policy.head.bias"]
    quantiles = []
    for tau in levels:
        cosines = torch.cos(torch.pi * torch.arange(COSINES, dtype=torch.float64) * tau)
        h = psi * torch.relu(named["levels.weight"] @ cosines + named["levels.bias"])
        for index in range(len(behind)):
            h = torch.relu(h @ named[f"shared.hidden_{index}.weight"].T + named[f"shared.hidden_{index}.bias"])
        outputs = h @ named["policy.head.weight"].T + named["policy.head.bias"]
        advantages = outputs[:, :ACTIONS]
        quantiles.append(
            outputs[:, ACTIONS:] + advantages - advantages.mean(1, keepdim=True) if dueling else advantages
        )
    loss = 0.0
    for row in range(ROWS):
        for tau, of_tau in zip(levels, quantiles):
            for target in batch[sb.TARGET_QUANTILES][row]:
                error = float(target) - of_tau[row, batch[sb.ACTIONS][row]]
                huber = 0.5 * error**2 if abs(error) <= 1 else abs(error) - 0.5
                pair = (tau - (1.0 if error < 0 else 0.0)).abs() * huber
                loss = loss + float(batch[sb.WEIGHTS][row]) * pair / (ROWS * 4)
    loss.backward()
    return torch.stack(quantiles).permute(2, 0, 1).detach().numpy(), loss.item(), flat.grad.numpy()


CASES = {
    "head": ((), False, (8,), 0),
    "dueling, a layer behind": ((6,), True, (8, 5), 0),
    "nothing before": ((6,), False, (), 0),
    "a noisy head": ((), False, (8,), 1),
    "noisy and dueling": ((6,), True, (8,), 2),
}


@pytest.mark.parametrize("kind", ["numpy", "torch"])
@pytest.mark.parametrize("case", CASES)
def test_gold(case, kind):
    behind, dueling, before, noisy = CASES[case]
    policy, batch = make_policy(behind, dueling, before, noisy=noisy), make_batch()
    policy.resample(np.random.default_rng(3))
    quantiles, loss, gradient = reference(policy, batch, behind, dueling, before)
    learner = make_learner(policy, Objective(QuantileLoss()), kind=kind)
    found, statistics = learner.compute_gradient(batch)
    np.testing.assert_allclose(policy.action_values(batch[sb.OBS]).logits, quantiles, atol=1e-5)
    assert statistics["total_loss"] == pytest.approx(loss, rel=1e-5)
    np.testing.assert_allclose(found, gradient, atol=1e-5)


def test_normalised_layers_agree():
    policy, batch = make_policy((6,), layer_norm=True), make_batch()
    policy.resample(np.random.default_rng(3))
    both = [make_learner(policy, Objective(QuantileLoss()), kind=kind).compute_gradient(batch) for kind in KINDS]
    np.testing.assert_allclose(both[0][0], both[1][0], atol=1e-5)
    assert both[0][1] == pytest.approx(both[1][1], rel=1e-4)


KINDS = ("numpy", "torch")


def test_levels_are_drawn_one_in_each_stratum_and_silenced():
    policy, rng = make_policy(), np.random.default_rng(0)
    np.testing.assert_array_equal(policy.layer_noise, middles(COUNT))
    drawn = []
    for _ in range(2000):
        policy.resample(rng)
        drawn.append(policy.layer_noise.copy())
    drawn = np.array(drawn)
    assert (np.floor(drawn * COUNT) == np.arange(COUNT)).all()
    # Uniform over 0 ... 1 all together.
    np.testing.assert_allclose(np.histogram(drawn, 10, (0, 1))[0] / drawn.size, 0.1, atol=0.01)
    policy.silence()
    np.testing.assert_array_equal(policy.layer_noise, middles(COUNT))


def test_noise_in_the_weights_is_drawn_beside_the_levels():
    policy, batch = make_policy((6,), noisy=2), make_batch()
    plain = make_policy((6,))
    plain.weights[:] = policy.weights[: len(plain.weights)]
    np.testing.assert_array_equal(*(each.dist_inputs(batch[sb.OBS]) for each in (policy, plain)))
    policy.resample(np.random.default_rng(0))
    weights, levels = policy.layer_noise[:-COUNT].copy(), policy.layer_noise[-COUNT:].copy()
    assert weights.all() and (np.floor(levels * COUNT) == np.arange(COUNT)).all() and (levels != middles(COUNT)).all()
    policy.silence()
    assert not policy.layer_noise[:-COUNT].any()
    np.testing.assert_array_equal(policy.layer_noise[-COUNT:], middles(COUNT))


def test_outputs_end_with_the_levels():
    policy = make_policy()
    policy.resample(np.random.default_rng(0))
    dist_inputs = policy.dist_inputs(make_batch()[sb.OBS])
    assert dist_inputs.shape == (ROWS, policy.num_dist_inputs) == (ROWS, (ACTIONS + 1) * COUNT)
    np.testing.assert_array_equal(dist_inputs[:, -COUNT:], np.tile(policy.layer_noise, (ROWS, 1)))
    spec = spec_from_json(policy.spec.to_json())
    assert spec == policy.spec
