"""Rows of external episodes: they are those that the same steps give in an environment that is stepped."""

import contextlib
import random
import threading
import time
from collections import Counter

import gymnasium
import numpy as np
import pytest

from rllib import sample_batch as sb
from rllib.algorithms.a2c import A2CConfig
from rllib.algorithms.a3c import A3CConfig
from rllib.algorithms.apex import ApexDQNConfig
from rllib.algorithms.dqn import DQNConfig
from rllib.algorithms.es import ESConfig
from rllib.algorithms.impala import IMPALAConfig
from rllib.algorithms.pg import PGConfig
from rllib.algorithms.ppo import PPOConfig
from rllib.algorithms.pqn import PQNConfig
from rllib.algorithms.r2d2 import R2D2Config
from rllib.algorithms.sac import SACConfig
from rllib.env.external import ExternalEnv, ExternalMultiAgentEnv, external_env
from rllib.env.external.exchange import EpisodeLost, RunEnded
from rllib.errors import SampleTimeoutError

BOX, CHOICE = gymnasium.spaces.Box(-np.inf, np.inf, (2,)), gymnasium.spaces.Discrete(3)


class Counting(ExternalEnv):
    """Episodes of `length` steps: observations are (episode, step), the reward of a step is its number."""

    def __init__(self, config):
        super().__init__(CHOICE, BOX)
        self.config = {"length": 25, "loops": 1, "logged": 0, "untrained": (), "episodes": None, **config}
        self.actions, self.errors, self.ended = {}, [], threading.Event()

    def run(self):
        loops = [threading.Thread(target=self.loop, args=(number,)) for number in range(self.config["loops"])]
        for each in loops:
            each.start()
        for each in loops:
            each.join()
        self.ended.set()
        if self.config.get("raises"):
            raise KeyError("the user's own")

    def loop(self, loop):
        count = self.config["episodes"]
        number = loop
        try:
            while count is None or number < count:
                self.play(number)
                number += self.config["loops"]
        except (EpisodeLost, RunEnded) as error:
            self.errors.append(error)
            if isinstance(error, EpisodeLost):
                self.loop(loop + 1000)

    def play(self, number):
        episode = self.start_episode(training_enabled=number not in self.config["untrained"])
        for step in range(self.config["length"]):
            observation = np.array([number, step], np.float32)
            if self.config["logged"] and step % self.config["logged"] == 1:
                action = 2
                self.log_action(episode, observation, action)
            else:
                action = self.get_action(episode, observation)
            self.actions[number, step] = action
            self.log_returns(episode, step / 2)
            self.log_returns(episode, step / 2)
        self.end_episode(episode, np.array([number, step + 1], np.float32), truncated=number % 2 == 1)


def build(config=PPOConfig, mode="truncate_episodes", fragment=40, **env_config):
    config = small(config(), fragment).environment(Counting, env_config=env_config)
    config.rollouts(num_rollout_workers=0, batch_mode=mode, rollout_fragment_length=fragment)
    return config.debugging(seed=1).build()


def small(config, rows):
    """With train batches of this number of rows."""
    minibatch = {"sgd_minibatch_size": rows} if isinstance(config, PPOConfig) else {}
    return config.training(train_batch_size=rows, **minibatch)


def environment(algorithm):
    return algorithm.workers.local_worker().stream.environments[0]


@pytest.mark.parametrize("mode, rows", [("truncate_episodes", 40), ("complete_episodes", 50)])
def test_rows_are_the_steps_of_the_loop(mode, rows):
    with build(mode=mode) as algorithm:
        batch = algorithm.sample(40)
        assert len(batch) == rows
        env = environment(algorithm)
        steps = [(0, step) for step in range(25)] + [(1, step) for step in range(rows - 25)]
        np.testing.assert_array_equal(batch[sb.OBS], np.array(steps, np.float32))
        np.testing.assert_array_equal(batch[sb.REWARDS], [step for _, step in steps])
        assert batch[sb.ACTIONS].tolist() == [env.actions[at] for at in steps]
        assert np.flatnonzero(batch[sb.TERMINATEDS]).tolist() == [24]
        expected = algorithm.policy.log_prob(algorithm.policy.dist_inputs(batch[sb.OBS]), batch[sb.ACTIONS])
        np.testing.assert_allclose(batch[sb.ACTION_LOGP], expected, atol=1e-5)
        assert algorithm.timesteps == rows


def test_advantages_are_those_of_the_episode():
    """Closed form: the value of each observation, discounted rewards, and the value of a truncated end."""
    with build(mode="complete_episodes", fragment=50) as algorithm:
        batch = algorithm.sample(50)
        values = algorithm.policy.values(batch[sb.OBS])
        gamma, lambda_ = algorithm.config.gamma, algorithm.config.lambda_
        for first, following in ((0, 0.0), (25, algorithm.policy.values(np.array([[1, 25]], np.float32))[0])):
            rows, advantage = range(first, first + 25), 0.0
            for row in reversed(rows):
                after = following if row == rows[-1] else values[row + 1]
                delta = batch[sb.REWARDS][row] + gamma * after - values[row]
                advantage = delta + gamma * lambda_ * advantage
                assert batch[sb.ADVANTAGES][row] == pytest.approx(advantage, rel=1e-3, abs=1e-3)


class Gathered(Counting):
    """All loops ask for their first actions before one of them is answered, as far as sampling waits for `asks`."""

    asks = threading.Semaphore(0)

    def get_action(self, episode_id, observation):
        self.asks.release()
        return super().get_action(episode_id, observation)


def test_observations_are_counted_that_came_before_a_lane_grew():
    """Two of seven episodes have a place at first; the fragment begins again with places for all."""
    config = small(PPOConfig(), 40).environment(Gathered, env_config={"loops": 7})
    config.rollouts(num_rollout_workers=0, rollout_fragment_length=40, observation_filter="MeanStdFilter")
    with config.debugging(seed=1).build() as algorithm:
        for _ in range(7):
            assert Gathered.asks.acquire(timeout=20)
        algorithm.sample(40)
        answered = list(environment(algorithm).actions)
        assert len(answered) >= 40
        assert algorithm.policy.filter.count >= len(answered)


@pytest.mark.parametrize("mode", ["truncate_episodes", "complete_episodes"])
def test_episodes_at_once_are_apart(mode):
    with build(mode=mode, loops=7, length=9, fragment=60) as algorithm:
        seen = {}
        for _ in range(6):
            batch = algorithm.sample(60)
            for observation, action, reward in zip(batch[sb.OBS], batch[sb.ACTIONS], batch[sb.REWARDS]):
                key = tuple(int(number) for number in observation)
                assert key not in seen
                seen[key] = int(action)
                assert reward == key[1]
        actions = environment(algorithm).actions
        assert all(actions[key] == action for key, action in seen.items())
        by_episode = {}
        for episode, step in sorted(seen):
            by_episode.setdefault(episode, []).append(step)
        assert len(by_episode) > 20 and all(steps == list(range(len(steps))) for steps in by_episode.values())
        assert all(episode.length == 9 and episode.episode_return == 36 for episode in algorithm.metrics.episodes)


def test_logged_actions_are_learned_from_off_policy():
    with build(DQNConfig, logged=5) as algorithm:
        batch = algorithm.sample(40)
        logged = batch[sb.OBS][:, 1] % 5 == 1
        assert logged.sum() == 8 and set(batch[sb.ACTIONS][logged]) == {2}


def test_logged_actions_are_dropped_on_policy(caplog):
    with build(A2CConfig, logged=5, fragment=32) as algorithm:
        batch = algorithm.sample(32)
        assert not (batch[sb.OBS][:, 1] % 5 == 1).any()
        # The chain of advantages ends before the row that is left out.
        assert batch[sb.TRUNCATEDS][batch[sb.OBS][:, 1] % 5 == 0].all()
    assert caplog.text.count("log_action: steps with actions that the policy has not chosen") == 1


class TakenOver(ExternalEnv):
    """Somebody else acts from step 5 to step 9 of each episode."""

    def __init__(self, config):
        super().__init__(CHOICE, BOX)

    def run(self):
        while True:
            episode = self.start_episode()
            for step in range(20):
                seen = np.array([0, step], np.float32)
                if 5 <= step < 10:
                    self.log_action(episode, seen, 1)
                else:
                    self.get_action(episode, seen)
                self.log_returns(episode, 1.0)
            self.end_episode(episode, np.array([0, 20], np.float32))


def test_the_chain_ends_where_somebody_takes_over():
    config = small(A2CConfig(), 30).environment(TakenOver).rollouts(num_rollout_workers=0, rollout_fragment_length=30)
    with config.debugging(seed=1).build() as algorithm:
        batch = algorithm.sample(30)
        row = int(np.flatnonzero(batch[sb.OBS][:, 1] == 4)[0])
        value, after = algorithm.policy.values(np.array([[0, 4], [0, 5]], np.float32))
        assert batch[sb.TRUNCATEDS][row]
        assert batch[sb.ADVANTAGES][row] == pytest.approx(1 + algorithm.config.gamma * after - value, abs=1e-4)


class Impatient(Counting):
    """Asks again when an answer takes too long."""

    def get_action(self, episode, observation):
        while True:
            try:
                return super().get_action(episode, observation)
            except TimeoutError:
                self.config["timeouts"] = self.config.get("timeouts", 0) + 1


def test_a_loop_that_asks_again_has_each_step_once(monkeypatch):
    monkeypatch.setattr(external_env, "ACTION_TIMEOUT_S", 0.05)
    config = small(PPOConfig(), 12).environment(Impatient).rollouts(num_rollout_workers=0, rollout_fragment_length=12)
    with config.debugging(seed=1).build() as algorithm:
        seen = []
        for _ in range(4):
            batch = algorithm.sample(12)
            seen += [(tuple(row), reward) for row, reward in zip(batch[sb.OBS].tolist(), batch[sb.REWARDS].tolist())]
            threading.Event().wait(0.3)
        assert environment(algorithm).config["timeouts"] >= 4
        assert seen == [((at // 25, at % 25), at % 25) for at in range(48)]


class Crossing(Counting):
    """In each pass of answers episodes begin, go on and end, as drawn; no turn follows before all are answered."""

    def run(self):
        rng, running = random.Random(self.config["seed"]), {}
        self.unanswered = []
        for number in range(self.config["passes"]):
            ending = [each for each in running if rng.random() < 0.4]
            turns = [(each, (True, False)) for each in ending]
            turns += [(each, None) for each in running if each not in ending and rng.random() < 0.7]
            turns += [(self.start_episode(f"{number} {each}"), None) for each in range(rng.randrange(3))]
            rng.shuffle(turns)
            seen = {"agent0": np.zeros(2, np.float32)}
            asked = [(each, ends, self._episode_table.find(each).request(seen, None, ends)) for each, ends in turns]
            for *_, turn in asked:
                self.exchange.submit(turn)
            self.exchange.take_part()
            self.unanswered = [each for each, _, turn in asked if not turn.wait(PASS_S)]
            if self.unanswered:
                break
            for each, ends, _ in asked:
                running.pop(each, None) if ends else running.setdefault(each)
        self.ended.set()
        last = self.start_episode()
        while True:
            self.get_action(last, np.zeros(2, np.float32))


# Longest wait for the answers of a pass (seconds).
PASS_S = 20.0


@pytest.mark.parametrize("fragment", [1, 4, 40])
@pytest.mark.parametrize("seed", range(3))
def test_a_pass_is_answered_without_another_turn(seed, fragment):
    """Whoever has to wait for a place begins with the one that is freed, in the same pass or in the next fragment."""
    config = small(PPOConfig(), 40).environment(Crossing, env_config={"seed": seed, "passes": 60})
    config.rollouts(num_rollout_workers=0, rollout_fragment_length=fragment, sample_timeout_s=4 * PASS_S)
    with config.debugging(seed=1).build() as algorithm, contextlib.suppress(RunEnded):
        env = environment(algorithm)
        while not env.ended.is_set():
            algorithm.sample(fragment)
        assert not env.unanswered


def test_a_loop_that_waits_is_told_when_sampling_fails():
    def fails(self, report):
        raise KeyError("sampling")

    with build(length=10, fragment=20, loops=2) as algorithm:
        worker = algorithm.workers.local_worker()
        algorithm.sample(20)
        act = worker._lane_set.act
        worker._lane_set.act = lambda step: act(step) if len(worker._env_of) < 1 else fails(worker, step)
        with pytest.raises(KeyError, match="sampling"):
            algorithm.sample(20)
        del worker._lane_set.act
        algorithm.sample(20)
        assert any(isinstance(error, EpisodeLost) for error in environment(algorithm).errors)


def test_untrained_episodes_are_reported_apart():
    with build(untrained=(0, 2), length=10, fragment=20) as algorithm:
        result = algorithm.train()
        assert result["external"]["untrained_episode_reward_mean"] == 45
        assert result["episodes_total"] >= 1 and result["timesteps_total"] == 20


class Agents(ExternalMultiAgentEnv):
    """Turns: X acts first, then Y, then both; X is paid while it waits."""

    def __init__(self, config):
        super().__init__(CHOICE, BOX)

    def run(self):
        while True:
            episode = self.start_episode()
            seen = np.zeros(2, np.float32)
            self.get_action(episode, {"x": seen})
            self.log_returns(episode, {"x": 1.0})
            self.get_action(episode, {"y": seen + 1})
            self.log_returns(episode, {"x": 2.0, "y": 3.0})
            self.get_action(episode, {"x": seen + 2, "y": seen + 2})
            self.log_returns(episode, {"x": 4.0, "y": 5.0})
            self.end_episode(episode, {"x": seen + 3, "y": seen + 3})


def test_agents_have_rows_of_their_own_time():
    config = PPOConfig().environment(Agents).rollouts(num_rollout_workers=0, rollout_fragment_length=3)
    small(config.rollouts(batch_mode="complete_episodes"), 3)
    config.multi_agent(policies={"px", "py"}, policy_mapping_fn=lambda agent, *_, **__: f"p{agent}")
    with config.debugging(seed=0).build() as algorithm:
        batches = algorithm.sample(3).policy_batches
        assert batches["px"][sb.REWARDS].tolist() == [3.0, 4.0] and batches["py"][sb.REWARDS].tolist() == [3.0, 5.0]
        assert batches["px"][sb.OBS][:, 0].tolist() == [0, 2] and batches["py"][sb.OBS][:, 0].tolist() == [1, 2]
        assert algorithm.metrics.episodes[0].agent_returns == {("x", "px"): 7.0, ("y", "py"): 8.0}


class Crowds(ExternalMultiAgentEnv):
    """Episode n has agents 0, ..., sizes[n] - 1 of one policy, in its first turn or, if it `grows`, one more in each.

    Observations are (100 * episode + agent, turn), rewards the number of the turn. Episodes of one agent follow.
    """

    LENGTH = 20

    def __init__(self, config):
        super().__init__(CHOICE, BOX)
        self.config, self.errors = config, []

    def run(self):
        loops = [threading.Thread(target=self.loop, args=each) for each in enumerate(self.config["sizes"])]
        for each in loops:
            each.start()
        for each in loops:
            each.join()

    def loop(self, number, size):
        try:
            self.play(number, size)
            while True:
                self.play(len(self.config["sizes"]), 1)
        except RunEnded:
            pass
        except EpisodeLost as error:
            self.errors.append(error)

    def play(self, number, size):
        episode = self.start_episode()
        for turn in range(self.LENGTH + 1):
            agents = range(min(size, turn + 1) if self.config["grows"] else size)
            observations = {agent: np.array([100 * number + agent, turn], np.float32) for agent in agents}
            if turn == self.LENGTH:
                self.end_episode(episode, observations)
                return
            self.get_action(episode, observations)
            self.log_returns(episode, {agent: float(turn) for agent in agents})


@pytest.mark.parametrize("grows", [False, True])
@pytest.mark.parametrize("mode", ["truncate_episodes", "complete_episodes"])
def test_episodes_go_on_where_a_policy_gets_more_slots(mode, grows):
    """Each row of each agent is there once and in order, with its reward, and no loop has lost its episode.

    Whole episodes are in one batch each.
    """
    sizes = [1, 3, 18, 5]
    config = PPOConfig().environment(Crowds, env_config={"sizes": sizes, "grows": grows})
    config.rollouts(num_rollout_workers=0, rollout_fragment_length=7, batch_mode=mode)
    small(config, 7).multi_agent(policies={"p"}, policy_mapping_fn=lambda agent, *_, **__: "p")
    rows, total = {}, 0
    with config.debugging(seed=0).build() as algorithm:
        wanted = sum(Crowds.LENGTH - (agent if grows else 0) for size in sizes for agent in range(size))
        while total < wanted:
            batch = algorithm.sample(1).policy_batches["p"]
            total += int((batch[sb.OBS][:, 0] < 100 * len(sizes)).sum())
            ended = Counter(batch[sb.OBS][batch[sb.TERMINATEDS], 0].tolist())
            assert mode == "truncate_episodes" or ended.keys() == set(batch[sb.OBS][:, 0].tolist())
            for observation, reward in zip(batch[sb.OBS], batch[sb.REWARDS]):
                rows.setdefault(int(observation[0]), []).append((int(observation[1]), reward))
        assert environment(algorithm).errors == []
    for number, size in enumerate(sizes):
        for agent in range(size):
            first = agent if grows else 0
            assert rows[100 * number + agent] == [(turn, turn) for turn in range(first, Crowds.LENGTH)]


class Scripted(ExternalMultiAgentEnv):
    """Episodes in which agents appear, act, wait and end at random; `rows` has what the rows must be.

    The observation of an agent is (1000 * episode + agent, turn). A row is (observation, reward): it opens when its
    agent acts, and has all rewards until the agent is seen again or ends.
    """

    LOOPS, EPISODES = 3, 6

    def __init__(self, config):
        super().__init__(CHOICE, BOX)
        self.rng = np.random.default_rng(config["seed"])
        self.rows, self.errors, self.numbers = [], [], iter(range(self.LOOPS * self.EPISODES))
        self.lock, self.left = threading.Lock(), self.LOOPS

    def run(self):
        loops = [threading.Thread(target=self.loop, args=(rng,)) for rng in self.rng.spawn(self.LOOPS)]
        for each in loops:
            each.start()
        for each in loops:
            each.join()

    def loop(self, rng):
        try:
            for number in iter(self.next_number, None):
                self.play(number, rng)
            while True:  # rows of others close while these episodes go on
                self.play(None, rng)
        except RunEnded:
            pass
        except Exception as error:
            self.errors.append(error)

    def next_number(self):
        with self.lock:
            number = next(self.numbers, None)
            self.left -= number is None
        return number

    def play(self, number, rng):
        episode, alive, ended, reward, opened = self.start_episode(), [], [], {}, {}
        first = 10**6 if number is None else 1000 * number

        def close(agents):
            for agent in agents:
                if (turn := opened.pop(agent, None)) is not None and number is not None:
                    self.rows.append((first + agent, turn, reward[agent]))

        count = 0
        for turn in range(int(rng.integers(2, 12))):
            if turn == 0 or rng.random() < 0.4:
                alive += range(count, count := count + int(rng.integers(1, 8)))
            acting = [agent for agent in alive if rng.random() < 0.7] or alive[:1]
            seen = {agent: np.array([first + agent, turn], np.float32) for agent in acting + ended}
            close(acting + ended)
            self.get_action(episode, seen)
            for agent in acting:
                opened[agent], reward[agent] = turn, 0.0
            given = {agent: float(rng.integers(0, 5)) for agent in alive if rng.random() < 0.6}
            for agent in given.keys() & opened.keys():
                reward[agent] += given[agent]
            ended = [agent for agent in alive[1:] if agent in reward and rng.random() < 0.15]  # it has been seen
            alive = [agent for agent in alive if agent not in ended]
            self.log_returns(episode, given, None, dict.fromkeys(ended, True))
        close(list(opened))
        self.end_episode(episode, {agent: np.array([first + agent, 99], np.float32) for agent in alive})


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 60))])
@pytest.mark.parametrize("mode", ["truncate_episodes", "complete_episodes"])
def test_rows_of_agents_that_come_and_go_at_random(mode, seed):
    config = PPOConfig().environment(Scripted, env_config={"seed": seed}).debugging(seed=0)
    config.rollouts(num_rollout_workers=0, rollout_fragment_length=5, batch_mode=mode)
    small(config, 5).multi_agent(policies={"even", "odd"}, policy_mapping_fn=lambda a, *_, **__: ("even", "odd")[a % 2])
    found = []
    with config.build() as algorithm:
        env = environment(algorithm)
        for _ in range(400):
            is_over = env.left == 0
            for rows in algorithm.sample(1).policy_batches.values():
                for (agent, turn), reward in zip(rows[sb.OBS], rows[sb.REWARDS]):
                    if agent < 10**6:
                        found.append((int(agent), int(turn), float(reward)))
            if is_over and len(found) >= len(env.rows):
                break
        assert env.errors == []
        assert sorted(found) == sorted(env.rows), f"seed {seed}"


class SeenAgain(ExternalMultiAgentEnv):
    """Agent a ends, and has an observation afterwards."""

    def __init__(self, config):
        super().__init__(CHOICE, BOX)
        self.errors = []

    def run(self):
        seen = np.zeros(2, np.float32)
        while True:
            episode = self.start_episode()
            self.get_action(episode, {"a": seen, "b": seen})
            self.log_returns(episode, {"a": 1.0, "b": 1.0}, None, {"a": True})
            self.get_action(episode, {"a": seen, "b": seen})
            try:
                self.get_action(episode, {"a": seen})
            except ValueError as error:
                self.errors.append(str(error))
            self.get_action(episode, {"b": seen})
            self.end_episode(episode, {"a": seen, "b": seen})


def test_an_agent_that_has_ended_acts_no_more():
    config = PPOConfig().environment(SeenAgain).rollouts(num_rollout_workers=0, rollout_fragment_length=6)
    small(config, 6).multi_agent(policies={"p"}, policy_mapping_fn=lambda agent, *_, **__: "p")
    with config.debugging(seed=0).build() as algorithm:
        algorithm.sample(6)
        assert "agent 'a' has ended in episode" in environment(algorithm).errors[0]


def test_the_exception_of_a_loop_is_that_of_train():
    with build(episodes=2, length=5, raises=True) as algorithm, pytest.raises(KeyError, match="own") as caught:
        algorithm.train()
    assert any("in run() of the external environment of rollout worker 0" in note for note in caught.value.__notes__)


def test_a_loop_that_returns_is_named():
    with build(episodes=3, length=5) as algorithm, pytest.raises(RuntimeError, match="returned after 3 episodes"):
        algorithm.train()


def test_a_silent_loop_is_named():
    class Waits(ExternalEnv):
        def run(self):
            threading.Event().wait()

    config = PPOConfig().environment(lambda _: Waits(CHOICE, BOX)).rollouts(num_rollout_workers=0)
    silent = pytest.raises(SampleTimeoutError, match=r"the .* was not asked for an action for 0.2 s")
    with config.rollouts(sample_timeout_s=0.2).build() as algorithm, silent:
        algorithm.train()


def only_untrained(loop):
    episode = loop.start_episode(training_enabled=False)
    for _ in range(5):
        loop.get_action(episode, loop.seen)
        time.sleep(0.005)
    loop.end_episode(episode, loop.seen)


def only_endless_untrained(loop):
    episode = loop.start_episode(training_enabled=False)
    while True:
        loop.get_action(episode, loop.seen)
        time.sleep(0.005)


def only_logged(loop):
    episode = loop.start_episode()
    for _ in range(5):
        loop.log_action(episode, loop.seen, loop.acted)
        time.sleep(0.005)
    loop.end_episode(episode, loop.seen)


def untrained_beside_one_that_stops(loop):
    episode = loop.start_episode()
    for _ in range(3):
        loop.get_action(episode, loop.seen)
    only_endless_untrained(loop)


class Plays:
    """Plays as the config says, again and again."""

    def __init__(self, config):
        super().__init__(CHOICE, BOX)
        self.play = config["play"]

    def run(self):
        try:
            while True:
                self.play(self)
        except (EpisodeLost, RunEnded):
            threading.Event().wait()


class Lone(Plays, ExternalEnv):
    seen, acted = np.zeros(2, np.float32), 1


class Two(Plays, ExternalMultiAgentEnv):
    seen, acted = dict.fromkeys("ab", Lone.seen), {"a": 1, "b": 1}


@pytest.mark.parametrize("mode", ["truncate_episodes", "complete_episodes"])
@pytest.mark.parametrize("play", [only_untrained, only_endless_untrained, only_logged, untrained_beside_one_that_stops])
@pytest.mark.parametrize("env", [Lone, Two])
def test_steps_that_are_not_learned_from_do_not_keep_a_run_waiting(env, play, mode):
    config = small(PPOConfig(), 40).environment(env, env_config={"play": play})
    config.rollouts(num_rollout_workers=0, batch_mode=mode, rollout_fragment_length=40, sample_timeout_s=0.5)
    if env is Two:
        config.multi_agent(policies={"p"}, policy_mapping_fn=lambda agent, *_, **__: "p")
    silent = pytest.raises(SampleTimeoutError, match="has got steps that are not learned from alone")
    with config.build() as algorithm, silent:
        algorithm.sample(40)


def test_a_restored_run_goes_on_with_new_episodes(tmp_path):
    with build(length=10, fragment=20, loops=3) as algorithm:
        algorithm.train()
        env = environment(algorithm)
        for number in range(20):  # a loop may be between two episodes, of which it then loses none
            algorithm.restore(algorithm.save(tmp_path / f"checkpoint-{number}"))
            algorithm.train()
            if env.errors:
                break
        assert env.errors and all(isinstance(error, EpisodeLost) for error in env.errors)
        assert algorithm.timesteps >= 40
    assert env.ended.wait(20) and sum(isinstance(error, RunEnded) for error in env.errors) == 3


def test_no_row_reaches_from_a_lost_episode_into_the_one_that_follows(tmp_path):
    """Rows that wait for further rewards at a restore are dropped with their episode."""
    config = DQNConfig().environment(Counting, env_config={"length": 50}).training(n_step=3, gamma=1.0)
    config.rollouts(num_rollout_workers=0, rollout_fragment_length=7)
    with config.debugging(seed=1).build() as algorithm:
        for number in (0, 1000):  # the second is the loop's next episode
            batch = algorithm.sample(7)
            assert batch[sb.OBS].tolist() == [[number, step] for step in range(5)]
            assert batch[sb.NEXT_OBS].tolist() == [[number, step + 3] for step in range(5)]
            assert batch[sb.REWARDS].tolist() == [3 * step + 3 for step in range(5)]
            algorithm.restore(algorithm.save(tmp_path / str(number)))


def test_one_environment_a_worker():
    config = PPOConfig().environment(Counting).rollouts(num_envs_per_worker=2)
    with pytest.raises(ValueError, match=r"one worker has one of it, but num_envs_per_worker=2"):
        config.build()


def test_it_is_not_evaluated_by_the_library():
    with build() as algorithm, pytest.raises(RuntimeError, match="training_enabled=False"):
        algorithm.evaluate()
    config = PPOConfig().environment(Counting).evaluation(evaluation_interval=1)
    with pytest.raises(ValueError, match="evaluation_config="):
        config.build()


@pytest.mark.parametrize("workers", [0, 1])
def test_it_is_known_without_a_check(workers):
    config = (
        PPOConfig()
        .environment(Counting, disable_env_checking=True, observation_space=BOX, action_space=CHOICE)
        .rollouts(num_rollout_workers=workers, rollout_fragment_length=20)
    )
    with small(config, 20).build() as algorithm:
        assert algorithm.train()["timesteps_total"] == 20


def test_a_function_that_makes_one_without_a_check_is_refused():
    config = PPOConfig().environment(
        lambda config: Counting(config), disable_env_checking=True, observation_space=BOX, action_space=CHOICE
    )
    with pytest.raises(TypeError, match=r"drives its own loop, .* Leave observation_space and action_space out"):
        config.rollouts(num_rollout_workers=0).build()


def test_workers_have_loops_of_their_own():
    config = PPOConfig().environment(Counting).rollouts(num_rollout_workers=2, rollout_fragment_length=20)
    with small(config, 40).build() as algorithm:
        result = algorithm.train()
        assert result["timesteps_total"] == 40 and result["num_healthy_workers"] == 2


@pytest.mark.parametrize("config", [A3CConfig, ESConfig])
def test_algorithms_that_step_environments_themselves_are_refused(config):
    with pytest.raises(ValueError, match="does not learn from an environment that drives its own loop"):
        config().environment(Counting).rollouts(num_rollout_workers=0).build()


@pytest.mark.parametrize("config", [SACConfig, IMPALAConfig, R2D2Config, PGConfig, PQNConfig, ApexDQNConfig])
def test_algorithms_learn_from_it(config):
    config = config().environment(Counting, env_config={"length": 10, "loops": 2}).rollouts(num_rollout_workers=0)
    if isinstance(config, ApexDQNConfig):
        config.rollouts(num_rollout_workers=1)
    if isinstance(config, R2D2Config):
        config.training(model={"use_lstm": True})
    config.reporting(min_sample_timesteps_per_iteration=50, min_time_s_per_iteration=0)
    with config.debugging(seed=3).build() as algorithm:
        result = algorithm.train()
        assert result["timesteps_total"] >= 50 and result["episodes_total"] > 0


class TakingTurns(ExternalMultiAgentEnv):
    """Agents a and b act in turns, and each waits while the other acts. Somebody else acts for the agent `logged`."""

    def __init__(self, config):
        super().__init__(CHOICE, BOX)
        self.logged = config["logged"]

    def run(self):
        with contextlib.suppress(RunEnded):
            while True:
                episode = self.start_episode()
                for step in range(10):
                    agent = "ab"[step % 2]
                    seen = {agent: np.array(["ab".index(agent), step], np.float32)}
                    if agent == self.logged:
                        self.log_action(episode, seen, {agent: 2})
                    else:
                        self.get_action(episode, seen)
                    self.log_returns(episode, {agent: 1.0})
                self.end_episode(episode, {agent: np.zeros(2, np.float32) for agent in "ab"})


@pytest.mark.parametrize("logged", ["a", "b"])
@pytest.mark.parametrize("mode", ["truncate_episodes", "complete_episodes"])
def test_rows_of_an_agent_that_waits_are_its_own_actions(logged, mode):
    """They are learned from, or left out, by who has acted for it: not by who acts for another while it waits."""
    config = small(PPOConfig(), 20).environment(TakingTurns, env_config={"logged": logged})
    config.rollouts(num_rollout_workers=0, batch_mode=mode, rollout_fragment_length=20)
    config.multi_agent(policies={"p"}, policy_mapping_fn=lambda *_, **__: "p")
    with config.build() as algorithm:
        for _ in range(2):
            batch = algorithm.sample(20).policy_batches["p"]
            assert len(batch) >= 8
            assert set(batch[sb.OBS][:, 0]) == {"ba".index(logged)}, "the agent that somebody else has acted for"
