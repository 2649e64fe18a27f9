"""Batches in sequences: each step is followed by what it is bootstrapped from."""

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from rllib import sample_batch as sb
from rllib.env.factories.registry import resolve
from rllib.evaluation.postprocess.fragment import Column, Fragment
from rllib.evaluation.rollout_worker import RolloutWorker
from rllib.evaluation.settings import NO_POSTPROCESS
from rllib.models.catalog.catalog import policy_spec
from rllib.sample_batch import SampleBatch
from tests.envs import CountingEnv
from tests.rollouts import rollout_settings


def worker(env=CountingEnv, sequences=True, num_envs=2, fragment_length=13, **options) -> RolloutWorker:
    space = CountingEnv.observation_space
    settings = rollout_settings(
        env=resolve(env),
        env_config={},
        policy=policy_spec(space, CountingEnv.action_space, {"fcnet_hiddens": [8]}),
        postprocess=NO_POSTPROCESS,
        num_envs=num_envs,
        fragment_length=fragment_length,
        seed=3,
        sequences=sequences,
        **options,
    )
    return RolloutWorker(settings)


def check_counts(batch: SampleBatch) -> None:
    """In the counting environment every step is followed by an observation that is larger by one."""
    steps, observations = batch[sb.LOSS_MASK], batch[sb.OBS][:, 0]
    goes_on = np.flatnonzero(steps & ~batch[sb.TERMINATEDS])
    np.testing.assert_array_equal(observations[goes_on + 1], observations[goes_on] + 1)
    np.testing.assert_array_equal(batch[sb.REWARDS][steps], observations[steps] + 1)
    truncated = np.flatnonzero(batch[sb.TRUNCATEDS] & ~batch[sb.TERMINATEDS])
    assert not batch[sb.LOSS_MASK][truncated + 1].any()
    assert not batch[sb.LOSS_MASK][-1]
    for name in (sb.REWARDS, sb.ACTION_LOGP, sb.ACTIONS, sb.TERMINATEDS, sb.TRUNCATEDS, sb.ACTION_DIST_INPUTS):
        assert not batch[name][~steps].any()


@pytest.mark.parametrize("fragment_length", [1, 3, 8, 13, 40])
def test_every_step_is_followed_by_its_successor(fragment_length):
    sampler = worker(fragment_length=fragment_length)
    for _ in range(4):
        batch, report = sampler.sample()
        check_counts(batch)
        assert batch.env_steps() == report.env_steps == 2 * fragment_length


def test_no_step_and_no_reward_is_lost():
    """The same steps as without sequences, environment by environment."""
    plain, _ = worker(sequences=False, fragment_length=25).sample()
    batch, _ = worker(fragment_length=25).sample()
    steps = batch[sb.LOSS_MASK]
    for name, column in plain.items():
        in_order = np.swapaxes(column.reshape(25, 2, *column.shape[1:]), 0, 1).reshape(column.shape)
        np.testing.assert_array_equal(batch[name][steps], in_order)
    assert batch[sb.REWARDS].sum() == plain[sb.REWARDS].sum()


def test_joined_batches_keep_their_ends():
    sampler = worker()
    joined = SampleBatch.concat([sampler.sample()[0] for _ in range(3)])
    check_counts(joined)
    assert joined.env_steps() == 3 * 26


def test_whole_episodes():
    batch, _ = worker(complete_episodes=True, fragment_length=5).sample()
    check_counts(batch)
    ends = batch[sb.TERMINATEDS] | batch[sb.TRUNCATEDS]
    assert ends[np.flatnonzero(batch[sb.LOSS_MASK][:-1] & ~batch[sb.LOSS_MASK][1:])].all()


class CountingVectorEnv(SyncVectorEnv):
    """Resets in the step after an episode's end: rows that are no transitions."""

    def __init__(self, config):
        super().__init__([CountingEnv, CountingEnv], autoreset_mode=AutoresetMode.NEXT_STEP)


def test_rows_that_are_no_transitions_are_left_out():
    sampler = worker(CountingVectorEnv)
    for _ in range(3):
        batch, report = sampler.sample()
        check_counts(batch)
        assert batch.env_steps() == report.env_steps < 26


def test_final_observations_of_several_environments():
    fragment = Fragment([Column(sb.OBS, (1,), before_action=True), Column(sb.REWARDS)], 3, 2)
    fragment[sb.OBS][:] = np.arange(8).reshape(4, 2, 1)
    fragment[sb.REWARDS][:] = 1
    fragment.final_observations = [(0, 1, np.array([91.0])), (2, 0, np.array([92.0])), (2, 1, np.array([93.0]))]
    batch = fragment.to_sequences(7)
    np.testing.assert_array_equal(batch[sb.OBS][:, 0], [0, 2, 4, 92, 6, 1, 91, 3, 5, 93, 7])
    np.testing.assert_array_equal(batch[sb.LOSS_MASK], [1, 1, 1, 0, 0, 1, 0, 1, 1, 0, 0])
    assert batch.policy_version == 7
