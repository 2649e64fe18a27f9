"""Networks of different sizes, with state-dependent noise, without a bias: numpy, torch, the formulas."""

import gymnasium as gym
import numpy as np
import pytest
import torch

from rllib.exploration.explorers import WorkerPosition
from rllib.exploration.network_noise import StateDependentNoise
from rllib.losses.ppo import PPO_LOSS
from rllib.models.architectures import spec_from_json
from rllib.models.catalog.catalog import policy_spec
from rllib.models.dense.state_dependent_noise import EPSILON
from rllib.policy import Policy
from tests.losses.ppo_support import SETTINGS, make_minibatch

BOX = gym.spaces.Box(-np.inf, np.inf, (4,))
ACTIONS = gym.spaces.Box(-1, 1, (2,))
SEPARATE = {"fcnet_hiddens": [16, 8], "vf_share_layers": False}
MODELS = {
    "other sizes": {**SEPARATE, "vf_hiddens": [32, 8, 8]},
    "other sizes, free deviation": {**SEPARATE, "vf_hiddens": [24], "free_log_std": True, "layer_norm": True},
    "no layers for the value": {**SEPARATE, "vf_hiddens": []},
    "no layers for the policy": {**SEPARATE, "fcnet_hiddens": [], "vf_hiddens": [16]},
    "gSDE": {**SEPARATE, "use_sde": True},
    "gSDE, shared layers": {**SEPARATE, "vf_share_layers": True, "use_sde": True},
    "gSDE, other sizes": {**SEPARATE, "use_sde": True, "vf_hiddens": [32]},
    "no bias": {**SEPARATE, "output_layer_use_bias": False},
    "no bias, shared layers": {**SEPARATE, "vf_share_layers": True, "output_layer_use_bias": False},
    "no bias, linear": {"fcnet_hiddens": [], "output_layer_use_bias": False, "free_log_std": True},
    "no bias, other sizes": {**SEPARATE, "vf_hiddens": [], "output_layer_use_bias": False},
}
each_model = pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)


def make_policy(model, seed=0, space=ACTIONS) -> Policy:
    policy = Policy(policy_spec(BOX, space, model), rng=np.random.default_rng(seed))
    # Beyond the small weights that a policy's head begins with.
    policy.weights[:] += np.random.default_rng(seed + 1).normal(0, 0.2, policy.weights.shape).astype(np.float32)
    return policy


def inputs(policy, rows=20):
    return policy.encode(np.random.default_rng(3).standard_normal((rows, 4), dtype=np.float32), policy.new_inputs(rows))


@each_model
def test_acting_learning_and_torch_compute_the_same(model):
    policy = make_policy(model)
    rows = inputs(policy)
    dist_inputs, values = policy.network.forward(rows)
    np.testing.assert_allclose(policy.network.forward_policy(rows), dist_inputs, atol=1e-6)
    np.testing.assert_allclose(policy.network.forward_value(rows), values, atol=1e-6)
    module = policy.spec.torch(policy.layout, torch.from_numpy(policy.weights), policy.network)
    with torch.no_grad():
        expected = module(torch.from_numpy(rows))
    np.testing.assert_allclose(dist_inputs, expected[0], atol=2e-6)
    np.testing.assert_allclose(values, expected[1], atol=2e-6)


@each_model
def test_gradients_agree_with_autograd(model):
    policy = make_policy(model)
    rows = inputs(policy, 64)
    _, minibatch = make_minibatch(policy.distribution, 64)
    outputs = policy.network.forward(rows)
    _, gradients = PPO_LOSS.numpy(policy.distribution, outputs, minibatch, **SETTINGS)
    ours = policy.network.backward(gradients)
    module = policy.spec.torch(policy.layout, torch.from_numpy(policy.weights.copy()), policy.network)
    columns = {name: torch.from_numpy(column) for name, column in minibatch.items()}
    loss, _ = PPO_LOSS.torch(policy.distribution, module(torch.from_numpy(rows)), columns, **SETTINGS)
    module.receive(torch.autograd.grad(loss, module.leaves))
    np.testing.assert_allclose(ours, module.flat.grad.numpy(), atol=2e-5, rtol=1e-4)
    assert abs(ours).max() > 1e-3
    assert sum(parameter.numel() for parameter in module.parameters()) == policy.layout.size


def test_each_has_the_sizes_that_were_asked_for():
    policy = make_policy(MODELS["other sizes"])
    named = policy.layout.named_parameters(policy.weights)
    widths = [named[f"value.hidden_{i}.weight"].shape for i in range(3)]
    assert widths == [(32, 4), (8, 32), (8, 8)]
    assert named["policy.hidden_1.weight"].shape == (8, 16)


@pytest.mark.parametrize("hiddens", [[], [8]])
def test_what_a_head_without_bias_gives_is_a_product(hiddens):
    policy = make_policy({"fcnet_hiddens": hiddens, "output_layer_use_bias": False})
    head = policy.layout.named_parameters(policy.weights)["policy.head.weight"]
    assert head.shape == (4, hiddens[0] if hiddens else 4)
    assert not [name for name in policy.layout.named_parameters(policy.weights) if name.endswith("head.bias")]
    observations = np.random.default_rng(0).standard_normal((5, 4), dtype=np.float32)
    if not hiddens:
        np.testing.assert_allclose(policy.dist_inputs(observations), observations @ head.T, rtol=1e-5, atol=1e-6)


def test_a_mask_goes_around_networks_of_different_sizes():
    space = gym.spaces.Dict({"action_mask": gym.spaces.MultiBinary(3), "observations": BOX})
    model = {**SEPARATE, "vf_hiddens": [8]}
    spec = policy_spec(space, gym.spaces.Discrete(3), model, action_mask_key="action_mask")
    policy = Policy(spec, rng=np.random.default_rng(0))
    rows = np.random.default_rng(1).standard_normal((6, 7), dtype=np.float32)
    rows[:, :3] = [1, 0, 1]
    assert (policy.dist_inputs(rows)[:, 1] < -1e38).all()
    outputs = policy.network.forward(policy.encode(rows))
    policy.network.backward(tuple(np.ones_like(output) for output in outputs))
    bias = policy.layout.named_parameters(policy.network.gradient)["policy.head.bias"]
    assert bias.tolist() == [6, 0, 6]
    module = spec.masked_torch(policy.layout, torch.from_numpy(policy.weights), policy.network)
    with torch.no_grad():
        found = module(torch.from_numpy(policy.encode(rows)))
    np.testing.assert_allclose(found[1], policy.values(rows), atol=1e-6)


def test_log_std_init_and_gains():
    def started(**model):
        policy = Policy(policy_spec(BOX, ACTIONS, {**SEPARATE, **model}), rng=np.random.default_rng(0))
        return policy, policy.layout.named_parameters(policy.weights)

    policy, _ = started(log_std_init=-2.0, orthogonal_gains={"policy": 1e-6})
    np.testing.assert_allclose(policy.dist_inputs(np.ones((3, 4), np.float32))[:, 2:], -2.0, atol=1e-4)
    assert set(started(log_std_init=-0.5, free_log_std=True)[1]["policy.log_std"].tolist()) == {-0.5}
    assert (started(log_std_init=-1.0, use_sde=True)[1]["policy.log_std"] == -1).all()
    plain, scaled = started()[1], started(orthogonal_gains={"hidden": 1.0, "value": 3.0})[1]
    wider = np.sqrt(2) * scaled["policy.hidden_1.weight"]
    np.testing.assert_allclose(wider, plain["policy.hidden_1.weight"], rtol=1e-6)
    np.testing.assert_allclose(scaled["value.head.weight"], 3 * plain["value.head.weight"], rtol=1e-6)
    np.testing.assert_array_equal(scaled["policy.head.weight"], plain["policy.head.weight"])


@pytest.mark.parametrize(
    ("model", "space", "message"),
    [
        ({"vf_hiddens": [8]}, ACTIONS, r"Use .training\(model=\{'vf_share_layers': False\}\)"),
        ({"vf_hiddens": [0], "vf_share_layers": False}, ACTIONS, "must be a list of integers >= 1"),
        ({"use_sde": True}, gym.spaces.Discrete(2), "needs continuous actions"),
        ({"log_std_init": -1.0}, gym.spaces.Discrete(2), "needs continuous actions"),
        ({"use_sde": True, "free_log_std": True}, ACTIONS, "use_sde=True and free_log_std=True"),
        ({"use_sde": True, "fcnet_hiddens": []}, ACTIONS, "the last of fcnet_hiddens"),
        ({"sde_sample_freq": 0}, ACTIONS, "must be a positive number of steps, or -1"),
        ({"orthogonal_gains": {"actor": 1.0}}, ACTIONS, "must be positive numbers of some of hidden, policy, value"),
        ({"orthogonal_gains": {"policy": -1.0}}, ACTIONS, "must be positive numbers of some of hidden, policy, value"),
        ({"orthogonal_gains": {"policy": 1.0}, "fcnet_weights_initializer": "uniform"}, ACTIONS, "needs orthogonal"),
        ({"log_std_init": "small"}, ACTIONS, "must be a finite number"),
        ({"log_std_init": -1.0, "output_layer_use_bias": False}, ACTIONS, r"\{'free_log_std': True\}"),
        ({"use_lstm": True, "output_layer_use_bias": False}, ACTIONS, "use_bias=False is not available with a memory"),
        ({"output_layer_use_bias": 0}, ACTIONS, "must be True or False"),
        ({"use_sde": True, "custom_model": torch.nn.Module}, ACTIONS, "use_sde=True and custom_model=.*has no effect"),
    ],
)
def test_what_does_not_fit_is_refused(model, space, message):
    with pytest.raises(ValueError, match=message):
        policy_spec(BOX, space, model)


@each_model
def test_a_description_survives_json(model):
    spec = policy_spec(BOX, ACTIONS, {**model, "orthogonal_gains": {"value": 2.0}}, observation_clip=None)
    assert spec_from_json(spec.to_json()) == spec


# ---------------------------------------------------------------------- state-dependent noise


def explorer(policy, num_envs, freq=-1):
    rngs = [np.random.default_rng([7, i]) for i in range(num_envs)]
    return StateDependentNoise(freq).explorer(StateDependentNoise(freq), policy, rngs, WorkerPosition(0, 0, num_envs))


def acted(made, observations, num_steps):
    """The actions of the same observations for some steps [T, N, A], and the distributions' inputs of one."""
    found = []
    for noise in made.begin(num_steps, 0):
        dist_inputs = np.empty((len(observations), 4), np.float32)
        actions = np.empty((len(observations), 2), np.float32)
        made.act(observations, noise, dist_inputs, actions)
        found.append(actions)
    return np.array(found), dist_inputs


def test_the_deviation_is_that_of_the_formula():
    policy = make_policy(MODELS["gSDE"])
    rows = inputs(policy)
    sigma = np.exp(policy.layout.named_parameters(policy.weights)["policy.log_std"].astype(np.float64))
    hidden = policy.layout.plain.named_parameters(policy.weights[: policy.layout.plain.size])
    phi = rows[:, :-1].astype(np.float64)
    for i in range(2):
        phi = np.tanh(phi @ hidden[f"policy.hidden_{i}.weight"].T + hidden[f"policy.hidden_{i}.bias"])
    expected = 0.5 * np.log(phi**2 @ sigma**2 + EPSILON)
    np.testing.assert_allclose(policy.network.forward(rows)[0][:, 2:], expected, atol=1e-5)


def test_sampled_actions_have_the_distribution_that_the_network_gives():
    policy = make_policy(MODELS["gSDE"])
    observations = np.tile(np.array([[0.3, -1.0, 2.0, 0.1]], np.float32), (5, 1))
    actions, dist_inputs = acted(explorer(policy, 5, freq=1), observations, 4000)
    mean, std = dist_inputs[0, :2], np.exp(dist_inputs[0, 2:])
    samples = actions.reshape(-1, 2)
    np.testing.assert_allclose(samples.mean(0), mean, atol=4 * std.max() / np.sqrt(len(samples)))
    np.testing.assert_allclose(samples.std(0), std, rtol=0.03)
    assert abs(np.corrcoef(samples.T)[0, 1]) < 0.03
    # The entropy of the Gaussian that losses take them for.
    log_probs = policy.log_prob(np.tile(dist_inputs[:1], (len(samples), 1)), samples)
    assert -log_probs.mean() == pytest.approx(policy.distribution.at(dist_inputs[:1]).entropy()[0], abs=0.03)


@pytest.mark.parametrize(("freq", "changes"), [(4, [4, 8]), (-1, []), (1, range(1, 10))])
def test_the_noise_stays_the_same_function_of_the_state_for_a_while(freq, changes):
    made = explorer(make_policy(MODELS["gSDE"]), 2, freq)
    observations = np.random.default_rng(0).standard_normal((2, 4), dtype=np.float32)
    actions, _ = acted(made, observations, 10)
    differs = [t for t in range(1, 10) if not np.array_equal(actions[t], actions[t - 1])]
    assert differs == list(changes)
    again, _ = acted(made, observations, 1)
    assert not np.array_equal(again[0], actions[-1]), "a new fragment begins with another"
