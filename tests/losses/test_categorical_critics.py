"""Critics with distributions on bins: their losses beside the paper's equations in float64, and by hand."""

import numpy as np
import pytest
import torch

from rllib import sample_batch as sb
from rllib.losses.sac import LEFT_OUT, NEXT_NOISE, NOISE
from rllib.losses.sac_variants.categorical import Bins, actor_loss, critic_loss
from rllib.models.distributions.squashed import BoundedSquashedGaussian

ROWS, BINS, ALPHA = 6, Bins(7, -2.0, 4.0), 0.2
MEAN, LOG_STD = 0.3, -0.7


def tables(critics, seed):
    """Logits [critics, ROWS, bins] of two kinds, and the batch; the actor has one mean and deviation everywhere."""
    rng = np.random.default_rng(seed)
    batch = {
        sb.OBS: rng.normal(size=(ROWS, 1)),
        sb.NEXT_OBS: rng.normal(size=(ROWS, 1)),
        sb.ACTIONS: rng.normal(size=(ROWS, 1)),
        sb.REWARDS: rng.normal(size=ROWS) * 2,
        sb.DISCOUNTS: np.array([0.9, 0, 0.9, 0.81, 0.9, 0]),
        sb.WEIGHTS: rng.uniform(0.3, 1, ROWS),
        NOISE: rng.normal(size=(ROWS, 1)),
        NEXT_NOISE: rng.normal(size=(ROWS, 1)),
    }
    return rng.normal(size=(2, critics, ROWS, BINS.count)), batch


def softmax(logits):
    e = np.exp(logits - logits.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def log_prob(noise):
    """Of a = tanh(u), u = mean + std noise, in [-1, 1] (arXiv:1812.05905, appendix C)."""
    u = MEAN + np.exp(LOG_STD) * noise[:, 0]
    normal = -0.5 * noise[:, 0] ** 2 - LOG_STD - 0.5 * np.log(2 * np.pi)
    return normal - np.log(1 - np.tanh(u) ** 2)


def expected_critic_loss(logits, target_logits, batch, left_out=0.0):
    """Loss and TD errors; the projection one atom and one neighbour at a time (arXiv:1707.06887, algorithm 1)."""
    z, step = np.linspace(BINS.least, BINS.largest, BINS.count), (BINS.largest - BINS.least) / (BINS.count - 1)
    probabilities = softmax(target_logits)
    least = (probabilities @ z + left_out).argmin(0)
    entropy, loss, errors = log_prob(batch[NEXT_NOISE]), 0.0, []
    for row in range(ROWS):
        target = np.zeros(BINS.count)
        for p, value in zip(probabilities[least[row], row], z):
            moved = batch[sb.REWARDS][row] + batch[sb.DISCOUNTS][row] * (value - ALPHA * entropy[row])
            place = (min(max(moved, BINS.least), BINS.largest) - BINS.least) / step
            for bin_ in range(BINS.count):
                target[bin_] += p * max(0.0, 1 - abs(place - bin_))
        found = softmax(logits[:, row])
        loss -= batch[sb.WEIGHTS][row] / ROWS * (target * np.log(found)).sum()
        errors.append(np.abs(found @ z - target @ z).mean())
    return loss, np.array(errors)


def in_torch(loss, logits, target_logits, batch):
    """The loss of our code, where each network is a table."""
    dist_inputs = torch.tensor([[MEAN, LOG_STD]]).expand(ROWS, 2)
    modules = {
        "policy": lambda observations: (dist_inputs, None),
        "critics": lambda observations, actions: torch.tensor(np.float32(logits)),
        "target_critics": lambda observations, actions: torch.tensor(np.float32(target_logits)),
    }
    batch = {name: torch.tensor(np.float32(column)) for name, column in batch.items()}
    return loss.torch(BoundedSquashedGaussian((1,)), modules, batch, alpha=ALPHA)


@pytest.mark.parametrize("critics", [1, 2, 3])
def test_the_critics_loss_is_the_papers(critics):
    (logits, target_logits), batch = tables(critics, critics)
    loss, statistics, (errors,) = in_torch(critic_loss(BINS), logits, target_logits, batch)
    expected, of_rows = expected_critic_loss(logits, target_logits, batch)
    assert loss.item() == pytest.approx(expected, rel=1e-5)
    np.testing.assert_allclose(errors, of_rows, rtol=1e-4, atol=1e-6)
    assert statistics[1].item() == pytest.approx((softmax(logits) @ BINS.values()).mean(), rel=1e-4)


def test_rows_may_draw_the_critics_of_their_targets():
    (logits, target_logits), batch = tables(3, 5)
    least = (softmax(target_logits) @ BINS.values()).argmin(0)
    left_out = np.where(np.arange(3) == least[:, None], np.inf, 0)
    drawn = critic_loss(BINS, samples_critics=True)
    loss, *_ = in_torch(drawn, logits, target_logits, {**batch, LEFT_OUT: left_out})
    expected, _ = expected_critic_loss(logits, target_logits, batch, left_out.T)
    assert loss.item() == pytest.approx(expected, rel=1e-5)
    assert loss.item() != pytest.approx(expected_critic_loss(logits, target_logits, batch)[0], rel=1e-3)


def test_one_pass_judges_both_halves_where_batches_normalise():
    """(s, a) comes first and (s', a') second, in one call of critics and copies, which use the batch's statistics."""
    (logits, target_logits), batch = tables(2, 7)
    others, called = np.random.default_rng(8).normal(size=(2, 2, ROWS, BINS.count)), []

    def judging(name, halves):
        def judge(observations, actions, by_batch=False):
            called.append((name, observations[:, 0], actions[:, 0], by_batch))
            return torch.tensor(np.float32(np.concatenate(halves, 1)))

        return judge

    dist_inputs = torch.tensor([[MEAN, LOG_STD]]).expand(ROWS, 2)
    modules = {
        "policy": lambda observations: (dist_inputs, None),
        "critics": judging("critics", (logits, others[0])),
        "target_critics": judging("target_critics", (others[1], target_logits)),
    }
    tensors = {name: torch.tensor(np.float32(column)) for name, column in batch.items()}
    loss, *_ = critic_loss(BINS, by_batch=True).torch(BoundedSquashedGaussian((1,)), modules, tensors, alpha=ALPHA)
    assert loss.item() == pytest.approx(expected_critic_loss(logits, target_logits, batch)[0], rel=1e-5)
    assert [name for name, *_ in called] == ["target_critics", "critics"]
    drawn = np.tanh(MEAN + np.exp(LOG_STD) * batch[NEXT_NOISE][:, 0])
    for _, observations, actions, by_batch in called:
        assert by_batch
        np.testing.assert_allclose(observations, np.concatenate([batch[sb.OBS], batch[sb.NEXT_OBS]])[:, 0], rtol=1e-6)
        np.testing.assert_allclose(actions, [*np.tanh(batch[sb.ACTIONS][:, 0]), *drawn], rtol=1e-5)


def test_the_actors_loss_is_of_the_least_mean():
    (logits, _), batch = tables(2, 9)
    loss, (_, entropy) = in_torch(actor_loss(BINS), logits, logits, batch)
    values = softmax(logits) @ np.linspace(BINS.least, BINS.largest, BINS.count)
    density = log_prob(batch[NOISE])
    assert loss.item() == pytest.approx((ALPHA * density - values.min(0)).mean(), rel=1e-5)
    assert entropy.item() == pytest.approx(-density.mean(), rel=1e-5)


def test_a_terminal_reward_between_two_bins_is_shared_by_them():
    """Reward 1.25 with bins -2, -1, ... 4: three quarters at 1, a quarter at 2; equal logits give log 7."""
    batch = {name: column[:1] for name, column in tables(1, 0)[1].items()}
    batch |= {sb.REWARDS: np.array([1.25]), sb.DISCOUNTS: np.zeros(1), sb.WEIGHTS: np.ones(1)}
    logits = torch.zeros(1, 1, 7, requires_grad=True)
    modules = {
        "policy": lambda observations: (torch.tensor([[MEAN, LOG_STD]]), None),
        "critics": lambda observations, actions: logits,
        "target_critics": lambda observations, actions: torch.zeros(1, 1, 7),
    }
    batch = {name: torch.tensor(np.float32(column)) for name, column in batch.items()}
    loss, *_ = critic_loss(BINS).torch(BoundedSquashedGaussian((1,)), modules, batch, alpha=ALPHA)
    assert loss.item() == pytest.approx(np.log(7), rel=1e-6)
    (gradient,) = torch.autograd.grad(loss, logits)
    np.testing.assert_allclose(gradient[0, 0], 1 / 7 - np.array([0, 0, 0, 0.75, 0.25, 0, 0]), atol=1e-6)
