"""Connections that are cut, clients that are killed, and a run that is restored: every episode counts once."""

import random
import threading
from collections import Counter

import external_soak
import gymnasium
import pytest

from rllib import DefaultCallbacks, PPOConfig
from rllib.client import EpisodeLost, PolicyClient, RunEnded


@pytest.mark.slow
def test_every_episode_of_killed_clients_counts_once(tmp_path):
    counts, problems = external_soak.Soak(40, 40, 5, 2, tmp_path, limit_s=300).run()
    assert not problems, counts
    assert counts["restarts"] == 2 and counts["connections cut"] > 20


class Clients:
    """Threads of clients; each notes which of its episodes have ended, and which are lost."""

    def __init__(self, address, count, episodes):
        self.ended, self.lost, self.errors = [], [], []
        self._threads = [
            threading.Thread(target=self._play, args=(address, 1000 * index, episodes), daemon=True)
            for index in range(1, count + 1)
        ]
        for each in self._threads:
            each.start()

    def _play(self, address, first, episodes):
        try:
            with PolicyClient(address, retry_s=15.0) as client:
                for name in range(first, first + episodes):
                    self._play_one(client, name)
                while True:  # so that the last fragments become full
                    self._play_one(client, 0)
        except (RunEnded, ConnectionError):  # the second where a client asks when the server has gone
            pass
        except Exception as error:
            self.errors.append(error)

    def _play_one(self, client, name):
        try:
            episode = client.start_episode()
            for step in range(5):
                client.get_action(episode, [step / 5, 0.5])
            client.log_returns(episode, name)
            client.end_episode(episode, [1.0, 0.5])
            self.ended.append(name)
        except EpisodeLost:
            self.lost.append(name)

    def wait(self):
        for each in self._threads:
            each.join(60)
        assert not any(each.is_alive() for each in self._threads), "a client hangs"
        assert not self.errors


def test_every_episode_counts_once_though_connections_are_cut_and_the_run_is_restored(tmp_path):
    counted = Counter()

    class Counts(DefaultCallbacks):
        def on_episode_end(self, *, episode, **_):
            counted[int(episode.total_reward)] += 1

    spaces = gymnasium.spaces.Box(-1, 1, (2,)), gymnasium.spaces.Discrete(3)
    config = PPOConfig().environment(observation_space=spaces[0], action_space=spaces[1], clip_rewards=True)
    config.external(listen="127.0.0.1:0").callbacks(Counts)
    config.rollouts(num_rollout_workers=0, rollout_fragment_length=50)
    config.training(train_batch_size=50, sgd_minibatch_size=50, num_sgd_iter=1, model={"fcnet_hiddens": [4]})
    rng = random.Random(1)
    with config.debugging(seed=1).build() as algorithm:
        port = int(algorithm.workers.local_worker().stream.environments[0].url.rpartition(":")[2])
        proxy = external_soak.CuttingProxy(port)
        clients = Clients(f"127.0.0.1:{proxy.port}", 6, 15)
        iterations = 0
        while len(counted - Counter({0: counted[0]})) + len([name for name in clients.lost if name]) < 90:
            iterations += 1
            proxy.cut(rng)
            if iterations in (3, 6):
                algorithm.restore(algorithm.save(tmp_path / str(iterations)))
            algorithm.train()
            assert iterations < 1000
    clients.wait()
    proxy.close()
    ended, lost = ({name for name in names if name} for names in (clients.ended, clients.lost))
    counted.pop(0, None)
    assert set(counted.values()) == {1} and set(counted) == ended and not ended & lost
    assert len(ended) + len(lost) == 90 and lost and proxy.num_cut
