"""Rings of independent rows: what goes in comes out, at the seam too; numbers of rows; bad input."""

from functools import partial

import numpy as np
import pytest

from rllib.replay import memory
from rllib.replay.mixed_replay import MixedReplay
from rllib.replay.replay_buffer import ReplayBuffer
from rllib.sample_batch import INDICES, WEIGHTS, Column

TABLE = (Column("number", (), "int64"), Column("obs", (3,), "float32"))
prioritized = partial(ReplayBuffer, alpha=0.6)
BOTH = pytest.mark.parametrize("kind", [ReplayBuffer, prioritized])


def rows(start, count):
    numbers = np.arange(start, start + count)
    return {"number": numbers, "obs": np.repeat(numbers[:, None], 3, 1).astype(np.float32)}


def rng(seed=0):
    return np.random.default_rng(seed)


@BOTH
@pytest.mark.parametrize("capacity", [1, 10, 53, 64])
@pytest.mark.parametrize("size", [1, 7, 60, 200])
def test_a_counter_fills_the_ring_three_times(kind, capacity, size):
    """The last rows are there, each once and whole, and none that is older."""
    replay, added = kind(TABLE, capacity), 0
    while added < 3 * capacity or added < size:
        numbers = replay.add(rows(added, size))
        assert list(numbers) == list(range(added, added + size))
        added += size
    assert len(replay) == capacity
    batch = replay.sample(capacity * 30, rng())
    assert (batch["obs"] == batch["number"][:, None]).all()
    assert np.array_equal(batch[INDICES], batch["number"])
    assert set(batch["number"].tolist()) == set(range(added - capacity, added))


@BOTH
def test_uniform_is_uniform(kind):
    replay = kind(TABLE, 300)
    replay.add(rows(0, 500))
    batch = replay.sample(60_000, rng(1), beta=0.4)
    np.testing.assert_allclose(np.bincount(batch["number"] - 200, minlength=300) / 60_000, 1 / 300, atol=1.2e-3)
    assert batch[WEIGHTS].dtype == np.float32 and (batch[WEIGHTS] == 1).all()


def test_exponent_zero_draws_the_rows_of_uniform_replay():
    uniform, flat = ReplayBuffer(TABLE, 300), prioritized(TABLE, 300, alpha=0.0, stratified=False)
    for replay in (uniform, flat):
        replay.add(rows(0, 450), rng().random(450))
    for seed in range(20):
        first, second = (replay.sample(64, rng(seed), beta=0.4) for replay in (uniform, flat))
        assert np.array_equal(first["number"], second["number"])
        assert np.array_equal(first[WEIGHTS], second[WEIGHTS])
        flat.update_priorities(second[INDICES], rng(seed).random(64))


def test_priorities_of_the_worker_count_from_the_start():
    replay = prioritized(TABLE, 4, alpha=1.0, epsilon=0.0)
    replay.add(rows(0, 4), [1, 2, 3, 4])
    batch = replay.sample(100_000, rng(), beta=0.4)
    np.testing.assert_allclose(np.bincount(batch["number"]) / 100_000, [0.1, 0.2, 0.3, 0.4], atol=0.006)
    weights = [batch[WEIGHTS][batch["number"] == row][0] for row in range(4)]
    np.testing.assert_allclose(weights, [1, 0.757858, 0.644394, 0.574349], atol=1e-6)


@pytest.mark.parametrize("own", [0.0, 0.3, 0.6, 1.0])
@pytest.mark.parametrize("saved", [0.3, 0.6, 1.0])
@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("epsilons", [(1e-6, 1e-6), (0.5, 1e-6), (0.0, 0.5)])
def test_saved_priorities_have_the_settings_of_the_buffer(saved, own, whole, epsilons):
    """As if the TD errors had come to it; new rows get the largest priority."""
    errors, settings = rng().exponential(size=70), [(saved, epsilons[0]), (own, epsilons[1]), (own, epsilons[1])]
    buffers = [prioritized(TABLE, 50, alpha=alpha, epsilon=epsilon) for alpha, epsilon in settings]
    for buffer in buffers[:2] if whole else buffers:
        buffer.add(rows(0, 70), errors)
        buffer.update_priorities(np.arange(60, 70), 3 * errors[:10])
    first, expected, restored = buffers
    state = {name: np.array(array) for name, array in first.get_state().items()}
    restored.set_state(state) if whole else restored.set_priorities(first.get_priorities())
    for buffer in (expected, restored):
        buffer.add(rows(70, 5))
    np.testing.assert_allclose(restored.get_state()["priorities"], expected.get_state()["priorities"], rtol=1e-9)


def test_news_of_rows_that_are_gone_is_not_taken_for_those_in_their_place():
    replay = prioritized(TABLE, 4, alpha=1.0, epsilon=0.0)
    old = replay.add(rows(0, 4))
    replay.add(rows(4, 2))
    replay.update_priorities(old, np.array([100.0, 100, 3, 7]))  # rows 0 and 1 have been overwritten by 4 and 5
    assert replay.get_state()["priorities"].tolist() == [1, 1, 3, 7]
    replay.update_priorities(np.empty(0, np.int64), np.empty(0))
    with pytest.raises(ValueError, match="rows 0 to 5 have been added, but rows 2 to 6 are meant"):
        replay.update_priorities(np.array([2, 6]), np.ones(2))


def test_only_the_newest_of_too_many_rows_count():
    replay = prioritized(TABLE, 4, alpha=1.0, epsilon=0.0)
    replay.add(rows(0, 11), np.arange(11.0))
    batch = replay.sample(4000, rng())
    found = dict(zip(batch["number"].tolist(), (batch["number"] % 4).tolist()))
    assert set(found) == {7, 8, 9, 10}
    assert sorted(replay.get_state()["priorities"].tolist()) == [7, 8, 9, 10]
    assert all(replay.get_state()["priorities"][place] == number for number, place in found.items())


def test_errors_that_are_no_numbers_are_refused_and_nothing_is_added():
    replay = prioritized(TABLE, 4)
    replay.add(rows(0, 2), [1, 2])
    with pytest.raises(ValueError, match="TD errors must be finite"):
        replay.add(rows(2, 2), [1, np.nan])
    assert len(replay) == 2 and set(replay.sample(50, rng())["number"].tolist()) == {0, 1}
    with pytest.raises(ValueError, match="TD errors must be finite"):
        replay.update_priorities(np.array([0, 1]), np.array([np.nan, 1]))


@BOTH
def test_bad_input(kind):
    for capacity in (0, 1.5, None, "4", True):
        with pytest.raises(ValueError, match=f"capacity must be an integer >= 1, but got {capacity!r}"):
            kind(TABLE, capacity)
    replay = kind(TABLE, 10)
    with pytest.raises(ValueError, match=r"the replay is empty. Call add\(\) first"):
        replay.sample(3, rng())
    with pytest.raises(ValueError, match="stores the column 'obs', but the batch has"):
        replay.add({"number": np.arange(3)})
    with pytest.raises(ValueError, match="obs must have the shape"):
        replay.add({"number": np.arange(3), "obs": np.zeros((3, 2))})
    with pytest.raises(ValueError, match="equal lengths, but obs has 4"):
        replay.add({"number": np.arange(3), "obs": np.zeros((4, 3))})
    with pytest.raises(ValueError, match="but number has 3 rows and what comes before it 2"):
        replay.add(rows(0, 3), np.ones(2))


def test_numbers_that_would_draw_wrong_rows_are_refused():
    for wrong in ({"alpha": -1.0}, {"alpha": np.nan}, {"alpha": 1.0, "epsilon": -0.1}):
        with pytest.raises(ValueError, match=r"must be a number >= 0 and finite, but got (-|nan)"):
            ReplayBuffer.like(rows(0, 4), capacity=4, **wrong)
    replays = [ReplayBuffer.like(rows(0, 4), capacity=4, alpha=alpha) for alpha in (1.0, None)]
    for replay in replays:
        replay.add(rows(0, 4))
    replays += [MixedReplay([(replay, 0.3), (replay, 0.7)], takes_new_rows=True) for replay in replays]
    for each in replays:
        owed = getattr(each, "owed", None)
        for wrong in (np.nan, -1.0, np.inf, "x"):
            with pytest.raises(ValueError, match="beta must be a number >= 0 and finite, but got"):
                each.sample(2, rng(), beta=wrong)
        for wrong in (-1, 0, 2.5, True):
            with pytest.raises(ValueError, match=f"batch_size must be an integer >= 1, but got {wrong}"):
                each.sample(wrong, rng())
        assert getattr(each, "owed", None) == owed


@pytest.mark.parametrize(
    ("indexes", "errors", "alpha"),
    [
        ([0, 1, 2, 3], [7, 7, 7, np.nan], 1.0),
        ([0, 1, 2, 3], [7, 7, 7, np.inf], 0.0),
        ([0, 1, 2, 3], [7, 7, 7, 1e200], 2.0),
        ([0, 1, 2, 3], [1, 1, 1, 3], 1000.0),
        ([0, 1, 2, 3], ["7", "7", "7", "a"], 1.0),
        ([0, 1, 2, 9], [7, 7, 7, 7], 1.0),
        ([0, 1, 2, -1], [7, 7, 7, 7], 1.0),
        ([0.0, 1.0, 2.0, 1.5], [7, 7, 7, 7], 1.0),
        ([False, True, True, True], [7, 7, 7, 7], 1.0),
    ],
)
def test_an_update_is_taken_whole_or_refused(indexes, errors, alpha):
    """Of several parts the last one alone is given what is wrong."""
    parts = [ReplayBuffer.like(rows(0, 4), capacity=4, alpha=alpha) for _ in range(2)]
    for part in parts:
        part.add(rows(0, 4), np.ones(4))
    before = [part.get_priorities() for part in parts]
    before = [{name: array.copy() for name, array in each.items()} for each in before]
    for each in (parts[0], MixedReplay([(part, 0.5) for part in parts], takes_new_rows=True)):
        with pytest.raises(ValueError, match=r"must be|rows 0 to 3 have been added"):
            each.update_priorities(indexes, errors)
    for part, its in zip(parts, before):
        for name, array in part.get_priorities().items():
            np.testing.assert_array_equal(array, its[name])


def test_rows_with_too_large_priorities_are_not_added_nor_loaded():
    replay = ReplayBuffer.like(rows(0, 4), capacity=4, alpha=2.0)
    with pytest.raises(ValueError, match=r"must be at most 1e\+290, but that of 1e\+200 with alpha=2.0 is larger"):
        replay.add(rows(0, 2), [1.0, 1e200])
    assert len(replay) == 0
    saved = ReplayBuffer.like(rows(0, 4), capacity=4, alpha=1.0)
    saved.add(rows(0, 4), [1.0, 1.0, 1.0, 1e200])
    with pytest.raises(ValueError, match="must be at most"):
        replay.set_state(saved.get_state())


@pytest.mark.parametrize("wrong", [1.0, [1.0], [1.0, 2.0, 3.0], [[1.0, 2.0]]])
def test_each_row_gets_its_own_error(wrong):
    replay = ReplayBuffer.like(rows(0, 4), capacity=4, alpha=1.0)
    replay.add(rows(0, 4))
    for each in (replay, MixedReplay([(replay, 0.5), (replay, 0.5)], takes_new_rows=False)):
        with pytest.raises(ValueError, match=r"must be arrays \[B\] of equal lengths, but have the shapes"):
            each.update_priorities([0, 1], wrong)


@BOTH
def test_more_than_the_memory_is_refused_with_the_size(kind, monkeypatch):
    with pytest.raises(ValueError, match=r"takes \d+\.\d GiB, but \d+\.\d GiB are free. Use .*'capacity'"):
        kind(TABLE, 10**13)
    replay = kind(TABLE, 1000)
    monkeypatch.setattr(memory, "free_bytes", lambda: replay.size_bytes - 1)
    with pytest.raises(ValueError, match="a replay of 1000 rows"):
        kind(TABLE, 1000)
    monkeypatch.setattr(memory, "free_bytes", lambda: replay.size_bytes)
    kind(TABLE, 1000)


def test_size_in_bytes():
    replay = ReplayBuffer(TABLE, 1000)
    replay.add(rows(0, 1000))
    stored = sum(column.nbytes for name, column in replay.get_state().items() if name.startswith("columns."))
    assert replay.size_bytes == stored == 1000 * 20
    assert prioritized(TABLE, 1000).size_bytes == 1000 * 20 + 2 * 1024 * 8


@BOTH
@pytest.mark.parametrize("added", [13, 50])
def test_state(kind, added):
    replay, other = kind(TABLE, 20), kind(TABLE, 20)
    replay.add(rows(0, added))
    replay.update_priorities(np.arange(added - 5, added), np.arange(5.0))
    other.set_state({name: np.array(array) for name, array in replay.get_state().items()})
    for each in (replay, other):
        each.add(rows(added, 3))
    first, second = (each.sample(30, rng(3), 0.4) for each in (replay, other))
    assert all(np.array_equal(first[name], second[name]) for name in first)
    with pytest.raises(ValueError, match="capacity of 20 rows"):
        kind(TABLE, 21).set_state(replay.get_state())
    if kind is ReplayBuffer:
        with pytest.raises(ValueError, match="has no priorities"):
            prioritized(TABLE, 20).set_state(replay.get_state())


@BOTH
@pytest.mark.parametrize(("saved", "present"), [(2, 20), (5, 50), (0, 3), (20, 7)])
def test_a_state_replaces_all_rows_that_are_there(kind, saved, present):
    """Rows of before are not drawn, whether the state has fewer rows or more."""
    replay, other = kind(TABLE, 20), kind(TABLE, 20)
    other.add(rows(0, saved), np.arange(1.0, saved + 1))
    replay.add(rows(100, present), np.full(present, 9.0))
    replay.set_state({name: np.array(array) for name, array in other.get_state().items()})
    assert len(replay) == saved
    if not saved:
        with pytest.raises(ValueError, match="nothing to"):
            replay.sample(3, rng())
    for each in (replay, other):
        each.add(rows(200, 1))
    first, second = (each.sample(500, rng(), 0.4) for each in (replay, other))
    assert all(np.array_equal(first[name], second[name]) for name in first)
    replay.update_priorities(first[INDICES], rng().random(500))


@BOTH
def test_sampled_rows_lie_in_the_memory_that_was_asked_for(kind):
    made = []

    def new_rows(shape, dtype):
        made.append(np.empty(shape, dtype))
        return made[-1]

    replay = kind(TABLE, 20)
    replay.new_rows = new_rows
    replay.add(rows(0, 20))
    batch = replay.sample(4, rng())
    assert all(batch[name] is array for name, array in zip(("number", "obs"), made, strict=True))
