"""A replay of several parts: their shares of a batch, and the way of priorities."""

import numpy as np
import pytest

from rllib import sample_batch as sb
from rllib.replay.mixed_replay import MixedReplay
from rllib.replay.replay_buffer import ReplayBuffer
from rllib.sample_batch import Column


def rows(first, count):
    return {sb.REWARDS: np.arange(first, first + count, dtype=np.float32)}


def buffer(first, count, alpha=None):
    made = ReplayBuffer([Column(sb.REWARDS)], 100, alpha=alpha)
    if count:
        made.add(rows(first, count))
    return made


def test_each_part_has_its_share_of_every_batch():
    replay = MixedReplay([(buffer(0, 10), 0.5), (buffer(100, 10), 0.5)], takes_new_rows=True)
    rng = np.random.default_rng(0)
    for _ in range(5):
        rewards = replay.sample(8, rng)[sb.REWARDS]
        assert (rewards[:4] < 50).all() and (rewards[4:] >= 100).all()


@pytest.mark.parametrize("shares", [(0.1, 0.9), (0.3, 0.3, 0.4), (0.25, 0.75)])
def test_shares_that_are_no_whole_rows_are_carried_over(shares):
    parts = [(buffer(100 * index, 5), share) for index, share in enumerate(shares)]
    replay, rng, counts = MixedReplay(parts, takes_new_rows=True), np.random.default_rng(0), np.zeros(len(shares))
    for _ in range(100):
        drawn = replay.sample(3, rng)[sb.REWARDS]
        assert len(drawn) == 3
        counts += np.bincount((drawn // 100).astype(int), minlength=len(shares))
    np.testing.assert_allclose(counts / 300, shares, atol=0.01)


@pytest.mark.parametrize(
    "shares", [(0.11, 0.86, 0.03), (0.61, 0.02, 0.37), (0.3, 0.05, 0.05, 0.4, 0.1, 0.1), (0.02,) * 25 + (0.5,)]
)
@pytest.mark.parametrize("batch_size", [1, 2, 4, 7])
def test_small_batches_of_many_parts_have_no_part_below_no_rows(shares, batch_size):
    """A part that has given a row in advance gives none, and its share stays the same over many batches."""
    parts = [(buffer(100 * index, 5), share) for index, share in enumerate(shares)]
    replay, rng, counts = MixedReplay(parts, takes_new_rows=True), np.random.default_rng(0), np.zeros(len(shares))
    for _ in range(300):
        drawn = replay.sample(batch_size, rng)[sb.REWARDS]
        assert len(drawn) == batch_size
        counts += np.bincount((drawn // 100).astype(int), minlength=len(shares))
        assert np.abs(replay.owed).max() < 2
    np.testing.assert_allclose(counts, 300 * batch_size * np.array(shares), atol=2)


def test_a_part_without_rows_leaves_its_share_to_the_others():
    replay = MixedReplay([(buffer(0, 5), 0.5), (buffer(0, 0), 0.5)], takes_new_rows=True)
    rng = np.random.default_rng(0)
    assert (replay.sample(6, rng)[sb.REWARDS] < 50).all()
    replay.add(rows(100, 3))
    assert (replay.sample(6, rng)[sb.REWARDS] >= 100).sum() == 3


def test_new_priorities_reach_the_rows_that_were_drawn():
    replay = MixedReplay([(buffer(0, 4, alpha=1.0), 0.5), (buffer(100, 4, alpha=1.0), 0.5)], takes_new_rows=True)
    rng = np.random.default_rng(0)
    batch = replay.sample(64, rng)
    heavy = {1.0, 102.0}
    errors = np.array([1e6 if reward in heavy else 0.0 for reward in batch[sb.REWARDS]])
    replay.update_priorities(batch[sb.INDICES], errors)
    assert set(replay.sample(64, rng)[sb.REWARDS].tolist()) == heavy


@pytest.mark.parametrize("capacity", [100, 40])
@pytest.mark.parametrize(("alpha", "beta"), [(0.6, 0.4), (1.0, 1.0), (0.7, 0.0)])
def test_weights_of_all_parts_have_one_scale(alpha, beta, capacity):
    """(N P)^-beta of a row in its part, over the largest of the batch, whatever the other parts' priorities are."""
    rng, errors = np.random.default_rng(0), {}
    parts = [ReplayBuffer([Column(sb.REWARDS)], capacity, alpha=alpha, epsilon=0.0) for _ in range(3)]
    for number, (part, count) in enumerate(zip(parts, (60, 5, 20))):
        errors[number] = rng.exponential(size=count) ** (3 if number else 1) * 10.0**number
        part.add(rows(100 * number, count), errors[number])
    batch = MixedReplay([(part, 1 / 3) for part in parts], takes_new_rows=True).sample(300, rng, beta)
    expected = []
    for reward in batch[sb.REWARDS].astype(int):
        kept = errors[reward // 100][-capacity:] ** alpha
        of_row = errors[reward // 100][reward % 100] ** alpha
        expected.append((len(kept) * of_row / kept.sum()) ** -beta)
    np.testing.assert_allclose(batch[sb.WEIGHTS], np.array(expected) / max(expected), rtol=1e-5)


def test_parts_have_their_shares_of_an_update():
    """With beta = 1 the sum of a part's weights is its share, as without priorities."""
    rng, sums = np.random.default_rng(0), np.zeros(2)
    parts = [ReplayBuffer([Column(sb.REWARDS)], 100, alpha=1.0) for _ in range(2)]
    for number, errors in enumerate((np.ones(100), np.geomspace(1, 100, 100))):
        parts[number].add(rows(100 * number, 100), errors)
    replay = MixedReplay([(part, 0.5) for part in parts], takes_new_rows=True)
    for _ in range(200):
        batch = replay.sample(128, rng, 1.0)
        sums += np.bincount((batch[sb.REWARDS] >= 100).astype(int), batch[sb.WEIGHTS], 2)
    assert sums[1] / sums.sum() == pytest.approx(0.5, abs=0.03)


def test_recorded_rows_alone_take_no_new_ones():
    replay = MixedReplay([(buffer(0, 4), 0.5), (buffer(9, 4), 0.5)], takes_new_rows=False)
    with pytest.raises(ValueError, match="takes no new ones"):
        replay.add(rows(0, 1))
