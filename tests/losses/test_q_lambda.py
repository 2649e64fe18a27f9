"""Lambda-returns: by hand, against the sum over n-step returns, and what they are equal to."""

import numpy as np
import pytest

from rllib.losses.returns import gae, q_lambda_targets


def slow_targets(rewards, next_values, terminated, truncated, gamma, lambda_):
    """R = (1 - lambda) sum_n lambda^(n-1) G_n + what is left of the weights on the last G, one row after the other."""
    num_steps, num_envs = rewards.shape
    targets = np.zeros_like(rewards)
    for i in range(num_envs):
        for t in range(num_steps):
            end = t
            while end < num_steps - 1 and not (terminated[end, i] or truncated[end, i]):
                end += 1
            total, weight, rewards_so_far = 0.0, 1.0, 0.0
            for k in range(t, end + 1):
                rewards_so_far += gamma ** (k - t) * rewards[k, i]
                bootstrap = 0.0 if terminated[k, i] else gamma ** (k - t + 1) * next_values[k, i]
                share = weight if k == end else weight * (1 - lambda_)
                total += share * (rewards_so_far + bootstrap)
                weight *= lambda_
            targets[t, i] = total
    return targets


def random_fragment(seed, num_steps=12, num_envs=3):
    rng = np.random.default_rng(seed)
    rewards, next_values = rng.standard_normal((2, num_steps, num_envs))
    terminated, truncated = rng.random((2, num_steps, num_envs)) < 0.15
    return rewards, next_values, terminated, truncated


@pytest.mark.parametrize("lambda_", [0.0, 0.65, 1.0])
@pytest.mark.parametrize("seed", range(5))
def test_equals_the_sum_of_n_step_returns(seed, lambda_):
    fragment = random_fragment(seed)
    targets = q_lambda_targets(*fragment, 0.9, lambda_)
    np.testing.assert_allclose(targets, slow_targets(*fragment, 0.9, lambda_), atol=1e-6)


def test_by_hand():
    """gamma = 0.1, so that the digits can be read: rewards 1, 2, 3 and values 4, 5, 6, half of each trace."""
    rewards, next_values = np.array([[1.0], [2], [3]]), np.array([[4.0], [5], [6]])
    never = np.zeros((3, 1), bool)
    targets = q_lambda_targets(rewards, next_values, never, never, 0.1, 0.5)
    # 3 + .6;  2 + .1 (2.5 + 1.8);  1 + .1 (2 + 1.215)
    np.testing.assert_allclose(targets[:, 0], [1.3215, 2.43, 3.6], atol=1e-6)


def test_both_kinds_of_ends_inside_a_fragment():
    rewards = np.ones((4, 2))
    next_values = np.full((4, 2), 10.0)
    at_1 = np.zeros((4, 2), bool)
    at_1[1, 0] = True
    other = np.zeros((4, 2), bool)
    other[1, 1] = True
    targets = q_lambda_targets(rewards, next_values, at_1, other, 0.5, 1.0)
    # Terminated: nothing follows. Truncated: the value of the final observation follows, and no more of the trace.
    np.testing.assert_allclose(targets[1], [1.0, 6.0])
    np.testing.assert_allclose(targets[0], [1.5, 4.0])
    np.testing.assert_allclose(targets[2:], [[4.0, 4.0], [6.0, 6.0]])


@pytest.mark.parametrize("lambda_", [0.0, 0.65, 1.0])
def test_they_are_gae_plus_value(lambda_):
    """With the values as the baseline, whatever these are: it cancels."""
    rewards, values, terminated, truncated = random_fragment(7)
    next_values = np.concatenate([values[1:], values[:1]])
    _, expected = gae(rewards, values, next_values, terminated, truncated, 0.9, lambda_)
    targets = q_lambda_targets(rewards, next_values, terminated, truncated, 0.9, lambda_)
    np.testing.assert_allclose(targets, expected, atol=1e-5)


def test_inputs_stay_as_they_are():
    fragment = random_fragment(1)
    copies = [column.copy() for column in fragment]
    q_lambda_targets(*fragment, 0.9, 0.5)
    for column, copy in zip(fragment, copies):
        np.testing.assert_array_equal(column, copy)


def test_other_shapes_are_refused():
    rewards, next_values, terminated, truncated = random_fragment(0)
    with pytest.raises(ValueError, match="one shape"):
        q_lambda_targets(rewards, next_values[:-1], terminated, truncated, 0.9, 0.5)


def test_scaled_and_shifted_rewards():
    """k r is worth k Q; r + c (1 - gamma), where nothing terminates, Q + c."""
    rewards, values, terminated, truncated = random_fragment(6)
    targets = q_lambda_targets(rewards, values, terminated, truncated, 0.9, 0.65)
    scaled = q_lambda_targets(7 * rewards, 7 * values, terminated, truncated, 0.9, 0.65)
    np.testing.assert_allclose(scaled, 7 * targets, rtol=1e-5, atol=1e-5)
    never = np.zeros_like(terminated)
    targets = q_lambda_targets(rewards, values, never, truncated, 0.9, 0.65)
    shifted = q_lambda_targets(rewards + 3 * (1 - 0.9), values + 3, never, truncated, 0.9, 0.65)
    np.testing.assert_allclose(shifted, targets + 3, atol=1e-5)
