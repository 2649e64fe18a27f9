"""Stacked frames, each stored once: what is sampled is what a replay of whole stacks holds."""

from functools import partial

import numpy as np
import pytest

from rllib import sample_batch as sb
from rllib.replay.replay_buffer import ReplayBuffer
from rllib.sample_batch import Column, SampleBatch

SIZE = 4  # frames of SIZE x SIZE pixels
LENGTH = 4  # of a stack


class Counter:
    """Observations are the last frames of a counter that never goes back; episodes end in turn by either flag.

    Args:
        lengths: of the episodes, in turn.
        padding: frames before the first one of an episode: "first" repeats it, "zero" are black.
        axis: of the frames in a stack.
        start: first number, so that environments differ.
    """

    def __init__(self, lengths=(3, 7, 1, 12), padding="first", axis=-1, start=0):
        self.lengths, self.padding, self.axis = lengths, padding, axis
        self.number, self.episode = start, -1
        self.reset()

    def frame(self):
        self.number += 1
        return np.full((SIZE, SIZE), self.number % 251, np.uint8)

    def reset(self):
        self.episode += 1
        self.t = 0
        first = self.frame()
        before = first if self.padding == "first" else np.zeros_like(first)
        self.frames = [before] * (LENGTH - 1) + [first]

    def step(self):
        """obs, new_obs, reward, terminated, truncated."""
        before = np.stack(self.frames, self.axis)
        self.frames = [*self.frames[1:], self.frame()]
        self.t += 1
        following = np.stack(self.frames, self.axis)
        over, reward = self.t == self.lengths[self.episode % len(self.lengths)], float(self.number)
        if over:
            self.reset()
        return before, following, reward, over and self.episode % 2 == 0, over and self.episode % 2 == 1


def rows(environments, steps, n_step=1):
    """Rows of n steps, environment by environment."""
    found = []
    for environment in environments:
        made = [environment.step() for _ in range(steps)]
        for start, (obs, _, reward, *_) in enumerate(made):
            window = made[start : start + n_step]
            last = next((k for k, (*_, terminated, truncated) in enumerate(window) if terminated or truncated), -1)
            found.append((obs, window[last][1], reward))
    obs, following, rewards = map(np.array, zip(*found))
    return SampleBatch({sb.OBS: obs, sb.NEXT_OBS: following, sb.REWARDS: rewards.astype(np.float32)})


def make_pair(kind, capacity, axis=-1):
    """A replay of single frames, and one of whole stacks."""
    shape = Counter(axis=axis).step()[0].shape
    columns = Column(sb.OBS, shape, "uint8"), Column(sb.NEXT_OBS, shape, "uint8"), Column(sb.REWARDS, (), "float32")
    return kind(columns, capacity, frame_axis=axis), kind(columns, capacity)


prioritized = partial(ReplayBuffer, alpha=0.6)
BOTH = pytest.mark.parametrize("kind", [ReplayBuffer, prioritized])


@BOTH
@pytest.mark.parametrize("n_step", [1, 3])
@pytest.mark.parametrize("padding", ["first", "zero"])
@pytest.mark.parametrize("axis", [-1, 0])
@pytest.mark.parametrize("count", [1, 3])
def test_the_same_rows_as_with_whole_stacks(kind, n_step, padding, axis, count):
    """Over three laps of the ring: the same draws, the same stacks, at episodes' ends and at the seam too."""
    environments = [Counter(padding=padding, axis=axis, start=70 * i, lengths=(40, 51, 1, 64)) for i in range(count)]
    replays = make_pair(kind, 100 * count, axis)
    for lap in range(45):
        batch = rows(environments, 7, n_step)
        for replay in replays:
            replay.add(batch)
        single, whole = (replay.sample(64, np.random.default_rng(lap), 0.4) for replay in replays)
        for name in whole:
            assert np.array_equal(single[name], whole[name]), name
        assert single[sb.OBS].shape == whole[sb.OBS].shape
        for replay in replays:
            replay.update_priorities(whole[sb.INDICES], np.random.default_rng(lap).random(64))
    assert len(replays[0]) == len(replays[1]) == 100 * count


@BOTH
def test_short_episodes_cost_old_rows_and_nothing_else(kind):
    """Episodes of one step take two frames a row: fewer rows fit, and those that are there are right."""
    environments = [Counter(lengths=(1,)), Counter(lengths=(50,), start=100)]
    single, whole = make_pair(kind, 200)
    rng, added = np.random.default_rng(0), 0
    for _ in range(60):
        batch = rows(environments, 5)
        for replay in (single, whole):
            replay.add(batch)
        added += batch.count
        found = single.sample(200, rng)
        numbers = found[sb.INDICES]
        assert numbers.min() >= added - len(single)
        state = whole.get_state()
        for name in (sb.OBS, sb.NEXT_OBS, sb.REWARDS):
            assert np.array_equal(found[name], state[f"columns.{name}"][numbers % 200])
        single.update_priorities(np.arange(added), np.ones(added))
    assert 100 <= len(single) < 200 and len(whole) == 200
    assert len(set(single.sample(5000, rng)[sb.INDICES].tolist())) == len(single)


def test_rows_in_any_order_come_out_as_they_went_in():
    """As from many workers: frames are shared where they can be, and right in any case."""
    rng = np.random.default_rng(0)
    replay, whole = make_pair(ReplayBuffer, 300)
    batch = rows([Counter(lengths=(9, 30)), Counter(start=90)], 300, 3)
    for part in batch.shuffled(rng).minibatches(37):
        for each in (replay, whole):
            each.add(part)
        found = replay.sample(100, rng)
        for name in (sb.OBS, sb.NEXT_OBS, sb.REWARDS):
            expected = whole.get_state()[f"columns.{name}"][found[sb.INDICES] % 300]
            assert np.array_equal(found[name], expected)


@pytest.mark.parametrize("added", [40, 250])
def test_state(added):
    environments = [Counter(), Counter(start=50)]
    replay, whole = make_pair(prioritized, 200)
    other, _ = make_pair(prioritized, 200)
    replay.add(rows(environments, added))
    other.set_state({name: np.array(array) for name, array in replay.get_state().items()})
    batch = rows(environments, 9)
    for each in (replay, other):
        each.add(batch)
    first, second = (each.sample(30, np.random.default_rng(0), 0.4) for each in (replay, other))
    assert all(np.array_equal(first[name], second[name]) for name in first)
    states = replay.get_state(), other.get_state()
    assert all(np.array_equal(states[0][name], states[1][name]) for name in states[0])
    with pytest.raises(ValueError, match=r"the saved replay has (rows of other columns|a capacity)"):
        whole.set_state(replay.get_state())


def test_memory():
    """84 x 84 x 4: a frame and an eighth instead of eight."""
    stack = ((84, 84, 4), "uint8")
    columns = (
        Column(sb.OBS, *stack),
        Column(sb.NEXT_OBS, *stack),
        Column(sb.ACTIONS, (), "int64"),
        Column(sb.REWARDS, (), "float32"),
        Column(sb.DISCOUNTS, (), "float32"),
    )
    single, whole = (ReplayBuffer(columns, 10_000, frame_axis=axis) for axis in (-1, None))
    assert whole.size_bytes == 10_000 * (8 * 84 * 84 + 16)
    assert single.size_bytes == (11_250 + 32) * 84 * 84 + 10_000 * (2 * 4 * 8 + 8 + 16)
    assert single.size_bytes < whole.size_bytes / 7
    assert ReplayBuffer.check_room(columns, 10_000, -1) == single.size_bytes
