"""SimBa's and SimbaV2's networks beside the papers' equations in float64, written with torch.nn.functional alone."""

import math

import numpy as np
import pytest
import torch
from torch.nn import functional

from rllib.models.architectures import spec_from_json
from rllib.models.arithmetic import kernels
from rllib.models.dense.network_spec import NetworkSpec
from rllib.models.distributions.squashed import BoundedSquashedGaussian
from rllib.models.modules import ResidualNetworks
from rllib.models.observations.encoders import BoxEncoder
from rllib.models.residual.layout import NETWORKS
from rllib.models.residual.spec import Residual
from rllib.policy import Policy

OBSERVED, ACTION, ROWS, WIDTH, BLOCKS = 5, 2, 7, 8, 2
WIDTHS = {"observation": OBSERVED, "action": ACTION}
BY_BATCH = ("xqc", "flashsac")


def of_batches(network: str, p: dict, x: torch.Tensor, heads: int, by_batch: bool) -> list[torch.Tensor]:
    """XQC's and FlashSAC's networks, with torch's own batch normalisation."""

    def norm(name, x):
        running = (p[f"{name}.running_mean"].clone(), p[f"{name}.running_var"].clone())
        learned = p[f"{name}.weight"], p[f"{name}.bias"]
        return functional.batch_norm(x, *running, *learned, by_batch, 0.01, {"xqc": 1e-3, "flashsac": 1e-5}[network])

    x = norm("embed_norm", x)
    if network == "xqc":
        for i in range(BLOCKS):
            x = torch.relu(norm(f"layer_{i}_norm", functional.linear(x, p[f"layer_{i}.weight"])))
    else:
        x = functional.linear(x, p["embed.weight"])
        for i in range(BLOCKS):
            hidden = torch.relu(norm(f"block_{i}.up_norm", functional.linear(x, p[f"block_{i}.up.weight"])))
            x = x + torch.relu(norm(f"block_{i}.down_norm", functional.linear(hidden, p[f"block_{i}.down.weight"])))
        x = functional.rms_norm(x, [WIDTH], p["norm.weight"], 1e-6)
    return [functional.linear(x, p[f"head_{i}.weight"], p[f"head_{i}.bias"]) for i in range(heads)]


def of_paper(
    network: str, named: dict, owner: str, x: torch.Tensor, heads: int, by_batch: bool = False
) -> list[torch.Tensor]:
    """Results of the heads for inputs x [B, inputs], by one network's parameters in float64."""
    p = {name.removeprefix(f"{owner}."): torch.tensor(np.float64(each)) for name, each in named.items()}
    if network in ("xqc", "flashsac"):
        return of_batches(network, p, x, heads, by_batch)
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
    mean[:], variance[:] = rng.normal(size=len(mean)), rng.uniform(0.5, 2, len(mean))
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


CALLS = [*((each, False) for each in NETWORKS), *((each, True) for each in BY_BATCH)]


@pytest.mark.parametrize(("network", "by_batch"), CALLS)
def test_gradients_are_autograds_of_the_papers_equations(network, by_batch):
    """Where a batch normalises, also through its statistics."""
    module, layout, weights = critics(network, 2, None)
    built = module.torch(layout, torch.from_numpy(weights))
    rng = np.random.default_rng(2)
    inputs = np.float32(rng.normal(size=(ROWS, OBSERVED + ACTION)))
    observations = torch.tensor(np.concatenate([inputs[:, :OBSERVED], np.ones((ROWS, 1), np.float32)], 1))
    before = np.float64(weights)
    called = {"by_batch": True} if by_batch else {}
    loss = built(observations, torch.tensor(inputs[:, OBSERVED:]), **called).square().sum()
    built.receive(torch.autograd.grad(loss, built.leaves))

    def loss_at(direction, distance):
        moved, x = layout.named_parameters(before + distance * direction), torch.tensor(np.float64(inputs))
        return sum(float(of_paper(network, moved, str(i), x, 1, by_batch)[0].square().sum()) for i in range(2))

    for _ in range(5):
        direction = np.zeros(layout.size)
        direction[: layout.trained.size] = rng.normal(size=layout.trained.size)
        slope = (loss_at(direction, 1e-5) - loss_at(direction, -1e-5)) / 2e-5
        np.testing.assert_allclose(built.flat.grad.numpy() @ direction[: layout.trained.size], slope, rtol=2e-3)


@pytest.mark.parametrize("network", NETWORKS)
def test_actors_act_as_they_learn(network):
    distribution = BoundedSquashedGaussian((ACTION,), None)
    residual = Residual(network, WIDTH, BLOCKS)
    spec = NetworkSpec(BoxEncoder((OBSERVED,)), distribution, (), (), critic=False, architecture=residual)
    policy, rng = Policy(spec, rng=np.random.default_rng(0)), np.random.default_rng(1)
    _, mean, variance = policy.layout.split(policy.weights)
    mean[:], variance[:] = rng.normal(size=len(mean)), rng.uniform(0.5, 2, len(mean))
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
    again = Policy(spec_from_json(spec.to_json()))
    again.set_state(policy.get_state())
    np.testing.assert_array_equal(again.dist_inputs(observations), acted)


@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize(("copies", "num_outputs"), [(None, None), (2, None), (3, 4)])
def test_numpys_gradients_are_autograds(copies, num_outputs, cores, monkeypatch):
    """Of weights and of actions, after other batches; parts of them have the same bits on any number of cores."""
    monkeypatch.setattr(kernels, "PART", 1000)
    monkeypatch.setattr(kernels, "FEWEST_ROWS", 10)
    module, layout, weights = critics("simba", copies, num_outputs)
    in_torch, rng = module.torch(layout, torch.from_numpy(weights.copy())), np.random.default_rng(4)
    in_numpy, alone = (module.numpy(layout, weights) for _ in range(2))
    for rows in (33, 5, 33):
        observations, actions = (rng.standard_normal((rows, n), np.float32) for n in (OBSERVED + 1, ACTION))
        observations[:, -1] = 1
        acted = torch.from_numpy(actions).requires_grad_()
        expected = in_torch(torch.from_numpy(observations), acted)
        # As of the least of several critics: most rows of a critic have no gradient.
        d_outputs = rng.standard_normal(expected.shape, np.float32) * (rng.random(expected.shape) < 0.3)
        *gradients, of_actions = torch.autograd.grad(
            (expected * torch.from_numpy(d_outputs)).sum(), [*in_torch.leaves, acted]
        )
        in_torch.receive(gradients)
        with kernels.on_cores(cores):
            np.testing.assert_allclose(in_numpy.forward(observations, actions), expected.detach(), atol=1e-5)
            found = in_numpy.input_gradient(d_outputs, "action").copy()
            np.testing.assert_allclose(found, of_actions, atol=2e-5)
            in_numpy.backward(d_outputs)
        np.testing.assert_allclose(in_numpy.gradient, in_torch.flat.grad, atol=1e-4)
        alone.forward(observations, actions)
        np.testing.assert_array_equal(alone.input_gradient(d_outputs, "action"), found)
        np.testing.assert_array_equal(alone.backward(d_outputs), in_numpy.gradient)


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


@pytest.mark.parametrize("network", BY_BATCH)
def test_batches_normalise_and_move_the_running_statistics(network):
    """Results of a batch are those of its own statistics; 1 % of these goes into the running ones, of each critic."""
    module, layout, weights = critics(network, 2, 3)
    built, rng = module.torch(layout, torch.from_numpy(weights)), np.random.default_rng(3)
    inputs = np.float32(rng.normal(2, 3, size=(ROWS, OBSERVED + ACTION)))
    observations = torch.tensor(np.concatenate([inputs[:, :OBSERVED], np.ones((ROWS, 1), np.float32)], 1))
    named = {name: each.copy() for name, each in layout.named_parameters(weights).items()}
    found = built(observations, torch.tensor(inputs[:, OBSERVED:]), by_batch=True).detach()
    x = torch.tensor(np.float64(inputs))
    for i in range(2):
        expected = of_paper(network, named, str(i), x, 1, by_batch=True)[0]
        torch.testing.assert_close(found[i].double(), expected, rtol=1e-4, atol=1e-4)
        now = layout.named_parameters(weights)
        for kind, of_batch in (("running_mean", inputs.mean(0)), ("running_var", inputs.var(0))):
            name = f"{i}.embed_norm.{kind}"
            np.testing.assert_allclose(now[name], 0.99 * named[name] + 0.01 * of_batch, rtol=1e-5, atol=1e-6)
    moved = [name for name in named if not np.array_equal(named[name], layout.named_parameters(weights)[name])]
    assert moved and all("running" in name for name in moved)


@pytest.mark.parametrize("network", BY_BATCH)
def test_projections_bring_weights_to_their_lengths(network):
    """Of each unit 1; of flashsac's normalisations, scales and shifts together, the square root of their number."""
    module, layout, weights = critics(network, 2, None)
    built = module.torch(layout, torch.from_numpy(weights))
    before = {name: each.copy() for name, each in layout.named_parameters(weights).items()}
    with torch.no_grad():
        built.project()
    now = layout.named_parameters(weights)
    for name, matrix in now.items():
        if matrix.ndim == 2:
            expected = before[name] / np.linalg.norm(before[name], axis=1, keepdims=True)
            np.testing.assert_allclose(matrix, expected, rtol=1e-5, atol=1e-7)
        elif name.endswith("norm.weight"):
            bias = name.replace("weight", "bias")
            parts = [each for each in (name, bias) if each in now]
            length = np.sqrt(sum(np.square(before[each]).sum() for each in parts))
            size = np.sqrt(len(matrix)) / length if network == "flashsac" else 1
            for each in parts:
                np.testing.assert_allclose(now[each], size * before[each], rtol=1e-5)
        elif "head" in name or "running" in name:
            np.testing.assert_array_equal(matrix, before[name])
