"""External environments when their loops fail, clients fall silent, or many episodes begin at once."""

import contextlib
import re
import threading
import time
from collections import Counter

import gymnasium
import numpy as np
import pytest
from test_external_worker import BOX, CHOICE, Counting, environment, small

from rllib import sample_batch as sb
from rllib.algorithms.dqn import DQNConfig
from rllib.algorithms.ppo import PPOConfig
from rllib.client import EpisodeLost, PolicyClient, RunEnded
from rllib.env.external import ExternalEnv, ExternalMultiAgentEnv
from rllib.env.external.exchange import RunEnded as RunEndedHere
from rllib.env.external.exchange import StepRequest
from rllib.env.external.external_env import AGENT
from rllib.env.multi_agent.agent_spaces import ALL
from rllib.env.multi_agent.stream import AgentStep
from rllib.env.policy_server import policy_server
from rllib.env.policy_server.policy_server import PolicyServer
from rllib.errors import SampleTimeoutError

# ------------------------------------------------------------------ loops that fail


class Failing(ExternalEnv):
    """Its first `failures` loops raise in the step `at` of their second episode; all other episodes have 5 steps."""

    loops = 0

    def __init__(self, config):
        super().__init__(CHOICE, BOX)
        self.config, self.number, self.errors = config, 0, []
        self.strays, self.fails = threading.Event(), threading.Event()

    def run(self):
        Failing.loops += 1
        self.number = Failing.loops
        stray = threading.Thread(target=self.wait_for_an_action)
        fails = self.number <= self.config["failures"]
        if fails and self.config.get("at") is None:
            raise KeyError("the user's own")
        if fails:
            stray.start()
        for episode in range(10**9):
            name = self.start_episode()
            for step in range(5):
                self.get_action(name, np.array([self.number, 10 * episode + step], np.float32))
                self.log_returns(name, 1.0)
                if fails and episode == 1 and step == self.config["at"]:
                    self.strays.wait(20)
                    self.fails.set()
                    raise KeyError("the user's own")
            self.end_episode(name, np.array([self.number, 10 * episode + 5], np.float32))

    def wait_for_an_action(self):
        try:
            name = self.start_episode()
            self.get_action(name, np.zeros(2, np.float32))
            self.strays.set()
            self.fails.wait(20)
            while True:  # slowly: the fragment must not be over before the loop has raised
                self.get_action(name, np.zeros(2, np.float32))
                time.sleep(0.05)
        except RunEndedHere as error:
            self.errors.append(error)


def build_failing(**env_config):
    Failing.loops = 0
    config = small(PPOConfig(), 40).environment(Failing, env_config=env_config)
    config.rollouts(num_rollout_workers=0, rollout_fragment_length=40).debugging(seed=1)
    config.fault_tolerance(restart_failed_sub_environments=True)
    return config.build()


def test_an_environment_whose_loop_raises_is_replaced(caplog):
    with build_failing(failures=1, at=2) as algorithm:
        first = environment(algorithm)
        result = algorithm.train()
        assert environment(algorithm) is not first and result["num_faulty_episodes"] == 2
        assert "the external environment of rollout worker 0 raised; it is replaced by a new one" in caplog.text
        rows = algorithm.sample(40)
        assert set(rows[sb.OBS][:, 0]) == {2.0}, "rows of the new environment alone"
        assert result["episodes_total"] > 1
        end = time.monotonic() + 20
        while not first.errors:
            assert time.monotonic() < end, "a thread of the old loop still waits"
            time.sleep(0.01)


def test_rows_before_the_failure_are_learned_from_once():
    """The last action of the void episode is dropped, since nobody knows what has followed."""
    with build_failing(failures=1, at=2) as algorithm:
        rows = algorithm.sample(40)
        own = [int(step) for number, step in rows[sb.OBS] if number == 1]
        assert own == [0, 1, 2, 3, 4, 10, 11]
        last = [row for row, seen in enumerate(rows[sb.OBS].tolist()) if seen == [1.0, 11.0]]
        assert rows[sb.TRUNCATEDS][last].all() and not rows[sb.TERMINATEDS][last].any()


def test_a_loop_that_raises_again_and_again_ends_the_run():
    with build_failing(failures=10) as algorithm, pytest.raises(KeyError, match="own") as caught:
        algorithm.train()
    assert any("in run() of the external environment" in note for note in caught.value.__notes__)
    assert Failing.loops == 4


def test_a_loop_that_returns_is_not_replaced():
    config = small(PPOConfig(), 40).environment(Counting, env_config={"episodes": 2, "length": 5})
    config.rollouts(num_rollout_workers=0, rollout_fragment_length=40)
    config.fault_tolerance(restart_failed_sub_environments=True)
    with config.build() as algorithm, pytest.raises(RuntimeError, match="returned after 2 episodes"):
        algorithm.train()


# ------------------------------------------------------------------ many episodes at once


class Crowd(Counting):
    """One episode after the other, and from the fourth on 40 at once."""

    def run(self):
        for number in range(3):
            self.play(number)
        loops = [threading.Thread(target=self.loop, args=(3 + number,)) for number in range(self.config["loops"])]
        for each in loops:
            each.start()
        for each in loops:
            each.join()


@pytest.mark.parametrize("mode", ["truncate_episodes", "complete_episodes"])
def test_places_grow_from_1_to_40_and_no_step_is_lost(mode):
    config = small(PPOConfig(), 60).environment(Crowd, env_config={"loops": 40, "length": 9})
    config.rollouts(num_rollout_workers=0, rollout_fragment_length=60, batch_mode=mode)
    with config.debugging(seed=1).build() as algorithm:
        steps = Counter()
        while sum(steps.values()) < 200 * 9:
            batch = algorithm.sample(20)
            steps.update((int(number), int(step)) for number, step in batch[sb.OBS])
        ended = {number for number, step in steps if step == 8}
        assert len(ended) >= 150 and set(range(3)) < ended
        assert set(steps.values()) == {1}, "a row is there twice"
        assert all((number, step) in steps for number in ended for step in range(9)), "a row is missing"
        assert environment(algorithm).errors == [] and algorithm.metrics.episodes_total == len(ended)


# ------------------------------------------------------------------ silent clients


def served(mode="complete_episodes", rows=20, config=PPOConfig, space=BOX, timeout=60.0, **external):
    config = config().environment(observation_space=space, action_space=CHOICE)
    if config.algo_class.__name__ == "PPO":
        small(config, rows)
    config.external(listen="127.0.0.1:0", **external)
    config.rollouts(num_rollout_workers=0, rollout_fragment_length=rows, batch_mode=mode, sample_timeout_s=timeout)
    return config.debugging(seed=1).build()


def play_whole(url, number, length=5):
    """Episodes of a client in a thread, until the run ends."""

    def run():
        with PolicyClient(url) as client:
            try:
                while True:
                    episode = client.start_episode()
                    for step in range(length):
                        client.get_action(episode, [number, step])
                        client.log_returns(episode, 1.0)
                    client.end_episode(episode, [number, length])
            except RunEnded:
                pass

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


def begun(url, steps):
    """A client that acts this often in an episode and then is silent, its episode, and the thread in which it acts."""
    client, episodes = PolicyClient(url), []

    def act():
        episodes.append(client.start_episode())
        for step in range(steps):
            client.get_action(episodes[0], [7, step])
            client.log_returns(episodes[0], 1.0)

    thread = threading.Thread(target=act, daemon=True)
    thread.start()
    return client, episodes, thread


def test_whole_episodes_do_not_wait_for_a_client_that_is_silent(monkeypatch):
    """Its steps so far are a cut episode, and those after its return are learned from and counted as well."""
    monkeypatch.setattr(PolicyServer, "patience_s", 0.3)
    monkeypatch.setattr(policy_server, "LAST_WORDS_S", 0.2)
    with served(rows=40) as algorithm:
        url = environment(algorithm).url
        client, episodes, thread = begun(url, 3)
        others = [play_whole(url, 1)]
        rows = [algorithm.sample(40)]
        while thread.is_alive():
            rows.append(algorithm.sample(40))
        rows.append(algorithm.sample(40))
        seen = np.concatenate([batch[sb.OBS] for batch in rows])
        assert sorted(step for number, step in seen if number == 7) == [0, 1]

        def come_back():
            client.get_action(episodes[0], [7, 3])
            client.log_returns(episodes[0], 1.0)
            client.end_episode(episodes[0], [7, 4])
            client.close()

        thread = threading.Thread(target=come_back, daemon=True)
        thread.start()
        later = []
        while thread.is_alive():
            later.append(algorithm.sample(40))
        later.append(algorithm.sample(40))
        seen = np.concatenate([batch[sb.OBS] for batch in later])
        assert sorted(step for number, step in seen if number == 7) == [2, 3]
        ended = [each for each in algorithm.metrics.episodes if each.length == 4]
        assert len(ended) == 1 and ended[0].episode_return == 4
    others[0].join(20)


SILENCE_S = 50.0


def play_two_at_once(url):
    """Episodes of 5 and of 12 steps, in turn, in one thread, until the run ends."""
    with PolicyClient(url) as client, contextlib.suppress(RunEnded):
        running = {}
        while True:
            for length in (5, 12):
                episode, step = running.get(length) or (client.start_episode(), 0)
                if step < length:
                    client.get_action(episode, [length, step])
                    client.log_returns(episode, 1.0)
                    running[length] = episode, step + 1
                else:
                    client.end_episode(running.pop(length)[0], [length, step])


def test_a_client_that_waits_for_one_episode_cannot_end_another(monkeypatch, caplog):
    """The fragment is over at once, and does not last until the client has been silent for long."""
    monkeypatch.setattr(PolicyServer, "patience_s", SILENCE_S)
    caplog.set_level("INFO", "rllib.evaluation.external.worker")
    with served(rows=8) as algorithm:
        thread = threading.Thread(target=play_two_at_once, args=(environment(algorithm).url,), daemon=True)
        thread.start()
        rows = np.concatenate([algorithm.sample(8)[sb.OBS] for _ in range(6)])
        assert "silent episodes are left" not in caplog.text
        assert len(np.unique(rows[rows[:, 0] == 12], axis=0)) == 12
        assert {each.length for each in algorithm.metrics.episodes} == {5, 12}
    thread.join(20)


def test_a_lost_client_of_whole_episodes_is_counted_once(monkeypatch):
    monkeypatch.setattr(policy_server, "LAST_WORDS_S", 0.2)
    with served(episode_timeout_s=1.0) as algorithm:
        url = environment(algorithm).url
        client, episodes, _ = begun(url, 3)
        play_whole(url, 1)
        faulty = 0
        end = time.monotonic() + 60
        while not faulty and time.monotonic() < end:
            faulty = algorithm.train()["num_faulty_episodes"]
        assert faulty == 1
        with pytest.raises(EpisodeLost, match="given up after 1 s of silence"):
            client.get_action(episodes[0], [7, 3])
        client.close()


def test_a_run_that_nobody_asks_says_where_it_listens():
    with served(timeout=0.2) as algorithm:
        url = environment(algorithm).url
        with pytest.raises(SampleTimeoutError, match=rf"0 clients have asked {url} so far"):
            algorithm.sample(20)


def test_a_run_with_one_client_repeats():
    batches = []
    for _ in range(2):
        with served(mode="truncate_episodes", rows=30) as algorithm:
            thread = play_whole(environment(algorithm).url, 1, length=7)
            batches.append([algorithm.sample(30) for _ in range(2)])
        thread.join(20)
    for first, second in zip(*batches):
        for name in (sb.OBS, sb.ACTIONS, sb.ACTION_LOGP, sb.REWARDS, sb.ADVANTAGES, sb.TERMINATEDS):
            np.testing.assert_array_equal(first[name], second[name])


class Chained(StepRequest):
    """One of several turns that are there already, as those of a part are."""

    def __init__(self, told, chain, *args, **kwargs):
        super().__init__("e", *args, **kwargs)
        self.told, self.chain = told, chain

    def answer(self, actions):
        super().answer(actions)
        self.told.append(len(self.chain))

    def fail(self, error):
        super().fail(error)
        self.told.append(error)

    def following(self):
        return self.chain.pop(0) if self.chain else None


class GivenUp(ExternalEnv):
    """An episode is given up while turns of it are still to be taken in."""

    def __init__(self, config):
        super().__init__(CHOICE, BOX)
        self.told = []

    def run(self):
        seen, chain = {AGENT: np.zeros(2, np.float32)}, []
        step = AgentStep(seen, {AGENT: 1.0}, {ALL: False}, {ALL: False}, {}, False, False)
        end = AgentStep(seen, {}, {ALL: False}, {ALL: True}, {}, True, True)
        chain += [Chained(self.told, chain, step) for _ in range(5)]
        self.exchange.submit(Chained(self.told, chain, step, is_first=True))
        self.exchange.submit(StepRequest("e", end, is_void=True))
        self.exchange.take_part()
        while True:
            episode = self.start_episode()
            self.get_action(episode, seen[AGENT])
            self.end_episode(episode, seen[AGENT])


def test_an_episode_is_given_up_behind_its_last_turn():
    config = small(PPOConfig(), 10).environment(GivenUp).rollouts(num_rollout_workers=0, rollout_fragment_length=10)
    with config.debugging(seed=1).build() as algorithm:
        algorithm.sample(10)
        assert environment(algorithm).told == [5, 4, 3, 2, 1, 0]


# ------------------------------------------------------------------ agents that the run does not have


def test_an_agent_without_a_policy_ends_its_episode_alone(caplog):
    config = small(PPOConfig(), 8).environment(observation_space=BOX, action_space=CHOICE)
    config.external(listen="127.0.0.1:0").rollouts(num_rollout_workers=0, rollout_fragment_length=8).debugging(seed=1)
    config.multi_agent(policies={"p"}, policy_mapping_fn=lambda agent, *_, **__: {"known": "p"}[agent])
    refused = []

    def play(url):
        with PolicyClient(url) as client:
            for steps in (0, 2):
                episode = client.start_episode()
                for _ in range(steps):
                    client.get_action(episode, {"known": [0, 0]})
                try:
                    client.get_action(episode, {"known": [0, 0], "stranger": [0, 0]})
                except ValueError as error:
                    refused.append(str(error))
            with contextlib.suppress(RunEnded):
                while True:
                    episode = client.start_episode()
                    for _ in range(3):
                        client.get_action(episode, {"known": [1, 1]})
                        client.log_returns(episode, {"known": 1.0})
                    client.end_episode(episode, {"known": [1, 1]})

    with config.build() as algorithm:
        thread = threading.Thread(target=play, args=(environment(algorithm).url,), daemon=True)
        thread.start()
        result = algorithm.train()
        assert result["num_faulty_episodes"] == 2 and result["episode_reward_mean"] == 3
        assert len(environment(algorithm)._episode_table.running) <= 1
    thread.join(20)
    assert len(refused) == 2 and all("no policy for agent 'stranger'" in error for error in refused)
    assert caplog.text.count("is void") == 1  # clients cannot fill the log


# ------------------------------------------------------------------ action masks

MASKED = gymnasium.spaces.Dict(action_mask=gymnasium.spaces.MultiBinary(3), seen=BOX)


def masked(*mask):
    return {"action_mask": list(mask), "seen": [0.5, 0.5]}


class Masked(ExternalEnv):
    """Notes what wrong calls raise, and goes on."""

    def __init__(self, config):
        super().__init__(CHOICE, MASKED)
        self.errors, self.actions = [], []

    def wrong(self, call, *arguments):
        try:
            call(*arguments)
        except ValueError as error:
            self.errors.append(str(error))

    def run(self):
        while True:
            episode = self.start_episode()
            for _ in range(3):
                self.wrong(self.get_action, episode, masked(0, 0, 0))
                self.wrong(self.log_action, episode, masked(0, 0, 0), 1)
                self.wrong(self.log_action, episode, masked(0, 0, 1), 1)
                self.actions.append(self.get_action(episode, masked(0, 0, 1)))
                self.log_action(episode, masked(0, 1, 1), 1)
                self.log_returns(episode, 1.0)
            self.end_episode(episode, masked(0, 0, 0))


SENTENCES = [
    r"the observation has no legal action: the action mask is \[0, 0, 0\], and each part of an action needs a choice",
    r"the observation has no legal action: the action mask is \[0, 0, 0\]",
    r"action = 1 is not legal: the action mask is \[0, 0, 1\]",
]


@pytest.mark.parametrize("config", [PPOConfig, DQNConfig])
def test_a_mask_without_a_choice_is_the_loops_mistake(config):
    config = small(config(), 10).environment(Masked).rollouts(num_rollout_workers=0, rollout_fragment_length=10)
    with config.debugging(seed=1).build() as algorithm:
        algorithm.sample(10)
        env = environment(algorithm)
        assert set(env.actions) == {2}
        for number, sentence in enumerate(SENTENCES):
            assert all(re.match(sentence, error) for error in env.errors[number::3])
        assert len(env.errors) >= 9


class MaskedAgents(ExternalMultiAgentEnv):
    """Agent a reads masks, agent b has no mask."""

    def __init__(self, config):
        super().__init__({"a": CHOICE, "b": CHOICE}, {"a": MASKED, "b": BOX})
        self.errors = []

    def run(self):
        while True:
            episode = self.start_episode()
            for mask in ([0, 0, 0], [1, 0, 0]):
                try:
                    self.get_action(episode, {"a": masked(*mask), "b": np.zeros(2)})
                except ValueError as error:
                    self.errors.append(str(error))
            self.log_returns(episode, {"a": 1.0, "b": 1.0})
            self.end_episode(episode, {"a": masked(0, 0, 0), "b": np.zeros(2)})


def test_masks_of_agents_are_looked_at():
    config = small(PPOConfig(), 8).environment(MaskedAgents).rollouts(num_rollout_workers=0, rollout_fragment_length=4)
    config.multi_agent(policies={"a", "b"}, policy_mapping_fn=lambda agent, *_, **__: agent)
    with config.build() as algorithm:
        algorithm.sample(8)
        (error,) = set(environment(algorithm).errors)
        assert error.startswith("the observation has no legal action") and error.endswith("(agent 'a')")


@pytest.mark.parametrize("inference", ["remote", "local"])
def test_a_clients_mask_is_refused_and_its_episode_goes_on(inference):
    with served(space=MASKED, rows=4, mode="truncate_episodes") as algorithm:
        url, errors = environment(algorithm).url, []

        def play():
            with PolicyClient(url, inference, fragment_length=2) as client:
                episode = client.start_episode()
                for wrong in (
                    lambda: client.get_action(episode, masked(0, 0, 0)),
                    lambda: client.log_action(episode, masked(0, 0, 1), 1),
                ):
                    try:
                        wrong()
                    except ValueError as error:
                        errors.append(str(error))
                with contextlib.suppress(RunEnded):
                    while True:
                        client.get_action(episode, masked(0, 1, 0))
                        client.log_returns(episode, 1.0)

        thread = threading.Thread(target=play, daemon=True)
        thread.start()
        assert set(algorithm.sample(8)[sb.ACTIONS]) == {1}
    thread.join(20)
    assert len(errors) == 2
    for error, sentence in zip(errors, ("the observation has no legal action: ", "action = 1 is not legal: ")):
        assert error.startswith(sentence)


@pytest.mark.parametrize("logged", [[], [1]])
def test_actions_in_parts_are_legal_too(logged):
    with served(space=MASKED) as algorithm:
        algorithm.workers.local_worker().load_snapshots(algorithm.snapshots())
        arrays = {"actions": np.array([0, 1]), "action_dist_inputs": np.zeros((2, 3), np.float32)}
        packed = {name: {"$array": [each.dtype.str, list(each.shape), each.tobytes()]} for name, each in arrays.items()}
        seen = [masked(1, 0, 0), masked(0, 0, 1)]
        part = {"episode_id": "e", "version": 0, "is_first": True, "observations": seen, "rewards": [0.0, 1.0]}
        client = PolicyClient(environment(algorithm).url, "local")
        with pytest.raises(ValueError, match=r"action = .*1.* is not legal: the action mask is \[0, 0, 1\]"):
            client._post("/v1/samples", {"parts": [{**part, **packed, "logged": logged}]})
        client.close()
        assert not environment(algorithm)._episode_table.running


def test_legal_actions_of_a_client_that_acts_itself_are_taken():
    with served(space=MASKED, rows=8, mode="truncate_episodes") as algorithm:
        url = environment(algorithm).url

        def play():
            with contextlib.suppress(RunEnded), PolicyClient(url, "local", fragment_length=2) as client:
                while True:
                    episode = client.start_episode()
                    for number in range(3):
                        client.get_action(episode, masked(0, 1, 0))
                        client.log_action(episode, masked(0, number % 2, 1), 2)
                    client.end_episode(episode, masked(0, 0, 0))

        thread = threading.Thread(target=play, daemon=True)
        thread.start()
        assert set(algorithm.sample(16)[sb.ACTIONS]) <= {1, 2}
    thread.join(20)
