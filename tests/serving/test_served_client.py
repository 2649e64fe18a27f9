"""A simulator's program, by PolicyClient, at `rllib serve` in place of the server of a run."""

import contextlib
import itertools
import json
import shutil
import threading

import gymnasium
import numpy as np
import pytest
from serving_support import CARTPOLE, Server, until

from rllib import BCConfig, DQNConfig, IQLConfig, PPOConfig
from rllib import client as rllib_client
from rllib.client import PolicyClient
from rllib.offline.dataset import Dataset
from rllib.serving.learning.decisions import Episode, Step
from rllib.serving.learning.trainer import Trainer
from rllib.serving.loaded_policy import load_policy
from rllib.storage.checkpoint import CheckpointError
from tests.envs import MaskedProbe
from tests.multi_agent import BasicMultiAgent


@pytest.fixture
def start():
    servers = []

    def start(*arguments) -> Server:
        servers.append(Server(*arguments))
        server = servers[-1]
        while "http://" not in server.said[-1]:
            server.said.append(server.process.stdout.readline())
            assert server.said[-1], server.said
        server.address = server.said[-1].rstrip().rpartition("http://")[2]
        return server

    yield start
    for server in servers:
        server.kill()


def play(client, world, act=None, seed=None, **of_episode) -> float:
    """One episode; returns the sum of its rewards. `act` compares each action with what it gives."""
    episode, (seen, _), reward, total, over = (
        client.start_episode(**of_episode),
        world.reset(seed=seed),
        None,
        0.0,
        False,
    )
    while not over:
        action = client.get_action(episode, seen)
        if act is not None:
            assert action == act(seen, reward)
        seen, reward, terminated, truncated, _ = world.step(action)
        client.log_returns(episode, reward)
        total, over = total + reward, terminated or truncated
    client.end_episode(episode, seen, truncated=not terminated)
    return total


def test_it_acts_as_the_policy_does(start):
    server, policy = start(CARTPOLE), load_policy(CARTPOLE)
    world = gymnasium.make("CartPole-v1")
    spaces = {"observation_space": world.observation_space, "action_space": world.action_space}
    with PolicyClient(f"http://{server.address}", **spaces) as client:
        play(client, world, lambda seen, _: policy.compute_single_action(seen, explore=False), seed=1)
        several = [client.start_episode("a"), client.start_episode("b")]
        rows = dict(zip(several, np.eye(4, dtype=np.float32)))
        given = client.get_action(several, rows)
        assert given == {each: policy.compute_single_action(row, explore=False) for each, row in rows.items()}
        with pytest.raises(ValueError, match="another id"):
            client.start_episode("a")
        with pytest.raises(ValueError, match="rllib serve learns from its own actions alone"):
            client.log_action("a", rows["a"], 1)
        with pytest.raises(ValueError, match="observation"):
            client.get_action("a", [1.0, 2.0])
        client.end_episode("a", rows["a"])
        with pytest.raises(ValueError, match="not found"):
            client.get_action("a", rows["a"])
    with pytest.raises(ValueError, match="rllib serve computes the actions itself"):
        PolicyClient(server.address, inference_mode="local")


PPO = {"train_batch_size": 32, "sgd_minibatch_size": 32, "num_sgd_iter": 1, "model": {"fcnet_hiddens": [4]}}
TOLD = {
    "several policies": (
        PPOConfig().environment(BasicMultiAgent)
        .multi_agent(policies=["even", "odd"], policy_mapping_fn=lambda agent, *_, **__: ["even", "odd"][agent % 2]),
        "several policies, and a client's episodes have one agent.*--policy ID.*even, odd",
    ),
    "a mask beside": (
        PPOConfig().environment(MaskedProbe, env_config={"mask": "info"}, action_mask_from="info"),
        "reads the observation and action_mask",
    ),
    "the agent": (
        PPOConfig().environment(BasicMultiAgent).multi_agent(agent_id_in_observation=True),
        "reads the observation and agent_id",
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", TOLD)
def test_what_it_cannot_ask_for_is_told_at_the_beginning(start, tmp_path, kind):
    config, message = TOLD[kind]
    with config.rollouts(num_rollout_workers=0).training(**PPO).build() as algorithm:
        algorithm.save(tmp_path / "checkpoint")
    with PolicyClient(start(tmp_path / "checkpoint").address) as client:
        for _ in range(2):
            with pytest.raises(ValueError, match=message):
                client.start_episode()


def test_spaces_are_compared_with_those_of_the_policy(start):
    address, seen, two = start(CARTPOLE).address, "Box(-inf, inf, (4,))", "Discrete(2)"
    for spaces in ((seen, two), ("Box(low=-1, high=1, shape=(4,), dtype=float32)", "Discrete(n=2)")):
        with PolicyClient(address, observation_space=spaces[0], action_space=spaces[1]) as client:
            client.end_episode(client.start_episode(), [0, 0, 0, 0])
    for spaces, message in (
        ((seen, "Discrete(3)"), r"the action_space of the client is Discrete\(3\), but that of the policy is"),
        ((seen, "Discrete(2, start=1)"), "the action_space of the client is"),
        (("Box(-inf, inf, (5,))", two), "the observation_space of the client is"),
        (({"a": seen}, {"a": two}), "the observation_space of the client is"),
        ((seen, "Discreet(2)"), "'Discreet\\(2\\)' is no space"),
    ):
        with PolicyClient(address, observation_space=spaces[0], action_space=spaces[1]) as client:
            for _ in range(2):
                with pytest.raises(ValueError, match=message):
                    client.start_episode()


def test_it_remembers_what_the_policy_reads(start, tmp_path):
    model = {"use_lstm": True, "lstm_cell_size": 8, "lstm_use_prev_action": True, "lstm_use_prev_reward": True}
    config = PPOConfig().environment("CartPole-v1").training(model=model, train_batch_size=64, sgd_minibatch_size=64)
    with config.debugging(seed=0).build() as algorithm:
        policy = load_policy(algorithm.save(tmp_path / "checkpoint"))
    server, world = start(tmp_path / "checkpoint"), gymnasium.make("CartPole-v1")
    with PolicyClient(server.address) as client:
        for seed in (1, 2):
            player = policy.make_player()
            play(client, world, player.act, seed)


def steps_of(count=200, seed=0) -> dict:
    rng = np.random.default_rng(seed)
    columns = {"obs": rng.normal(size=(count, 4)).astype(np.float32), "actions": rng.integers(2, size=count)}
    return {**columns, "rewards": np.ones(count, np.float32), "dones": np.arange(count) % 10 == 9}


SMALL = {"train_batch_size": 16, "model": {"fcnet_hiddens": [8]}}
AT_ONCE = {"num_steps_sampled_before_learning_starts": 0}


@pytest.fixture
def learned_from_data(tmp_path):
    """Makes a checkpoint of an algorithm that has learned from a file; returns it and the file."""

    def make(config):
        data = tmp_path / "steps.npz"
        Dataset.from_columns(steps_of()).save(data)
        config.offline_data(input_=str(data), dataset_num_iters_per_learner=3).training(**SMALL)
        with config.debugging(seed=0).build() as algorithm:
            algorithm.train()
            return algorithm.save(tmp_path / "run" / "checkpoint_000001"), data

    return make


def test_a_server_learns_on_from_a_checkpoint_of_recorded_steps(start, learned_from_data, tmp_path):
    checkpoint, _ = learned_from_data(DQNConfig().training(conservative_weight=1.0))
    server = start(
        checkpoint,
        "--learn",
        "--learn-to",
        tmp_path / "learned",
        "--block-episodes",
        "5",
        "--set",
        "num_steps_sampled_before_learning_starts=0",
    )
    world = gymnasium.make("CartPole-v1")
    with PolicyClient(server.address) as client:
        for _ in range(12):
            play(client, world)
        decisions = server.ask("GET", "/stats").json()["decisions"]
        assert decisions["open"] == 0 and decisions["rewards"] == decisions["decisions"] > 60
        play(client, world, training_enabled=False)
        stats = until(lambda: (now := server.ask("GET", "/stats").json())["rows"]["learned"] and now)
        assert stats["decisions"]["rewards"] == decisions["rewards"]  # it was not learned from


def test_lost_answers_leave_no_decision_without_a_reward(start, tmp_path, monkeypatch):
    """Each third answer is lost, and the client gives up after one, so that programs repeat its calls."""
    with DQNConfig().environment("CartPole-v1").training(hiddens=[]).build() as algorithm:
        checkpoint = algorithm.save(tmp_path / "checkpoint")
    server = start(checkpoint, "--learn", "--learn-to", tmp_path / "learned")
    receive, count = rllib_client._HTTPConnection.receive, itertools.count()

    def lost(connection):
        answer = receive(connection)
        if next(count) % 3 == 2:
            raise ConnectionError("lost")
        return answer

    def patient(call, *arguments):
        while True:
            with contextlib.suppress(ConnectionError):
                return call(*arguments)

    monkeypatch.setattr(rllib_client._HTTPConnection, "receive", lost)
    with PolicyClient(server.address) as client:
        several = [client.start_episode() for _ in range(2)]
        for step in range(12):
            client._retry_s = -1.0 if step % 2 else 60.0
            patient(client.get_action, several, dict(zip(several, np.full((2, 4), 0.01 * step))))
            for each in several:
                client.log_returns(each, 1.0)
        for each in several:
            patient(client.end_episode, each, np.zeros(4))
    counts = server.ask("GET", "/stats").json()["decisions"]
    assert (counts["decisions"], counts["rewards"], counts["open"]) == (24, 24, 0)


def test_rewards_of_refused_calls_count_with_those_that_follow(start, learned_from_data, tmp_path, monkeypatch):
    checkpoint, _ = learned_from_data(DQNConfig().training(conservative_weight=1.0))
    server = start(checkpoint, "--learn", "--learn-to", tmp_path / "learned")
    connection, given, accepted, rng = rllib_client._HTTPConnection, [], [], np.random.default_rng(3)
    send, receive = connection.send, connection.receive

    def noted(self, method, path, data):
        given.append([each["reward"] for each in json.loads(data)["rewards"]] if path == "/reward" else [])
        send(self, method, path, data)

    def answered(self):
        status, answer = receive(self)
        accepted.extend(each for each, result in zip(given[-1], answer.get("results", ())) if result["accepted"])
        return status, answer

    monkeypatch.setattr(connection, "send", noted)
    monkeypatch.setattr(connection, "receive", answered)
    wrong = [1.0], [np.inf] * 4, [1e30] * 4, "left"
    total = 0.0
    with PolicyClient(server.address) as client:
        for _ in range(3):
            several = [client.start_episode() for _ in range(2)]
            for step in range(8):
                rows = dict(zip(several, rng.normal(size=(2, 4))))
                if step and rng.random() < 0.5:
                    with pytest.raises(ValueError):
                        client.get_action(several, {**rows, several[1]: wrong[rng.integers(len(wrong))]})
                    client.log_returns(several[0], 0.5)
                    total += 0.5
                client.get_action(several, rows)
                for each, reward in zip(several, rng.integers(5, size=2).tolist()):
                    client.log_returns(each, reward)
                    total += reward
            for each in several:
                client.end_episode(each, np.zeros(4))
    assert sum(accepted) == total and len(accepted) == 3 * 2 * 8


def test_a_client_plays_on_where_the_learner_is_gone(start, learned_from_data, tmp_path):
    checkpoint, _ = learned_from_data(DQNConfig().training(conservative_weight=1.0))
    server = start(checkpoint, "--learn", "--learn-to", tmp_path / "learned")
    with PolicyClient(server.address) as client:
        episode = client.start_episode()
        client.get_action(episode, np.zeros(4))
        client.log_returns(episode, 1.0)
        shutil.rmtree(tmp_path / "learned")  # so that no other learner takes its place
        (learner,) = [each for each in server.workers() if "rllib.serving.learner" in each.cmdline()]
        learner.kill()
        until(lambda: server.ask("GET", "/stats").json().get("learner", "busy") is None)
        playing = threading.Thread(target=play, args=(client, gymnasium.make("CartPole-v1")), daemon=True)
        playing.start()
        playing.join(20)
        assert not playing.is_alive(), "it waits for a learner, though actions are answered"
        client.end_episode(episode, np.zeros(4))


# ---- the trainer of such a server


def episode_of(count: int, rng) -> Episode:
    steps = []
    for _ in range(count):
        seen, action = rng.normal(size=4).astype(np.float32), np.int64(rng.integers(2))
        steps.append(Step("", 0.0, 0, seen.tobytes(), action.tobytes(), 1.0))
    return Episode(steps, None, True, True, 0.0, float(count), frozenset({0}))


@pytest.mark.parametrize("config", [IQLConfig, lambda: DQNConfig().training(conservative_weight=1.0)])
def test_a_trainer_learns_from_recorded_and_served_steps(learned_from_data, config):
    checkpoint, data = learned_from_data(config())
    trainer, rng = Trainer(load_policy(checkpoint), AT_ONCE), np.random.default_rng(1)
    try:
        assert trainer.algorithm.config.input_ == {"sampler": 0.5, str(data): 0.5}
        before = trainer.version, trainer.algorithm.timesteps
        for _ in range(20):
            trainer.learn(episode_of(10, rng))
        assert trainer.version > before[0]
        assert 190 <= trainer.algorithm.timesteps - before[1] <= 200  # each step counts once
        trainer.save(checkpoint.with_name("saved"))
        again = Trainer(load_policy(checkpoint.with_name("saved")), {})
        assert again.algorithm.config.input_ == trainer.algorithm.config.input_
        again.stop()
    finally:
        trainer.stop()


def test_data_may_have_moved(learned_from_data, tmp_path):
    checkpoint, data = learned_from_data(IQLConfig())
    moved = data.rename(tmp_path / "moved.npz")
    with pytest.raises(FileNotFoundError, match=r"there is no '.*steps.npz'.*--set input_=PATH"):
        Trainer(load_policy(checkpoint), {})
    trainer = Trainer(load_policy(checkpoint), {"input_": str(moved)})
    trainer.stop()
    checkpoint, data = learned_from_data(DQNConfig())
    data.unlink()
    trainer = Trainer(load_policy(checkpoint), {"input_": "sampler"})
    trainer.stop()


def test_what_only_imitates_cannot_learn_from_rewards(learned_from_data):
    checkpoint, _ = learned_from_data(BCConfig())
    with pytest.raises(CheckpointError, match=r"is of BC, which imitates recorded actions.*IQL"):
        Trainer(load_policy(checkpoint), {})
