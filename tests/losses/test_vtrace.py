"""V-trace against published vectors, a slow reference, and properties that need no reference."""

import numpy as np
import pytest
import torch
from vtrace_support import make_rows, slow_vtrace

from rllib import sample_batch as sb
from rllib.losses.returns import gae
from rllib.losses.vtrace import torch_vtrace_of_rows, vtrace, vtrace_of_rows
from rllib.models.distributions.standard import Categorical


def of_sequence(log_rho, discounts, rewards, values, bootstrap, **clips):
    """V-trace of [T, B] steps that all belong together; bootstrap [B]."""
    next_values = np.concatenate([values[1:], np.asarray(bootstrap)[None]])
    return vtrace(log_rho, discounts, rewards, values, next_values, np.zeros(np.shape(rewards), bool), **clips)


class TestPublishedVectors:
    def log_rho(self):
        behaviour = np.array(
            [[[8.9, 0.7], [5, 1], [0.6, 0.1], [-0.9, -0.1]], [[0.3, -5], [1, -8], [0.3, 1.7], [4.7, 3.3]]]
        )
        target = np.array(
            [[[0.4, 0.5], [9.2, 8.8], [0.7, 4.4], [7.9, 1.4]], [[1, 0.9], [1, -1], [-4.3, 8.7], [0.8, 0.3]]]
        )
        actions = np.array([[0, 1, 0, 0], [1, 0, 0, 1]]).reshape(-1)
        one = Categorical(2).at(target.reshape(8, 2)).log_prob(actions)
        other = Categorical(2).at(behaviour.reshape(8, 2)).log_prob(actions)
        return (one - other).reshape(2, 4).T

    @pytest.mark.parametrize(
        ("pg_rho_bar", "expected"),
        [
            (1.0, [[-1.615514, -3.497322, 1.867053, 50.316], [1.466243, 3.61164, -0.000083, -13.54]]),
            (5.0, [[-1.615514, -17.486612, 1.867053, 162.052681], [7.331217, 3.61164, -0.000083, -25.84168]]),
        ],
    )
    def test_a_of_rlax(self, pg_rho_bar, expected):
        log_rho = self.log_rho()
        expected_log_rho = [[-0.744122, 3.105135, -3.250346, 1.169598], [4.560583, -0.126805, -11.379585, 0.64634]]
        np.testing.assert_allclose(log_rho.T, expected_log_rho, atol=5e-7)
        rewards = np.array([[-1.3, -1.3, 2.3, 42], [1.3, 5.3, -3.3, -5]]).T
        discounts = np.array([[0, 0.89, 0.85, 0.99], [0.88, 1, 0.83, 0.95]]).T
        values = np.array([[2.1, 1.1, -3.1, 0], [3.1, 0.1, -1.1, 7.4]]).T
        targets, advantages = of_sequence(
            log_rho, discounts, rewards, values, np.array([8.4, -1.2]), pg_rho_bar=pg_rho_bar
        )
        np.testing.assert_allclose(advantages.T, expected, atol=5e-7 * 10)
        if pg_rho_bar == 1.0:
            np.testing.assert_allclose((targets - values).T, expected, atol=5e-7 * 10)

    @pytest.mark.parametrize(
        ("clips", "targets", "advantages"),
        [
            (
                {"rho_bar": 3.7, "pg_rho_bar": 2.2},
                [0.200182, 2.709682, 8.513628, 11.932397, 7.33],
                [0.200182, 1.709682, 6.513628, 10.876614, 1.98],
            ),
            ({}, [0.163557, 2.21393, 6.044953, 7.41, 4.9], [0.163557, 1.21393, 4.044953, 4.41, 0.9]),
        ],
    )
    @pytest.mark.parametrize("shape", [(5, 1), (5,)])
    def test_b_of_scalable_agent(self, clips, targets, advantages, shape):
        steps = np.arange(5.0).reshape(shape)
        got = of_sequence(5 * (steps / 5 - 0.5), np.full(shape, 0.9), steps, steps, np.ones(shape[1:]), **clips)
        np.testing.assert_allclose(got[0].reshape(-1), targets, atol=6e-7)
        np.testing.assert_allclose(got[1].reshape(-1), advantages, atol=6e-7)

    def test_c_two_environments(self):
        numbers = np.arange(10.0).reshape(5, 2)
        targets, advantages = of_sequence(
            5 * (numbers / 10 - 0.5), np.array([[0.9, 0.45]] * 5), numbers, numbers / 2, np.array([1.0, 2.0])
        )
        np.testing.assert_allclose(targets[:, 0], [0.251488, 3.404166, 10.860806, 14.01, 8.9], atol=6e-7)
        np.testing.assert_allclose(targets[:, 1], [0.795004, 3.732895, 10.15475, 11.455, 9.9], atol=6e-7)
        np.testing.assert_allclose(advantages[:, 0], [0.251488, 2.404166, 8.860806, 11.01, 4.9], atol=6e-7)
        np.testing.assert_allclose(advantages[:, 1], [0.295004, 2.232895, 7.65475, 7.955, 5.4], atol=6e-7)


def draw(rng, steps, envs):
    log_rho, rewards, values = rng.standard_normal((3, steps, envs))
    discounts = 0.95 * (rng.random((steps, envs)) > 0.2)
    return 1.5 * log_rho, discounts, rewards, values, rng.standard_normal(envs)


@pytest.mark.parametrize("seed", range(20))
def test_equals_the_double_sum(seed):
    rng = np.random.default_rng(seed)
    steps, envs = rng.integers(1, 12, size=2)
    log_rho, discounts, rewards, values, bootstrap = draw(rng, steps, envs)
    rho_bar, pg_rho_bar = rng.uniform(0.3, 3, size=2)
    lambda_ = rng.uniform(0, 1)
    got = of_sequence(
        log_rho, discounts, rewards, values, bootstrap, rho_bar=rho_bar, pg_rho_bar=pg_rho_bar, lambda_=lambda_
    )
    expected = slow_vtrace(discounts, log_rho, rewards, values, bootstrap, rho_bar, pg_rho_bar, lambda_)
    np.testing.assert_allclose(got, expected, atol=1e-5)


def test_joined_sequences_do_not_leak():
    rng = np.random.default_rng(0)
    one, other = draw(rng, 5, 3), draw(rng, 4, 3)
    apart = [np.concatenate(parts) for parts in zip(of_sequence(*one), of_sequence(*other))]
    columns = [np.concatenate(parts) for parts in zip(one[:4], other[:4])]
    next_values = np.concatenate([one[3][1:], one[4][None], other[3][1:], other[4][None]])
    cut = np.zeros((9, 3), bool)
    cut[4] = True
    np.testing.assert_allclose(vtrace(*columns, next_values, cut), apart)


@pytest.mark.parametrize("lambda_", [1.0, 0.8])
def test_on_policy_targets_are_gae_plus_value(lambda_):
    rng = np.random.default_rng(1)
    rewards, values, next_values = rng.standard_normal((3, 30, 4)).astype(np.float32)
    terminated, truncated = rng.random((2, 30, 4)) < 0.15
    ended = terminated | truncated
    next_values[:-1] = np.where(ended[:-1], next_values[:-1], values[1:])
    advantages, targets = gae(rewards, values, next_values, terminated, truncated, 0.97, lambda_)
    discounts = np.where(terminated, np.float32(0), np.float32(0.97))
    got, got_advantages = vtrace(
        np.zeros_like(rewards), discounts, rewards, values, next_values, ended, lambda_=lambda_
    )
    np.testing.assert_allclose(got, targets, atol=1e-5)
    if lambda_ == 1.0:
        np.testing.assert_allclose(got_advantages, advantages, atol=1e-5)


def test_scaled_and_shifted_rewards():
    """k r is worth k V with k times the advantages; r + c (1 - gamma), where nothing ends, V + c with the same ones."""
    log_rho, _, rewards, values, bootstrap = draw(np.random.default_rng(5), 9, 3)
    discounts = np.full((9, 3), 0.95)
    targets, advantages = of_sequence(log_rho, discounts, rewards, values, bootstrap)
    scaled = of_sequence(log_rho, discounts, 7 * rewards, 7 * values, 7 * bootstrap)
    np.testing.assert_allclose(scaled, (7 * targets, 7 * advantages), atol=1e-5)
    shifted = of_sequence(log_rho, discounts, rewards + 3 * (1 - 0.95), values + 3, bootstrap + 3)
    np.testing.assert_allclose(shifted, (targets + 3, advantages), atol=1e-5)


def test_rho_bar_zero_leaves_the_values():
    log_rho, discounts, rewards, values, bootstrap = draw(np.random.default_rng(2), 6, 2)
    targets, advantages = of_sequence(log_rho, discounts, rewards, values, bootstrap, rho_bar=0.0, pg_rho_bar=0.0)
    np.testing.assert_array_equal(targets, values)
    np.testing.assert_array_equal(advantages, 0)


def test_huge_ratios_do_not_overflow():
    ones = np.ones((3, 2), np.float32)
    with np.errstate(all="raise"):
        targets, _ = of_sequence(1000 * ones, ones, ones, ones, np.ones(2, np.float32))
    assert np.isfinite(targets).all()


def test_shapes_must_agree():
    ones = np.ones((3, 2))
    with pytest.raises(ValueError, match=r"one shape \[T, ...\]"):
        vtrace(ones, ones, ones, ones, ones, np.zeros((2, 3), bool))


class TestRows:
    SETTINGS = {"gamma": 0.9, "clip_rho": 1.3, "clip_pg_rho": 1.1, "lambda_": 0.9}  # noqa: RUF012

    def rows(self, seed=0, **options):
        (_, values), minibatch = make_rows(Categorical(3), seed=seed, **options)
        log_rho = np.random.default_rng(seed).standard_normal(len(values)).astype(np.float32)
        return log_rho, values, minibatch

    def test_rows_equal_the_double_sum(self):
        """Three sequences: cut off, terminated, truncated; the value behind the last is the final observation's."""
        log_rho, values, minibatch = self.rows()
        targets, advantages = vtrace_of_rows(log_rho, values, minibatch, **self.SETTINGS)
        for first, steps in ((0, 6), (7, 4), (12, 7)):
            part = slice(first, first + steps)
            discounts = 0.9 * ~minibatch[sb.TERMINATEDS][part]
            columns = (column[part][:, None] for column in (log_rho, minibatch[sb.REWARDS], values))
            expected = slow_vtrace(discounts[:, None], *columns, values[first + steps][None], 1.3, 1.1, 0.9)
            np.testing.assert_allclose(targets[part], expected[0][:, 0], atol=1e-5)
            np.testing.assert_allclose(advantages[part], expected[1][:, 0], atol=1e-5)

    def test_an_episode_that_was_truncated_does_not_see_the_next(self):
        log_rho, values, minibatch = self.rows(sequences=((4, "truncated"), (4, "end")))
        before = vtrace_of_rows(log_rho, values, minibatch, **self.SETTINGS)
        minibatch[sb.REWARDS][5:9] = 1000
        values[5:] = -7
        after = vtrace_of_rows(log_rho, values, minibatch, **self.SETTINGS)
        np.testing.assert_array_equal(np.array(before)[:, :4], np.array(after)[:, :4])

    def test_nor_one_that_was_cut_off_inside_its_fragment(self):
        """Truncated rows are followed by a bootstrap row; terminated ones by anything."""
        log_rho, values, minibatch = self.rows(sequences=((4, "terminated"), (4, "end")))
        keep = np.arange(len(values)) != 4
        joined = {name: column[keep] for name, column in minibatch.items()}
        whole = np.array(vtrace_of_rows(log_rho, values, minibatch, **self.SETTINGS))[:, keep]
        np.testing.assert_allclose(vtrace_of_rows(log_rho[keep], values[keep], joined, **self.SETTINGS), whole)

    @pytest.mark.parametrize("seed", range(5))
    @pytest.mark.parametrize("clip", [1.3, None])
    def test_torch_agrees(self, seed, clip):
        log_rho, values, minibatch = self.rows(seed)
        settings = {**self.SETTINGS, "clip_rho": clip}
        expected = vtrace_of_rows(log_rho, values, minibatch, **settings)
        columns = {name: torch.from_numpy(column) for name, column in minibatch.items()}
        got = torch_vtrace_of_rows(
            torch.from_numpy(log_rho), torch.from_numpy(values).requires_grad_(), columns, **settings
        )
        assert not any(tensor.requires_grad for tensor in got)
        steps = minibatch[sb.LOSS_MASK]
        for ours, theirs in zip(expected, got):
            np.testing.assert_allclose(ours[steps], theirs.numpy()[steps], atol=2e-6)

    @pytest.mark.parametrize("lambda_", [0.0, 0.6, 1.0])
    def test_without_ratios_advantages_are_those_of_gae(self, lambda_):
        """Whatever the clips, where there are no ratios to clip."""
        _, values, minibatch = self.rows()
        settings = {**self.SETTINGS, "lambda_": lambda_, "clip_rho": 0.5, "clip_pg_rho": 0.5}
        columns = {name: torch.from_numpy(column) for name, column in minibatch.items()}
        in_torch = torch_vtrace_of_rows(None, torch.from_numpy(values), columns, **settings)
        for first, steps in ((0, 6), (7, 4), (12, 7)):
            part, later = slice(first, first + steps), slice(first + 1, first + steps + 1)
            given = minibatch[sb.REWARDS][part], values[part], values[later]
            ends = minibatch[sb.TERMINATEDS][part], minibatch[sb.TRUNCATEDS][part]
            advantages, targets = gae(*(column[:, None] for column in (*given, *ends)), 0.9, lambda_)
            for got in (vtrace_of_rows(None, values, minibatch, **settings), in_torch):
                np.testing.assert_allclose(got[0][part], targets[:, 0], atol=2e-6)
                np.testing.assert_allclose(got[1][part], advantages[:, 0], atol=2e-6)
