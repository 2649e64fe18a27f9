"""Evaluation workers: whole episodes, in environments that exist for nothing else."""

from dataclasses import replace

import gymnasium
import pytest

import runtime
from rllib import PPOConfig
from rllib.env.registry import resolve
from rllib.evaluation.evaluation_worker import EvaluationWorker
from rllib.evaluation.evaluator import Duration
from tests.envs import CountingEnv
from tests.evaluation.test_rollout_worker import settings


class TellingEnv(CountingEnv):
    """Appends a line to the file `told` each time that one is made: the worker's index, and what for."""

    def __init__(self, config=None):
        super().__init__({"lengths": [5]})
        if config:
            with open(config["told"], "a") as file:
                file.write(f"{config.worker_index} {'evaluation' if config.in_evaluation else 'training'}\n")


def worker(env, **kwargs) -> EvaluationWorker:
    return EvaluationWorker(settings(env, **kwargs))


def test_a_worker_makes_the_environments_of_its_evaluations_alone(tmp_path):
    told = tmp_path / "told"
    told.touch()
    player = EvaluationWorker(replace(settings(TellingEnv, num_envs=3), env_config={"told": str(told)}), 2)
    assert told.read_text() == ""
    player.play_episodes(Duration(6), round_index=1)
    assert told.read_text().splitlines() == ["2 evaluation"] * 3


def test_evaluation_actors_make_no_training_environments(tmp_path):
    told = tmp_path / "told"
    config = (
        PPOConfig()
        .environment(TellingEnv, env_config={"told": str(told)})
        .rollouts(num_rollout_workers=0, num_envs_per_worker=3)
        .training(model={"fcnet_hiddens": [8]})
        .evaluation(evaluation_num_workers=2, evaluation_duration=6)
    )
    try:
        with config.build() as algo:
            told.write_text("")
            for _ in range(2):
                assert algo.evaluate()["episodes_this_iter"] == 6
    finally:
        runtime.shutdown()
    assert sorted(told.read_text().splitlines()) == ["1 evaluation"] * 6 + ["2 evaluation"] * 6


def test_evaluation_plays_every_episode_to_its_end():
    player = worker(CountingEnv)
    episodes = player.play_episodes(Duration(20), round_index=1)
    assert len(episodes) == 20
    assert {episode.length for episode in episodes} <= {3, 5, 4}
    again = player.play_episodes(Duration(20), round_index=1)
    assert [e.episode_return for e in episodes] == [e.episode_return for e in again]
    with pytest.raises(ValueError, match="an evaluation lasts at least one of its episodes, but 0 were given"):
        player.play_episodes(Duration(0), round_index=1)


def test_vector_environments_play_evaluations_with_their_own_number():
    def make(config):
        return gymnasium.vector.SyncVectorEnv([CountingEnv] * 4)

    player = EvaluationWorker(replace(settings(CountingEnv, num_envs=4), env=resolve(make)))
    assert len(player.play_episodes(Duration(10), round_index=1)) == 10
    assert len(player.play_episodes(Duration(3), round_index=1)) == 3


def test_waiting_for_an_episode_without_end_is_told(caplog):
    class Endless(CountingEnv):
        def step(self, action):
            observation, reward, _, _, info = super().step(action)
            ended = self.t > 3000
            return observation, reward, ended, False, info

    player = worker(Endless, sample_timeout_s=0.01)
    player.play_episodes(Duration(2), round_index=1)
    assert "the evaluation waits for the end of episodes in environments [0, 1]" in caplog.text
    assert "needs a time limit" in caplog.text
