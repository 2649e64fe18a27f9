"""SampleBatch: equal columns, joined, cut and shuffled together."""

import pickle

import numpy as np
import pytest

from rllib import sample_batch as sb
from rllib.sample_batch import SampleBatch


def numbered(start: int, stop: int, version: int = 0) -> SampleBatch:
    rows = np.arange(start, stop)
    return SampleBatch({sb.OBS: np.stack([rows, -rows], 1), sb.ACTIONS: rows}, policy_version=version)


def test_unequal_columns_are_refused_with_their_lengths():
    with pytest.raises(ValueError, match=r"equal lengths.*'obs': 3.*'actions': 2"):
        SampleBatch({sb.OBS: np.zeros(3), sb.ACTIONS: np.zeros(2)})


def test_lists_become_columns():
    """As in RLlib; those of dicts, or of arrays of different lengths, are objects."""
    batch = SampleBatch(
        {"eps_id": [1, 1, 2], "terminateds": [0, 1, 1], "infos": [{}, {"a": 1}, {}], "x": [[1], [], [2]]}
    )
    assert [part.count for part in batch.split_by_episode()] == [2, 1]
    assert batch["terminateds"].sum() == 2 and batch["infos"][1] == {"a": 1} and batch["x"].dtype == object


def test_length_steps_and_bytes_are_those_of_rllib():
    batch = numbered(0, 5)
    assert len(batch) == batch.count == batch.env_steps() == batch.agent_steps() == 5
    assert len(batch.keys()) == 2 and batch and not SampleBatch()
    assert batch.size_bytes() == 15 * 8
    sequences = SampleBatch({sb.OBS: np.zeros(5), sb.LOSS_MASK: np.arange(5) < 4, sb.SEQ_LENS: np.array([2, 3])})
    assert len(sequences) == 5 and sequences.env_steps() == 4
    assert len(pickle.loads(pickle.dumps(sequences))) == 5


def test_column_names_are_attributes_of_the_class():
    assert SampleBatch.OBS == SampleBatch.CUR_OBS == sb.OBS and SampleBatch.NEXT_OBS == sb.NEXT_OBS
    for name in ("ACTIONS", "REWARDS", "TERMINATEDS", "TRUNCATEDS", "ACTION_LOGP", "VF_PREDS", "ADVANTAGES", "EPS_ID"):
        assert getattr(SampleBatch, name) == getattr(sb, name)


def test_concat_keeps_order_and_the_oldest_version():
    joined = SampleBatch.concat([numbered(0, 3, version=5), numbered(3, 7, version=4)])
    assert joined[sb.ACTIONS].tolist() == list(range(7))
    assert joined.policy_version == 4
    assert joined.count == 7


def test_concat_of_one_batch_copies_nothing():
    batch = numbered(0, 4)
    assert SampleBatch.concat([batch])[sb.OBS] is batch[sb.OBS]


def test_concat_names_the_columns_that_differ():
    with pytest.raises(ValueError, match="rewards"):
        SampleBatch.concat([numbered(0, 2), SampleBatch({**numbered(0, 2), sb.REWARDS: np.zeros(2)})])
    with pytest.raises(ValueError, match="at least one"):
        SampleBatch.concat([])
    with pytest.raises(TypeError, match=r"SampleBatch.concat\(\[batch, other\]\)"):
        numbered(0, 2).concat(numbered(2, 3))


def steps(first: int, num_envs: int, num_steps: int = 3) -> SampleBatch:
    """Rows of 10 * time + environment, in lockstep."""
    rows = (10 * np.arange(num_steps)[:, None] + first + np.arange(num_envs)).reshape(-1)
    return SampleBatch({sb.OBS: np.stack([rows, -rows], 1), sb.ACTIONS: rows}, num_steps=num_steps)


def test_rounds_are_joined_step_by_step_whoever_has_which_environments():
    whole = SampleBatch.join_rounds([[steps(0, 4)], [steps(100, 4)]])
    assert whole[sb.ACTIONS].tolist()[:5] == [0, 1, 2, 3, 10]
    for split in ([1, 3], [2, 2], [1, 1, 1, 1]):
        firsts = np.cumsum([0, *split[:-1]]).tolist()
        rounds = [[steps(start + i, count) for i, count in zip(firsts, split)] for start in (0, 100)]
        joined = SampleBatch.join_rounds(rounds)
        for name, column in whole.items():
            np.testing.assert_array_equal(joined[name], column)
    assert SampleBatch.join_rounds(rounds[:1]).num_steps == 3


def test_rounds_that_are_not_in_lockstep_are_joined_in_the_order_of_workers():
    assert SampleBatch.join_rounds([[steps(0, 2, 2), steps(5, 1, 3)]])[sb.ACTIONS].tolist() == [0, 1, 10, 11, 5, 15, 25]
    assert SampleBatch.join_rounds([[numbered(4, 6), numbered(0, 2)]])[sb.ACTIONS].tolist() == [4, 5, 0, 1]


def test_one_batch_is_joined_without_a_copy():
    batch = steps(0, 4)
    assert SampleBatch.join_rounds([[batch]]) is batch


def test_shuffling_moves_whole_rows():
    shuffled = numbered(0, 50).shuffled(np.random.default_rng(0))
    assert sorted(shuffled[sb.ACTIONS].tolist()) == list(range(50))
    assert shuffled[sb.ACTIONS].tolist() != list(range(50))
    np.testing.assert_array_equal(shuffled[sb.OBS][:, 0], shuffled[sb.ACTIONS])
    np.testing.assert_array_equal(shuffled[sb.OBS][:, 1], -shuffled[sb.ACTIONS])


def test_minibatches_are_views_and_lose_no_row():
    batch = numbered(0, 10)
    parts = list(batch.minibatches(4))
    assert [part.count for part in parts] == [4, 4, 2]
    assert all(np.shares_memory(part[sb.OBS], batch[sb.OBS]) for part in parts)
    with pytest.raises(ValueError, match="size=0"):
        list(batch.minibatches(0))


def test_pickling_keeps_the_version():
    copy = pickle.loads(pickle.dumps(numbered(0, 3, version=7)))
    assert copy.num_steps is None
    assert pickle.loads(pickle.dumps(steps(0, 2))).num_steps == 3
    assert isinstance(copy, SampleBatch)
    assert copy.policy_version == 7
    np.testing.assert_array_equal(copy[sb.OBS], numbered(0, 3)[sb.OBS])


def test_what_loops_of_users_cut_out_of_a_batch():
    batch = numbered(0, 10, version=3)
    assert batch[2:5][sb.ACTIONS].tolist() == batch.slice(2, 5)[sb.ACTIONS].tolist() == [2, 3, 4]
    assert np.shares_memory(batch[2:5][sb.OBS], batch[sb.OBS]) and batch[2:5].policy_version == 3
    assert [part.count for part in batch.timeslices(size=4)] == [4, 4, 2]
    thirds = [part[sb.ACTIONS].tolist() for part in batch.timeslices(num_slices=3)]
    assert thirds == [[0, 1, 2], [3, 4, 5], [6, 7, 8, 9]]
    with pytest.raises(ValueError, match="size=2 and num_slices=2"):
        batch.timeslices(2, 2)
    with pytest.raises(ValueError, match="size=0"):
        batch.timeslices(0)
    copied = batch.copy()
    assert copied.shuffle(np.random.default_rng(0)) is copied and isinstance(copied, SampleBatch)
    np.testing.assert_array_equal(copied[sb.OBS][:, 0], copied[sb.ACTIONS])
    assert batch[sb.ACTIONS].tolist() == list(range(10)) != copied[sb.ACTIONS].tolist()
    assert sb.concat_samples([batch, copied]).count == SampleBatch.concat_samples([batch, copied]).count == 20
    assert batch.columns([sb.ACTIONS])[0] is batch[sb.ACTIONS]


def test_episodes_are_split_by_their_ids_in_the_order_of_their_rows():
    batch = numbered(0, 6)
    with pytest.raises(ValueError, match="'eps_id' is missing"):
        batch.split_by_episode()
    batch[sb.EPS_ID] = np.array([4, 1, 4, 1, 4, 2])
    parts = batch.split_by_episode()
    assert [part[sb.ACTIONS].tolist() for part in parts] == [[1, 3], [5], [0, 2, 4]]
    assert batch[:0].split_by_episode() == []
