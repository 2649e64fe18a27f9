"""Returns and lengths, against a loop that adds up row by row."""

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rllib.env import Episode, EpisodeTracker, make_stream, resolve
from tests.env.transitions import Tape, constant_actions
from tests.envs import HundredReward


def slow(rewards, ended, valid):
    """[(return, length, environment)] in order of the ends, and the lengths of what still runs."""
    num_steps, num_envs = rewards.shape
    total, length, finished = [0.0] * num_envs, [0] * num_envs, []
    for t in range(num_steps):
        for i in range(num_envs):
            if valid[t, i]:
                total[i] += float(rewards[t, i])
                length[i] += 1
            if ended[t, i]:
                finished.append((total[i], length[i], i))
                total[i], length[i] = 0.0, 0
    return finished, length


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32 - 1), st.lists(st.integers(1, 9), min_size=1, max_size=4), st.integers(1, 4))
def test_any_cut_into_fragments_gives_the_same_episodes(seed, cuts, num_envs):
    rng = np.random.default_rng(seed)
    num_steps = sum(cuts)
    valid = rng.random((num_steps, num_envs)) < 0.8
    ended = (rng.random((num_steps, num_envs)) < 0.3) & valid
    rewards = (rng.integers(-9, 9, (num_steps, num_envs)) * valid).astype(np.float32)
    tracker, row = EpisodeTracker(num_envs), 0
    for cut in cuts:
        rows = slice(row, row + cut)
        tracker.add_fragment(rewards[rows], ended[rows], valid[rows])
        row += cut
    finished, running = slow(rewards, ended, valid)
    got = tracker.pop_finished()
    assert [(episode.episode_return, episode.length, episode.env_index) for episode in got] == finished
    assert tracker.longest_running == max(running)
    assert tracker.pop_finished() == []


def test_without_a_mask_all_rows_count():
    tracker = EpisodeTracker(2)
    tracker.add_fragment(np.ones((3, 2), np.float32), np.array([[0, 0], [1, 0], [0, 0]], bool))
    assert tracker.pop_finished() == [Episode(2.0, 2, 0)]
    assert tracker.longest_running == 3
    tracker.reset()
    assert tracker.longest_running == 0


def test_sums_do_not_drift():
    """float32 sums stop growing at 2^24; returns are added in float64."""
    tracker = EpisodeTracker(1)
    rewards = np.full((1000, 1), 16777217 / 1000, np.float32)
    for _ in range(20):
        tracker.add_fragment(rewards, np.zeros((1000, 1), bool))
    ended = np.zeros((1000, 1), bool)
    ended[-1] = True
    tracker.add_fragment(rewards, ended)
    (episode,) = tracker.pop_finished()
    assert episode.episode_return == pytest.approx(21 * 1000 * float(rewards[0, 0]), rel=1e-12)
    assert episode.length == 21000


def test_shapes_must_fit():
    with pytest.raises(ValueError, match=r"columns of shape \[T, 2\] are needed"):
        EpisodeTracker(2).add_fragment(np.zeros((3, 2)), np.zeros((3, 1), bool))


def test_statistics_are_of_the_raw_rewards():
    with make_stream(resolve(HundredReward), num_envs=2, seeds=[0, 1], env_config={"length": 4}) as stream:
        tape, tracker = Tape(stream), EpisodeTracker(2)
        tape.reset()
        for _ in range(4):
            tape.step(constant_actions(stream))
            tracker.add_fragment(tape.rewards[None], (tape.terminated | tape.truncated)[None])
            np.sign(tape.rewards, out=tape.rewards)
    assert [episode.episode_return for episode in tracker.pop_finished()] == [400.0, 400.0]


def test_episodes_travel():
    assert pickle.loads(pickle.dumps(Episode(1.5, 3, 2))) == Episode(1.5, 3, 2)
