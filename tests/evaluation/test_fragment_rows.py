"""Rows of a fragment that stay when slots have made different numbers of steps."""

import numpy as np
import pytest

from rllib import sample_batch as sb
from rllib.evaluation.postprocess.fragment import Fragment
from rllib.sample_batch import Column

COLUMNS = (
    Column(sb.OBS, (2,), before_action=True),
    Column(sb.REWARDS),
    Column(sb.TERMINATEDS, (), "bool"),
    Column(sb.TRUNCATEDS, (), "bool"),
)


def numbered(num_steps: int, num_slots: int) -> Fragment:
    """A fragment in which row t of slot i has the observation (t, i) and the reward 100 i + t + 1."""
    fragment = Fragment(COLUMNS, num_steps, num_slots)
    for t in range(num_steps + 1):
        for i in range(num_slots):
            fragment[sb.OBS][t, i] = t, i
    steps, slots = np.indices((num_steps, num_slots))
    fragment[sb.REWARDS][:] = 100 * slots + steps + 1
    fragment[sb.TERMINATEDS][:] = fragment[sb.TRUNCATEDS][:] = False
    return fragment


@pytest.mark.parametrize("seed", range(30))
def test_rows_that_stay_stand_at_the_end_in_their_order(seed):
    rng = np.random.default_rng(seed)
    num_steps, num_slots = int(rng.integers(1, 8)), int(rng.integers(1, 5))
    is_row = rng.random((num_steps, num_slots)) < rng.random()
    kept = [np.flatnonzero(is_row[:, i]).tolist() for i in range(num_slots)]
    fragment = numbered(num_steps, num_slots)
    marked = [(rows[-1], i) for i, rows in enumerate(kept) if rows]
    fragment.final_observations = [(t, i, f"final of {i}") for t, i in marked]
    fragment.cuts = set(marked)
    newest = rng.random((num_slots, 2)).astype(np.float32)

    fragment.keep(is_row, {sb.OBS: newest})

    length = max(map(len, kept))
    assert fragment.num_steps == length
    assert [len(column) for column in fragment.columns.values()] == [length + 1, length, length, length]
    for i, rows in enumerate(kept):
        start = length - len(rows)
        assert fragment.observations[start:length, i].tolist() == [[t, i] for t in rows]
        assert fragment[sb.REWARDS][:, i].tolist() == [0] * start + [100 * i + t + 1 for t in rows]
        assert fragment.starts is None or fragment.starts[i] == start
    np.testing.assert_array_equal(fragment.observations[length], newest)
    ends = {(length - 1, i) for i, rows in enumerate(kept) if rows}
    assert {(t, i) for t, i, _ in fragment.final_observations} == fragment.cuts == ends
    valid = np.ones((length, num_slots), bool) if fragment.valid is None else fragment.valid
    assert valid.sum(axis=0).tolist() == list(map(len, kept))
