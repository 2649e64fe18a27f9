"""Networks with convolutions: torch and numpy against a plain torch.nn reference."""

import json

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete
from torch import nn
from torch.nn import functional

from rllib import sample_batch as sb
from rllib.learners.learner import make_learner
from rllib.learners.updates.objective import Objective
from rllib.learners.updates.optimizers import OptimizerSettings
from rllib.losses.ppo import PPO_LOSS
from rllib.models.acting_in_torch import ActingNetwork
from rllib.models.architectures import spec_from_json
from rllib.models.catalog.catalog import policy_spec
from rllib.models.dense.in_torch import TorchNetwork, backward
from rllib.models.observations.torso import filters_from
from rllib.policy import Policy
from rllib.sample_batch import SampleBatch
from tests.gpu import needs_gpu

PPO_SETTINGS = {"clip_param": 0.2, "kl_coeff": 0.2, "vf_loss_coeff": 0.5, "entropy_coeff": 0.01, "vf_clip_param": 10.0}
ATARI = Box(0, 255, (84, 84, 4), np.uint8)
SGD = OptimizerSettings("sgd")
SMALL = Box(0, 255, (13, 11, 3), np.uint8)
FIRST = Box(0, 255, (3, 13, 11), np.uint8)
FILTERS = [[5, 4, 2, "valid"], [6, [3, 2], [2, 1]]]
MIXED = Dict(a=Box(-1, 1, (3,)), image=SMALL, z=Discrete(4))

CASES = {
    "nature": (ATARI, {"conv_filters": "nature", "vf_share_layers": True}),
    "nature apart": (ATARI, {"conv_filters": "nature", "post_fcnet_hiddens": [16]}),
    "automatic 84": (ATARI, {"vf_share_layers": True}),
    "automatic 42": (Box(0, 255, (42, 42, 1), np.uint8), {}),
    "automatic 64": (Box(0, 255, (64, 64, 3), np.uint8), {"post_fcnet_hiddens": [8]}),
    "small": (SMALL, {"conv_filters": FILTERS, "conv_activation": "swish"}),
    "channels first": (FIRST, {"conv_filters": FILTERS, "post_fcnet_hiddens": [7, 5]}),
    "layer norm": (SMALL, {"conv_filters": FILTERS, "post_fcnet_hiddens": [7], "layer_norm": True}),
    "as large as the image": (SMALL, {"conv_filters": [[6, [13, 11], 1, "valid"]], "layer_norm": True}),
    "floats": (Box(-1, 1, (10, 10, 2)), {"conv_activation": "tanh", "vf_share_layers": True}),
    "matrix": (Box(0, 1, (9, 9)), {"conv_filters": [[4, 3, 2]]}),
    "mixed": (MIXED, {"conv_filters": FILTERS, "fcnet_hiddens": [9], "post_fcnet_hiddens": [6]}),
    "two images": (
        Dict(a=SMALL, b=Dict(c=FIRST, d=Box(0, 255, (2,), np.uint8))),
        {"conv_filters": [[4, 3, 2]], "fcnet_hiddens": [], "post_fcnet_hiddens": [6], "vf_share_layers": True},
    ),
}
each_case = pytest.mark.parametrize("name", CASES)


def make(name, rows, seed=0):
    space, model = CASES[name]
    spec = policy_spec(space, Discrete(3), {"vf_share_layers": False, **model})
    policy = Policy(spec, rng=np.random.default_rng(seed))
    rng = np.random.default_rng(seed + 1)
    policy.weights[:] += 0.05 * rng.standard_normal(len(policy.weights)).astype(np.float32)
    shape = spec.encoder.shape
    if isinstance(space, Dict) or space.dtype == np.uint8:
        return policy, rng.integers(0, 255, (rows, *shape)).astype(np.float32 if name == "mixed" else np.uint8)
    return policy, rng.standard_normal((rows, *shape), dtype=np.float32)


def reference(policy, rows, parameters):
    """Distribution inputs and values, layer by layer as in any tutorial."""
    spec, flat = policy.spec, rows.reshape(len(rows), -1).float()
    activation = {"relu": torch.relu, "tanh": torch.tanh, "swish": functional.silu}
    results = []
    for head in ("policy", "value"):
        owner = head if f"{head}.image_0_conv_0.weight" in parameters else "shared"
        features = []
        for number, image in enumerate(spec.torso.images):
            x = flat[:, image.start : image.start + image.size].reshape(len(rows), *image.shape) * image.scale
            x = x[..., None] if x.ndim == 3 else x
            x = x if image.channels_first else x.permute(0, 3, 1, 2)
            for index, filters in enumerate(image.filters):
                name = f"{owner}.image_{number}_conv_{index}"
                top, bottom, left, right = filters.pads(*x.shape[2:])
                x = functional.pad(x, (left, right, top, bottom))
                x = functional.conv2d(x, parameters[f"{name}.weight"], parameters[f"{name}.bias"], filters.stride)
                if spec.layer_norm:
                    scale, shift = parameters[f"{name}_norm.weight"], parameters[f"{name}_norm.bias"]
                    x = functional.layer_norm(x.movedim(1, -1), scale.shape, scale, shift).movedim(-1, 1)
                x = activation[spec.torso.activation](x)
            features.append(x.permute(0, 2, 3, 1).reshape(len(rows), -1))
        features += [flat[:, start:stop] * scale for start, stop, scale in spec.torso.others]
        x = torch.cat(features, 1)
        for index in range(len(spec.hiddens)):
            name = f"{owner}.hidden_{index}"
            x = functional.linear(x, parameters[f"{name}.weight"], parameters[f"{name}.bias"])
            if spec.layer_norm:
                scale, shift = (parameters[f"{owner}.norm_{index}.{part}"] for part in ("weight", "bias"))
                x = functional.layer_norm(x, scale.shape, scale, shift)
            x = activation[spec.activations[index]](x)
        results.append(functional.linear(x, parameters[f"{head}.head.weight"], parameters[f"{head}.head.bias"]))
    return results[0], results[1][:, 0]


@each_case
def test_both_networks_compute_what_plain_torch_does(name):
    policy, rows = make(name, 11)
    parameters = {key: torch.from_numpy(np.ascontiguousarray(part)) for key, part in policy.parameters().items()}
    dist_inputs, values = reference(policy, torch.from_numpy(rows), parameters)
    acting = ActingNetwork(policy.spec.torch(policy.layout, torch.from_numpy(policy.weights), None), policy.spec.critic)
    for network in (policy.network, acting):
        found = network.forward(rows)
        np.testing.assert_allclose(found[0], dist_inputs, atol=2e-5)
        np.testing.assert_allclose(found[1], values, atol=2e-5)
        np.testing.assert_allclose(network.forward_policy(rows), dist_inputs, atol=2e-5)
        np.testing.assert_allclose(network.forward_value(rows), values, atol=2e-5)
        if network.gives_values:
            beside = np.full(11, np.nan, np.float32)
            np.testing.assert_allclose(network.forward_policy(rows, beside), dist_inputs, atol=2e-5)
            np.testing.assert_allclose(beside, values, atol=2e-5)
    assert policy.network.gives_values == (policy.layout.num_towers == 1)


@each_case
def test_gradients_are_those_of_plain_torch(name):
    policy, rows = make(name, 5)
    rng = np.random.default_rng(7)
    given = torch.from_numpy(rows)
    d_dist_inputs = torch.from_numpy(rng.standard_normal((5, 3), dtype=np.float32) / 5)
    d_values = torch.from_numpy(rng.standard_normal(5, dtype=np.float32) / 5)
    parameters = {
        key: torch.from_numpy(np.ascontiguousarray(part)).requires_grad_() for key, part in policy.parameters().items()
    }
    dist_inputs, values = reference(policy, given, parameters)
    ((dist_inputs * d_dist_inputs).sum() + (values * d_values).sum()).backward()

    network = TorchNetwork(policy.layout, policy.spec.activations, torch.from_numpy(policy.weights))
    dist_inputs, values = network(given)
    backward((dist_inputs * d_dist_inputs).sum() + (values * d_values).sum(), [network])
    flat = network.flat.grad
    for key, gradient in policy.layout.named_parameters(flat).items():
        np.testing.assert_allclose(gradient, parameters[key].grad, atol=1e-5, rtol=1e-4, err_msg=key)


@pytest.mark.parametrize("name", ["small", "layer norm", "mixed"])
@pytest.mark.parametrize("rows", [1, 3, 8, 9, 20])
def test_the_number_of_rows_does_not_matter(name, rows):
    policy, observations = make(name, 20)
    whole = policy.network.forward_policy(observations).copy()
    np.testing.assert_allclose(policy.network.forward_policy(observations[:rows]), whole[:rows], atol=1e-6)
    strided = np.repeat(observations, 2, axis=0)[::2]
    np.testing.assert_allclose(policy.network.forward_policy(strided[:rows]), whole[:rows], atol=1e-6)


@each_case
def test_parameters_tile_the_vector_and_are_shaped_as_in_torch(name):
    policy, _ = make(name, 1)
    flat = np.zeros(policy.layout.size, np.float32)
    named = policy.layout.named_parameters(flat)
    for parameter in named.values():
        parameter += 1
    assert (flat == 1).all()
    image = policy.spec.torso.images[0]
    owner = "shared" if policy.layout.num_towers == 1 else "value"
    module = nn.Conv2d(image.pixels[2], image.filters[0].channels, image.filters[0].kernel)
    assert named[f"{owner}.image_0_conv_0.weight"].shape == module.weight.shape


def test_nature_is_the_network_of_the_paper():
    """As the published architecture: 32 8x8/4, 64 4x4/2, 64 3x3/1, 512, without padding."""
    spec = policy_spec(ATARI, Discrete(6), {"conv_filters": "nature", "vf_share_layers": True})
    module = nn.Sequential(
        nn.Conv2d(4, 32, 8, 4),
        nn.Conv2d(32, 64, 4, 2),
        nn.Conv2d(64, 64, 3, 1),
        nn.Linear(3136, 512),
        nn.Linear(512, 7),
    )
    assert spec.torso.num_features == 3136
    assert spec.hiddens == (512,) and spec.activations == ("relu",) and spec.torso.activation == "relu"
    assert spec.layout().size == sum(parameter.numel() for parameter in module.parameters())


@pytest.mark.parametrize(
    ("size", "left"), [(84, (1, 1, 256)), (42, (1, 1, 256)), (64, (3, 3, 256)), (96, (1, 1, 256)), (10, (1, 1, 32))]
)
def test_automatic_filters(size, left):
    spec = policy_spec(Box(0, 255, (size, size, 3), np.uint8), Discrete(2))
    assert spec.torso.images[0].layers[-1].out_shape == left
    assert spec.hiddens == ()


@each_case
def test_description_survives_json(name):
    space, model = CASES[name]
    spec = policy_spec(space, Discrete(2), model)
    assert spec_from_json(json.loads(json.dumps(spec.to_json()))) == spec


def test_initial_kernels_are_orthogonal():
    spec = policy_spec(SMALL, Discrete(2), {"conv_filters": FILTERS})
    kernels = Policy(spec, rng=np.random.default_rng(0)).parameters()["shared.image_0_conv_1.weight"].reshape(6, -1)
    np.testing.assert_allclose(kernels @ kernels.T, 2 * np.eye(6), atol=1e-5)


def test_pixels_are_never_copied_to_floats_outside_of_the_network():
    policy, rows = make("small", 4)
    assert policy.encode(rows) is rows
    assert policy.new_inputs(100).size == 0


def test_small_images_are_flattened_and_large_ones_need_filters():
    assert policy_spec(Box(0, 255, (7, 7, 3), np.uint8), Discrete(2)).torso is None
    assert policy_spec(ATARI, Discrete(2), {"conv_filters": []}).torso is None
    with pytest.raises(ValueError, match=r"no filters of choice for images of \[210, 160, 3\].*conv_filters"):
        policy_spec(Box(0, 255, (210, 160, 3), np.uint8), Discrete(2))


@pytest.mark.parametrize(
    ("space", "model", "message"),
    [
        (SMALL, {"conv_filters": [[16, 20, 2, "valid"]]}, "too small for conv_filters"),
        (SMALL, {"conv_filters": [[16, 4]]}, r"\[channels, kernel, stride\]"),
        (SMALL, {"conv_filters": [[16, 4, 0]]}, r"\[channels, kernel, stride\]"),
        (SMALL, {"conv_filters": [[16, 4, 1, "full"]]}, r"\[channels, kernel, stride\]"),
        (SMALL, {"conv_filters": "large"}, "'nature'"),
        (SMALL, {"conv_activation": "softplus"}, "conv_activation"),
        (SMALL, {"post_fcnet_hiddens": 512}, "post_fcnet_hiddens"),
        (Box(-1, 1, (4,)), {"conv_filters": "nature"}, "is for images"),
    ],
    ids=str,
)
def test_wrong_settings_say_what_to_do(space, model, message):
    with pytest.raises(ValueError, match=message):
        policy_spec(space, Discrete(2), model)


def test_layers_that_images_skip_are_told(caplog):
    policy_spec(SMALL, Discrete(2), {"conv_filters": FILTERS, "fcnet_hiddens": [64]})
    assert "post_fcnet_hiddens" in caplog.text


def test_paddings_of_ray():
    assert [layer.padding for layer in filters_from([[8, 4, 2], [8, 4, 2], [8, 4, 2]])] == ["same", "same", "valid"]


def test_the_numpy_learner_says_what_to_use():
    policy, _ = make("small", 1)
    with pytest.raises(ValueError, match="a network with convolutions"):
        make_learner(policy, PPO_LOSS, kind="numpy")


@needs_gpu
@pytest.mark.parametrize("name", ["nature", "channels first", "layer norm", "mixed"])
def test_a_gpu_learns_what_the_cpu_does(name):
    policies = [make(name, 64)[0] for _ in range(2)]
    batch, first = learnable(policies[0], make(name, 64)[1]), policies[0].weights.copy()
    # Without the limit, steps at this rate leave the numbers of float32 (on every device).
    objective = Objective(PPO_LOSS, optimizer=SGD, grad_clip=0.5)
    for policy, device in zip(policies, ("cpu", "cuda")):
        learner = make_learner(policy, objective, kind="torch", device=device)
        learner.update(batch, rng=np.random.default_rng(0), num_epochs=2, minibatch_size=32, lr=1e-2, **PPO_SETTINGS)
    here, there = (policy.weights - first for policy in policies)
    # Convolutions take TF32 there, with 10 bits behind the point: 1.4 % were seen after these four steps.
    assert np.linalg.norm(there - here) < 0.05 * np.linalg.norm(here)


@pytest.mark.parametrize("name", ["nature", "channels first", "layer norm", "mixed"])
def test_a_step_of_the_learner_goes_against_its_gradient(name):
    policy, rows = make(name, 16)
    batch = learnable(policy, rows)
    before = policy.weights.copy()
    learner = make_learner(policy, Objective(PPO_LOSS, optimizer=SGD), kind="auto")
    gradient, stats = learner.compute_gradient(batch, **PPO_SETTINGS)
    assert np.isfinite(stats["total_loss"]) and abs(gradient).max() > 0
    learner.update(batch, rng=np.random.default_rng(0), lr=0.5, **PPO_SETTINGS)
    np.testing.assert_allclose(policy.weights, before - 0.5 * gradient, atol=1e-5)


def learnable(policy, rows) -> SampleBatch:
    """What a worker would send of these observations, with made-up advantages and targets."""
    count, rng = len(rows), np.random.default_rng(3)
    dist_inputs = np.empty((count, policy.num_dist_inputs), np.float32)
    actions = np.empty(count, np.int64)
    policy.act(rows, policy.noise(rng, count), dist_inputs, actions)
    return SampleBatch(
        {
            sb.OBS: rows,
            sb.ACTIONS: actions,
            sb.ACTION_DIST_INPUTS: dist_inputs,
            sb.ACTION_LOGP: policy.log_prob(dist_inputs, actions),
            sb.VF_PREDS: policy.values(rows),
            sb.ADVANTAGES: rng.standard_normal(count, dtype=np.float32),
            sb.VALUE_TARGETS: rng.standard_normal(count, dtype=np.float32),
        }
    )
