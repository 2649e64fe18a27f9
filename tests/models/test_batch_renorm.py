"""Networks with batch renormalisation against the paper's algorithm in float64, layer by layer."""

import numpy as np
import pytest
import torch

from rllib.models.architectures import spec_from_json
from rllib.models.arithmetic import kernels
from rllib.models.dense.batch_renorm import BatchRenorm
from rllib.models.dense.in_torch import backward
from rllib.models.dense.initializers import uniform
from rllib.models.dense.network_spec import NetworkSpec
from rllib.models.dense.spec import Dense
from rllib.models.distributions.squashed import BoundedSquashedGaussian
from rllib.models.modules import FullyConnected
from rllib.models.observations.encoders import BoxEncoder
from rllib.policy import Policy

torch.set_num_threads(1)

# Two batches of their own statistics, and bounds that the corrections of the third and later ones reach.
CONSTANTS = BatchRenorm(momentum=0.2, epsilon=0.01, warm_up=2, r_max=1.2, d_max=0.3)
ACTIVATIONS = {"relu": torch.relu, "tanh": torch.tanh, "swish": torch.nn.functional.silu}
WIDTHS = {"observation": 4, "action": 2}
ROWS = 24


class Slow:
    """One network of the parameters' names, in float64; the running statistics are arrays of its own."""

    def __init__(self, layout, flat, tower, activations, head=None):
        named = {name: torch.tensor(part, dtype=torch.float64) for name, part in layout.named_parameters(flat).items()}
        prefix = f"{tower}."
        self.parts = {name.removeprefix(prefix): part for name, part in named.items() if name.startswith(prefix)}
        if head:
            self.parts |= {f"head.{part}": named[f"{head}.{part}"] for part in ("weight", "bias")}
        self.passes, self.activations = 0, activations
        self.learned = [part.requires_grad_() for name, part in self.parts.items() if "running" not in name]

    def __call__(self, x, by_batch):
        parts = self.parts
        for index, activation in enumerate(self.activations):
            normal = self.normal(index, x, by_batch)
            x = ACTIVATIONS[activation](normal @ parts[f"hidden_{index}.weight"].T + parts[f"hidden_{index}.bias"])
        x = self.normal(len(self.activations), x, by_batch)
        self.passes += int(by_batch)
        return x @ parts["head.weight"].T + parts["head.bias"]

    def normal(self, index, x, by_batch):
        scale, shift, mean, variance = (
            self.parts[f"renorm_{index}.{name}"] for name in ("weight", "bias", "running_mean", "running_var")
        )
        running_std = (variance + 0.01).sqrt()
        if not by_batch:
            return (x - mean) / running_std * scale + shift
        batch_mean = x.sum(0) / len(x)
        batch_variance = ((x - batch_mean) ** 2).sum(0) / len(x)
        std = (batch_variance + 0.01).sqrt()
        normal = (x - batch_mean) / std
        if self.passes >= 2:
            r = (std / running_std).detach().clamp(1 / 1.2, 1.2)
            d = ((batch_mean - mean) / running_std).detach().clamp(-0.3, 0.3)
            normal = normal * r + d
        mean += 0.2 * (batch_mean.detach() - mean)
        variance += 0.2 * (batch_variance.detach() - variance)
        return normal * scale + shift

    def statistics(self):
        return [part.numpy() for name, part in self.parts.items() if "running" in name]


def started(layout, seed=0):
    """Weights with all parameters different from their initial ones; running statistics as they begin."""
    rng, weights = np.random.default_rng(seed), np.empty(layout.size, np.float32)
    uniform(layout, weights, rng)
    for name, part in layout.named_parameters(weights).items():
        if "running" not in name and name != "passes":
            part += rng.normal(0, 0.2, part.shape)
    return weights


def batches():
    """Of both modes; means and deviations drift."""
    rng = np.random.default_rng(3)
    for step in range(6):
        observations = np.ones((ROWS, 5), np.float32)
        observations[:, :-1] = rng.normal(0.5 * step, 1 + 0.3 * step, (ROWS, 4))
        yield observations, rng.uniform(-1, 1, (ROWS, 2)).astype(np.float32), step not in (2, 5)


def learned(layout, flat):
    """Parameters, or their gradients, tower after tower as `Slow.learned`."""
    named = {name: part for name, part in layout.named_parameters(flat).items() if "running" not in name}
    towers = layout.towers
    return [part for tower in towers for name, part in named.items() if name.startswith(f"{tower}.")]


def statistics(layout, flat):
    return [part for name, part in layout.named_parameters(flat).items() if "running" in name]


@pytest.mark.parametrize(
    ("hiddens", "activation"), [((10, 7), "relu"), ((9,), "tanh"), ((6, 5, 4), "swish"), ((), "relu")]
)
@pytest.mark.parametrize(("copies", "cores"), [(1, 1), (3, 1), (3, 2)])
def test_critics(copies, cores, hiddens, activation, monkeypatch):
    """Values, gradients of weights and actions, and running statistics, of batches in both modes."""
    monkeypatch.setattr(kernels, "PART", 1)
    module = FullyConnected(hiddens=hiddens, copies=copies, activation=activation, batch_renorm=CONSTANTS)
    layout = module.layout(WIDTHS)
    weights = started(layout)
    memory = weights.copy()
    in_numpy, in_torch = module.numpy(layout, weights), module.torch(layout, torch.from_numpy(memory))
    slow = [Slow(layout, weights, str(index), (activation,) * len(hiddens)) for index in range(copies)]
    for observations, actions, by_batch in batches():
        inputs = torch.tensor(np.concatenate([observations[:, :-1], actions], 1), dtype=torch.float64)
        inputs.requires_grad_()
        expected = torch.stack([network(inputs, by_batch)[:, 0] for network in slow])
        d_values = np.random.default_rng(0).normal(0, 1 / ROWS, expected.shape).astype(np.float32)
        leaves = [part for network in slow for part in network.learned]
        right = torch.autograd.grad((expected * torch.from_numpy(d_values)).sum(), [inputs, *leaves])

        with kernels.on_cores(cores):
            values = in_numpy.forward(observations, actions, by_batch=by_batch)
            np.testing.assert_allclose(values, expected.detach(), atol=2e-5)
            np.testing.assert_allclose(in_numpy.input_gradient(d_values, "action"), right[0][:, 4:], atol=1e-5)
            found = learned(layout, in_numpy.backward(d_values))
        acted = torch.from_numpy(actions).requires_grad_()
        values = in_torch(torch.from_numpy(observations), acted, by_batch=by_batch)
        np.testing.assert_allclose(values.detach(), expected.detach(), atol=2e-5)
        objective = (values * torch.from_numpy(d_values)).sum()
        of_actions = torch.autograd.grad(objective, acted, retain_graph=True)[0]
        np.testing.assert_allclose(of_actions, right[0][:, 4:], atol=1e-5)
        backward(objective, [in_torch])
        for each in (found, learned(layout, in_torch.flat.grad.numpy())):
            for gradient, expected_gradient in zip(each, right[1:], strict=True):
                np.testing.assert_allclose(gradient, expected_gradient, atol=1e-5)
        for flat in (weights, memory):
            running = [part for network in slow for part in network.statistics()]
            for part, expected_part in zip(statistics(layout, flat), running, strict=True):
                np.testing.assert_allclose(part, expected_part, atol=1e-5)
    assert layout.named_parameters(weights)["passes"] == 4
    assert not any(part.any() for part in statistics(layout, in_numpy.gradient))


def make_policy():
    distribution = BoundedSquashedGaussian((2,))
    settings = {
        "critic": False,
        "vf_share_layers": True,
        "initializer": "uniform",
        "architecture": Dense(batch_renorm=CONSTANTS),
    }
    spec = NetworkSpec(BoxEncoder((4,)), distribution, (10, 7), ("relu", "tanh"), **settings)
    return Policy(spec, rng=np.random.default_rng(0))


def test_actors():
    """An actor acts by the running statistics, and losses see these distributions, except in a call with `by_batch`."""
    policy = make_policy()
    policy.weights[:] = started(policy.layout)
    slow = Slow(policy.layout, policy.weights, policy.layout.towers[0], ("relu", "tanh"), head="policy.head")
    for observations, _, by_batch in batches():
        expected = slow(torch.tensor(observations[:, :-1], dtype=torch.float64), by_batch).detach()
        found = policy.network.forward(observations, by_batch=by_batch)[0]
        np.testing.assert_allclose(found, expected, atol=2e-5)
    expected = slow(torch.tensor(observations[:, :-1], dtype=torch.float64), False).detach()
    in_torch = policy.spec.masked_torch(policy.layout, torch.from_numpy(policy.weights), policy.network)
    for found in (
        policy.network.forward_policy(observations),
        policy.network.forward(observations)[0],
        policy.dist_inputs(observations[:, :-1]),
        in_torch(torch.from_numpy(observations))[0].detach(),
    ):
        np.testing.assert_allclose(found, expected, atol=2e-5)


def test_statistics_are_in_snapshots_states_and_specs():
    policy, other = make_policy(), make_policy()
    for observations, *_ in batches():
        policy.network.forward(observations, by_batch=True)
    assert statistics(policy.layout, policy.weights)[0].any()
    other.load_snapshot(policy.snapshot())
    np.testing.assert_array_equal(other.dist_inputs(observations[:, :-1]), policy.dist_inputs(observations[:, :-1]))
    third = Policy(spec_from_json(policy.spec.to_json()))
    third.set_state(policy.get_state())
    np.testing.assert_array_equal(third.dist_inputs(observations[:, :-1]), policy.dist_inputs(observations[:, :-1]))
    assert third.parameters()["passes"] == 6
