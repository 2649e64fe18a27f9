"""TRPO's policy step against dense references in float64: the Fisher matrix of softmax and Gaussian policies."""

import gymnasium as gym
import numpy as np
import pytest
import torch

from rllib.algorithms.trpo.trust_region import TrustRegion, TrustRegionSettings, conjugate_gradients
from rllib.models.catalog.catalog import policy_spec
from rllib.policy import Policy
from rllib.sample_batch import ACTION_DIST_INPUTS, ACTION_LOGP, ACTIONS, ADVANTAGES, OBS, SampleBatch

ROWS = gym.spaces.Box(-1, 1, (3,), np.float32)
SPACES = {"softmax": gym.spaces.Discrete(3), "gaussian": gym.spaces.Box(-1, 1, (2,), np.float32)}
EXACT = TrustRegionSettings(cg_iterations=200, cg_damping=0.01)


def make(kind="softmax", settings=EXACT, hiddens=(), rows=40, **model):
    model = {"fcnet_hiddens": list(hiddens), "vf_share_layers": False, **model}
    rng = np.random.default_rng(0)
    policy = Policy(policy_spec(ROWS, SPACES[kind], model), rng=rng)
    policy.weights[:] += 0.3 * rng.standard_normal(policy.weights.size).astype(np.float32)
    region = TrustRegion(policy, settings, np.ones((1, 3), np.float32))
    observations = rng.standard_normal((rows, 3)).astype(np.float32)
    dist_inputs = policy.dist_inputs(observations)
    at = policy.distribution.at(dist_inputs)
    actions = rng.integers(0, 3, rows) if kind == "softmax" else rng.standard_normal((rows, 2)).astype(np.float32)
    batch = {
        OBS: observations,
        ACTIONS: actions,
        ACTION_LOGP: at.log_prob(actions),
        ACTION_DIST_INPUTS: dist_inputs,
        ADVANTAGES: rng.standard_normal(rows).astype(np.float32),
    }
    return policy, region, SampleBatch(batch)


def dense_step(policy, batch, kind, target_kl, damping):
    """The whole step, by the Fisher matrix of a policy that is linear in its observations."""
    named = {name: part.astype(np.float64) for name, part in policy.parameters().items()}
    x = np.concatenate([batch[OBS], np.ones((len(batch[OBS]), 1))], axis=1).astype(np.float64)
    weight = np.concatenate([named["policy.head.weight"], named["policy.head.bias"][:, None]], axis=1)
    outputs = x @ weight.T
    n, k = outputs.shape
    if kind == "softmax":
        p = np.exp(outputs - outputs.max(1, keepdims=True))
        p /= p.sum(1, keepdims=True)
        score = np.eye(k)[batch[ACTIONS]] - p
        fisher_of_outputs = np.einsum("ni,ij->nij", p, np.eye(k)) - np.einsum("ni,nj->nij", p, p)
    else:
        mean, log_std = np.split(outputs, 2, axis=1)
        z = (batch[ACTIONS] - mean) / np.exp(log_std)
        score = np.concatenate([z / np.exp(log_std), z**2 - 1], axis=1)
        # KL(old || new) at the old outputs: 1/sigma^2 for the mean, 2 for the logarithm of sigma.
        diagonal = np.concatenate([np.exp(-2 * log_std), np.full_like(log_std, 2.0)], axis=1)
        fisher_of_outputs = np.einsum("ni,ij->nij", diagonal, np.eye(k))
    gradient = np.einsum("n,nk,ni->ki", batch[ADVANTAGES].astype(np.float64), score, x).ravel() / n
    hessian = np.einsum("nkl,ni,nj->kilj", fisher_of_outputs, x, x).reshape(gradient.size, gradient.size) / n
    hessian += damping * np.eye(gradient.size)
    direction = np.linalg.solve(hessian, gradient)
    return (direction * np.sqrt(2 * target_kl / (direction @ hessian @ direction))).reshape(weight.shape)


@pytest.mark.parametrize("kind", SPACES)
def test_a_step_is_that_of_the_dense_fisher_matrix(kind):
    policy, region, batch = make(kind)
    before = {name: part.copy() for name, part in policy.parameters().items()}
    expected = dense_step(policy, batch, kind, target_kl=1e-4, damping=0.01)
    result = region.step(batch, target_kl=1e-4)
    assert result["step_taken"] == 1
    length = 0.8 ** (result["line_search_steps"] - 1)
    after = policy.parameters()
    moved = np.concatenate(
        [
            after["policy.head.weight"] - before["policy.head.weight"],
            (after["policy.head.bias"] - before["policy.head.bias"])[:, None],
        ],
        axis=1,
    )
    np.testing.assert_allclose(moved, length * expected, atol=2e-3 * abs(expected).max())
    for name in after:
        if name.startswith("value"):
            np.testing.assert_array_equal(after[name], before[name])


@pytest.mark.parametrize("kind", SPACES)
@pytest.mark.parametrize("target_kl", [1e-3, 0.1, 1.0])
def test_the_divergence_stays_within_the_limit_and_the_surrogate_grows(kind, target_kl):
    policy, region, batch = make(kind, TrustRegionSettings(), hiddens=[8, 8])
    result = region.step(batch, target_kl)
    now = policy.distribution.at(policy.dist_inputs(batch[OBS]))
    assert result["step_taken"] == 1
    assert 0 < result["kl"] <= target_kl
    assert now.kl_from(batch[ACTION_DIST_INPUTS]).mean() == pytest.approx(result["kl"], rel=1e-3)
    surrogate = (np.exp(now.log_prob(batch[ACTIONS]) - batch[ACTION_LOGP]) * batch[ADVANTAGES]).mean()
    assert surrogate + result["policy_loss"] == pytest.approx(result["surrogate_gain"], rel=1e-3)


def test_weights_stay_where_nothing_improves():
    policy, region, batch = make()
    before = policy.weights.copy()
    batch[ADVANTAGES][:] = 0
    assert region.step(batch, 0.01)["step_taken"] == 0
    np.testing.assert_array_equal(policy.weights, before)


def test_weights_stay_where_no_length_is_within_the_limit():
    settings = TrustRegionSettings(line_search_steps=1)
    policy, region, batch = make(settings=settings)
    before = policy.weights.copy()
    # The old policy of these rows is another one: the divergence is above the limit whatever the step.
    batch[ACTION_DIST_INPUTS] = batch[ACTION_DIST_INPUTS] + np.float32([3, 0, 0])
    result = region.step(batch, 1e-3)
    assert (result["step_taken"], result["kl"]) == (0, 0)
    np.testing.assert_array_equal(policy.weights, before)


def test_entropy_is_part_of_the_surrogate():
    policy, region, batch = make()
    batch[ADVANTAGES][:] = 0
    before = policy.distribution.at(policy.dist_inputs(batch[OBS])).entropy().mean()
    assert region.step(batch, 0.01, entropy_coeff=1.0)["step_taken"] == 1
    assert policy.distribution.at(policy.dist_inputs(batch[OBS])).entropy().mean() > before


def test_the_hessian_of_every_second_row_finds_about_the_same_direction():
    moves = []
    for subsampling in (1, 2):
        policy, region, batch = make(settings=TrustRegionSettings(kl_subsampling=subsampling), rows=4000)
        before = policy.weights.copy()
        region.step(batch, 1e-3)
        moves.append(policy.weights - before)
    cosine = moves[0] @ moves[1] / np.prod([np.linalg.norm(move) for move in moves])
    assert 0.99 < cosine < 1 - 1e-7


def test_conjugate_gradients_solve_a_system_in_as_many_steps_as_it_has_rows():
    rng = np.random.default_rng(0)
    root = rng.standard_normal((12, 12))
    matrix, goal = torch.from_numpy(root @ root.T + np.eye(12)), torch.from_numpy(rng.standard_normal(12))
    found = conjugate_gradients(lambda vector: matrix @ vector, goal, 12)
    np.testing.assert_allclose(found, np.linalg.solve(matrix, goal), rtol=1e-6)


class Shares(torch.nn.Module):
    """A network of the user's with one layer for policy and value."""

    def __init__(self, observation_space, action_space, num_outputs):
        super().__init__()
        self.first = torch.nn.Linear(observation_space.shape[0], 4)
        self.policy, self.value = torch.nn.Linear(4, num_outputs), torch.nn.Linear(4, 1)

    def forward(self, observation):
        hidden = torch.tanh(self.first(observation))
        return self.policy(hidden), self.value(hidden).squeeze(-1)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ({"vf_share_layers": True, "fcnet_hiddens": [8]}, "share layers.*vf_share_layers"),
        ({"custom_model": Shares}, "share layers.*custom model compute its value by layers of their own"),
        ({"custom_model": Shares, "vf_share_layers": False}, "share layers.*vf_share_layers does not change it"),
        ({"use_lstm": True, "lstm_cell_size": 4}, "has a memory"),
    ],
)
def test_networks_that_have_no_trust_region(model, message):
    policy = Policy(policy_spec(ROWS, SPACES["softmax"], model), rng=np.random.default_rng(0))
    with pytest.raises(ValueError, match=message):
        TrustRegion(policy, TrustRegionSettings(), np.ones((1, 3), np.float32))
