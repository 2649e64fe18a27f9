"""Replay: windows of n steps, the ring's seam, and priorities."""

import numpy as np
import pytest

from rllib import sample_batch as sb
from rllib.replay.transition_replay import TransitionReplay
from rllib.sample_batch import DISCOUNTS, INDICES, WEIGHTS, SampleBatch


def steps(rewards, terminated=(), truncated=(), envs=1):
    """Rows whose observation is their number; every environment does the same."""
    count = len(rewards)
    numbers = np.arange(count, dtype=np.float32)
    columns = {
        sb.OBS: numbers[:, None],
        sb.NEXT_OBS: numbers[:, None] + 1,
        sb.ACTIONS: np.zeros(count, int),
        sb.REWARDS: np.array(rewards, np.float32),
        sb.TERMINATEDS: np.isin(np.arange(count), terminated),
        sb.TRUNCATEDS: np.isin(np.arange(count), truncated),
    }
    return SampleBatch({name: np.repeat(column, envs, axis=0) for name, column in columns.items()})


COLUMNS = {name: (column.shape[1:], str(column.dtype)) for name, column in steps([0.0]).items()}


def make_replay(*settings, **more):
    return TransitionReplay(COLUMNS, *settings, **more)


def everything(replay, seed=0):
    """Each stored row once, by the number of the step it starts at."""
    batch = replay.sample(2000, np.random.default_rng(seed))
    _, first = np.unique(batch[sb.OBS], return_index=True)
    return batch.rows(first)


@pytest.mark.parametrize("envs", [1, 3])
@pytest.mark.parametrize("pieces", [1, 5])
def test_n_step_gold(envs, pieces):
    """Truncated after step 2, terminated after step 4; one batch, or a batch a step."""
    replay = make_replay(100, envs, gamma=0.9, n_step=3)
    whole = steps([1, 2, 3, 4, 5], terminated=[4], truncated=[2], envs=envs)
    for part in whole.minibatches(whole.count // pieces):
        replay.add(part, 5 // pieces)
    found = everything(replay)
    np.testing.assert_allclose(found[sb.REWARDS], [5.23, 4.7, 3, 8.5, 5], rtol=1e-6)
    np.testing.assert_allclose(found[DISCOUNTS], [0.9**3, 0.9**2, 0.9, 0, 0], rtol=1e-6)
    assert found[sb.NEXT_OBS].ravel().tolist() == [3, 3, 3, 5, 5]


def test_a_window_that_the_newest_step_cuts_is_bootstrapped_there():
    replay = make_replay(100, 1, gamma=0.5, n_step=3)
    replay.add(steps([1, 1, 1]), 3)
    found = everything(replay)
    assert found[sb.REWARDS].tolist() == [1.75, 1.5, 1]
    assert found[DISCOUNTS].tolist() == [0.125, 0.25, 0.5]


@pytest.mark.parametrize(("envs", "capacity", "n_step"), [(1, 50, 1), (1, 53, 4), (3, 100, 4), (8, 64, 2)])
def test_no_sample_jumps_over_the_seam(envs, capacity, n_step):
    """A counter fills the ring three times; windows of constant reward are worth their number of steps."""
    replay = make_replay(capacity, envs, gamma=1.0, n_step=n_step)
    whole = steps(np.ones(3 * capacity // envs), envs=envs)
    for part in whole.minibatches(7 * envs):
        replay.add(part, part.count // envs)
    batch = replay.sample(5000, np.random.default_rng(0))
    moved = (batch[sb.NEXT_OBS] - batch[sb.OBS]).ravel()
    assert np.array_equal(moved, batch[sb.REWARDS])
    assert moved.max() == n_step and moved.min() == 1
    assert batch[sb.OBS].min() >= 3 * capacity // envs - replay.num_steps


def test_a_replaced_environment_is_cut_off_from_its_past():
    replay = make_replay(100, 1, gamma=1.0, n_step=3)
    replay.add(steps([1, 1, 1]), 3)
    replay.add(steps([10, 10, 10]), 3)  # observations begin at 0 again, and nothing had ended
    rewards = replay.sample(500, np.random.default_rng(0))[sb.REWARDS]
    assert set(rewards.tolist()) == {1, 2, 3, 10, 20, 30}


def test_new_rows_get_the_largest_priority():
    replay = make_replay(10, 1, gamma=0.9, alpha=1.0, epsilon=0.0)
    replay.add(steps([0, 0]), 2)
    replay.update_priorities(np.array([0, 1]), np.array([8.0, 0.0]))
    replay.add(steps([0]), 1)
    batch = replay.sample(4000, np.random.default_rng(0), beta=1.0)
    np.testing.assert_allclose(np.bincount(batch[INDICES]) / 4000, [0.5, 0, 0.5], atol=0.03)


def test_exponent_zero_is_uniform():
    replay = make_replay(300, 1, gamma=0.9, alpha=0.0)
    replay.add(steps(np.zeros(300)), 300)
    replay.update_priorities(np.arange(300), np.random.default_rng(0).random(300))
    batch = replay.sample(60_000, np.random.default_rng(1), beta=0.4)
    assert np.all(batch[WEIGHTS] == 1)
    np.testing.assert_allclose(np.bincount(batch[INDICES], minlength=300) / 60_000, 1 / 300, atol=1.2e-3)


@pytest.mark.parametrize("alpha", [None, 0.6])
def test_state(alpha):
    replay, other = (make_replay(20, 2, 0.9, 2, alpha) for _ in range(2))
    replay.add(steps(np.arange(13), envs=2), 13)
    replay.update_priorities(np.arange(5), np.arange(5.0))
    other.set_state(replay.get_state())
    samples = [each.sample(30, np.random.default_rng(0), 0.4) for each in (replay, other)]
    for name, column in samples[0].items():
        assert np.array_equal(column, samples[1][name])
    with pytest.raises(ValueError, match="capacity, environments and priorities must be as they were"):
        make_replay(20, 1, 0.9, 2, alpha).set_state(replay.get_state())


def test_more_than_the_memory_is_refused_with_the_size():
    with pytest.raises(ValueError, match=r"takes .* GiB, but .* GiB are free. Use"):
        make_replay(10**13, 1, 0.9)


def test_fragments_of_several_workers_lie_side_by_side():
    replay = make_replay(100, 2, gamma=1.0, n_step=2)
    first, second = steps([1, 2, 3]), steps([10, 20, 30])
    for batch in (first, second):
        batch.num_steps = 3
    replay.add(SampleBatch.join_rounds([[first, second]]), 3)
    rewards = replay.sample(500, np.random.default_rng(0))[sb.REWARDS]
    assert set(rewards.tolist()) == {3, 5, 30, 50}
    with pytest.raises(ValueError, match="are not 3 steps of 2 environments"):
        replay.add(first, 3)


@pytest.mark.parametrize("alpha", [None, 0.0, 0.6])
def test_rows_that_are_no_transitions_are_never_sampled(alpha):
    """As of environments that reset in a step of their own: behind each end, a row that leads nowhere."""
    replay = make_replay(60, 2, gamma=1.0, n_step=3, alpha=alpha)
    for _ in range(9):
        batch = steps([1, 1, 1, 1, 0], terminated=[3], envs=2)
        batch[sb.LOSS_MASK] = np.repeat([True, True, True, True, False], 2)
        replay.add(batch, 5)
        found = replay.sample(300, np.random.default_rng(0), beta=0.4)
        assert set(found[sb.OBS].ravel().tolist()) == {0, 1, 2, 3}
        assert np.array_equal(found[sb.REWARDS], np.minimum(4 - found[sb.OBS].ravel(), 3))
        replay.update_priorities(found[INDICES], np.ones(300))
