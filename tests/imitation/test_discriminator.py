"""The discriminator of the driver: what it reads, what it learns, its rewards, and its state."""

import gymnasium as gym
import numpy as np
import pytest
import torch

from rllib.errors import LearnerError
from rllib.imitation.discriminator import Discriminator
from rllib.imitation.rows import INDICATOR, RowReader
from rllib.imitation.settings import INPUTS, R1, STATS, DiscriminatorSettings
from rllib.imitation.steps import Steps
from rllib.models.catalog.catalog import policy_spec

torch.set_num_threads(1)

BOX = gym.spaces.Box(-10, 10, (3,))
SMALL = {"hiddens": (16,), "lr": 3e-3, "batch_size": 64}


def steps(count, mean=0.0, seed=0, actions=3, ends=0, log_probs=None) -> Steps:
    rng = np.random.default_rng(seed)
    observations = rng.normal(mean, 1, (2, count, 3)).astype(np.float32)
    terminated = np.arange(count) < ends
    return Steps(observations[0], rng.integers(actions, size=count), observations[1], terminated, log_probs)


def reader(inputs=("obs", "actions"), actions=None, columns=None) -> RowReader:
    return RowReader(policy_spec(BOX, actions or gym.spaces.Discrete(3)), inputs, columns)


def make(expert, seed=0, inputs=("obs", "actions"), read=None, **settings) -> Discriminator:
    settings = DiscriminatorSettings(**{**SMALL, "inputs": tuple(inputs), **settings})
    return Discriminator(settings, reader(read or inputs), expert, np.random.default_rng(seed))


def rewards(discriminator, rows) -> np.ndarray:
    return discriminator.rewards(rows, np.zeros(len(rows), bool))[0]


def learned(discriminator, policy, times=20, log_probs=None):
    rng = np.random.default_rng(5)
    for _ in range(times):
        stats = discriminator.learn(policy, log_probs, rng)
    return stats


# ---------------------------------------------------------------------- rows


def test_a_row_has_the_parts_that_are_read_and_an_indicator():
    given = steps(5, ends=2)
    rows = reader(INPUTS)(given)
    np.testing.assert_array_equal(rows[:, :3], given.observations)
    np.testing.assert_array_equal(rows[:, 3:6], np.eye(3)[given.actions])
    np.testing.assert_array_equal(rows[:, 6:9], given.next_observations)
    assert rows[:, 9].tolist() == [1, 1, 0, 0, 0] and not rows[:, 10].any()
    absorbing = reader(INPUTS).absorbing
    assert absorbing[-1] == INDICATOR and not absorbing[:-1].any()


def test_some_columns_of_observations_are_read():
    given = steps(4)
    rows = reader(("next_obs", "obs"), columns=np.array([2]))(given)
    np.testing.assert_array_equal(rows[:, :2], np.stack([given.observations[:, 2], given.next_observations[:, 2]], 1))


# ---------------------------------------------------------------------- what it learns


def test_rewards_are_alike_at_first():
    discriminator = make(steps(100), reward_normalize=False)
    np.testing.assert_allclose(rewards(discriminator, steps(50, seed=1)), np.log(2), atol=0.02)


@pytest.mark.parametrize("form", ["gail", "airl", "log_d", "lsgan"])
@pytest.mark.parametrize("penalty", [{}, {"penalty": R1, "gradient_penalty": 5.0}, {"gradient_penalty": 0.0}])
def test_rows_like_the_experts_are_rewarded(form, penalty):
    discriminator = make(steps(200, 1.0), reward_form=form, **penalty)
    stats = learned(discriminator, steps(200, -1.0, seed=1))
    assert stats.keys() == set(STATS)
    assert stats["discriminator_accuracy_expert"] > 0.7 and stats["discriminator_accuracy_policy"] > 0.7
    assert (stats["gradient_penalty"] == 0) == (penalty.get("gradient_penalty") == 0)
    alike, unlike = (discriminator.learned_reward(steps(200, mean, seed=2)).mean() for mean in (1.0, -1.0))
    assert alike > unlike


def test_sides_that_are_alike_are_not_told_apart():
    stats = learned(make(steps(2000)), steps(2000, seed=1))
    assert stats["discriminator_entropy"] == pytest.approx(np.log(2), abs=0.05)


def test_a_shaped_logit_reads_the_policys_probabilities():
    """Of two actions that both sides take alike, log pi is what f has to make up for."""
    rng = np.random.default_rng(0)
    expert, policy = (steps(2000, seed=seed, actions=2) for seed in (1, 2))
    log_probs = [np.log(np.where(each.actions == 0, 0.9, 0.1)).astype(np.float32) for each in (expert, policy)]
    policy = Steps(policy.observations, policy.actions, policy.next_observations, policy.terminated, log_probs[1])
    shaped = make(expert, read=INPUTS, is_shaped=True, absorbing=False, reward_form="airl", gradient_penalty=0.0)
    for _ in range(60):
        shaped.learn(policy, log_probs[0], rng)
    found = shaped.learned_reward(policy)
    gap = found[policy.actions == 0].mean() - found[policy.actions == 1].mean()
    assert gap == pytest.approx(np.log(9), abs=0.4)


# ---------------------------------------------------------------------- normalisation


def test_both_sides_count_alike_in_the_statistics():
    expert, policy = steps(10, 4.0), steps(1000, -2.0, seed=1)
    discriminator = make(expert)
    learned(discriminator, policy, times=3)
    state = discriminator.get_state()
    means = expert.observations.mean(0), policy.observations.mean(0)
    np.testing.assert_allclose(state["observations.mean"], np.mean(means, 0), rtol=1e-4)
    assert state["observations.count"] == 6000
    both = (expert.observations.var(0) + policy.observations.var(0)) / 2 + (means[0] - means[1]) ** 2 / 4
    np.testing.assert_allclose(state["observations.m2"] / 6000, both, rtol=1e-4)


def test_the_scale_of_observations_does_not_matter():
    expert, policy = steps(500, 1.0), steps(500, -1.0, seed=1)

    def scaled(each):
        return Steps(1000 * each.observations, each.actions, 1000 * each.next_observations, each.terminated)

    plain, large = make(expert), make(scaled(expert))
    learned(plain, policy), learned(large, scaled(policy))
    np.testing.assert_allclose(rewards(plain, policy), rewards(large, scaled(policy)), rtol=0.01, atol=0.01)


def test_rewards_are_divided_by_the_deviation_of_their_discounted_sums():
    given = {"gamma": 0.5, "reward_clip": None}
    discriminator, plain = make(steps(20), **given), make(steps(20), reward_normalize=False, **given)
    policy = steps(30, seed=1)
    for each in (discriminator, plain):
        learned(each, policy, times=1)
    goes_on = np.arange(30) % 10 != 9
    raw, _, mean = plain.rewards(policy, goes_on)
    assert mean == pytest.approx(raw.mean())
    sums, total = [], 0.0
    for t, reward in enumerate(raw):
        total = reward + (0.5 * total if t % 10 else 0.0)
        sums.append(total)
    scaled, _, mean = discriminator.rewards(policy, goes_on)
    np.testing.assert_allclose(scaled, raw / np.std(sums), rtol=1e-3)
    assert mean == pytest.approx(raw.mean())
    clipped = make(steps(20), gamma=0.5, reward_clip=0.25).rewards(policy, goes_on)
    assert abs(clipped[0]).max() <= 0.25 and abs(clipped[1]) <= 0.25


# ---------------------------------------------------------------------- the absorbing state


@pytest.mark.parametrize("expert_ends, policy_ends", [(0, 60), (60, 0)])
def test_the_absorbing_state_is_rewarded_if_the_expert_is_in_it(expert_ends, policy_ends):
    discriminator = make(steps(200, ends=expert_ends), reward_form="airl", reward_normalize=False)
    policy = steps(200, seed=1, ends=policy_ends)
    learned(discriminator, policy, times=60)
    absorbed = discriminator.rewards(policy, ~policy.terminated)[1]
    assert absorbed > 0.5 if expert_ends else absorbed < -0.5


def test_without_it_no_row_is_added():
    with_it, without = (make(steps(20, ends=5), absorbing=absorbing) for absorbing in (True, False))
    assert len(with_it._expert) == 25 and len(without._expert) == 20
    assert without.rewards(steps(9), np.zeros(9, bool))[1] == 0


# ---------------------------------------------------------------------- state and errors


@pytest.mark.parametrize("buffer", [1, 3])
def test_a_restored_one_goes_on_with_the_same_bits(buffer):
    whole, restored = (make(steps(50, 1.0, ends=3), seed=seed, generator_buffer=buffer) for seed in (0, 1))
    batches = [steps(40, seed=seed, ends=2) for seed in range(5)]
    rng = np.random.default_rng(3)
    for batch in batches[:3]:
        whole.learn(batch, None, rng)
        whole.rewards(batch, ~batch.terminated)
    restored.set_state(whole.get_state())
    again = np.random.default_rng()
    again.bit_generator.state = rng.bit_generator.state
    for batch in batches[3:]:
        assert whole.learn(batch, None, rng) == restored.learn(batch, None, again)
    np.testing.assert_array_equal(rewards(whole, batches[0]), rewards(restored, batches[0]))


def test_the_rows_of_earlier_batches_are_kept():
    discriminator = make(steps(50), generator_buffer=3)
    for seed in range(5):
        discriminator.learn(steps(20, seed=seed), None, np.random.default_rng(0))
    state = discriminator.get_state()
    assert sorted(name for name in state if name.endswith(".rows")) == [f"batch_{index}.rows" for index in range(3)]


def test_the_state_of_others_is_refused():
    state = make(steps(10)).get_state()
    with pytest.raises(ValueError, match="the discriminator's state"):
        make(steps(10), hiddens=(8,)).set_state(state)
    with pytest.raises(ValueError, match="the discriminator's state"):
        make(steps(10), inputs=("obs",)).set_state(state)


def test_a_loss_that_is_not_finite_is_an_error():
    with pytest.raises(LearnerError, match="discriminator_lr"):
        learned(make(steps(20), activation="relu", lr=1e30), steps(20, seed=1))
