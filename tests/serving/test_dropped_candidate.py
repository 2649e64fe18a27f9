"""Candidates that are dropped: the learner goes back to the served policy from one that was shown to be worse."""

import itertools
import socket
import time

import gymnasium
import numpy as np
import pytest

from rllib import DQNConfig
from rllib.serving.learner import Learner
from rllib.serving.learning.packets import Decision, Reward, array_bytes
from rllib.serving.learning.progress import prepare_directory
from rllib.serving.learning.settings import LearningSettings
from rllib.serving.learning.trainer import Trainer
from rllib.serving.loaded_policy import load_policy
from rllib.serving.tasks import ServingSettings, Task
from rllib.storage.checkpoint import read_checkpoint

ACTION = np.int64(1)


@pytest.fixture
def learner(tmp_path):
    config = DQNConfig().environment("CartPole-v1").training(num_steps_sampled_before_learning_starts=8, hiddens=[])
    with config.debugging(seed=0).build() as algorithm:
        first = prepare_directory(tmp_path / "learned", algorithm.save(tmp_path / "checkpoint"))
    learning = LearningSettings(directory=str(first.parent), trial_episodes=2, block_episodes=2, offer_every=20)
    control, supervisor = socket.socketpair()
    task = Task(settings=ServingSettings(source=str(first), learning=learning), index=0, workers=0)
    learner = Learner(task, [], control)
    yield learner
    learner._trainer.stop()
    control.close()
    supervisor.close()


class Game:
    """A learner, and a world in which its policies act with given rewards."""

    def __init__(self, learner):
        self.learner, self.training_loop, self.trainer = learner, learner.training_loop, learner._trainer
        self._world, self._numbers = gymnasium.make("CartPole-v1"), itertools.count()

    @property
    def weights(self):
        return self.trainer.algorithm.get_weights()

    def play(self, version, rewards):
        """One episode of that policy, through all that the learner does with it."""
        name, observation = f"episode {next(self._numbers)}", self._world.reset(seed=0)[0]
        for at, reward in enumerate(rewards):
            action_id, seen = f"{name}, {at}", array_bytes(self._world.observation_space, observation)
            now, action = time.monotonic(), array_bytes(self._world.action_space, ACTION)
            self.training_loop.decide(Decision(action_id, name, now, version, seen, action))
            is_last = at == len(rewards) - 1
            assert self.training_loop.reward(Reward(0, action_id, reward, terminated=is_last), now) == (200, "")
        while (episode := self.training_loop.next_episode()) is not None:
            self.trainer.learn(episode)
            self.learner._follow()
        self.learner._follow()

    def offered(self):
        """Plays until there is a candidate; returns its version."""
        for number in range(100):
            if self.training_loop.trial is not None:
                return self.training_loop.trial.version
            self.play(self.training_loop.served, [1.0] * (6 + number % 2))
        raise AssertionError("no candidate was offered")

    def drop(self, rewards_of):
        """Gives both policies rewards until the candidate is dropped."""
        for number in range(100):
            if self.training_loop.num_dropped:
                return
            self.play(self.training_loop.trial.version, rewards_of(number))
            if not self.training_loop.num_dropped:
                self.play(self.training_loop.served, [1.0] * (6 + number % 2))
        raise AssertionError("the candidate was not dropped")


@pytest.fixture
def game(learner):
    return Game(learner)


def test_the_learner_goes_back_from_what_is_worse_and_learns_on(game, monkeypatch):
    first, go_back, gone_back = game.weights, game.trainer.go_back, []

    def noted(path):
        go_back(path)
        gone_back.append((game.weights, game.trainer._env.exchange.num_waiting()))

    monkeypatch.setattr(game.trainer, "go_back", noted)
    candidate = game.offered()
    assert not _same(game.weights, first)
    game.drop(lambda number: [0.1] * (2 + number % 2))
    loop = game.training_loop
    assert loop.num_dropped == 1 and loop.served == 0 and loop.newest[2] == "dropped as worse"
    ((weights, num_waiting),) = gone_back
    assert _same(weights, first) and num_waiting == 0 and not game.learner._settings.candidate.exists()
    assert game.offered() > candidate and loop.num_learned > 0


def test_the_learner_keeps_what_it_has_learned_where_nothing_was_shown(game, monkeypatch):
    first = game.weights
    monkeypatch.setattr(game.trainer, "go_back", lambda path: pytest.fail("the learner has gone back"))
    candidate = game.offered()
    game.drop(lambda number: [1.0] * (7 - number % 2))
    loop = game.training_loop
    assert loop.served == 0 and loop.newest[2] == "dropped" and not game.learner._settings.candidate.exists()
    assert not _same(game.weights, first) and game.offered() > candidate


def _same(first, second) -> bool:
    return all(np.array_equal(first[policy], second[policy]) for policy in first)


@pytest.mark.parametrize(
    "changes",
    [
        {"output": "rows"}, {"evaluation_interval": 1}, {"num_rollout_workers": 2}, {"num_envs_per_worker": 3},
        {"batch_mode": "complete_episodes"}, {"clip_rewards": True}, {"env_wrappers": ["FlattenObservation"]},
        {"gym_env_vectorize_mode": "async"}, {"restart_failed_sub_environments": True},
    ],
    ids=lambda changes: next(iter(changes)),
)  # fmt: skip
def test_what_a_run_did_beside_training_keeps_nobody_from_learning(tmp_path, monkeypatch, changes):
    """The candidate has the settings of the run again."""
    monkeypatch.chdir(tmp_path)
    config = DQNConfig().environment("CartPole-v1").training(num_steps_sampled_before_learning_starts=8, hiddens=[])
    with config.update_from_dict(changes).build() as algorithm:
        saved = algorithm.save(tmp_path / "checkpoint")
    trainer = Trainer(load_policy(saved), {})
    try:
        trainer.save(tmp_path / "candidate")
    finally:
        trainer.stop()
    before, after = (read_checkpoint(tmp_path / each)["config.json"] for each in ("checkpoint", "candidate"))
    (name,) = changes
    assert after[name] == before[name]
