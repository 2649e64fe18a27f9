"""Atari preprocessing, on a made-up game; with ale-py, where it is installed, on the games themselves."""

import importlib.util
import pickle

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import VectorEnv

from rllib.algorithms.dqn import DQNConfig
from rllib.algorithms.impala import IMPALAConfig
from rllib.algorithms.ppo import PPOConfig
from rllib.env.factories.atari import AtariFactory, AtariPreprocessing, is_atari, resized
from rllib.env.factories.make import make_stream
from rllib.env.factories.registry import EnvContext, resolve
from rllib.evaluation.rollout_worker import RolloutWorker
from tests.env.transitions import Tape

needs_ale = pytest.mark.skipif(importlib.util.find_spec("ale_py") is None, reason="ale-py, of the extra atari, lacks")


class FakeGame(gymnasium.Env):
    """Three lives of 40 frames each, reward 10 a frame; a picture's upper half is as bright as the frame's number + 5.

    In odd frames the lower half is bright, in even ones dark: flicker. `log` holds the actions of the frames.
    """

    observation_space = Box(0, 255, (210, 160), np.uint8)
    action_space = Discrete(3)

    def __init__(self, frameskip=1, obs_type="grayscale", meanings=("NOOP", "FIRE", "UP"), lives=3):
        assert (frameskip, obs_type) == (1, "grayscale")
        self.meanings, self.first_lives = list(meanings), lives
        self.games = 0

    def get_action_meanings(self):
        return self.meanings

    def _result(self):
        picture = np.zeros((210, 160), np.uint8)
        picture[:105] = self.frame + 5
        picture[105:] = 200 * (self.frame % 2)
        return picture, {"lives": self.lives} if self.first_lives else {}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.games += 1
        self.frame, self.lives, self.log = 0, self.first_lives, []
        return self._result()

    def step(self, action):
        self.log.append(int(action))
        self.frame += 1
        over = False
        if self.frame % 40 == 0:
            self.lives -= 1
            over = self.lives <= 0
        picture, info = self._result()
        return picture, 10.0, over, False, info


def made(noop_max=0, use_fire_reset=False, **options):
    return AtariPreprocessing(FakeGame(), noop_max=noop_max, use_fire_reset=use_fire_reset, **options)


def brightness(observation) -> list[int]:
    """Of the upper halves: the numbers of the frames + 5; 0 where there was none."""
    return [int(picture[0, 0]) for picture in observation]


def test_pictures_are_stacked_and_frames_are_skipped():
    env = made()
    observation, _ = env.reset(seed=0)
    assert (observation.shape, observation.dtype) == ((4, 84, 84), np.uint8)
    assert brightness(observation) == [0, 0, 0, 5]
    seen = [env.step(2) for _ in range(5)]
    assert [brightness(result[0]) for result in seen[:2]] == [[0, 0, 5, 9], [0, 5, 9, 13]]
    assert brightness(seen[4][0]) == [13, 17, 21, 25]
    assert {result[1] for result in seen} == {40.0}  # raw: clipping is the worker's
    assert env.unwrapped.log == [2] * 20
    assert brightness(seen[0][0]) == [0, 0, 5, 9], "an observation must not change afterwards"


def test_what_flickers_is_seen():
    env = made()
    env.reset(seed=0)
    assert env.step(0)[0][-1, -1, -1] == 200


def test_episodes_begin_with_nothing_and_fire():
    counts = set()
    env = made(noop_max=30, use_fire_reset=True)
    for seed in range(40):
        env.reset(seed=seed)
        log = env.unwrapped.log
        assert log[-1] == 1 and not any(log[:-1])
        counts.add(len(log) - 1)
    assert min(counts) >= 1 and max(counts) <= 30 and len(counts) > 10
    env.reset(seed=3)
    first = env.unwrapped.frame
    env.reset(seed=3)
    assert env.unwrapped.frame == first


def test_games_without_fire_do_not_press_it():
    env = AtariPreprocessing(FakeGame(meanings=["NOOP", "UP", "DOWN"]), noop_max=0)
    env.reset(seed=0)
    assert env.unwrapped.log == []


@pytest.mark.parametrize("episodic_life", [True, False])
def test_a_life_is_an_episode_in_training_alone(episodic_life):
    env = made(episodic_life=episodic_life)
    env.reset(seed=0)
    lengths, length, lost = [], 0, []
    while env.unwrapped.games == 1:
        _, _, terminated, _, info = env.step(0)
        length += 1
        if terminated:
            lengths.append(length)
            lost.append(info.get("life_lost", False))
            length = 0
            assert env.reset()[1]["lives"] == 3 - len(lengths) or not lost[-1]
    assert lengths == ([10, 10, 10] if episodic_life else [30])
    assert lost == ([True, True, False] if episodic_life else [False])


def test_games_that_do_not_count_lives_are_played_whole():
    env = AtariPreprocessing(FakeGame(lives=0), noop_max=0, use_fire_reset=False, episodic_life=True)
    env.reset(seed=0)
    assert [env.step(0)[2] for _ in range(10)] == [False] * 9 + [True]


def test_pictures_shrink_by_means_over_areas():
    picture = np.random.default_rng(0).integers(0, 256, (210, 160)).astype(np.uint8)
    np.testing.assert_array_equal(resized(picture, 105, 80), np.rint(picture.reshape(105, 2, 80, 2).mean((1, 3))))
    assert (resized(np.full((210, 160), 77, np.uint8), 84, 84) == 77).all()
    assert resized(picture, 84, 42).mean() == pytest.approx(picture.mean(), abs=0.1)


FAKE = AtariFactory(EnvSpec("FakeGame-v0", entry_point="tests.env.test_atari:FakeGame"), native=False)


def test_evaluation_plays_whole_games():
    episodic = []
    for in_evaluation in (False, True):
        env = FAKE.make(EnvContext({"noop_max": 0}, in_evaluation=in_evaluation))
        env.reset(seed=0)
        episodic.append(any(env.step(0)[2] for _ in range(10)))
    assert episodic == [True, False]


def test_training_learns_from_signs_and_reports_the_rewards():
    config = (
        PPOConfig()
        .environment(FAKE, env_config={"noop_max": 3, "img_height": 42, "img_width": 42})
        .rollouts(num_rollout_workers=0, num_envs_per_worker=2, rollout_fragment_length=32)
        .training(train_batch_size=64, sgd_minibatch_size=32, num_sgd_iter=1)
        .debugging(seed=1)
    )
    with config.build() as algo:
        assert algo.sample(64)["rewards"].max() == 1.0
        # Games of 120 frames, of which those before the first step count nothing.
        result = algo.train()
        assert 1100 <= result["episode_reward_mean"] <= 1200 and 29 <= result["episode_len_mean"] <= 30
        assert result["custom_metrics"]["life_len_max"] == 10
        assert result["custom_metrics"]["life_reward_mean"] == pytest.approx(result["episode_reward_mean"] / 3)
        assert algo.evaluate(2)["episode_reward_mean"] >= 1100
        assert algo.policy.spec.torso.num_features == 256
    config = config.copy(copy_frozen=False).environment(clip_rewards=False)
    with config.build() as algo:
        assert algo.sample(64)["rewards"].max() == 40.0


def test_without_ale_py_it_is_said_what_to_install(monkeypatch):
    def missing(name):
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr("rllib.env.factories.registry.importlib.import_module", missing)
    for name in ("ALE/Nothing-v5", "NothingNoFrameskip-v4"):
        with pytest.raises(ValueError, match=r"pip install .*\[atari\]'"):
            resolve(name)


# ---- the games themselves


def ale(name="ALE/Breakout-v5", **how) -> AtariFactory:
    factory = resolve(name)
    assert is_atari(factory)
    return AtariFactory(factory.spec, **how)


@needs_ale
@pytest.mark.parametrize("native", [True, False])
def test_both_programs_keep_the_interface(native):
    factory = pickle.loads(pickle.dumps(ale(native=native)))
    with make_stream(factory, num_envs=3, seeds=[4_000_000_000, 7, 7], num_workers=1, check=9) as stream:
        tape, rng = Tape(stream), np.random.default_rng(0)
        assert stream.observation_shape == (4, 84, 84) and stream.observation_dtype == np.uint8
        tape.reset()
        ends, differs = 0, False
        for _ in range(120):
            action = rng.integers(4)
            ended = tape.step([action] * 3)
            ends += len(ended)
            differs |= not np.array_equal(tape.observations[0], tape.observations[1])
            for _, final in ended:
                assert final.shape == (4, 84, 84)
        assert ends >= 3  # lives
        assert differs  # the seeds do
    assert "autoreset_mode" not in VectorEnv.metadata


@needs_ale
@pytest.mark.parametrize("native", [True, False])
def test_a_game_goes_on_with_its_next_life(native):
    config = {"repeat_action_probability": 0.0, "noop_max": 0}
    with make_stream(ale(native=native), num_envs=2, seeds=[5, 9], env_config=config) as stream:
        tape, rng = Tape(stream), np.random.default_rng(0)
        tape.reset()
        ends = []
        while len(ends) < 6:
            actions = rng.integers(4, size=2)
            for index, final in tape.step([actions[0]] * 2):
                ends.append(index in stream.lives_lost)
                # The history of pictures goes on, too; a new game begins with black ones.
                assert np.array_equal(tape.observations[index], final) == ends[-1]
                assert (tape.observations[index][0] == 0).all() != ends[-1]
    assert ends == [True] * 6


@needs_ale
def test_returns_in_training_are_those_of_whole_games():
    """Breakout has five lives; random play of one game lasts for 100 to 300 steps."""
    settings = PPOConfig().environment("ALE/Breakout-v5").rollouts(num_rollout_workers=0, num_envs_per_worker=2)
    settings.rollouts(rollout_fragment_length=50).training(model={"conv_filters": [[4, 16, 16]]}).debugging(seed=0)
    worker = RolloutWorker.from_config(settings)
    ends, games = 0, []
    while len(games) < 2:
        batch, report = worker.sample()
        ends += batch["terminateds"].sum()
        games += report.episodes
    for game in games:
        assert len(game.custom_metrics["life_len"]) == 5
        assert sum(game.custom_metrics["life_len"]) == game.length >= 60
        assert sum(game.custom_metrics["life_reward"]) == game.episode_return
    assert ends >= 10


@needs_ale
def test_equal_seeds_play_equal_games():
    with make_stream(ale(), num_envs=3, seeds=[5, 9, 5], num_workers=1) as stream:
        tape, rng = Tape(stream), np.random.default_rng(0)
        tape.reset()
        for _ in range(60):
            tape.step([rng.integers(4)] * 3)
            np.testing.assert_array_equal(tape.observations[0], tape.observations[2])


@needs_ale
def test_both_programs_show_the_same_pictures():
    """Without chance (no sticky actions, nothing done first) they differ by rounding alone."""
    config = {"repeat_action_probability": 0.0, "noop_max": 0, "episodic_life": False}
    tapes = []
    for native in (True, False):
        with make_stream(ale(native=native), num_envs=1, seeds=[3], env_config=config) as stream:
            tape = Tape(stream)
            shown = [tape.reset()[0]]
            for t in range(40):
                tape.step([t % 4])
                shown.append(tape.observations[0].copy())
            tapes.append(np.array(shown, int))
    assert abs(tapes[0] - tapes[1]).max() <= 1
    assert np.mean(tapes[0] != tapes[1]) < 1e-3


@needs_ale
def test_ids_choose_the_preprocessing_unless_it_is_refused():
    config = IMPALAConfig().environment("PongNoFrameskip-v4").rollouts(num_rollout_workers=0, num_envs_per_worker=2)
    with config.copy().training(model={"dim": 42, "framestack": False}, train_batch_size=100).build() as algo:
        assert algo.observation_space.shape == (1, 42, 42)
        algo.training_step()
    raw = config.copy().rollouts(preprocessor_pref=None).training(model={"conv_filters": [[4, 16, 16]]})
    with raw.build() as algo:
        assert algo.observation_space.shape == (210, 160, 3)


@needs_ale
def test_whole_episodes_and_replay():
    config = (
        DQNConfig()
        .environment("ALE/Breakout-v5")
        .rollouts(num_rollout_workers=0, num_envs_per_worker=2)
        .training(
            replay_buffer_config={"capacity": 300}, num_steps_sampled_before_learning_starts=100, hiddens=[16],
            model={"conv_filters": "nature", "post_fcnet_hiddens": []},
        )
        .reporting(min_sample_timesteps_per_iteration=120)
        .debugging(seed=0)
    )  # fmt: skip
    with config.build() as algo:
        algo.train()
    whole = PPOConfig().environment("ALE/Breakout-v5").rollouts(batch_mode="complete_episodes", num_rollout_workers=0)
    with whole.training(train_batch_size=128).build() as algo:
        batch = algo.sample(10)
        assert batch["terminateds"][-1]


def test_a_config_says_whether_its_environment_is_a_game():
    assert PPOConfig().environment("ALE/Breakout-v5").is_atari
    assert not PPOConfig().environment("CartPole-v1").is_atari and not PPOConfig().is_atari
