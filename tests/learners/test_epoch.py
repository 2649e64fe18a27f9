"""How a learner walks over rows that stand in sequences."""

import numpy as np
import pytest
import torch

from rllib.learners.in_torch.epoch import epoch_of, sent_orders
from rllib.sample_batch import SEQ_LENS, STATE_IN, SampleBatch

LENGTHS = np.array([3, 1, 4, 2, 5])


def batch() -> SampleBatch:
    """Each row is the number of its sequence and its place in it; states are the numbers of the sequences."""
    rows = [(sequence, place) for sequence, length in enumerate(LENGTHS) for place in range(length)]
    return SampleBatch({"obs": np.array(rows), SEQ_LENS: LENGTHS, STATE_IN: np.arange(5.0)[:, None]})


@pytest.mark.parametrize("size", [1, 4, 6, 100])
def test_sequences_stay_together_in_any_order(size):
    for permutation in (None, np.array([4, 2, 0, 1, 3])):
        [order] = sent_orders([permutation], LENGTHS, torch.from_numpy)
        columns = {name: torch.from_numpy(column) for name, column in batch().items()}
        epoch = epoch_of(columns, LENGTHS).reordered(order)
        seen, parts = [], epoch.cuts.parts(0, 15, size)
        for part in parts[:-1]:
            assert part.stop - part.start >= size
        for part in parts:
            minibatch = epoch[part]
            sequences = minibatch[STATE_IN][:, 0].int().tolist()
            expected = [[sequence, place] for sequence in sequences for place in range(LENGTHS[sequence])]
            assert minibatch["obs"].tolist() == expected
            assert minibatch[SEQ_LENS].tolist() == LENGTHS[sequences].tolist()
            seen += sequences
        assert seen == (list(range(5)) if order is None else permutation.tolist())
        assert [part.start for part in parts[1:]] == [part.stop for part in parts[:-1]] and parts[-1].stop == 15


def test_batches_of_sequences_are_joined_and_not_taken_apart():
    joined = SampleBatch.concat([batch(), batch()])
    assert joined.count == 30 and len(joined[STATE_IN]) == 10
    assert SampleBatch.join_rounds([[batch(), batch()]])[SEQ_LENS].tolist() == joined[SEQ_LENS].tolist()
    with pytest.raises(ValueError, match="stand in sequences"):
        joined.rows(slice(0, 4))
    with pytest.raises(ValueError, match="equal lengths"):
        SampleBatch({"obs": np.zeros(3), "rewards": np.zeros(4)})
