"""Noisy layers: the noise itself, and both learners' gradients against autograd of the paper's formula."""

import numpy as np
import pytest
import torch

from rllib.models.architectures import spec_from_json
from rllib.models.dense.in_torch import NoisyTorchNetwork, backward
from rllib.models.dense.network_spec import NetworkSpec
from rllib.models.dense.spec import Dense
from rllib.models.distributions.q_values import QValues
from rllib.models.observations.encoders import BoxEncoder
from rllib.policy import Policy

LAYERS = ("shared.hidden_0", "shared.hidden_1", "policy.head")


def make_policy(noisy=2, sigma0=0.5, hiddens=(6, 5)):
    spec = NetworkSpec(
        BoxEncoder((4,)), QValues(3, dueling=True), hiddens, ("relu",) * len(hiddens), True, critic=False,
        initializer="uniform", noisy_layers=noisy, sigma0=sigma0, architecture=Dense(),
    )  # fmt: skip
    return Policy(spec, rng=np.random.default_rng(0))


OBSERVATIONS = np.random.default_rng(1).standard_normal((7, 4)).astype(np.float32)


def outputs(policy):
    return policy.network.forward(policy.encode(OBSERVATIONS))[0].copy()


def test_noise_changes_with_each_draw_and_is_off_in_evaluation():
    policy, rng = make_policy(), np.random.default_rng(2)
    silent, seen = outputs(policy), []
    for _ in range(2):
        policy.resample(rng)
        assert np.array_equal(outputs(policy), outputs(policy))
        seen.append(outputs(policy))
    assert abs(seen[0] - seen[1]).max() > 1e-3 and abs(seen[0] - silent).max() > 1e-3
    greedy = [policy.choose(OBSERVATIONS, explore=False) for _ in range(5)]
    assert all(np.array_equal(actions, silent[:, :3].argmax(1)) for actions in greedy)
    assert np.array_equal(outputs(policy), silent)
    explored = {tuple(policy.choose(OBSERVATIONS, explore=True, rng=rng)) for _ in range(20)}
    assert len(explored) > 1


def test_silent_networks_are_the_plain_ones():
    noisy, plain = make_policy(), make_policy(noisy=0)
    plain.weights[:] = noisy.weights[: plain.weights.size]
    assert np.array_equal(outputs(noisy), outputs(plain))


def test_noise_is_factorised():
    """Of rank one in each layer; that of the biases is that of the outputs; moments of f(x) f(y), f(z) = sign sqrt."""
    policy, rng, drawn = make_policy(hiddens=(60, 50)), np.random.default_rng(0), []
    for _ in range(500):
        policy.resample(rng)
        for block in policy.layout.noisy_blocks(policy.network.noise):
            assert np.linalg.matrix_rank(block[:-1]) == 1
            ratio = block[0] / block[-1]
            np.testing.assert_allclose(ratio, ratio[0], rtol=1e-4)
            drawn.append(block[:-1].flatten())
    drawn = np.concatenate(drawn)
    np.testing.assert_allclose(drawn.mean(), 0, atol=0.01)
    np.testing.assert_allclose((drawn**2).mean(), 2 / np.pi, rtol=0.03)  # (E|z|)^2


def test_initial_sigmas():
    """sigma0 / sqrt(inputs) in the last two layers, and the first has none."""
    named = make_policy(sigma0=0.4).parameters()
    assert not [name for name in named if name.startswith("shared.hidden_0") and name.endswith("sigma")]
    for layer, fan_in in (("shared.hidden_1", 6), ("policy.head", 5)):
        for kind in ("weight", "bias"):
            np.testing.assert_allclose(named[f"{layer}.{kind}_sigma"], 0.4 / np.sqrt(fan_in), rtol=1e-6)
            assert named[f"{layer}.{kind}"].shape == named[f"{layer}.{kind}_sigma"].shape


def autograd(policy, d_outputs):
    """Outputs and gradient by parameter of y = (mu + sigma * noise) x, layer by layer, in float64."""
    noise = np.zeros(policy.weights.size, np.float32)
    noise[policy.layout.plain.size :] = policy.network.noise
    noise = policy.layout.named_parameters(noise)
    leaves = {name: torch.tensor(p, dtype=torch.float64, requires_grad=True) for name, p in policy.parameters().items()}
    h = torch.tensor(OBSERVATIONS, dtype=torch.float64)
    for layer in LAYERS:
        weight, bias = leaves[f"{layer}.weight"], leaves[f"{layer}.bias"]
        if f"{layer}.weight_sigma" in leaves:
            weight = weight + leaves[f"{layer}.weight_sigma"] * torch.tensor(noise[f"{layer}.weight_sigma"])
            bias = bias + leaves[f"{layer}.bias_sigma"] * torch.tensor(noise[f"{layer}.bias_sigma"])
        h = h @ weight.T + bias
        h = h if layer == "policy.head" else torch.relu(h)
    (h * torch.tensor(d_outputs)).sum().backward()
    return h.detach().numpy(), {name: leaf.grad.numpy() for name, leaf in leaves.items()}


@pytest.mark.parametrize("noisy", [1, 2, 3])
def test_gradients_against_autograd(noisy):
    policy = make_policy(noisy)
    policy.resample(np.random.default_rng(3))
    d_outputs = np.random.default_rng(4).standard_normal((7, 4)).astype(np.float32)
    expected_outputs, expected = autograd(policy, d_outputs)
    np.testing.assert_allclose(outputs(policy), expected_outputs, atol=1e-6)
    closed = policy.network.backward((d_outputs.T.copy().T, np.empty(0, np.float32)))
    weights = torch.from_numpy(policy.weights)
    network = policy.spec.torch(policy.layout, weights, policy.network)
    assert isinstance(network, NoisyTorchNetwork)
    backward((network(torch.from_numpy(policy.encode(OBSERVATIONS)))[0] * torch.tensor(d_outputs)).sum(), [network])
    for flat in (closed, network.flat.grad.numpy()):
        for name, gradient in policy.layout.named_parameters(flat).items():
            np.testing.assert_allclose(gradient, expected[name], atol=2e-6, err_msg=name)


def test_state_and_json():
    policy = make_policy()
    other = Policy(spec_from_json(policy.spec.to_json()))
    other.set_state(policy.get_state())
    assert np.array_equal(outputs(other), outputs(policy))
