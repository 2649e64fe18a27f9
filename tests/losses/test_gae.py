"""Advantages against published vectors, a slow reference, and properties that need no reference."""

import numpy as np
import pytest

from rllib.losses.returns import gae


def slow_gae(rewards, values, next_values, terminated, truncated, gamma, lambda_):
    """The double sum of arXiv:1506.02438, eq. 16, in float64, O(T^2)."""
    rewards, values, next_values = (np.asarray(x, np.float64) for x in (rewards, values, next_values))
    length, num_envs = rewards.shape
    advantages = np.zeros((length, num_envs))
    for b in range(num_envs):
        for start in range(length):
            weight = 1.0
            for t in range(start, length):
                bootstrap = 0.0 if terminated[t, b] else next_values[t, b]
                advantages[start, b] += weight * (rewards[t, b] + gamma * bootstrap - values[t, b])
                if terminated[t, b] or truncated[t, b]:
                    break
                weight *= gamma * lambda_
    return advantages


@pytest.mark.parametrize(
    ("lambda_", "expected"),
    [
        (1.0, [[-1.451188, -4.455746, 2.539651, 0.5249, -0.49], [3, 2, 1, 0, -4.9]]),
        (0.7, [[-0.676979, -5.248167, 2.484608, 0.67043, -0.49], [2.2899, 1.73, 1, 0, -4.9]]),
        (0.4, [[0.567319, -6.042124, 2.34312, 0.81596, -0.49], [1.7256, 1.46, 1, 0, -4.9]]),
    ],
)
def test_published_vectors(lambda_, expected):
    """rlax's test vectors; its discounts of 0 are terminations, its two rows differ in gamma."""
    rewards = np.array([[0, 0, 1, 0, -0.5], [0, 0, 0, 0, 1]], np.float32)
    values = np.array([[1, 4, -3, -2, -1, -1], [-3, -2, -1, 0, 5, -1]], np.float32)
    terminated = np.array([[0, 0, 0, 0, 0], [0, 0, 0, 1, 0]], bool)
    for row, gamma in enumerate((0.99, 0.9)):
        advantages, targets = gae(
            rewards[row][:, None],
            values[row, :-1][:, None],
            values[row, 1:][:, None],
            terminated[row][:, None],
            np.zeros((5, 1), bool),
            gamma,
            lambda_,
        )
        np.testing.assert_allclose(advantages[:, 0], expected[row], atol=1e-6)
        np.testing.assert_allclose(targets[:, 0], expected[row] + values[row, :-1], atol=1e-6)


BOTH_ENDS = {
    "rewards": np.arange(1, 7, dtype=np.float32)[:, None],
    "values": np.array([0.5, 1, 1.5, 2, 2.5, 3], np.float32)[:, None],
    "next_values": np.array([1, 10, 2, 20, 3, 7], np.float32)[:, None],
    "terminated": np.array([0, 0, 0, 1, 0, 0], bool)[:, None],
    "truncated": np.array([0, 1, 0, 0, 0, 0], bool)[:, None],
}


def test_termination_and_truncation_inside_a_fragment():
    advantages, _ = gae(**BOTH_ENDS, gamma=0.9, lambda_=0.8)
    np.testing.assert_allclose(advantages[:, 0], [8.6, 10, 4.74, 2, 11.896, 9.3], rtol=1e-6)


def test_the_two_usual_mistakes_give_other_numbers():
    right = gae(**BOTH_ENDS, gamma=0.9, lambda_=0.8)[0][1, 0]
    ends = BOTH_ENDS["truncated"] | BOTH_ENDS["terminated"]
    as_terminal = gae(**{**BOTH_ENDS, "terminated": ends}, gamma=0.9, lambda_=0.8)[0][1, 0]
    carried_on = gae(**{**BOTH_ENDS, "truncated": np.zeros((6, 1), bool)}, gamma=0.9, lambda_=0.8)[0][1, 0]
    assert as_terminal == pytest.approx(1)
    assert right == pytest.approx(10)
    assert carried_on not in (pytest.approx(right), pytest.approx(as_terminal))


def random_fragment(seed, length=37, num_envs=5):
    rng = np.random.default_rng(seed)
    draw = lambda: rng.standard_normal((length, num_envs), dtype=np.float32)  # noqa: E731
    values, next_values = draw(), draw()
    return {
        "rewards": draw(),
        "values": values,
        "next_values": next_values,
        "terminated": rng.random((length, num_envs)) < 0.1,
        "truncated": rng.random((length, num_envs)) < 0.1,
    }


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("lambda_", [0.0, 0.95, 1.0])
def test_equals_the_double_sum(seed, lambda_):
    fragment = random_fragment(seed)
    advantages, targets = gae(**fragment, gamma=0.97, lambda_=lambda_)
    assert advantages.dtype == targets.dtype == np.float32
    np.testing.assert_allclose(advantages, slow_gae(**fragment, gamma=0.97, lambda_=lambda_), atol=2e-5)


def test_lambda_0_is_the_td_error():
    fragment = random_fragment(7)
    advantages, _ = gae(**fragment, gamma=0.9, lambda_=0.0)
    bootstrap = np.where(fragment["terminated"], 0, fragment["next_values"])
    np.testing.assert_allclose(advantages, fragment["rewards"] + 0.9 * bootstrap - fragment["values"], atol=1e-6)


def test_an_endless_reward_of_1_is_worth_1_over_1_minus_gamma():
    """Truncated each 100 steps, with the true values: the advantages vanish; as terminations they do not."""
    shape, gamma = (300, 1), 0.99
    worth = np.full(shape, 1 / (1 - gamma), np.float32)
    ends = (np.arange(300) % 100 == 99)[:, None]
    never = np.zeros(shape, bool)
    advantages, targets = gae(np.ones(shape, np.float32), worth, worth, never, ends, gamma, 1.0)
    np.testing.assert_allclose(advantages, 0, atol=1e-3)
    np.testing.assert_allclose(targets, 100, rtol=1e-5)
    wrong, _ = gae(np.ones(shape, np.float32), worth, worth, ends, never, gamma, 1.0)
    assert wrong.min() < -90


def test_rewards_k_times_as_large_are_worth_k_times_as_much():
    fragment = random_fragment(4)
    scaled = {name: 7 * fragment[name] for name in ("rewards", "values", "next_values")}
    for one, other in zip(
        gae(**fragment, gamma=0.9, lambda_=0.8), gae(**{**fragment, **scaled}, gamma=0.9, lambda_=0.8)
    ):
        np.testing.assert_allclose(other, 7 * one, rtol=1e-5, atol=1e-5)


def test_a_constant_in_every_reward_shifts_values_and_no_advantage():
    """Where nothing terminates: r + c (1 - gamma) is worth V + c."""
    fragment = {**random_fragment(5), "terminated": np.zeros((37, 5), bool)}
    shifted = {"rewards": fragment["rewards"] + np.float32(3 * (1 - 0.9))}
    shifted |= {name: fragment[name] + np.float32(3) for name in ("values", "next_values")}
    advantages, targets = gae(**fragment, gamma=0.9, lambda_=0.8)
    got_advantages, got_targets = gae(**{**fragment, **shifted}, gamma=0.9, lambda_=0.8)
    np.testing.assert_allclose(got_advantages, advantages, atol=1e-5)
    np.testing.assert_allclose(got_targets, targets + 3, atol=1e-5)


def test_splitting_a_fragment_changes_nothing_at_an_episode_end():
    fragment = random_fragment(3)
    fragment["terminated"][20] = True
    whole, _ = gae(**fragment, gamma=0.99, lambda_=0.9)
    first, _ = gae(**{name: column[:21] for name, column in fragment.items()}, gamma=0.99, lambda_=0.9)
    second, _ = gae(**{name: column[21:] for name, column in fragment.items()}, gamma=0.99, lambda_=0.9)
    assert np.array_equal(whole, np.concatenate([first, second]))


def test_garbage_behind_a_termination_has_no_effect():
    fragment = random_fragment(4)
    clean, _ = gae(**fragment, gamma=0.99, lambda_=0.9)
    fragment["next_values"][fragment["terminated"]] = np.nan
    dirty, _ = gae(**fragment, gamma=0.99, lambda_=0.9)
    assert np.array_equal(clean, dirty)


def test_inputs_stay_as_they_are():
    fragment = random_fragment(5)
    copies = {name: column.copy() for name, column in fragment.items()}
    gae(**fragment, gamma=0.99, lambda_=0.9)
    assert all(np.array_equal(fragment[name], copies[name]) for name in fragment)


def test_other_shapes_are_refused():
    fragment = random_fragment(6)
    with pytest.raises(ValueError, match=r"one shape \[T, B\]"):
        gae(**{**fragment, "values": fragment["values"][:-1]}, gamma=0.9, lambda_=0.9)
    with pytest.raises(ValueError, match=r"one shape \[T, B\]"):
        gae(**{name: column[:, 0] for name, column in fragment.items()}, gamma=0.9, lambda_=0.9)
