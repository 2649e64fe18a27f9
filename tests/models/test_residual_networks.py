"""SimBa's and SimbaV2's networks beside the papers' equations in float64, written with torch.nn.functional alone."""

import math

import numpy as np
import pytest
import torch
from torch.nn import functional

from rllib.models.distributions.squashed import BoundedSquashedGaussian
from rllib.models.modules import ResidualNetworks
from rllib.models.observations.encoders import BoxEncoder
from rllib.models.policy_spec import PolicySpec
from rllib.models.residual.spec import NETWORKS, Residual
from rllib.policy import Policy

OBSERVED, ACTION, ROWS, WIDTH, BLOCKS = 5, 2, 7, 8, 2
WIDTHS = {"observation": OBSERVED, "action": ACTION}


def of_paper(network: str, named: dict, owner: str, x: torch.Tensor, heads: int) -> list[torch.Tensor]:
    """Results of the heads for inputs x [B, inputs], by one network's parameters in float64."""
    p = {name.removeprefix(f"{owner}."): torch.tensor(np.float64(each)) for name, each in named.items()}
    mean, variance = (torch.tensor(np.float64(named[f"observation.{name}"])) for name in ("mean", "variance"))
    observed = (x[:, :OBSERVED] - mean) / torch.sqrt(variance + 1e-8)
    x = torch.cat([observed, x[:, OBSERVED:]], 1)

    def linear(name, x):
        return functional.linear(x, p[f"{name}.weight"], p.get(f"{name}.bias"))

    if network == "simba":
        x = linear("embed", x)
        for i in range(BLOCKS):
            normal = functional.layer_norm(x, [WIDTH], p[f"block_{i}.norm.weight"], p[f"block_{i}.norm.bias"])
            x = x + linear(f"block_{i}.down", torch.relu(linear(f"block_{i}.up", normal)))
        x = functional.layer_norm(x, [WIDTH], p["norm.weight"], p["norm.bias"])
        return [linear(f"head_{i}", x) for i in range(heads)]

    def unit(x):
        return x / torch.linalg.vector_norm(x, dim=1, keepdim=True)

    x = unit(torch.cat([x, 3 * torch.ones(len(x), 1, dtype=x.dtype)], 1))
    x = unit(p["embed.scale"] * linear("embed", x))
    for i in range(BLOCKS):
        up = linear(f"block_{i}.up", x) * p[f"block_{i}.up.scale"]
        following = unit(linear(f"block_{i}.down", torch.relu(up)))
        # The rate begins at 1 / (blocks + 1), its parameter at 1 / sqrt(width).
        rate = p[f"block_{i}.rate.scale"] * (math.sqrt(WIDTH) / (BLOCKS + 1))
        x = unit((1 - rate) * x + rate * following)
    return [linear(f"head_{i}", linear(f"head_{i}_hidden", x) * p[f"head_{i}_hidden.scale"]) for i in range(heads)]


def critics(network: str, copies: int | None, num_outputs: int | None):
    """Description, layout and weights, moved away from where they begin."""
    module = ResidualNetworks(Residual(network, WIDTH, BLOCKS), num_outputs=num_outputs, copies=copies)
    layout, rng = module.layout(WIDTHS), np.random.default_rng(0)
    weights = np.zeros(layout.size, np.float32)
    module.initialize(layout, weights, rng)
    weights[: layout.trained.size] += rng.normal(0, 0.1, layout.trained.size).astype(np.float32)
    _, mean, variance = layout.split(weights)
    mean[:], variance[:] = rng.normal(size=OBSERVED), rng.uniform(0.5, 2, OBSERVED)
    return module, layout, weights


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize(("copies", "num_outputs"), [(None, None), (2, None), (3, 4)])
def test_critics_are_the_papers(network, copies, num_outputs):
    module, layout, weights = critics(network, copies, num_outputs)
    rng = np.random.default_rng(1)
    observations, actions = rng.normal(size=(ROWS, OBSERVED)), rng.normal(size=(ROWS, ACTION))
    ones = np.ones((ROWS, 1))
    read = [torch.tensor(np.float32(each)) for each in (np.concatenate([observations, ones], 1), actions)]
    found = module.torch(layout, torch.from_numpy(weights))(*read).detach()
    inputs = torch.tensor(np.concatenate([observations, actions], 1))
    named = layout.named_parameters(weights)
    expected = torch.stack([of_paper(network, named, str(i), inputs, 1)[0] for i in range(copies or 1)])
    expected = expected[..., 0] if num_outputs is None else expected
    torch.testing.assert_close(found.double(), expected if copies else expected[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("network", NETWORKS)
def test_gradients_are_autograds_of_the_papers_equations(network):
    module, layout, weights = critics(network, 2, None)
    built = module.torch(layout, torch.from_numpy(weights))
    rng = np.random.default_rng(2)
    inputs = np.float32(rng.normal(size=(ROWS, OBSERVED + ACTION)))
    observations = torch.tensor(np.concatenate([inputs[:, :OBSERVED], np.ones((ROWS, 1), np.float32)], 1))
    loss = built(observations, torch.tensor(inputs[:, OBSERVED:])).square().sum()
    built.receive(torch.autograd.grad(loss, built.leaves))

    def loss_at(direction, distance):
        moved = layout.named_parameters(np.float64(weights) + distance * direction)
        return sum(
            float(of_paper(network, moved, str(i), torch.tensor(np.float64(inputs)), 1)[0].square().sum())
            for i in range(2)
        )

    for _ in range(5):
        direction = np.zeros(layout.size)
        direction[: layout.trained.size] = rng.normal(size=layout.trained.size)
        slope = (loss_at(direction, 1e-5) - loss_at(direction, -1e-5)) / 2e-5
        np.testing.assert_allclose(built.flat.grad.numpy() @ direction[: layout.trained.size], slope, rtol=2e-3)


@pytest.mark.parametrize("network", NETWORKS)
def test_actors_act_as_they_learn(network):
    distribution = BoundedSquashedGaussian((ACTION,), None)
    residual = Residual(network, WIDTH, BLOCKS)
    spec = PolicySpec(BoxEncoder((OBSERVED,)), distribution, (), (), critic=False, residual=residual)
    policy, rng = Policy(spec, rng=np.random.default_rng(0)), np.random.default_rng(1)
    _, mean, variance = policy.layout.split(policy.weights)
    mean[:], variance[:] = rng.normal(size=OBSERVED), rng.uniform(0.5, 2, OBSERVED)
    observations = np.float32(rng.normal(size=(ROWS, OBSERVED)))
    acted = policy.dist_inputs(observations)
    in_torch, values = spec.torch(policy.layout, torch.from_numpy(policy.weights), None)(
        torch.from_numpy(policy.encode(observations))
    )
    assert len(values) == 0
    np.testing.assert_allclose(acted, in_torch.detach().numpy(), rtol=1e-4, atol=1e-5)
    expected = of_paper(network, policy.parameters(), "policy", torch.tensor(np.float64(observations)), 2)
    np.testing.assert_allclose(acted, torch.cat(expected, 1).numpy(), rtol=1e-4, atol=1e-5)
    # The description is all that a checkpoint needs.
    again = Policy(PolicySpec.from_json(spec.to_json()))
    again.set_state(policy.get_state())
    np.testing.assert_array_equal(again.dist_inputs(observations), acted)


def test_units_of_simbav2_begin_with_weights_of_length_1():
    module = ResidualNetworks(Residual("simbav2", WIDTH, BLOCKS), copies=2)
    layout = module.layout(WIDTHS)
    weights = np.zeros(layout.size, np.float32)
    module.initialize(layout, weights, np.random.default_rng(0))
    named = layout.named_parameters(weights)
    for parameter in named.values():
        if parameter.ndim == 2:
            np.testing.assert_allclose(np.linalg.norm(parameter, axis=1), 1, rtol=1e-5)
    # Section 4.4: scales are sqrt(2 / width), and a block is taken in to 1 / (blocks + 1) at first.
    np.testing.assert_allclose(named["0.embed.scale"], math.sqrt(2 / WIDTH), rtol=1e-6)
    rate = named["1.block_0.rate.scale"] * layout.trained.scale_factor("block_0.rate.scale")
    np.testing.assert_allclose(rate, 1 / (BLOCKS + 1), rtol=1e-6)
