"""Rows of all batches so far: what is drawn are steps, or whole sequences, as they were added."""

import numpy as np
import pytest

from rllib.replay.aggregated_rows import AggregatedRows
from rllib.sample_batch import OBS, SEQ_LENS, STATE_IN, TEACHER_ACTIONS, Column, SampleBatch

COLUMNS = [Column(OBS, (2,)), Column(TEACHER_ACTIONS, (), "int64")]


def batch_of(first, lengths=None, count=6):
    numbers = np.arange(first, first + (count if lengths is None else sum(lengths)))
    columns = {OBS: np.stack([numbers, -numbers], 1).astype(np.float32), TEACHER_ACTIONS: 10 * numbers}
    if lengths is not None:
        starts = first + np.cumsum(lengths) - lengths
        columns |= {SEQ_LENS: np.array(lengths), STATE_IN: np.stack([starts] * 3, 1).astype(np.float32)}
    return SampleBatch({**columns, "unread": numbers}, policy_version=7)


def test_single_steps():
    store, rng = AggregatedRows(COLUMNS, 100), np.random.default_rng(0)
    for first in (0, 6):
        store.add(batch_of(first))
    drawn = store.draw(batch_of(6), 50, rng)
    assert len(store) == 12 and drawn.count == 300 and drawn.policy_version == 7
    assert set(drawn) == {OBS, TEACHER_ACTIONS}
    np.testing.assert_array_equal(drawn[OBS][:, 0] * 10, drawn[TEACHER_ACTIONS])
    counts = np.bincount(drawn[OBS][:, 0].astype(int), minlength=12)
    assert counts.min() > 8  # all rows are equally likely: 25 each


def test_the_oldest_make_room():
    store = AggregatedRows(COLUMNS, 8)
    for first in (0, 6):
        store.add(batch_of(first))
    drawn = store.draw(batch_of(6), 20, np.random.default_rng(0))
    assert set(drawn[OBS][:, 0].astype(int).tolist()) == set(range(4, 12))


def test_sequences_stay_whole():
    store, newest = AggregatedRows(COLUMNS, 100, max_seq_len=4, state_size=3), batch_of(7, [4, 2, 1])
    store.add(batch_of(0, [3, 4]))
    store.add(newest)
    drawn = store.draw(newest, 10, np.random.default_rng(0))
    assert len(store) == 5 and len(drawn[SEQ_LENS]) == 30 and drawn[SEQ_LENS].sum() == drawn.count
    ends = np.cumsum(drawn[SEQ_LENS])
    for start, stop, state in zip(ends - drawn[SEQ_LENS], ends, drawn[STATE_IN]):
        numbers = drawn[OBS][start:stop, 0]
        np.testing.assert_array_equal(numbers, numbers[0] + np.arange(stop - start))
        assert (state == numbers[0]).all()
    np.testing.assert_array_equal(drawn[OBS][:, 0] * 10, drawn[TEACHER_ACTIONS])
    assert set(drawn[OBS][:, 0].tolist()) == set(range(14))


@pytest.mark.parametrize("sequences", [{}, {"max_seq_len": 4, "state_size": 3}])
def test_a_saved_store_draws_the_same(sequences, tmp_path):
    lengths = [3, 3] if sequences else None
    store, other = AggregatedRows(COLUMNS, 16, **sequences), AggregatedRows(COLUMNS, 16, str(tmp_path), **sequences)
    store.add(batch_of(0, lengths))
    state = store.get_state()
    other.refuse_state(state)
    other.set_state(state)
    drawn = [each.draw(batch_of(0, lengths), 3, np.random.default_rng(1)) for each in (store, other)]
    for name in drawn[0]:
        np.testing.assert_array_equal(drawn[0][name], drawn[1][name])
    with pytest.raises(ValueError, match="capacity"):
        AggregatedRows(COLUMNS, 8, **sequences).refuse_state(state)
