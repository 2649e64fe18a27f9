"""Known values of SAC, TQC and TD3: densities of drawn actions, soft values, and what the bootstrap is cut by."""

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box

from rllib import sample_batch as sb
from rllib.algorithms.base.registry import get_algorithm_config
from rllib.losses.deterministic import critic_loss
from rllib.losses.quantiles import fit_quantiles, fit_quantiles_in_numpy
from rllib.losses.sac import CRITIC_LOSS, DISCRETE_ACTOR_LOSS, DISCRETE_CRITIC_LOSS, NEXT_NOISE
from rllib.models.distributions.squashed import BoundedSquashedGaussian
from rllib.models.distributions.standard import Categorical, Deterministic
from tests.envs import ProbeEnv

torch.set_num_threads(1)


class Following(ProbeEnv):
    """Reward -(a - x / 2)^2, x drawn anew in each step. Episodes end after four, in turn truncated and terminated."""

    action_space = Box(-1.0, 1.0, (1,), np.float32)
    episode = 0

    def first(self):
        self.episode += 1
        return float(self.np_random.uniform(-1, 1))

    def follow(self, action):
        reward, ends, truncated = -((float(action[0]) - self.x / 2) ** 2), self.t >= 4, self.episode % 2
        return float(self.np_random.uniform(-1, 1)), reward, ends and not truncated, ends and bool(truncated)


@pytest.mark.parametrize(
    ("u", "expected"),
    [(0, -0.918939), (0.5, -0.803710), (3, -0.800282), (10, -32.305233), (20, -162.305233), (-20, -162.305233)],
)
def test_log_probability_of_a_drawn_action(u, expected):
    """tanh of a standard normal number; exact where tanh has long been flat."""
    inputs = torch.zeros(1, 2, requires_grad=True)
    actions, log_prob = BoundedSquashedGaussian((1,)).torch_draw(inputs, torch.full((1, 1), float(u)))
    assert actions.item() == pytest.approx(np.tanh(u)) and log_prob.item() == pytest.approx(expected, abs=1e-5)
    (gradient,) = torch.autograd.grad(log_prob.sum(), inputs)
    # d log p / d mean = 2 tanh(u); d log p / d log std = -1 + 2 tanh(u) u.
    np.testing.assert_allclose(gradient[0], [2 * np.tanh(u), -1 + 2 * np.tanh(u) * u], atol=1e-5)


@pytest.mark.parametrize(
    ("alpha", "soft_value", "probabilities"),
    [(0.2, 2.001352, [0.006693, 0.000045, 0.993262]), (1.0, 2.407606, [0.244728, 0.090031, 0.665241])],
)
def test_soft_value_of_three_actions(alpha, soft_value, probabilities):
    """Q = [1, 0, 2]: the actor rests at softmax(Q / alpha), and alpha * logsumexp(Q / alpha) is the critics' target."""
    q = torch.tensor([[1.0, 0.0, 2.0]])
    logits = (q / alpha).requires_grad_()
    np.testing.assert_allclose(logits.softmax(1).detach()[0], probabilities, atol=1e-6)
    zeros = torch.zeros(2, 1, 3, requires_grad=True)
    larger = torch.stack([q, q + 1])  # the smaller of the two counts
    modules = {"policy": lambda _: (logits, None), "target_critics": lambda _: larger, "critics": lambda _: larger}
    loss, *_ = DISCRETE_ACTOR_LOSS.torch(Categorical(3), modules, {sb.OBS: None}, alpha=alpha)
    assert loss.item() == pytest.approx(-soft_value, abs=1e-5)
    (gradient,) = torch.autograd.grad(loss, logits)
    np.testing.assert_allclose(gradient[0], 0, atol=1e-6)
    row = {sb.OBS: None, sb.NEXT_OBS: None, sb.ACTIONS: torch.tensor([1]), sb.WEIGHTS: torch.ones(1)}
    row |= {sb.REWARDS: torch.tensor([0.5]), sb.DISCOUNTS: torch.tensor([0.9])}
    given = {**modules, "critics": lambda _: zeros}
    loss, *_ = DISCRETE_CRITIC_LOSS.torch(Categorical(3), given, row, alpha=alpha)
    (gradient,) = torch.autograd.grad(loss, zeros)
    np.testing.assert_allclose(gradient[:, 0, 1], -(0.5 + 0.9 * soft_value), atol=1e-5)
    assert not gradient[:, 0, [0, 2]].any()


def test_without_entropy_and_deviation_the_target_of_sac_is_ddpgs():
    """At alpha = 0, by an actor whose deviation is e^-20."""
    normal = torch.randn((6, 32, 1), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    row = {sb.OBS: normal[0], sb.NEXT_OBS: normal[1], sb.REWARDS: normal[2, :, 0], sb.WEIGHTS: normal[3, :, 0].exp()}
    row |= {sb.DISCOUNTS: 0.9 * (normal[4, :, 0] > -1).double(), NEXT_NOISE: normal[5]}

    def critics(observations, actions):
        return torch.stack([(observations - actions).sin(), (2 * observations * actions).cos()])[..., 0]

    def mean(observations):
        return 0.7 * observations + 0.2

    modules = {"critics": lambda observations, actions: torch.zeros(2, 32), "target_critics": critics}
    modules |= {"policy": lambda observations: (torch.cat([mean(observations), -50 + 0 * observations], -1), None)}
    modules |= {"target_policy": lambda observations: (mean(observations), None)}
    soft, *_ = CRITIC_LOSS.torch(BoundedSquashedGaussian((1,)), modules, {**row, sb.ACTIONS: normal[0]}, alpha=0.0)
    hard, *_ = critic_loss(False, 0.0, None).torch(Deterministic((1,)), modules, {**row, sb.ACTIONS: normal[0].tanh()})
    assert soft.item() == pytest.approx(hard.item(), abs=1e-7) and hard.item() > 0.1


def test_quantile_huber_loss():
    """Quantiles 0, 1, 2 at the levels 1/6, 1/2, 5/6, and targets 0.5, 3, -1."""
    quantiles = torch.tensor([[[0.0, 1.0, 2.0]]], requires_grad=True)
    targets, row = torch.tensor([[0.5, 3.0, -1.0]]), {sb.WEIGHTS: torch.ones(1)}
    loss, *_ = fit_quantiles(quantiles, targets, row)
    assert loss.item() == pytest.approx(1.138889 / 3, abs=1e-6)
    (gradient,) = torch.autograd.grad(loss, quantiles)
    # Sums of the level, or of 1 - level below the quantile, times the error within -1 ... 1.
    expected = [5 / 6 - 1 / 6 * 1.5, 1 / 2 * 0.5, 1 / 6 * 2 - 5 / 6]
    np.testing.assert_allclose(gradient[0, 0], np.array(expected) / 9, atol=1e-6)
    by_hand = fit_quantiles_in_numpy(quantiles.detach().numpy(), targets.numpy(), {sb.WEIGHTS: np.ones(1, np.float32)})
    assert by_hand[0][0] == pytest.approx(loss.item(), abs=1e-6)
    np.testing.assert_allclose(by_hand[2], gradient, atol=1e-6)


@pytest.mark.parametrize("name", ["SAC", "TD3"])
def test_only_terminations_end_the_bootstrap(name):
    with get_algorithm_config(name).environment(Following).debugging(seed=4).build() as algo:
        batch = algo.sample(40)
        by_step = batch[sb.DISCOUNTS].reshape(-1, 4)
        # Episodes of four steps, the first one truncated, the second terminated.
        np.testing.assert_allclose(by_step[:, :3], algo.config.gamma)
        np.testing.assert_allclose(by_step[:, 3], algo.config.gamma * np.resize([1, 0], len(by_step)))
        # What follows a truncated step is the episode's last observation, not the next episode's first.
        inner = batch[sb.NEXT_OBS].reshape(-1, 4)[:, :3], batch[sb.OBS].reshape(-1, 4)[:, 1:]
        np.testing.assert_array_equal(*inner)
        assert (batch[sb.NEXT_OBS].reshape(-1, 4)[:-1, 3] != batch[sb.OBS].reshape(-1, 4)[1:, 0]).all()
