"""The rewards of train batches that a discriminator gives."""

import gymnasium as gym
import numpy as np
import pytest

from rllib import sample_batch as sb
from rllib.imitation.learned_reward import LearnedReward
from rllib.imitation.rows import INDICATOR
from rllib.imitation.settings import DiscriminatorSettings
from rllib.losses.discriminator import absorbing_bonus
from rllib.models.catalog.catalog import policy_spec
from rllib.offline.dataset import Dataset
from rllib.policy import Policy
from rllib.sample_batch import SampleBatch

NUMBERS = gym.spaces.Box(-5, 5, (2,))
PARTS = gym.spaces.Dict({"feet": gym.spaces.Box(-5, 5, (2,)), "wall": gym.spaces.Box(-5, 5, (3,))})
CHOICES, TORQUE = gym.spaces.Discrete(2), gym.spaces.Box(-2, 2, (1,))


class Conversions:
    normalize_actions, clip_actions = True, False


def make(observations=NUMBERS, actions=CHOICES, keys=(), columns=None, **settings) -> LearnedReward:
    rng = np.random.default_rng(0)
    spec = policy_spec(observations, actions, {"fcnet_hiddens": [4]})
    policy = Policy(spec, rng=rng)
    policy.observation_space, policy.action_space = observations, actions
    observations.seed(0), actions.seed(0)
    size = gym.spaces.flatdim(observations)
    columns = columns or {
        "obs": rng.normal(size=(12, size)).astype(np.float32),
        "actions": np.stack([actions.sample() for _ in range(12)]),
        "terminateds": np.arange(12) % 4 == 3,
    }
    if observations is PARTS:
        columns["obs"] = {"feet": columns["obs"][:, :2], "wall": columns["obs"][:, 2:]}
    dataset = Dataset.from_columns(columns, observation_space=observations, action_space=actions)
    settings = DiscriminatorSettings(**{"hiddens": (8,), "batch_size": 16, "updates": 2, **settings})
    return LearnedReward(settings, policy, dataset, Conversions(), rng, observation_keys=keys)


def batch(ends=("terminated", None, "truncated", None), size=2, actions=None) -> SampleBatch:
    """Two environments of two steps each: an end in the first and the last step of the first, none in the other."""
    rng = np.random.default_rng(1)
    is_step = np.array([True, True, False, False, True, True, False])  # a final observation behind the truncation
    steps = np.flatnonzero(is_step)
    columns = {
        sb.OBS: rng.normal(size=(7, size)).astype(np.float32),
        sb.ACTIONS: np.zeros(7, np.int64) if actions is None else np.full((7, 1), actions, np.float32),
        sb.REWARDS: np.arange(7, dtype=np.float32),
        sb.TERMINATEDS: np.zeros(7, bool),
        sb.TRUNCATEDS: np.zeros(7, bool),
        sb.LOSS_MASK: is_step,
        sb.ACTION_LOGP: np.full(7, -0.5, np.float32),
    }
    for row, end in zip(steps, ("terminated", "truncated", None, None)):
        columns[sb.TERMINATEDS][row], columns[sb.TRUNCATEDS][row] = end == "terminated", end == "truncated"
    return SampleBatch(columns)


def test_rewards_are_replaced_and_those_of_the_environment_kept():
    reward, rows = make(), batch()
    seen = {}

    def given(steps, goes_on):
        seen.update(steps=steps, goes_on=goes_on)
        return np.array([1, 2, 3, 4], np.float32), 0.5, 7.0

    reward.discriminator.rewards = given
    stats = reward.add_to(rows, np.random.default_rng(0), imitation=2.0, task=10.0)
    bonus = absorbing_bonus(2 * 0.5, 0.99)
    assert rows[sb.REWARDS] == pytest.approx([2 + bonus, 14, 0, 0, 46, 58, 0])
    assert rows[sb.ENV_REWARDS].tolist() == list(range(7))
    assert stats.keys() == set(reward.stats) and stats["imitation_reward_mean"] == 7.0
    assert seen["goes_on"].tolist() == [False, False, True, False]
    np.testing.assert_array_equal(seen["steps"].next_observations, rows[sb.OBS][[1, 2, 5, 6]])


def test_without_an_absorbing_state_a_terminated_step_gets_nothing_more():
    reward, rows = make(absorbing=False), batch()
    reward.discriminator.rewards = lambda *_: (np.ones(4, np.float32), 0.0, 1.0)
    reward.add_to(rows, np.random.default_rng(0), imitation=1.0, task=0.0)
    assert rows[sb.REWARDS].tolist() == [1, 1, 0, 0, 1, 1, 0]


def test_actions_are_compared_as_they_were_played():
    reward = make(actions=TORQUE)
    for drawn in (3.0, 50.0):
        steps = reward._steps(batch(actions=drawn), np.array([0, 1]))
        assert steps.actions.tolist() == [[1.0], [1.0]]
    np.testing.assert_allclose(np.abs(reward._expert.actions).max(), 1, atol=1)


def test_one_that_reads_some_keys_does_not_see_the_others():
    reward = make(PARTS, keys=["feet"])
    steps = reward._steps(batch(size=5), np.array([0, 1]))
    before = reward.discriminator.learned_reward(steps)
    steps.observations[:, 2:] += 3
    np.testing.assert_array_equal(reward.discriminator.learned_reward(steps), before)
    steps.observations[:, :2] += 3
    assert (reward.discriminator.learned_reward(steps) != before).any()
    with pytest.raises(ValueError, match="discriminator_observation_keys"):
        make(PARTS, keys=["hands"])


def test_rows_whose_next_observation_is_unknown_are_not_read_where_that_is():
    columns = {
        "obs": np.zeros((6, 2), np.float32),
        "actions": np.zeros(6, np.int64),
        "truncateds": np.arange(6) % 3 == 2,
    }
    assert len(make(columns=dict(columns))._expert) == 6
    assert len(make(columns=dict(columns), inputs=("obs", "next_obs"))._expert) == 4
    alone = {"obs": np.zeros((1, 2), np.float32), "actions": np.zeros(1, np.int64), "truncateds": np.array([True])}
    with pytest.raises(ValueError, match="next_obs"):
        make(columns=alone, inputs=("obs", "next_obs"))


@pytest.mark.parametrize("stands_there", ["nothing", "the reset"])
@pytest.mark.parametrize("inputs", [("obs", "next_obs"), ("next_obs",), ("obs", "actions", "next_obs", "terminated")])
def test_what_stands_behind_a_termination_is_not_read_as_what_followed(stands_there, inputs, caplog):
    rng = np.random.default_rng(0)
    seen, ends = rng.normal(3, 0.1, size=(12, 2)).astype(np.float32), np.arange(12) % 4 == 3
    columns = {"obs": seen, "actions": np.zeros(12, np.int64), "terminateds": ends}
    if stands_there == "the reset":  # of environments that reset themselves
        columns["new_obs"] = np.roll(seen, -1, axis=0)
    reward = make(columns=columns, inputs=inputs)
    assert len(reward._expert) == 9 and reward._expert.left_out_ends == 3
    assert reward._expert.next_observations.min() > 2, "zeros, which nobody has seen"
    absorbing = reward.discriminator._expert[:, -1] == INDICATOR
    assert absorbing.sum() == 3, "each terminated episode has its absorbing row"
    assert "3 of 3 episodes" in caplog.text and "new_obs" in caplog.text


def test_a_shaped_logit_reads_terminated_steps_without_what_followed():
    seen, ends = np.full((12, 2), 3, np.float32), np.arange(12) % 4 == 3
    columns = {"obs": seen, "actions": np.zeros(12, np.int64), "terminateds": ends}
    reward = make(columns=columns, is_shaped=True, absorbing=False, reward_form="airl")
    assert reward._expert.terminated.sum() == 3
    assert (reward._expert.next_observations == 3).all(), "zeros, which nobody has seen"


def test_a_discriminator_that_has_won_is_told_of_once(caplog):
    reward = make(absorbing=False, updates=30, lr=1e-2, gradient_penalty=0.0)
    for _ in range(45):
        far = batch()
        far[sb.OBS] += 100
        reward.add_to(far, np.random.default_rng(0), imitation=1.0, task=0.0)
    told = [record for record in caplog.records if "has won" in record.getMessage()]
    assert len(told) == 1 and "discriminator_updates" in told[0].getMessage()
