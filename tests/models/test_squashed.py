"""Squashed Gaussians: gold values, densities that integrate to one, gradients, and actions in their bounds."""

import gymnasium as gym
import numpy as np
import pytest
import torch

from rllib import Algorithm, PPOConfig
from rllib.env.spaces.actions import action_mapper
from rllib.models.architectures import spec_from_json
from rllib.models.catalog.catalog import policy_spec
from rllib.models.distributions.squashed import BoundedSquashedGaussian, SquashedGaussian
from rllib.models.distributions.standard import DiagGaussian
from tests.envs import BoundedAction

GAUSSIAN, SQUASHED = DiagGaussian((1,)), SquashedGaussian((1,))
BOX = gym.spaces.Box(-np.inf, np.inf, (4,))


def inputs(mean: float, std: float, rows: int = 1) -> np.ndarray:
    return np.tile(np.array([mean, np.log(std)], np.float32), (rows, 1))


@pytest.mark.parametrize(
    ("u", "expected"),
    [(0, -0.918939), (0.5, -0.803710), (3, -0.800282), (10, -32.305233), (20, -162.305233), (-20, -162.305233)],
)
def test_gold_log_probabilities(u, expected):
    action = np.array([[u]], np.float32)
    assert SQUASHED.at(inputs(0, 1)).log_prob(action)[0] == pytest.approx(expected, abs=1e-5, rel=1e-6)
    found = SQUASHED.torch_at(torch.from_numpy(inputs(0, 1))).log_prob(torch.from_numpy(action))
    assert float(found) == pytest.approx(expected, abs=1e-5, rel=1e-6)


@pytest.mark.parametrize(("mean", "std", "expected"), [(0, 1, 0.669804), (1, 0.5, -0.253388), (0, 0.3, 0.128604)])
def test_gold_entropies(mean, std, expected):
    assert SQUASHED.at(inputs(mean, std)).entropy()[0] == pytest.approx(expected, abs=2e-3)
    assert float(SQUASHED.torch_at(torch.from_numpy(inputs(mean, std))).entropy()) == pytest.approx(expected, abs=2e-3)


def test_the_density_integrates_to_one():
    a = np.linspace(-1, 1, 200_001)[1:-1]
    rows = inputs(0.4, 0.7, len(a)).astype(np.float64)
    density = np.exp(SQUASHED.at(rows).log_prob(np.arctanh(a)[:, None]))
    assert ((density[1:] + density[:-1]) / 2 * np.diff(a)).sum() == pytest.approx(1, abs=1e-4)


def test_gradients_agree_with_autograd():
    rng = np.random.default_rng(0)
    distribution = SquashedGaussian((3,))
    old, new = rng.normal(0, 0.5, (2, 40, 6)).astype(np.float32)
    actions = distribution.sample(old, distribution.noise(rng, 40))
    weight = rng.standard_normal(40, dtype=np.float32)
    batch = distribution.at(new)
    log_prob, entropy, kl = batch.log_prob(actions), batch.entropy(), batch.kl_from(old)
    ours = batch.gradient(weight, 0.3, 0.2)
    tensor = torch.from_numpy(new).requires_grad_()
    theirs = distribution.torch_at(tensor)
    found = theirs.log_prob(torch.from_numpy(actions)), theirs.entropy(), theirs.kl_from(torch.from_numpy(old))
    for own, other in zip((log_prob, entropy, kl), found):
        np.testing.assert_allclose(own, other.detach(), atol=2e-5, rtol=1e-5)
    ((torch.from_numpy(weight) * found[0]).sum() + 0.3 * found[1].sum() + 0.2 * found[2].sum()).backward()
    np.testing.assert_allclose(ours, tensor.grad, atol=2e-5, rtol=1e-4)
    np.testing.assert_allclose(kl, DiagGaussian((3,)).at(new).kl_from(old), atol=1e-6)


def test_actions_reach_their_bounds_and_never_pass_them():
    space = gym.spaces.Box(np.array([0.0, -3.0], np.float32), np.array([10.0, 1.0], np.float32))
    mapper = action_mapper(space, SquashedGaussian((2,)), normalize_actions=False, clip_actions=False)
    u = np.array([[0.0, 0.0], [1e4, -1e4], [0.5, -2.0]], np.float32)
    actions = mapper.to_env(u)
    np.testing.assert_allclose(actions[:2], [[5.0, -1.0], [10.0, -3.0]], rtol=1e-6)
    assert all(space.contains(action) for action in actions)
    np.testing.assert_allclose(mapper.to_policy(actions)[::2], u[::2], atol=1e-4)
    assert np.isfinite(mapper.to_policy(actions)).all()


def test_it_needs_bounds_and_survives_json():
    with pytest.raises(ValueError, match="is not bounded on all sides"):
        policy_spec(BOX, BOX, {"squash_actions": True})
    spec = policy_spec(BOX, gym.spaces.Box(-1, 1, (2,)), {"squash_actions": True})
    assert spec.distribution == SquashedGaussian((2,))
    assert spec_from_json(spec.to_json()) == spec


def test_it_learns_where_the_best_action_is(tmp_path):
    config = (
        PPOConfig()
        .environment(BoundedAction)
        .rollouts(num_rollout_workers=0, num_envs_per_worker=8)
        .training(train_batch_size=256, sgd_minibatch_size=64, num_sgd_iter=8, lr=5e-3, entropy_coeff=1e-3)
        .training(model={"fcnet_hiddens": [16], "squash_actions": True, "free_log_std": True}, vf_clip_param=None)
        .debugging(seed=0)
    )
    with config.build() as algo:
        for _ in range(25):
            algo.train()
        assert abs(algo.compute_single_action(np.zeros(1, np.float32), explore=False)[0] - 7) < 0.3
        path = algo.save(tmp_path)
    with Algorithm.from_checkpoint(path, overrides={"env": BoundedAction}) as restored:
        assert abs(restored.compute_single_action(np.zeros(1, np.float32), explore=False)[0] - 7) < 0.3


@pytest.mark.parametrize("limit", [None, 2.0])
def test_drawn_actions_have_gradients_that_lead_no_mean_out_of_its_limit(limit):
    rng, distribution = np.random.default_rng(0), BoundedSquashedGaussian((3,), mean_limit=limit)
    inputs = rng.uniform(-4, 4, (500, 6)).astype(np.float32)
    inputs[:, 3:] /= 4
    noise, slopes = (rng.standard_normal((500, 3), dtype=np.float32) for _ in range(2))
    weight = 0.3

    def loss(within, means):
        actions, log_prob = distribution.torch_draw(torch.cat([means, within[:, 3:]], dim=1), torch.from_numpy(noise))
        return (actions * torch.from_numpy(slopes)).sum() + weight * log_prob.sum(), actions, log_prob

    given = torch.from_numpy(inputs).requires_grad_()
    value, actions, log_prob = loss(given, given[:, :3])
    value.backward()
    drawn = distribution.draw(inputs, noise)
    gradient = drawn.gradient(slopes, weight)
    np.testing.assert_allclose(drawn.actions, actions.detach(), atol=1e-6)
    np.testing.assert_allclose(drawn.log_prob, log_prob.detach(), atol=2e-5)
    np.testing.assert_allclose(gradient, given.grad, atol=2e-6)
    if limit is None:
        return
    # As if means within the limit were given: what leads out of it is missing, and nothing else.
    means = torch.from_numpy(inputs[:, :3].clip(-limit, limit)).requires_grad_()
    loss(torch.from_numpy(inputs), means)[0].backward()
    whole, beyond = means.grad.numpy(), np.sign(inputs[:, :3]) * (abs(inputs[:, :3]) > limit)
    np.testing.assert_allclose(gradient[:, :3], np.where(beyond * whole < 0, 0, whole), atol=2e-6)
    assert (beyond * gradient[:, :3] > 0).any() and (beyond * whole < 0).any()
