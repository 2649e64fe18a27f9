"""Which rows each of several learners computes."""

import numpy as np
import pytest

from rllib.learners.updates.minibatches import Cuts

LENGTHS = np.array([3, 1, 4, 1, 5, 2])


@pytest.mark.parametrize("size", [1, 2, 3, 7, 20])
def test_the_parts_of_a_minibatch_cover_its_rows_once(size):
    cuts, rows = Cuts(), slice(10, 23)
    parts = [cuts.part_of(rows, rank, size) for rank in range(size)]
    covered = [row for part, share in parts if share for row in range(part.start, part.stop)]
    assert covered == list(range(10, 23))
    assert sum(share for _, share in parts) == pytest.approx(1)


def test_a_learner_that_is_left_without_rows_computes_some_at_share_zero():
    part, share = Cuts().part_of(slice(0, 2), 2, 3)
    assert (part, share) == (slice(0, 1), 0.0)


@pytest.mark.parametrize("size", [2, 3, 4])
def test_sequences_stay_whole(size):
    cuts, ends = Cuts(LENGTHS, None), np.cumsum(LENGTHS).tolist()
    parts = [part for part, share in (cuts.part_of(slice(0, 16), rank, size) for rank in range(size)) if share]
    assert [part.stop for part in parts][-1] == 16 and {part.stop for part in parts} <= set(ends)
    assert [part.start for part in parts[1:]] == [part.stop for part in parts[:-1]]


def test_sequences_end_with_a_row_that_does_not_count():
    mask = np.array([True, True, False, True, False, True, True, True, False])
    cuts = Cuts(None, mask)
    assert cuts.ends.tolist() == [3, 5, 9]
    first, second = (cuts.part_of(slice(0, 9), rank, 2) for rank in range(2))
    # Of six steps, three each, in sequences of 2, 1 and 3.
    assert first == (slice(0, 5), 0.5) and second == (slice(5, 9), 0.5)


def test_rows_behind_the_last_end_are_a_part_of_their_own():
    assert Cuts(None, np.ones(4, bool)).parts(0, 4, 4) == [slice(0, 4)]
