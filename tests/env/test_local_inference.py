"""Clients that act by copies of the policy: their rows are those of clients that ask for actions."""

import threading

import gymnasium
import msgspec
import numpy as np
import pytest

from rllib import sample_batch as sb
from rllib.algorithms.dqn import DQNConfig
from rllib.algorithms.impala import IMPALAConfig
from rllib.algorithms.ppo import PPOConfig
from rllib.algorithms.sac import SACConfig
from rllib.client import EpisodeLost, PolicyClient, RunEnded

CHOICE, BOX = gymnasium.spaces.Discrete(3, start=2), gymnasium.spaces.Box(-np.inf, np.inf, (2,))
NUMBERS = gymnasium.spaces.Box(-2, 3, (2,))


def url_of(algorithm):
    return algorithm.workers.local_worker().stream.environments[0].url


class Loop:
    """Plays episodes of `length` steps with a client in a thread: observations are (episode, step)."""

    def __init__(self, url, episodes=None, length=9, play=None, **client):
        self.client = PolicyClient(url, **client)
        self.actions, self.errors = {}, []
        self._episodes, self._length, self._play = episodes, length, play or self.play
        self._ends = threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self):
        number = 0
        try:
            with self.client:
                while not self._ends.is_set() and number != self._episodes:
                    try:
                        self._play(self, number)
                    except EpisodeLost as error:
                        self.errors.append(error)
                    number += 1
        except RunEnded as error:
            self.errors.append(error)
        except Exception as error:
            self.errors.append(error)

    @staticmethod
    def play(loop, number):
        client = loop.client
        episode = client.start_episode()
        for step in range(loop._length):
            observation = np.array([number / 10, step / 10], np.float32)
            loop.actions[number, step] = client.get_action(episode, observation)
            client.log_returns(episode, step / 2)
            client.log_returns(episode, step / 2)
        client.end_episode(episode, np.array([number / 10, (step + 1) / 10], np.float32), truncated=number % 2 == 1)

    def stop(self):
        self._ends.set()
        self.thread.join(30)
        assert not self.thread.is_alive()


def build(config=PPOConfig, space=CHOICE, fragment=40, **settings):
    config = config().environment(observation_space=BOX, action_space=space).external(listen="127.0.0.1:0")
    config.rollouts(num_rollout_workers=0, rollout_fragment_length=fragment).debugging(seed=1)
    config.training(train_batch_size=fragment)
    if isinstance(config, PPOConfig):
        config.training(sgd_minibatch_size=fragment)
    return config.update_from_dict(settings).build()


def rows_of(mode, config, space, count, settings, **client):
    """Rows of one client whose policy takes the most probable actions."""
    fragment = settings.get("rollout_fragment_length", 40)
    with build(config, space, fragment, explore=False, **settings) as algorithm:
        loop = Loop(url_of(algorithm), inference_mode=mode, **client)
        parts = [algorithm.sample(fragment) for _ in range(count)]
        episodes = [(episode.episode_return, episode.length) for episode in algorithm.metrics.episodes]
    loop.stop()
    return parts, episodes


@pytest.mark.parametrize(
    "config, space, settings",
    [
        (PPOConfig, CHOICE, {}),
        # Clients get a merged filter a part later than the worker does.
        (PPOConfig, NUMBERS, {"observation_filter": "MeanStdFilter", "rollout_fragment_length": 150}),
        (PPOConfig, CHOICE, {"model": {"use_lstm": True, "lstm_cell_size": 8}}),
        (PPOConfig, CHOICE, {"batch_mode": "complete_episodes"}),
        (IMPALAConfig, CHOICE, {}),
        (DQNConfig, CHOICE, {"n_step": 3}),
        (SACConfig, NUMBERS, {}),
    ],
)
def test_rows_are_those_of_a_client_that_asks(config, space, settings):
    """Gold: observations, actions, rewards, ends, log-probabilities, values and advantages of both are the same."""
    count = 1 if "observation_filter" in settings else 4
    remote, remote_episodes = rows_of("remote", config, space, count, settings)
    local, local_episodes = rows_of("local", config, space, count, settings, fragment_length=7)
    assert local_episodes == remote_episodes and len(local_episodes) >= 12
    for theirs, own in zip(remote, local, strict=True):
        assert own.keys() == theirs.keys()
        for name in theirs.keys():
            np.testing.assert_allclose(own[name], theirs[name], rtol=1e-4, atol=1e-5, err_msg=name)
