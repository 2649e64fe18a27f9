"""The ring of train batches and the replay of fragments, without any algorithm."""

from collections import Counter
from itertools import count

import numpy as np
import pytest

from rllib import sample_batch as sb
from rllib.replay.fragment_replay import BatchRing, FragmentReplay
from rllib.sample_batch import SampleBatch


def walked(ring: BatchRing, times: int) -> list[int]:
    numbers = count()
    return [ring.next(lambda: next(numbers))[0] for _ in range(times)]


def test_one_place_uses_a_batch_up_before_the_next():
    ring = BatchRing(1, 3)
    numbers = count()
    assert [ring.next(lambda: next(numbers)) for _ in range(4)] == [(0, 3), (1, 3), (2, 3), (3, 3)]


def test_uses_are_as_far_apart_as_there_are_places():
    assert walked(BatchRing(2, 2), 9) == [0, 1, 2, 1, 2, 3, 4, 3, 4]


@pytest.mark.parametrize(("num_slots", "num_uses"), [(1, 1), (2, 2), (4, 2), (3, 5)])
def test_each_batch_is_used_so_often(num_slots, num_uses):
    ring, numbers, uses = BatchRing(num_slots, num_uses), count(), Counter()
    for _ in range(300):
        batch, times = ring.next(lambda: next(numbers))
        uses[batch] += times
        assert max(uses) - batch < num_slots * num_uses
    settled = [uses[batch] for batch in range(num_uses, max(uses) - num_slots * num_uses)]
    assert set(settled) == {num_uses}


def test_a_cleared_ring_starts_anew():
    ring = BatchRing(2, 2)
    walked(ring, 3)
    ring.clear()
    assert walked(ring, 3) == [0, 1, 2]


def fragment(number: int) -> SampleBatch:
    return SampleBatch({sb.REWARDS: np.full(4, number, np.float32)}, policy_version=number)


def replayed(proportion: float, num_slots: int, fragments: int, seed: int = 0) -> list[list[int]]:
    replay = FragmentReplay(proportion, num_slots, np.random.default_rng(seed))
    return [[each.policy_version for each in replay.mixed(fragment(number))] for number in range(fragments)]


@pytest.mark.parametrize("proportion", [0.25, 1.0, 2.5])
def test_the_proportion_is_kept(proportion):
    rounds = replayed(proportion, 8, 401)
    assert [numbers[0] for numbers in rounds] == list(range(401))
    assert sum(len(numbers) - 1 for numbers in rounds) == int(400 * proportion)
    assert {len(numbers) - 1 for numbers in rounds[1:]} <= {int(proportion), int(proportion) + 1}


def test_only_what_is_kept_comes_again_and_all_of_it_equally():
    ages = Counter(numbers[0] - old for numbers in replayed(1.0, 5, 2001) for old in numbers[1:])
    assert set(ages) == {1, 2, 3, 4, 5}
    # 2000 draws, 5 equally likely: three standard errors of sqrt(2000 x 0.2 x 0.8) = 18.
    assert all(abs(times - 400) < 60 for times in ages.values())


def test_without_a_proportion_nothing_is_kept():
    replay = FragmentReplay(0.0, 0, np.random.default_rng(0))
    assert [each.policy_version for each in replay.mixed(fragment(3))] == [3]
    assert not len(replay)
