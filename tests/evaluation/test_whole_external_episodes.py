"""batch_mode="complete_episodes" with loops outside that play several episodes at once: each batch has whole ones."""

import contextlib
import itertools
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from test_external_worker import BOX, CHOICE, environment, small

from rllib import sample_batch as sb
from rllib.algorithms.a2c import A2CConfig
from rllib.algorithms.dqn import DQNConfig
from rllib.algorithms.ppo import PPOConfig
from rllib.client import EpisodeLost, PolicyClient, RunEnded
from rllib.env.external import ExternalEnv, ExternalMultiAgentEnv
from rllib.env.external.exchange import EpisodeLost as EpisodeLostHere
from rllib.env.external.exchange import RunEnded as RunEndedHere
from rllib.env.policy_server.policy_server import PolicyServer

ENDS = EpisodeLost, EpisodeLostHere, RunEnded, RunEndedHere


def length(number):
    """Steps of an episode."""
    return 2 + 7 * number % 11


def seen(number, step):
    return np.array([number, step], np.float32)


def in_turn(loops, numbers, count):
    """One thread plays this number of episodes with each loop, a step of each in turn."""
    running = {}
    while True:
        for place in itertools.product(range(len(loops)), range(count)):
            loop = loops[place[0]]
            if place not in running:
                running[place] = loop.start_episode(), next(numbers), 0
            episode, number, step = running[place]
            if step == length(number):
                loop.end_episode(episode, seen(number, step))
                del running[place]
            else:
                loop.get_action(episode, seen(number, step))
                loop.log_returns(episode, 1.0)
                running[place] = episode, number, step + 1


def together(loops, numbers, count):
    """One request has the steps of all episodes of a loop."""
    (client,) = loops
    while True:
        running = {client.start_episode(): next(numbers) for _ in range(count)}
        for step in range(max(map(length, running.values()))):
            acting = {each: seen(number, step) for each, number in running.items() if step < length(number)}
            client.get_action(list(acting), acting)
            for each in acting:
                client.log_returns(each, 1.0)
        for each, number in running.items():
            client.end_episode(each, seen(number, length(number)))


def pooled(loops, numbers, count):
    """Threads take the steps of all episodes, and wait for one another."""
    (loop,) = loops
    running = {place: (loop.start_episode(), next(numbers), 0) for place in range(count)}

    def play(place):
        episode, number, step = running[place]
        if step == length(number):
            loop.end_episode(episode, seen(number, step))
            running[place] = loop.start_episode(), next(numbers), 0
        else:
            loop.get_action(episode, seen(number, step))
            loop.log_returns(episode, 1.0)
            running[place] = episode, number, step + 1

    with ThreadPoolExecutor(count) as pool:
        while True:
            list(pool.map(play, running))


class Loops(ExternalEnv):
    """Plays as the config says."""

    def __init__(self, config):
        super().__init__(CHOICE, BOX)
        self.config = config

    def run(self):
        with contextlib.suppress(*ENDS):
            self.config["play"]([self], itertools.count(), self.config["count"])
        threading.Event().wait()


def whole(config, rows=10):
    config.rollouts(
        num_rollout_workers=0, batch_mode="complete_episodes", rollout_fragment_length=rows, sample_timeout_s=30
    )
    return small(config, rows).debugging(seed=1)


def check(batches, total):
    """Each batch has all rows of each of its episodes, and all episodes that have ended are in one."""
    episodes = set()
    for batch in batches:
        in_batch = {}
        for row, (number, step) in enumerate(batch[sb.OBS].astype(int).tolist()):
            in_batch.setdefault(number, []).append(row)
            ends = step + 1 == length(number)
            assert batch[sb.REWARDS][row] == 1 and batch[sb.TERMINATEDS][row] == ends
            assert not batch[sb.TRUNCATEDS][row]
        for number, rows in in_batch.items():
            assert batch[sb.OBS][rows, 1].tolist() == list(range(length(number))), "a part of an episode"
        assert not episodes & in_batch.keys(), "an episode is in two batches"
        episodes |= in_batch.keys()
    assert len(episodes) == total


@pytest.mark.parametrize("count", [1, 2, 3, 9])
@pytest.mark.parametrize("play", [in_turn, pooled])
def test_a_loop_with_many_episodes(play, count):
    config = whole(PPOConfig()).environment(Loops, env_config={"play": play, "count": count})
    with config.build() as algorithm:
        batches = [algorithm.sample(10) for _ in range(12)]
        check(batches, algorithm.metrics.episodes_total)


def served(config, rows=10):
    config = whole(config, rows).environment(observation_space=BOX, action_space=CHOICE)
    return config.external(listen="127.0.0.1:0")


def begin(algorithm, play, count, groups, **settings):
    """Has threads play, each by a group of this number of clients."""
    url, numbers = environment(algorithm).url, itertools.count()

    def run(size):
        clients = [PolicyClient(url, **settings) for _ in range(size)]
        with contextlib.suppress(*ENDS):
            play(clients, numbers, count)
        for client in clients:
            client._connection.close()

    threads = [threading.Thread(target=run, args=(size,), daemon=True) for size in groups]
    for thread in threads:
        thread.start()
    return threads


@pytest.mark.parametrize("inference", ["remote", "local"])
@pytest.mark.parametrize(
    "play, count, groups",
    [
        (in_turn, 1, [1, 1]),
        (in_turn, 3, [1]),
        (in_turn, 2, [1, 1, 1]),
        (in_turn, 2, [3]),  # a thread with three clients
        (together, 3, [1, 1]),
    ],
)
def test_clients_with_many_episodes(monkeypatch, play, count, groups, inference):
    monkeypatch.setattr(PolicyServer, "standstill_s", 0.05)
    with served(PPOConfig()).build() as algorithm:
        algorithm.workers.local_worker().load_snapshots(algorithm.snapshots())
        threads = begin(algorithm, play, count, groups, inference_mode=inference)
        batches = [algorithm.sample(10) for _ in range(10)]
        check(batches, algorithm.metrics.episodes_total)
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()


# ------------------------------------------------------------------ beside episodes that are not learned from


def watches(loop):
    """Plays an episode that is not learned from and does not end."""
    with contextlib.suppress(*ENDS):
        episode = loop.start_episode(training_enabled=False)
        while True:
            loop.get_action(episode, seen(-1, 0))
            time.sleep(0.001)


class Watched(Loops):
    """The same, beside an episode that is not learned from and does not end."""

    def run(self):
        threading.Thread(target=watches, args=(self,), daemon=True).start()
        super().run()


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("play", [in_turn, pooled])
def test_whole_episodes_of_loops_do_not_wait_for_one_that_is_not_learned_from(play, count):
    config = whole(PPOConfig()).environment(Watched, env_config={"play": play, "count": count})
    with config.build() as algorithm:
        batches = [algorithm.sample(10) for _ in range(12)]
        check(batches, algorithm.metrics.episodes_total)


@pytest.mark.parametrize("inference", ["remote", "local"])
@pytest.mark.parametrize("play, count, groups", [(in_turn, 1, [1]), (in_turn, 3, [1, 1]), (together, 3, [1])])
def test_whole_episodes_of_clients_do_not_wait_for_one_that_is_not_learned_from(play, count, groups, inference):
    with served(PPOConfig()).build() as algorithm:
        algorithm.workers.local_worker().load_snapshots(algorithm.snapshots())
        client = PolicyClient(environment(algorithm).url, inference_mode=inference, fragment_length=3)
        watching = threading.Thread(target=watches, args=(client,), daemon=True)
        watching.start()
        threads = begin(algorithm, play, count, groups)
        batches = [algorithm.sample(10) for _ in range(10)]
        check(batches, algorithm.metrics.episodes_total)
    for thread in (*threads, watching):
        thread.join(20)
        assert not thread.is_alive()


@pytest.mark.parametrize("config", [PPOConfig, DQNConfig])
@pytest.mark.parametrize("inference", ["remote", "local"])
def test_a_run_learns_from_clients_with_many_episodes(config, inference):
    config = served(config()).reporting(min_sample_timesteps_per_iteration=10, min_time_s_per_iteration=0)
    with config.build() as algorithm:
        threads = begin(algorithm, in_turn, 4, [1, 1], inference_mode=inference, fragment_length=5)
        results = [algorithm.train() for _ in range(4)]
        assert results[-1]["timesteps_total"] == sum(each.length for each in algorithm.metrics.episodes)
    for thread in threads:
        thread.join(20)


# ------------------------------------------------------------------ beside an episode that is silent


class Pausing(Loops):
    """The same, beside an episode that is silent after two steps, until it is to go on."""

    NUMBER = -1

    def __init__(self, config):
        super().__init__(config)
        self.goes_on, self.is_over = threading.Event(), threading.Event()

    def run(self):
        episode = self.start_episode()
        self.take(episode, range(2))
        threading.Thread(target=self.end, args=(episode,), daemon=True).start()
        super().run()

    def take(self, episode, steps):
        for step in steps:
            self.get_action(episode, seen(self.NUMBER, step))
            self.log_returns(episode, 1.0)

    def end(self, episode):
        self.goes_on.wait()
        with contextlib.suppress(*ENDS):
            self.take(episode, range(2, length(self.NUMBER)))
            self.end_episode(episode, seen(self.NUMBER, length(self.NUMBER)))
            self.is_over.set()


def test_whole_episodes_wait_once_for_one_that_is_silent(caplog):
    """It is cut. Its further rows are in one batch after its next step; all other episodes are whole."""
    config = whole(PPOConfig()).environment(Pausing, env_config={"play": in_turn, "count": 2})
    caplog.set_level("INFO", "rllib.evaluation.external.worker")
    with config.rollouts(sample_timeout_s=2).build() as algorithm:
        env = environment(algorithm)
        batches = [algorithm.sample(10) for _ in range(6)]
        assert [record.args for record in caplog.records if "silent" in record.msg] == [(1,)]
        env.goes_on.set()
        while not env.is_over.is_set():
            batches.append(algorithm.sample(10))
        is_its = [batch[sb.OBS][:, 0] == env.NUMBER for batch in batches]
        steps = [batch[sb.OBS][its, 1].tolist() for batch, its in zip(batches, is_its) if its.any()]
        assert steps == [[0], list(range(1, length(env.NUMBER)))]
        columns = sb.OBS, sb.REWARDS, sb.TERMINATEDS, sb.TRUNCATEDS
        others = [{name: batch[name][~its] for name in columns} for batch, its in zip(batches, is_its)]
        check(others, algorithm.metrics.episodes_total - 1)


# ------------------------------------------------------------------ what goes on with an episode


@pytest.mark.parametrize("count", [1, 5])
def test_advantages_are_those_of_whole_episodes(count):
    """Closed form, whether an episode ran at a fragment's end or not."""
    config = whole(PPOConfig()).environment(Loops, env_config={"play": in_turn, "count": count})
    with config.build() as algorithm:
        gamma, lambda_ = algorithm.config.gamma, algorithm.config.lambda_
        for batch in [algorithm.sample(10) for _ in range(6)]:
            values, advantage = algorithm.policy.values(batch[sb.OBS]), 0.0
            for row in reversed(range(len(batch))):
                goes_on = not batch[sb.TERMINATEDS][row]
                delta = 1 + gamma * goes_on * (values[row + 1] if goes_on else 0) - values[row]
                advantage = delta + (gamma * lambda_ * advantage if goes_on else 0)
                assert batch[sb.ADVANTAGES][row] == pytest.approx(advantage, rel=1e-3, abs=1e-3)


def test_sequences_are_those_of_whole_episodes():
    """The memory of an episode that runs at a fragment's end goes on in the next."""
    config = PPOConfig().training(model={"use_lstm": True, "max_seq_len": 30, "lstm_cell_size": 8})
    config = whole(config).environment(Loops, env_config={"play": in_turn, "count": 5})
    with config.build() as algorithm:
        for _ in range(6):
            batch = algorithm.sample(10)
            first = np.cumsum(batch[sb.SEQ_LENS]) - batch[sb.SEQ_LENS]
            assert (batch[sb.OBS][first, 1] == 0).all() and not batch[sb.STATE_IN].any()


class TakenOver(Loops):
    """Somebody else acts in step 1 of each episode."""

    def get_action(self, episode_id, observation):
        if observation[1] == 1:
            self.log_action(episode_id, observation, 1)
        else:
            super().get_action(episode_id, observation)


def test_the_chain_is_cut_where_it_was_though_the_episode_goes_on():
    config = whole(A2CConfig()).environment(TakenOver, env_config={"play": in_turn, "count": 5})
    with config.build() as algorithm:
        gamma, checked = algorithm.config.gamma, 0
        for _ in range(8):
            batch = algorithm.sample(10)
            assert not (batch[sb.OBS][:, 1] == 1).any()
            for row in np.flatnonzero(batch[sb.OBS][:, 1] == 0):
                number = batch[sb.OBS][row, 0]
                value, after = algorithm.policy.values(np.array([[number, 0], [number, 1]], np.float32))
                assert batch[sb.TRUNCATEDS][row]
                assert batch[sb.ADVANTAGES][row] == pytest.approx(1 + gamma * after - value, abs=1e-4)
                checked += 1
        assert checked > 8


# ------------------------------------------------------------------ several agents


class Agents(ExternalMultiAgentEnv):
    """Agent a acts in all steps, b in the first alone, c from the third on, in the slot that b has left.

    Observations are (10 * number of the episode + number of the agent, step).
    """

    def __init__(self, config):
        super().__init__(CHOICE, BOX)
        self.config = config

    run = Loops.run

    def agents(self, observation):
        number, step = observation
        agents = ("a", "b") if step < 2 else ("a", "c")
        return {agent: np.array([10 * number + "abc".index(agent), step], np.float32) for agent in agents}

    def get_action(self, episode_id, observation):
        super().get_action(episode_id, self.agents(observation))
        if observation[1] == 0:
            super().log_returns(episode_id, {}, None, {"b": True})

    def log_returns(self, episode_id, reward):
        super().log_returns(episode_id, dict.fromkeys("abc", reward))

    def end_episode(self, episode_id, observation):
        super().end_episode(episode_id, self.agents(observation))


@pytest.mark.parametrize("policies", ["shared", "own"])
@pytest.mark.parametrize("count", [1, 3, 9])
def test_agents_of_whole_episodes(count, policies):
    mapping = {"shared": lambda agent, *_, **__: "a", "own": lambda agent, *_, **__: agent}[policies]
    config = whole(PPOConfig()).environment(Agents, env_config={"play": in_turn, "count": count})
    config.multi_agent(policies=set("abc") if policies == "own" else {"a"}, policy_mapping_fn=mapping)
    with config.build() as algorithm:
        episodes, steps = set(), 0
        for _ in range(10):
            sample = algorithm.sample(10)
            found = {}
            for batch in sample.policy_batches.values():
                for who, step in batch[sb.OBS].astype(int).tolist():
                    found.setdefault(who // 10, []).append((who % 10, step))
            for number, rows in found.items():
                wanted = [(0, step) for step in range(length(number))] + [(1, 0)]
                assert sorted(rows) == sorted(wanted + [(2, step) for step in range(2, length(number))])
            assert not episodes & found.keys()
            episodes |= found.keys()
            steps += sample.count
            assert steps == algorithm.timesteps == sum(map(length, episodes))
        assert len(episodes) == algorithm.metrics.episodes_total
