"""Rows of n steps and sequences stay within the life of one agent, however its episode goes on and ends.

A world of random episodes writes down each agent's steps. Observations are (episode, agent, step of the agent), and
rewards are whole numbers that are drawn once, so a row of n steps can be read: which steps it sums up, and where it
ends. Gamma is 0.5, so all sums are exact.
"""

import itertools
from collections import Counter

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from rllib import sample_batch as sb
from rllib.algorithms.dqn import DQNConfig
from rllib.algorithms.r2d2 import R2D2Config
from rllib.env.external import ExternalMultiAgentEnv
from rllib.env.external.exchange import AgentRefused, RunEnded
from rllib.env.multi_agent import MultiAgentEnv
from rllib.evaluation.postprocess.sequences import BOOTSTRAP_AT, BURN_IN

OBSERVATIONS, ACTIONS = Box(-1e9, 1e9, (3,), np.float32), Discrete(2)
GAMMA = 0.5
TIME_LIMIT = 12
# Ways in which an episode ends.
TERMINATED, TRUNCATED, CRASHED, GIVEN_UP = "terminated", "truncated", "crashed", "given up"
ALL = "__all__"


class Life:
    """The steps of an agent in an episode.

    Attributes:
        rewards: of each step that is over.
        waiting: rewards since the agent's newest action; None while it has not acted.
        terminated: whether the task ended with the last step.
        is_over: whether no more steps follow.
    """

    def __init__(self):
        self.rewards, self.waiting, self.terminated, self.is_over = [], None, False, False


class World:
    """What has happened in all episodes of a run.

    Args:
        ends: ways in which episodes end.
        num_agents: function of the number of an episode.
    """

    def __init__(self, ends, num_agents):
        self.ends, self.num_agents = ends, num_agents
        self.numbers, self.rewards = itertools.count(), itertools.count(1)
        self.lives: dict[tuple[int, int], Life] = {}
        self.num_ended = Counter()


class Random:
    """A random episode: agents come late, wait, are rewarded while they wait, and die."""

    def __init__(self, world: World):
        self.world, self.number = world, next(world.numbers)
        self.rng = np.random.default_rng(self.number)
        self.time, self.agents = 0, range(world.num_agents(self.number))
        self.lives = {agent: Life() for agent in self.agents}
        self.acting: set[int] = set()
        world.lives |= {(self.number, agent): life for agent, life in self.lives.items()}

    def first(self) -> dict[int, np.ndarray]:
        """The first observations."""
        return self._observed([agent for agent in self.agents if self.rng.random() < 0.7] or [0])

    def _observed(self, agents) -> dict[int, np.ndarray]:
        self.acting = {agent for agent in agents if not self.lives[agent].is_over}
        seen = {}
        for agent in agents:
            life = self.lives[agent]
            seen[agent] = np.array([self.number, agent, len(life.rewards)], np.float32)
        return seen

    def step(self):
        """Makes a step: (observations, rewards, {agent: terminated}, way in which the episode ends or "")."""
        world, rng = self.world, self.rng
        self.time += 1
        for agent in self.acting:
            self.lives[agent].waiting = 0
        end = rng.choice(world.ends) if rng.random() < 0.12 else ""
        if self.time == TIME_LIMIT and not end:
            end = TRUNCATED
        if end in (CRASHED, GIVEN_UP):
            self._end(dict.fromkeys(self.agents, False), ())
            world.num_ended[end] += 1
            return {}, {}, {}, end
        living = [agent for agent, life in self.lives.items() if not life.is_over]
        rewards = {agent: next(world.rewards) % 4096 for agent in living if rng.random() < 0.7}
        for agent, reward in rewards.items():
            if self.lives[agent].waiting is not None:
                self.lives[agent].waiting += reward
        seen = [agent for agent in living if rng.random() < 0.6]
        has_acted = [agent for agent in living if self.lives[agent].rewards or self.lives[agent].waiting is not None]
        dying = {agent: bool(rng.random() < 0.5) for agent in has_acted if rng.random() < 0.08}
        if len(dying) == len(living):
            end = TERMINATED
        ending = dying if not end else {agent: end == TERMINATED or dying.get(agent, False) for agent in living}
        self._end(ending, seen)
        for agent in seen:
            self._close(self.lives[agent])
        world.num_ended[end] += bool(end)
        return self._observed(seen), rewards, dying, end

    def _close(self, life: Life) -> None:
        if life.waiting is not None:
            life.rewards.append(life.waiting)
            life.waiting = None

    def _end(self, ending: dict[int, bool], seen) -> None:
        """Ends lives, each by termination or not: without a last observation, only that closes the last step."""
        for agent, terminated in ending.items():
            life = self.lives[agent]
            if life.is_over:
                continue
            if terminated and life.waiting is not None:
                self._close(life)
                life.terminated = True
            elif agent in seen:
                self._close(life)
            life.is_over = True


class Door(MultiAgentEnv):
    """Steps a world."""

    observation_space, action_space = OBSERVATIONS, ACTIONS
    world: World

    def reset(self, *, seed=None, options=None):
        self.episode = Random(self.world)
        return self.episode.first(), {}

    def step(self, action_dict):
        assert action_dict.keys() == self.episode.acting
        observations, rewards, dying, end = self.episode.step()
        if end == CRASHED:
            raise RuntimeError("broken")
        terminateds = {agent: terminated for agent, terminated in dying.items() if terminated}
        truncateds = {agent: True for agent, terminated in dying.items() if not terminated}
        terminateds[ALL], truncateds[ALL] = end == TERMINATED, end == TRUNCATED
        return observations, rewards, terminateds, truncateds, {}


class Outside(ExternalMultiAgentEnv):
    """Plays episodes of a world from outside, of which there are more and more at once."""

    world: World

    def __init__(self, config):
        super().__init__(ACTIONS, OBSERVATIONS)

    def run(self):
        rng, running, steps = np.random.default_rng(0), [], 0
        while True:
            while len(running) < min(1 + steps // 60, 7):
                episode = Random(self.world)
                running.append((episode, self.start_episode(), [episode.first()]))
            episode, name, seen = running[rng.integers(len(running))]
            try:
                steps += 1
                self.get_action(name, seen.pop())
                end = self.follow(episode, name, seen)
            except RunEnded:
                return
            if end:
                running.remove((episode, name, seen))

    def follow(self, episode, name, seen) -> str:
        observations, rewards, dying, end = episode.step()
        if end == GIVEN_UP:
            with pytest.raises(AgentRefused):
                self.get_action(name, {"stranger": np.zeros(3, np.float32)})
            return end
        terminated = {agent: True for agent, flag in dying.items() if flag}
        truncated = {agent: True for agent, flag in dying.items() if not flag}
        self.log_returns(name, rewards, None, terminated, truncated_dict=truncated)
        if end:
            self.end_episode(name, observations, truncated=end == TRUNCATED)
        seen.append(observations)
        return end


def policy_of(agent, episode, worker, **kwargs):
    if agent == "stranger":
        raise KeyError(agent)
    return "p"


def built(door, world, fragment, config=DQNConfig, **training):
    kind = type(door.__name__, (door,), {"world": world})
    config = config().environment(kind).debugging(seed=1)
    config.multi_agent(policies={"p"}, policy_mapping_fn=policy_of)
    config.rollouts(num_rollout_workers=0, num_envs_per_worker=1 if door is Outside else 2)
    config.rollouts(rollout_fragment_length=fragment, batch_mode="truncate_episodes")
    config.fault_tolerance(restart_failed_sub_environments=door is Door)
    config.training(gamma=GAMMA, num_steps_sampled_before_learning_starts=10**6, **training)
    return config.training(replay_buffer_config={"type": "ReplayBuffer", "capacity": 10}).build()


def sampled(algorithm, num_steps):
    """The rows of the policy that samples of about this number of steps bring."""
    rows = []
    while (count := algorithm.timesteps) < num_steps:
        rows.append(algorithm.sample(1).policy_batches.get("p", {}))
        assert algorithm.timesteps > count
    return [each for each in rows if each]


def steps_of(rows):
    """(observation, reward, discount, what followed, whether it may have fewer than n steps) of each row."""
    if BURN_IN not in rows:
        return zip(rows[sb.OBS], rows[sb.REWARDS], rows[sb.DISCOUNTS], rows[sb.NEXT_OBS], itertools.repeat(False))
    found = []
    for i, (burn_in, length) in enumerate(zip(rows[BURN_IN], rows[sb.SEQ_LENS])):
        obs, count = rows[sb.OBS][i], burn_in + length
        assert (obs[: count + 1, :2] == obs[0, :2]).all() and (np.diff(obs[:count, 2]) == 1).all()
        for t in range(burn_in, count):
            at = rows[BOOTSTRAP_AT][i, t]
            found.append((obs[t], rows[sb.REWARDS][i, t], rows[sb.DISCOUNTS][i, t], obs[at], at == count))
    return found


def check(batches, world, n_step, known_from):
    """Reads all rows; returns the number of steps of each life that they have. Earlier episodes are not sampled."""
    followed, lengths = {}, Counter()
    for rows in batches:
        for seen, reward, discount, following, is_sequence_end in steps_of(rows):
            episode, agent, step = map(int, seen)
            life = world.lives[episode, agent]
            assert (episode, agent, step) not in followed, "twice"
            if discount:
                assert (int(following[0]), int(following[1])) == (episode, agent)
                end = int(following[2])
            else:
                assert life.terminated
                end = len(life.rewards)
            length = end - step
            assert 0 < length <= n_step
            assert reward == sum(GAMMA**k * life.rewards[step + k] for k in range(length))
            assert discount == (0 if life.terminated and end == len(life.rewards) else GAMMA**length)
            followed[episode, agent, step] = end, is_sequence_end
            lengths[episode, agent] = max(lengths[episode, agent], end)
    for (episode, agent, step), (end, is_sequence_end) in followed.items():
        assert end - step == n_step or is_sequence_end or end == lengths[episode, agent], "shorter than n steps"
        assert not step or episode < known_from or (episode, agent, step - 1) in followed, "a step is missing"
    return Counter((episode, agent) for episode, agent, _ in followed)


@pytest.mark.parametrize("n_step", [1, 3, 5])
@pytest.mark.parametrize("fragment", [1, 3, 20])
@pytest.mark.parametrize("door", [Door, Outside])
def test_rows_of_n_steps(door, fragment, n_step):
    whole_lives(door, fragment, n_step)


@pytest.mark.parametrize("fragment", [1, 3, 20])
@pytest.mark.parametrize("door", [Door, Outside])
def test_sequences(door, fragment):
    model = {"use_lstm": True, "lstm_cell_size": 4, "max_seq_len": 3, "fcnet_hiddens": [4]}
    options = {"model": model, "config": R2D2Config}
    whole_lives(door, fragment, 2, **options)


def whole_lives(door, fragment, n_step, **options):
    ends = [TERMINATED, TRUNCATED, CRASHED if door is Door else GIVEN_UP]
    world = World(ends, lambda number: 3)
    model = {"model": {"fcnet_hiddens": [4]}}
    with built(door, world, fragment, n_step=n_step, **{**model, **options}) as algorithm:
        first = next(world.numbers)  # the check of the environment has played those before
        batches = sampled(algorithm, 450)
        newest = next(world.numbers) - 8
        batches += sampled(algorithm, algorithm.timesteps + 60)
    lengths = check(batches, world, n_step, first)
    over = {key: life for key, life in world.lives.items() if first < key[0] < newest}
    assert len(over) > 90 and all(world.num_ended[end] > 2 for end in ends)
    assert {key: lengths[key] for key in over} == {key: len(life.rewards) for key, life in over.items()}


@pytest.mark.parametrize("config", [DQNConfig, R2D2Config])
def test_steps_that_were_sampled_are_kept_where_lanes_grow_with_the_agents(config):
    """The episodes start over, since more agents are there than slots; what was sampled before is learned from."""
    world = World([TERMINATED, TRUNCATED], lambda number: 1 + number // 8)
    model = {"fcnet_hiddens": [4]}
    if config is R2D2Config:
        model |= {"use_lstm": True, "lstm_cell_size": 4, "max_seq_len": 100}
    with built(Door, world, 1, config=config, n_step=3, model=model) as algorithm:
        first = next(world.numbers)
        batches, num_slots = [], set()
        while algorithm.timesteps < 400:
            batches += sampled(algorithm, algorithm.timesteps + 2)
            num_slots.add(algorithm.workers.local_worker()._num_slots["p"])
        (running,) = algorithm.workers.foreach_env(lambda env: env.episode.number)
    assert len(num_slots) > 2
    # The last step of a life may be of a fragment that was given up, since lanes had to grow.
    sampled_lives = {key for key, life in world.lives.items() if key[0] > first and len(life.rewards) > 1}
    assert check(batches, world, 3, first).keys() >= {key for key in sampled_lives if key[0] not in running}
