"""Clients that act by copies of the policy: their rows are those of clients that ask for actions."""

import http.client
import pickle
import shutil
import subprocess
import sys
import threading
from collections import Counter
from functools import partial
from uuid import uuid4

import gymnasium
import msgspec
import numpy as np
import pytest

import rllib.client
from rllib import sample_batch as sb
from rllib.acting import local_acting
from rllib.algorithms.dqn import DQNConfig
from rllib.algorithms.impala import IMPALAConfig
from rllib.algorithms.ppo import PPOConfig
from rllib.algorithms.sac import SACConfig
from rllib.algorithms.td3 import TD3Config
from rllib.client import EpisodeLost, PolicyClient, RunEnded
from rllib.env.policy_server import policy_server
from rllib.env.policy_server.samples import Replay
from rllib.exploration.explorers import StochasticSampling

CHOICE, BOX = gymnasium.spaces.Discrete(3, start=2), gymnasium.spaces.Box(-np.inf, np.inf, (2,))
ZEROMQ = "tcp://127.0.0.1:0"
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
    config.reporting(min_sample_timesteps_per_iteration=0, min_time_s_per_iteration=0)
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
        (PPOConfig, CHOICE, {"listen": ZEROMQ}),
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
        for name in theirs:
            np.testing.assert_allclose(own[name], theirs[name], rtol=1e-4, atol=1e-5, err_msg=name)


def interleaved(loop, number):
    """Three episodes at once, which end at different times."""
    client = loop.client
    ids = [client.start_episode() for _ in range(3)]
    for step in range(12):
        running = ids[step // 4 :]
        seen = {each: np.array([3 * number + ids.index(each), step], np.float32) for each in running}
        for each, action in client.get_action(running, seen).items():
            loop.actions[3 * number + ids.index(each), step] = action
            client.log_returns(each, step)
        if step % 4 == 3:
            client.end_episode(ids[step // 4], np.array([3 * number + step // 4, step + 1], np.float32))


def test_episodes_at_once_and_several_clients():
    with build(fragment=60) as algorithm:
        url = url_of(algorithm)
        loops = [Loop(url, play=interleaved, inference_mode="local", fragment_length=5, seed=each) for each in (1, 2)]
        taken = {}
        # Until both clients have sent their first steps.
        while not taken or max(map(len, taken.values())) < 2 or len(taken) < 100:
            batch = algorithm.sample(60)
            for observation, action, reward in zip(batch[sb.OBS], batch[sb.ACTIONS], batch[sb.REWARDS]):
                episode, step = map(int, observation)
                taken.setdefault((episode, step), []).append(int(action) + CHOICE.start)
                assert reward == step
            expected = algorithm.policy.log_prob(algorithm.policy.dist_inputs(batch[sb.OBS]), batch[sb.ACTIONS])
            np.testing.assert_allclose(batch[sb.ACTION_LOGP], expected, atol=1e-5)
    for loop in loops:
        loop.stop()
    for step, actions in taken.items():
        played = [loop.actions[step] for loop in loops if step in loop.actions]
        assert len(actions) <= len(played) and set(actions) <= set(played)
    assert len({action for each in taken.values() for action in each}) == 3


@pytest.mark.parametrize(
    "config, space, settings",
    [
        (PPOConfig, CHOICE, {}),
        (DQNConfig, CHOICE, {"num_steps_sampled_before_learning_starts": 32}),
        (DQNConfig, CHOICE, {"num_steps_sampled_before_learning_starts": 32, "noisy": True}),
        (
            DQNConfig,
            CHOICE,
            {"num_steps_sampled_before_learning_starts": 32, "exploration_config": {"type": "ParameterNoise"}},
        ),
        (TD3Config, NUMBERS, {"num_steps_sampled_before_learning_starts": 32}),
        (PPOConfig, NUMBERS, {"model": {"use_sde": True}}),
        (IMPALAConfig, CHOICE, {"model": {"use_lstm": True, "lstm_cell_size": 8}}),
        (DQNConfig, CHOICE, {"num_steps_sampled_before_learning_starts": 32, "listen": ZEROMQ}),
    ],
)
def test_algorithms_learn_from_clients_that_act_themselves(config, space, settings):
    """Weights advance in the client, which explores as a worker does; no row is too old."""
    with build(config, space, fragment=64, **settings) as algorithm:
        loop = Loop(url_of(algorithm), inference_mode="local", update_interval=0, fragment_length=8)
        versions = []
        while algorithm.timesteps < 256:
            result = algorithm.train()
            versions.append(loop.client._local.version)
        assert result["external"]["rows_too_old"] == 0
        assert result["episodes_total"] >= 10 and np.isfinite(result["episode_reward_mean"])
    loop.stop()
    assert versions == sorted(versions) and 0 < versions[-1] <= algorithm.metrics.num_updates("default_policy")
    assert len(set(map(str, loop.actions.values()))) > 1
    assert all(isinstance(error, RunEnded) for error in loop.errors)


def by_hand(loop, number):
    """Takes newer weights at the beginning of each tenth episode alone."""
    if number % 10 == 0:
        loop.client.update_policy_weights()
    Loop.play(loop, number)
    loop.versions = [*getattr(loop, "versions", []), loop.client._local.version]


@pytest.mark.parametrize("config, limit", [(PPOConfig, 1), (PPOConfig, None), (IMPALAConfig, "auto")])
def test_rows_by_old_weights_are_dropped_and_counted(config, limit):
    with build(config, fragment=20, max_lag_updates=limit) as algorithm:
        loop = Loop(url_of(algorithm), play=by_hand, inference_mode="local", update_interval=None, fragment_length=4)
        for _ in range(8):
            dropped = algorithm.train()["external"]["rows_too_old"]
    loop.stop()
    assert (dropped > 0) == (limit == 1)
    assert all(len(set(loop.versions[at : at + 10])) == 1 for at in range(0, len(loop.versions) - 9, 10))
    assert len(set(loop.versions)) > 1


def test_an_action_of_somebody_else_is_logged():
    def play(loop, number):
        client = loop.client
        episode = client.start_episode(training_enabled=number != 1)
        for step in range(10):
            seen = np.array([number, step], np.float32)
            if step % 5 == 1:
                client.log_action(episode, seen, 4)
            else:
                client.get_action(episode, seen)
            client.log_returns(episode, 1.0, {"step": step})
        client.end_episode(episode, np.array([number, 10], np.float32))

    with build(DQNConfig, fragment=40) as algorithm:
        loop = Loop(url_of(algorithm), play=play, inference_mode="local")
        batch = algorithm.sample(40)
        logged = batch[sb.OBS][:, 1] % 5 == 1
        assert set(batch[sb.ACTIONS][logged]) == {2} and not (batch[sb.OBS][:, 0] == 1).any()
        assert [episode.episode_return for episode in algorithm.metrics._untrained] == [10.0]
    loop.stop()
    with build(PPOConfig, fragment=32) as algorithm:
        loop = Loop(url_of(algorithm), play=play, inference_mode="local")
        batch = algorithm.sample(32)
        assert not (batch[sb.OBS][:, 1] % 5 == 1).any()
        assert batch[sb.TRUNCATEDS][batch[sb.OBS][:, 1] % 5 == 0].all()
    loop.stop()


@pytest.mark.parametrize(
    "space, made",
    [
        (gymnasium.spaces.Dict({"at": BOX, "kind": gymnasium.spaces.Discrete(3)}), lambda: {"at": [0.5, 1], "kind": 2}),
        (gymnasium.spaces.Discrete(4), lambda: 3),
        (gymnasium.spaces.Box(0, 255, (4,), np.uint8), lambda: np.full(4, 255, np.uint8)),
    ],
)
@pytest.mark.parametrize("inference", ["local", "remote"])
@pytest.mark.filterwarnings("error:.*Casting input:UserWarning")
def test_observations_and_actions_of_all_spaces(space, made, inference):
    """Actions have the form of their space, wherever they are computed: arrays, and dicts and tuples of them."""
    pair = gymnasium.spaces.Tuple((CHOICE, NUMBERS))
    action_space = gymnasium.spaces.Dict({"turn": CHOICE, "push": NUMBERS, "pair": pair})

    def play(loop, number):
        episode = loop.client.start_episode()
        for step in range(5):
            loop.actions[number, step] = loop.client.get_action(episode, made())
        loop.client.end_episode(episode, made())

    config = PPOConfig().environment(observation_space=space, action_space=action_space)
    config.external(listen="127.0.0.1:0", inference=inference).rollouts(num_rollout_workers=0)
    with config.training(train_batch_size=40, sgd_minibatch_size=40).build() as algorithm:
        length = {"fragment_length": 3} if inference == "local" else {}
        loop = Loop(url_of(algorithm), play=play, inference_mode=inference, **length)
        assert np.isfinite(algorithm.train()["info"]["learner"]["default_policy"]["learner_stats"]["total_loss"])
    loop.stop()
    assert all(action_space.contains(action) for action in loop.actions.values())
    for action in loop.actions.values():
        assert isinstance(action["pair"], tuple)
        for numbers in (action["push"], action["pair"][1]):
            assert type(numbers) is np.ndarray and numbers.dtype == NUMBERS.dtype


@pytest.fixture(scope="module")
def sampled():
    """A run whose policy was published, and a function that posts to its server."""
    with build(fragment=9) as algorithm:
        loop = Loop(url_of(algorithm), episodes=1, inference_mode="local")
        algorithm.sample(9)
        loop.stop()

        yield algorithm, partial(post_to, url_of(algorithm))


def post_to(url, body, method="POST", path="/v1/samples"):
    """Status and answer of a request with a body in MessagePack."""
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=10)
    data = body if isinstance(body, bytes) else msgspec.msgpack.encode({"client": uuid4().hex, "seq": 1, **body})
    connection.request(method, path, data, {"Content-Type": "application/msgpack"})
    response = connection.getresponse()
    content = response.read()
    connection.close()
    packed = response.getheader("Content-Type") == "application/msgpack"
    return response.status, (msgspec.msgpack if packed else msgspec.json).decode(content) if content else None


def array(values, dtype="<f4"):
    values = np.array(values, dtype)
    return {"$array": [dtype, list(values.shape), values.tobytes()]}


def part(**changes):
    whole = {
        "episode_id": "e",
        "version": 0,
        "is_first": True,
        "observations": array([[0, 0], [1, 1]]),
        "rewards": [0.0, 1.0],
        "actions": array([0, 2], "<i8"),
        "action_dist_inputs": array([[0, 0, 0], [0, 0, 1]]),
    }
    return {"parts": [{name: value for name, value in {**whole, **changes}.items() if value is not None}]}


@pytest.mark.parametrize(
    "body, status, message",
    [
        (part(observations=array([[0, 0]])), 400, "rewards must be 1 numbers"),
        (part(observations=array([[0, 0, 0], [1, 1, 1]])), 400, "observations[0] has shape (3,)"),
        (part(observations=array([[0, 0], [1, np.nan]])), 400, "observations[1][1] is nan"),
        (part(observations="left"), 400, "observations must be an array, or a list"),
        (part(observations=[]), 400, "at least one observation"),
        (part(observations=[[0, 0], ["a", "b"]]), 400, "needs numbers"),
        (part(rewards=[0.0, float("inf")]), 400, "rewards[1] must be a finite number"),
        (part(rewards=[0.0, "much"]), 400, "rewards must be 2 numbers"),
        (part(actions=array([0, 3], "<i8")), 400, "actions[1] chooses 3, but there are 3 choices"),
        (part(actions=array([0, -1], "<i8")), 400, "actions[1] chooses -1"),
        (part(actions=array([0, 1])), 400, "actions must be an array (2,) of int64"),
        (part(actions=None), 400, "actions must be an array (2,) of int64, but got None"),
        (part(action_dist_inputs=None), 400, "action_dist_inputs must be an array (2, 3) of float32"),
        (part(action_dist_inputs=array([[0, 0, 0], [0, 0, np.inf]])), 400, "not finite"),
        (part(logged=[2]), 400, "indices of 2 observations"),
        (part(infos=[[5, {}]]), 400, "indices of 2 observations"),
        (part(end="over"), 422, "Invalid enum value"),
        (part(version="new"), 422, "Expected `int |"),
        (part(observations={"$array": ["O", [1], b"x"]}), 422, "is none of"),
        ({"parts": 2 * part()["parts"]}, 422, "one part in a request"),
        ({"rows": []}, 422, "unknown field `rows`"),
        (pickle.dumps(part()), 400, "is not MessagePack"),
    ],
)
def test_refused_samples_say_why_and_change_nothing(sampled, body, status, message):
    algorithm, post = sampled
    answer = post(body)
    assert answer[0] == status and message in answer[1]["error"]
    assert not algorithm.workers.local_worker().env._episode_table.running


def test_parts_of_unknown_episodes_are_lost(sampled):
    status, answer = sampled[1](part(episode_id="other", is_first=False))
    assert status == 200 and answer["lost"] == {"other": "Episode other not found."}


def test_weights_are_sent_when_they_are_newer(sampled):
    algorithm, post = sampled
    status, whole = post(b"", "GET", "/v1/weights")
    assert status == 200 and whole["description"]["spec"] and whole["max_lag_updates"] == 1
    np.testing.assert_array_equal(np.frombuffer(whole["weights"]["$array"][2], "<f4"), algorithm.policy.weights)
    assert post(b"", "GET", f"/v1/weights?have={whole['edition']}") == (204, None)
    status, newer = post(b"", "GET", f"/v1/weights?have={whole['edition'] + 1}")
    assert status == 200 and "description" not in newer and newer["policy_version"] == 0
    assert post(b"", "GET", "/v1/weights?have=all")[0] == 422
    assert post(b"", "POST", "/v1/weights")[0] == 405


def test_samples_that_came_before_the_policy_are_taken_in_when_they_come_again():
    with build(fragment=9) as algorithm:
        body = {**part(is_first=False), "client": "c", "seq": 1}
        for _ in range(2):
            assert post_to(url_of(algorithm), body)[0] == 503
        algorithm.workers.local_worker().load_snapshots(algorithm.snapshots())
        status, answer = post_to(url_of(algorithm), body)
        assert status == 200 and answer["lost"] == {"e": "Episode e not found."}


def test_weights_that_are_set_by_hand_reach_clients():
    with build(fragment=9) as algorithm:
        worker = algorithm.workers.local_worker()
        worker.load_snapshots(algorithm.snapshots())
        _, before = post_to(url_of(algorithm), b"", "GET", "/v1/weights")
        worker.load_snapshots(algorithm.snapshots())
        have = f"/v1/weights?have={before['edition']}"
        assert post_to(url_of(algorithm), b"", "GET", have)[0] == 204
        algorithm.set_weights({"default_policy": 2 * algorithm.policy.weights})
        worker.load_snapshots(algorithm.snapshots())
        status, newer = post_to(url_of(algorithm), b"", "GET", have)
        assert status == 200 and newer["weights"]["$array"][2] != before["weights"]["$array"][2]


def test_the_editions_of_two_servers_differ():
    newest = []
    for _ in range(2):
        with build(fragment=9) as algorithm:
            algorithm.workers.local_worker().load_snapshots(algorithm.snapshots())
            have = f"/v1/weights?have={newest[0]['edition']}" if newest else "/v1/weights"
            status, answer = post_to(url_of(algorithm), b"", "GET", have)
            assert status == 200, "the weights of another run were taken for the newest ones"
            newest.append(answer)
    assert all(0 < each["edition"] < 2**53 for each in newest), "JSON has no larger whole numbers everywhere"


def test_a_client_that_waits_for_the_first_policy_hears_that_the_run_has_ended():
    algorithm = build(fragment=9)
    server = algorithm.workers.local_worker().stream.environments[0]
    loop = Loop(server.url, inference_mode="local", retry_s=0.0)
    count = server.num_requests
    while server.num_requests < count + 2:  # it has been told to ask again
        loop.thread.join(0.01)
    algorithm.stop()
    loop.stop()
    assert isinstance(loop.errors[0], RunEnded)


def test_wrong_values_are_refused_in_the_client():
    with build(fragment=9) as algorithm:
        client = PolicyClient(url_of(algorithm), "local")
        waits = threading.Thread(target=lambda: algorithm.sample(9), daemon=True)
        waits.start()
        episode = client.start_episode()
        with pytest.raises(ValueError, match="is already started"):
            client.start_episode(episode)
        for wrong in (np.zeros(3), np.array([0, np.nan]), "left"):
            with pytest.raises(ValueError, match="observation"):
                client.get_action(episode, wrong)
        for wrong in (float("nan"), 1e39, 10**400, {"a": 1.0}, None):
            with pytest.raises(ValueError, match="must be a finite number"):
                client.log_returns(episode, wrong)
        with pytest.raises(ValueError, match="lies above"):
            client.log_action(episode, np.zeros(2), 9)
        for _ in range(9):
            client.get_action(episode, np.zeros(2))
            client.log_returns(episode, 1.0)
        client.end_episode(episode, np.zeros(2))
        with pytest.raises(ValueError, match="not found"):
            client.get_action(episode, np.zeros(2))
        waits.join(30)
        assert not waits.is_alive()
        client.close()


@pytest.mark.parametrize("listen", ["127.0.0.1:0", ZEROMQ])
@pytest.mark.parametrize("inference", ["remote", "local"])
def test_a_refused_call_of_a_client_changes_nothing(inference, listen):
    with build(fragment=8, listen=listen) as algorithm:
        client = PolicyClient(url_of(algorithm), inference)
        samples = []
        waits = threading.Thread(target=lambda: samples.append(algorithm.sample(8)), daemon=True)
        waits.start()
        for wrong in (5, "x" * 129, "\ud83d"):
            with pytest.raises(ValueError):
                client.start_episode(wrong)
        first, second = client.start_episode(), client.start_episode()
        right = {first: np.full(2, 1.0), second: np.full(2, 2.0)}
        wrong_lists = [
            ([first, second], {**right, second: np.zeros(5)}),  # the first could act
            ([first, second], list(right.values())),
            ([first, second], {first: right[first]}),
            ([first, first], right),
            ([first, "unknown"], {**right, "unknown": right[first]}),
            ([], {}),
        ]
        infos = [{1: 2}, "text", [1], {"a": {"b": np.float32(1)}}]
        for info in infos:
            for ids, observations in wrong_lists:
                with pytest.raises(ValueError):
                    client.get_action(ids, observations)
            with pytest.raises(ValueError):
                client.log_returns(first, 1.0, {"a": "\ud83d"})
            client.log_returns(first, 1.0, info)
            client.get_action([first, second], right)
        client.end_episode(first, right[first])
        client.end_episode(second, right[second])
        client.close()
        waits.join(30)
        assert not waits.is_alive()
        counts = Counter(samples[0][sb.OBS][:, 0].tolist())
        assert counts == {1.0: len(infos), 2.0: len(infos)}


class Apart:
    """Connection of a client, whose requests with samples get the answers of a list.

    Attributes:
        answers: to come; None: the server cannot be reached.
        sent: requests with samples.
        is_silent: whether no answer is there unless it is waited for.
    """

    def __init__(self, connection):
        self._connection, self.answers, self.sent, self.is_silent, self._is_ours = connection, [], [], False, False
        self.encode, self.close = connection.encode, connection.close

    def send(self, method, path, body):
        self._is_ours = path == "/v1/samples"
        if self._is_ours:
            self.sent.append(msgspec.msgpack.decode(body))
        else:
            self._connection.send(method, path, body)

    def has_answer(self):
        return not self.is_silent

    def receive(self):
        if not self._is_ours:
            return self._connection.receive()
        if (next_answer := self.answers.pop(0)) is None:
            raise ConnectionResetError
        return next_answer


@pytest.fixture
def apart(sampled):
    """A client that acts itself, and its connection."""
    client = PolicyClient(url_of(sampled[0]), "local", fragment_length=2, retry_s=0.0)
    client._connection = Apart(client._connection)
    yield client, client._connection
    client._connection.close()


TAKEN = 200, {"timesteps": 0, "lost": {}}
ZEROS = np.zeros(2, np.float32)


def begun(client, *episodes):
    """Begins episodes, and acts once in each."""
    for episode in episodes:
        client.start_episode(episode)
        client.get_action(episode, ZEROS)


def test_a_client_acts_on_while_a_request_is_under_way(apart):
    client, server = apart
    server.is_silent = True
    begun(client, "a")
    for _ in range(3):  # two steps are under way, and two are kept
        client.get_action("a", ZEROS)
    server.answers += [TAKEN, TAKEN, TAKEN]
    assert [len(body["parts"]) for body in server.sent] == [1]
    client.get_action("a", ZEROS)
    assert len(server.sent) == 2 and len(server.answers) == 2
    client.close()  # sends the last one
    assert not server.answers
    assert [body["seq"] for body in server.sent] == sorted(body["seq"] for body in server.sent)
    assert [body["parts"][0]["actions"]["$array"][1][0] for body in server.sent] == [2, 2, 1]


def test_a_request_whose_answer_was_lost_is_sent_again(apart):
    client, server = apart
    client._retry_s, server.is_silent = 60.0, True
    server.answers += [None, TAKEN, TAKEN]
    begun(client, "a", "b", "c")
    client.close()
    assert server.sent[0] == server.sent[1] != server.sent[2] and not server.answers


def test_newer_weights_act_once_the_steps_by_the_old_ones_are_sent(apart, sampled, monkeypatch):
    client, server = apart
    monkeypatch.setattr(local_acting, "_GLANCE_S", 0.0)
    _, newer = sampled[1](b"", "GET", "/v1/weights")
    newer = {**newer, "policy_version": 7, "edition": newer["edition"] + 1}
    del newer["description"], newer["max_lag_updates"]
    server.answers += [(200, {**newer, "lost": {}}), TAKEN, TAKEN]
    server.is_silent = True
    begun(client, "a", "b", "c")  # the third step is kept while the first two are under way
    server.is_silent = False
    client.get_action("c", ZEROS)
    client.get_action("c", ZEROS)
    client.close()
    versions = [[part["version"] for part in body["parts"]] for body in server.sent]
    assert versions == [[0, 0], [0], [7]]
    assert [body["parts"][0]["actions"]["$array"][1][0] for body in server.sent] == [1, 1, 2]
    assert server.sent[1]["have"] == server.sent[2]["have"] == newer["edition"] == server.sent[0]["have"] + 1


def test_what_is_kept_of_a_lost_episode_is_not_sent(apart):
    client, server = apart
    server.is_silent = True
    begun(client, "a", "b")
    client.get_action("a", ZEROS)  # the first steps are under way, without "c"
    begun(client, "c")
    server.answers += [(400, {"error": "no such action"}), TAKEN]
    with pytest.raises(EpisodeLost, match="2 episodes are lost"):
        client.update_policy_weights()
    for episode in "ab":
        with pytest.raises(EpisodeLost, match=f"episode {episode} is lost: .*no such action"):
            client.get_action(episode, ZEROS)
    client.get_action("c", ZEROS)
    client.close()
    assert [[part["episode_id"] for part in body["parts"]] for body in server.sent] == [["a", "b"], ["c"]]


@pytest.mark.parametrize(
    ("answer", "raised"), [(None, ConnectionError), ((503, {"error": "it is over", "ended": True}), RunEnded)]
)
def test_what_is_kept_is_not_sent_to_a_server_that_is_gone(apart, answer, raised):
    client, server = apart
    server.is_silent = True
    begun(client, "a", "b", "c")
    server.answers += [answer]
    with pytest.raises(raised):
        client.get_action("c", ZEROS)
        client.get_action("c", ZEROS)
    client.close()
    assert len(server.sent) == 1


def test_an_end_tells_that_earlier_steps_are_lost(apart):
    client, server = apart
    server.is_silent = True
    begun(client, "a", "b", "c")
    client._local._sent = -np.inf  # long ago: the end is sent at once
    server.answers += [(200, {"timesteps": 0, "lost": {"a": "it was given up"}}), TAKEN]
    with pytest.raises(EpisodeLost, match="episode a is lost: it was given up"):
        client.end_episode("a", ZEROS)
    with pytest.raises(ValueError, match="Episode a not found"):
        client.log_returns("a", 1.0)
    client.close()
    assert [[part["episode_id"] for part in body["parts"]] for body in server.sent] == [["a", "b"], ["c"]]


def test_the_id_of_a_lost_episode_may_be_used_again(apart):
    client, server = apart
    server.answers += [None]
    begun(client, "a", "b")
    with pytest.raises(ConnectionError):
        client.update_policy_weights()
    begun(client, "b")
    with pytest.raises(EpisodeLost, match="could not be sent"):
        client.get_action("a", ZEROS)


def test_few_lost_episodes_are_remembered(apart, monkeypatch):
    client, server = apart
    monkeypatch.setattr(local_acting, "_MOST_LOST", 3)
    for number in range(5):
        server.answers += [None]
        begun(client, f"{number} a", f"{number} b")
        with pytest.raises(ConnectionError):
            client.update_policy_weights()
    assert list(client._local._lost) == ["3 b", "4 a", "4 b"]


@pytest.mark.parametrize(
    ("answer", "raised"), [(None, ConnectionError), ((400, {"error": "no such action"}), EpisodeLost)]
)
def test_an_end_that_cannot_be_sent_is_an_end(apart, answer, raised):
    client, server = apart
    server.answers += [answer]
    begun(client, "a")
    with pytest.raises(ValueError, match="shape"):  # it goes on
        client.end_episode("a", np.zeros(3, np.float32))
    with pytest.raises(raised, match="no such action" if answer else "could not be reached"):
        client.end_episode("a", np.zeros(2, np.float32))
    with pytest.raises(ValueError, match="Episode a not found"):
        client.log_returns("a", 1.0)


def test_refused_steps_lose_their_episodes_alone(apart):
    client, server = apart
    server.answers += [(400, {"error": "no such action"}), TAKEN]
    begun(client, "a", "b", "c")  # the steps of the first two are sent when the third begins
    for episode in "ab":
        with pytest.raises(EpisodeLost, match=f"episode {episode} is lost: .*no such action"):
            client.get_action(episode, np.zeros(2, np.float32))
    client.end_episode("c", np.zeros(2, np.float32))


def test_clients_and_servers_agree_about_who_acts():
    with build(inference="remote") as algorithm:
        with pytest.raises(ValueError, match=r"external\(inference='remote'\)"):
            PolicyClient(url_of(algorithm), "local")
        with PolicyClient(url_of(algorithm)) as client, pytest.raises(ValueError, match="inference_mode='remote'"):
            client._request("GET", "/v1/weights", None)
    asks = pytest.raises(ValueError, match="inference_mode='local'")
    with build(inference="local") as algorithm, PolicyClient(url_of(algorithm)) as client, asks:
        client.start_episode()
    with pytest.raises(ValueError, match="inference_mode must be 'remote' or 'local'"):
        PolicyClient("localhost:9900", "both")
    with pytest.raises(ValueError, match="fragment_length"):
        PolicyClient("localhost:9900", fragment_length=0)
    with pytest.raises(ValueError, match="inference"):
        build(inference="anywhere")


def test_several_agents_ask_for_actions():
    config = PPOConfig().environment(observation_space=BOX, action_space=CHOICE).rollouts(num_rollout_workers=0)
    config.external(listen="127.0.0.1:0").multi_agent(policies={"p"}, policy_mapping_fn=lambda *_, **__: "p")
    with config.build() as algorithm, pytest.raises(ValueError, match="for episodes with one agent"):
        PolicyClient(url_of(algorithm), "local")


def long_parts(lengths, ends=True, logged=(), **changes):
    """Body of a request: an episode of each length, in one part each, and one of 40 steps; every second is truncated.

    Without `ends` all but the last go on: they are under way at once.
    """
    rng, parts = np.random.default_rng(3), []
    for number, length in enumerate((*lengths, 40)):
        is_last = number == len(lengths)
        ended = ("terminated", "truncated")[number % 2] if ends or is_last else None
        parts += part(
            episode_id=str(number),
            observations=array(rng.normal(size=(length + (ended is not None), 2))),
            rewards=rng.normal(size=length + (ended is not None)).tolist(),
            actions=array(rng.integers(3, size=length), "<i8"),
            action_dist_inputs=array(rng.normal(size=(length, 3))),
            end=ended,
            logged=[at for at in logged if at < length] or None,
            **({} if is_last else changes),
        )["parts"]
    return {"parts": parts}


AT_ONCE = {"ends": False}
LSTM = {"model": {"use_lstm": True, "lstm_cell_size": 8}}


@pytest.mark.parametrize(
    "config, settings, lengths, changes, count, is_run",
    [
        (PPOConfig, {}, (25, 40, 31), {}, 8, True),
        (PPOConfig, {}, (100, 1, 2), {}, 8, True),
        (PPOConfig, {}, (25, 40, 31), AT_ONCE, 8, True),
        (PPOConfig, {"batch_mode": "complete_episodes"}, (25, 40, 31), {}, 4, True),
        (IMPALAConfig, {}, (25, 40, 31), AT_ONCE, 8, True),
        (DQNConfig, {"n_step": 3}, (25, 40, 31), {}, 8, True),
        # Steps that are looked at one by one, and behind them an episode of others, or none.
        (DQNConfig, {}, (25, 31), {"logged": (0, 7, 8, 30)}, 6, False),
        (PPOConfig, {}, (40, 60), {"training_enabled": False}, 2, True),
        (PPOConfig, {}, (40, 60), {"version": 3}, 2, True),
        (PPOConfig, {"observation_filter": "MeanStdFilter"}, (25, 40), {}, 6, False),
        (PPOConfig, LSTM, (25, 40), AT_ONCE, 6, False),
    ],
)
def test_steps_taken_in_together_give_the_rows_of_one_after_the_other(
    monkeypatch, config, settings, lengths, changes, count, is_run
):
    num_first = 1 if changes.get("ends", True) else len(lengths) + 1  # the others follow them

    def sampled_rows():
        with build(config, fragment=16, **settings) as algorithm:
            worker = algorithm.workers.local_worker()
            worker.load_snapshots(algorithm.snapshots())
            body = long_parts(lengths, **changes)
            post = threading.Thread(target=post_to, args=(url_of(algorithm), body), daemon=True)
            post.start()
            while worker.stream.environments[0].exchange.num_waiting() < num_first:
                post.join(0.01)
            batches = [algorithm.sample(16) for _ in range(count)]
            return batches, [(each.episode_return, each.length) for each in algorithm.metrics.episodes]

    monkeypatch.setattr(policy_server, "LAST_WORDS_S", 0.0)  # nobody waits for the end of the run
    runs, run = [], Replay.run
    monkeypatch.setattr(Replay, "run", lambda self, count: runs.append(count) or run(self, count))
    together, episodes = sampled_rows()
    assert bool(runs) == is_run
    monkeypatch.setattr(Replay, "run_length", 0)
    runs.clear()
    single, same_episodes = sampled_rows()
    assert not runs and episodes == same_episodes
    for own, theirs in zip(together, single, strict=True):
        assert own.keys() == theirs.keys()
        for name in theirs:
            np.testing.assert_array_equal(own[name], theirs[name], err_msg=name)


class OwnExploration(StochasticSampling):
    """Of the user."""


def test_code_of_the_user_is_not_sent():
    with build(exploration_config={"type": OwnExploration}) as algorithm:
        client = PolicyClient(url_of(algorithm), "local")
        algorithm.workers.local_worker().load_snapshots(algorithm.snapshots())
        with pytest.raises(ValueError, match="exploration is code of yours, which is not sent to clients"):
            client.start_episode()


def test_a_client_without_rllib_says_what_to_do(tmp_path):
    shutil.copy(rllib.client.__file__, tmp_path / "client_copy_alone.py")
    code = "import sys; sys.modules['rllib'] = None; from client_copy_alone import PolicyClient as C; C('h:1', 'local')"
    failed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, timeout=60)
    assert "Install rllib, or use inference_mode='remote'" in failed.stderr


def test_a_restored_run_loses_the_episodes(tmp_path):
    with build(fragment=20) as algorithm:
        # Longer than a fragment and what a client plays ahead: one is under way when the run is restored.
        loop = Loop(url_of(algorithm), inference_mode="local", fragment_length=3, length=50)
        algorithm.train()
        algorithm.restore(algorithm.save(tmp_path / "checkpoint"))
        for _ in range(3):
            algorithm.train()
        assert algorithm.timesteps >= 80
    loop.stop()
    assert isinstance(loop.errors[0], EpisodeLost) and all(
        isinstance(error, EpisodeLost | RunEnded) for error in loop.errors
    )


@pytest.mark.parametrize("inference", ["local", "remote"])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"model": {"fcnet_hiddens": [4]}},
        {"observation_filter": "MeanStdFilter"},
        {"action_space": gymnasium.spaces.Discrete(2)},
        {"action_space": gymnasium.spaces.MultiDiscrete([2, 2])},
        {"explore": False},
        {"max_lag_updates": None},
    ],
    ids=str,
)
def test_a_client_goes_on_at_the_server_of_another_run(changes, inference):
    """A run that replaces another at the address loses the running episodes; the others are those of its policy."""
    connections = {}

    def play(loop, number):
        episode = loop.client.start_episode()
        for step in range(9):
            if (number, step) == (2, 6):  # its first steps were sent, or are
                loop.client._connection = connections.pop("after")
            loop.last = loop.client.get_action(episode, np.array([number / 100, step / 10], np.float32))
            loop.client.log_returns(episode, 1.0)
        loop.client.end_episode(episode, ZEROS)

    rows = 18 if inference == "local" else 23  # are complete before the client moves
    with build(fragment=rows) as before, build(sample_timeout_s=20.0, **changes) as after:
        loop = Loop(url_of(before), play=play, inference_mode=inference, fragment_length=4)
        connections["after"] = PolicyClient(url_of(after), inference)._connection
        before.sample(rows)
        newest = [after.sample(40) for _ in range(3)][-1]
    loop.stop()
    assert all(isinstance(error, EpisodeLost | RunEnded) for error in loop.errors), loop.errors
    assert sum(isinstance(error, EpisodeLost) for error in loop.errors) <= 3
    expected = after.policy.dist_inputs(newest[sb.OBS])
    if "observation_filter" not in changes:  # a client's is a part behind
        np.testing.assert_allclose(newest[sb.ACTION_DIST_INPUTS], expected, rtol=1e-4, atol=1e-5)
    if not changes.get("explore", True):
        np.testing.assert_array_equal(newest[sb.ACTIONS], expected.argmax(-1))
    several = isinstance(changes.get("action_space"), gymnasium.spaces.MultiDiscrete)
    assert isinstance(loop.last, np.ndarray) == several
