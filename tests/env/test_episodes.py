"""Returns and lengths, against a loop that adds up row by row."""

import pickle

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from hypothesis import given, settings
from hypothesis import strategies as st

from rllib import DefaultCallbacks, PPOConfig
from rllib.env import Episode, EpisodeTracker, make_stream, resolve
from rllib.evaluation.rollout_worker import RolloutWorker
from tests.env.transitions import Tape, constant_actions
from tests.envs import HundredReward, Lives


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


# ---- games whose lives are episodes

GAME = Episode(432.0, 9, 0, {"life_reward": [2.0, 30.0, 400.0], "life_len": [2.0, 3.0, 4.0]})


class NotesLives(DefaultCallbacks):
    def on_episode_end(self, *, episode, **kwargs):
        episode.custom_metrics["reward"] = episode.total_reward
        episode.hist_data["lengths"] = [episode.length]

    def on_postprocess_trajectory(self, *, episode, postprocessed_batch, **kwargs):
        episode.custom_metrics["rows"] = episode.custom_metrics.get("rows", 0) + postprocessed_batch.count


def of_lives(env=Lives, fragment=5, callbacks=DefaultCallbacks, **rollouts) -> PPOConfig:
    config = PPOConfig().environment(env, env_config=rollouts.pop("env_config", {})).callbacks(callbacks)
    config.rollouts(num_rollout_workers=0, num_envs_per_worker=2, rollout_fragment_length=fragment, **rollouts)
    sizes = {"train_batch_size": 2 * fragment, "sgd_minibatch_size": 2, "num_sgd_iter": 1}
    return config.training(model={"fcnet_hiddens": [4]}, **sizes)


def games(config: PPOConfig, count: int) -> list[Episode]:
    """The first games that a worker reports of its first environment."""
    worker, found = RolloutWorker.from_config(config), []
    while len(found) < count:
        found += [episode for episode in worker.sample()[1].episodes if episode.env_index == 0]
    return found[:count]


@pytest.mark.parametrize("fragment", [1, 5, 40])
def test_returns_are_of_whole_games_and_rows_of_lives(fragment):
    assert games(of_lives(fragment=fragment), 3) == [GAME] * 3
    batch, _ = RolloutWorker.from_config(of_lives(fragment=40)).sample()
    assert np.flatnonzero(batch["terminateds"][::2])[:4].tolist() == [1, 4, 8, 10]


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_vectors_tell_of_lives_as_well(mode):
    def vector(config):
        return SyncVectorEnv([Lives] * config.num_envs, autoreset_mode=mode)

    assert games(of_lives(vector), 2) == [GAME] * 2


def test_whole_episodes_are_lives():
    assert games(of_lives(batch_mode="complete_episodes"), 2) == [GAME] * 2


def test_a_game_that_breaks_is_void_with_all_its_lives():
    settings = {"env_config": {"fails": 8}, "restart_failed_sub_environments": True}
    assert games(of_lives(fragment=7, **settings), 5) == [GAME] * 5
    for fragment in (7, 60):  # the broken game's earlier lives are in the fragment of the failure, or before it
        for game in games(of_lives(fragment=fragment, callbacks=NotesLives, **settings), 5):
            assert game.custom_metrics["reward"] == game.custom_metrics["life_reward"] == [2.0, 30.0, 400.0]
            assert game.custom_metrics["rows"] == game.hist_data["lengths"] == [2.0, 3.0, 4.0]


def test_hooks_follow_lives_and_their_numbers_are_of_the_game():
    for fragment in (1, 5, 40):
        for game in games(of_lives(fragment=fragment, callbacks=NotesLives), 3):
            assert game.custom_metrics["reward"] == game.custom_metrics["life_reward"] == [2.0, 30.0, 400.0]
            assert game.custom_metrics["rows"] == game.hist_data["lengths"] == [2.0, 3.0, 4.0]


def test_evaluation_counts_games():
    with of_lives(fragment=20, callbacks=NotesLives).build() as algo:
        result = algo.evaluate(3)
        assert result["hist_stats"]["episode_reward"] == [432.0] * 3
        assert result["custom_metrics"]["reward_max"] == 400.0
        trained = algo.train()
        assert trained["episode_reward_mean"] == 432.0 and trained["custom_metrics"]["life_len_mean"] == 3.0
