"""Stacked frames, each stored once: what is sampled is what a replay of whole stacks holds."""

import numpy as np
import pytest

from rllib import sample_batch as sb
from rllib.replay.transition_replay import TransitionReplay
from rllib.sample_batch import SampleBatch

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


def fragment(environments, steps):
    rows = [environment.step() for _ in range(steps) for environment in environments]
    obs, following, rewards, terminateds, truncateds = map(np.array, zip(*rows))
    return SampleBatch(
        {
            sb.OBS: obs,
            sb.NEXT_OBS: following,
            sb.ACTIONS: np.zeros(len(rows), int),
            sb.REWARDS: rewards.astype(np.float32),
            sb.TERMINATEDS: terminateds,
            sb.TRUNCATEDS: truncateds,
        }
    )


def make_pair(environments, capacity, axis=-1, **settings):
    """A replay of single frames, and one of whole stacks."""
    sample = fragment([Counter(axis=axis)], 1)
    columns = {name: (column.shape[1:], str(column.dtype)) for name, column in sample.items()}
    return [
        TransitionReplay(columns, capacity, len(environments), 0.9, frame_axis=frame_axis, **settings)
        for frame_axis in (axis, None)
    ]


@pytest.mark.parametrize("alpha", [None, 0.6])
@pytest.mark.parametrize("n_step", [1, 3])
@pytest.mark.parametrize("padding", ["first", "zero"])
@pytest.mark.parametrize("axis", [-1, 0])
@pytest.mark.parametrize("count", [1, 3])
def test_the_same_rows_as_with_whole_stacks(alpha, n_step, padding, axis, count):
    """Over three laps of the ring: the same draws, the same stacks, at episodes' ends and at the seam too."""
    environments = [Counter(padding=padding, axis=axis, start=70 * i, lengths=(40, 51, 1, 64)) for i in range(count)]
    replays = make_pair(environments, 100 * count, axis, alpha=alpha, n_step=n_step)
    for lap in range(45):
        batch = fragment(environments, 7)
        for replay in replays:
            replay.add(batch, 7)
        single, whole = (replay.sample(64, np.random.default_rng(lap), 0.4) for replay in replays)
        for name in whole:
            assert np.array_equal(single[name], whole[name]), name
        assert single[sb.OBS].shape == whole[sb.OBS].shape
        for replay in replays:
            replay.update_priorities(whole[sb.INDICES], np.random.default_rng(lap).random(64))
    assert len(replays[0]) == len(replays[1]) == 100 * count


@pytest.mark.parametrize("alpha", [None, 0.6])
def test_short_episodes_cost_old_steps_and_nothing_else(alpha):
    """Episodes of one step take five frames each: fewer of them fit, and those that are there are right."""
    environments = [Counter(lengths=(1,)), Counter(lengths=(50,), start=100)]
    single, whole = make_pair(environments, 200, alpha=alpha)
    rng = np.random.default_rng(0)
    for _ in range(60):
        batch = fragment(environments, 5)
        for replay in (single, whole):
            replay.add(batch, 5)
        found = single.sample(200, rng)
        rows = found[sb.INDICES]
        assert rows.min() >= whole.steps_added * 2 - len(single)
        places = rows % 200
        for name in (sb.OBS, sb.NEXT_OBS):
            assert np.array_equal(found[name], whole.columns[name].reshape(200, SIZE, SIZE, LENGTH)[places])
        single.update_priorities(np.arange(single.steps_added * 2), np.ones(single.steps_added * 2))
    assert 40 <= len(single) < 60 and len(whole) == 200
    assert len(set(single.sample(5000, rng)[sb.INDICES].tolist())) == len(single)


def test_a_replaced_environment_is_cut_off_from_its_past():
    replay, _ = make_pair([Counter()], 100, n_step=3)
    replay.add(fragment([Counter(lengths=(50,))], 3), 3)
    replay.add(fragment([Counter(lengths=(50,), start=30)], 3), 3)
    batch = replay.sample(500, np.random.default_rng(0))
    ahead = batch[sb.NEXT_OBS][..., -1].astype(int) - batch[sb.OBS][..., -1]
    assert ahead.min() == 1 and ahead.max() == 3


@pytest.mark.parametrize("added", [40, 250])
def test_state(added):
    environments = [Counter(), Counter(start=50)]
    replay, whole = make_pair(environments, 200, alpha=0.6)
    other, _ = make_pair(environments, 200, alpha=0.6)
    replay.add(fragment(environments, added), added)
    other.set_state({name: np.array(array) for name, array in replay.get_state().items()})
    batch = fragment(environments, 9)
    for each in (replay, other):
        each.add(batch, 9)
    first, second = (each.sample(30, np.random.default_rng(0), 0.4) for each in (replay, other))
    assert all(np.array_equal(first[name], second[name]) for name in first)
    assert np.array_equal(replay.stacks.frames, other.stacks.frames)
    with pytest.raises(ValueError, match="must be as they were"):
        whole.set_state(replay.get_state())


def test_memory():
    """84 x 84 x 4: a frame and a half quarter instead of eight."""
    stack = ((84, 84, 4), "uint8")
    scalar = {sb.ACTIONS: ((), "int64"), sb.REWARDS: ((), "float32"), sb.TERMINATEDS: ((), "bool")}
    columns = {sb.OBS: stack, sb.NEXT_OBS: stack, **scalar, sb.TRUNCATEDS: ((), "bool")}
    single, whole = (TransitionReplay(columns, 10_000, 1, 0.99, frame_axis=axis) for axis in (-1, None))
    assert whole.size_bytes == 10_000 * (8 * 84 * 84 + 15)
    assert single.size_bytes == (11_250 + 8) * 84 * 84 + 10_000 * (16 + 15)
    assert single.size_bytes < whole.size_bytes / 7
