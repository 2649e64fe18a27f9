"""A reward that comes after an agent's end counts in its return, and in no row, whatever kind the environment is of.

"a" dies with the second step of an episode of five; both agents are paid 1 in each step.
"""

import contextlib
import threading

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from pettingzoo import AECEnv, ParallelEnv

from rllib import PolicyClient
from rllib.algorithms.pg import PGConfig
from rllib.client import RunEnded
from rllib.env.external import ExternalMultiAgentEnv
from rllib.env.multi_agent import BrokenRule, MultiAgentEnv

OBSERVATIONS, ACTIONS = Box(-1, 99, (1,), np.float32), Discrete(2)
LENGTH, DEATH = 5, 2
PAID = {"a": 1.0, "b": 1.0}


def seen(time):
    """Observations at this time: "a" has its last one when it dies."""
    return {agent: np.array([time], np.float32) for agent in "ab" if agent == "b" or time <= DEATH}


def dead(time):
    return {"a": True} if time == DEATH else {}


class Stepped(MultiAgentEnv):
    possible_agents, observation_space, action_space = ("a", "b"), OBSERVATIONS, ACTIONS

    def __init__(self, config=None):
        self.time = 0

    def reset(self, *, seed=None, options=None):
        self.time = 0
        return seen(0), {}

    def step(self, action_dict):
        self.time += 1
        return seen(self.time), PAID, {**dead(self.time), "__all__": self.time == LENGTH}, {"__all__": False}, {}


class OfPettingZoo:
    metadata, render_mode, possible_agents = {"name": "paid"}, None, ["a", "b"]

    def __init__(self, config=None):
        pass

    def observation_space(self, agent):
        return OBSERVATIONS

    def action_space(self, agent):
        return ACTIONS


class Parallel(OfPettingZoo, ParallelEnv):
    def reset(self, seed=None, options=None):
        self.time, self.agents = 0, ["a", "b"]
        return seen(0), {agent: {} for agent in self.agents}

    def step(self, actions):
        self.time += 1
        ends = {agent: bool(dead(self.time).get(agent)) or self.time == LENGTH for agent in self.agents}
        seen_now, never = seen(self.time), dict.fromkeys(self.agents, False)
        self.agents = [agent for agent in self.agents if not ends[agent]]
        return seen_now, dict(PAID), ends, never, {agent: {} for agent in ends}


class InTurns(OfPettingZoo, AECEnv):
    """Both are paid with each move of "b". "a" dies by its own second move, and stays in `agents` until its turn."""

    def reset(self, seed=None, options=None):
        self.time, self.agents, self.agent_selection = 0, ["a", "b"], "a"
        self.rewards, self._cumulative_rewards = dict.fromkeys("ab", 0.0), dict.fromkeys("ab", 0.0)
        self.terminations, self.truncations = dict.fromkeys("ab", False), dict.fromkeys("ab", False)
        self.infos = {"a": {}, "b": {}}

    def observe(self, agent):
        return np.array([self.time], np.float32)

    def step(self, action):
        agent = self.agent_selection
        if self.terminations[agent]:
            self._was_dead_step(action)
            self.agent_selection = "b"
            return
        self.rewards = dict.fromkeys(self.agents, 0.0)
        if agent == "b":
            self.time += 1
            self.rewards = {each: PAID[each] for each in self.agents}
            self.terminations["b"] = self.time == LENGTH
        else:
            self.terminations["a"] = self.time + 1 == DEATH
        self.agent_selection = "b" if agent == "a" or "a" not in self.agents else "a"


class Outside(ExternalMultiAgentEnv):
    def __init__(self, config=None):
        super().__init__(ACTIONS, OBSERVATIONS)

    def run(self):
        while True:
            play(self)


def play(env):
    """Plays an episode, by the methods that environments from outside and clients share."""
    episode = env.start_episode()
    for time in range(LENGTH):
        env.get_action(episode, seen(time))
        env.log_returns(episode, PAID, None, dead(time + 1))
    env.end_episode(episode, seen(LENGTH))


def play_by_client(url):
    with contextlib.suppress(RunEnded), PolicyClient(url) as client:
        while True:
            play(client)


# What an environment is, the rewards of the rows of "a" in an episode, and its return.
KINDS = {
    "MultiAgentEnv": (Stepped, [1.0, 1.0], 5.0),
    "ParallelEnv": (lambda config: Parallel(), [1.0, 1.0], 5.0),
    "AECEnv": (lambda config: InTurns(), [1.0, 0.0], 2.0),
    "ExternalMultiAgentEnv": (Outside, [1.0, 1.0], 5.0),
    "clients": (None, [1.0, 1.0], 5.0),
}


@pytest.mark.parametrize("kind", KINDS)
def test_it_counts_in_the_return_alone(kind):
    env, rewards, total = KINDS[kind]
    config = PGConfig().rollouts(num_rollout_workers=0, rollout_fragment_length=20).training(train_batch_size=20)
    if env is None:
        config.environment(observation_space=OBSERVATIONS, action_space=ACTIONS).external(listen="127.0.0.1:0")
    else:
        config.environment(env)
    config.multi_agent(policies=["a", "b"], policy_mapping_fn={"a": "a", "b": "b"})
    with config.build() as algorithm:
        if env is None:
            url = algorithm.workers.local_worker().stream.environments[0].url
            threading.Thread(target=play_by_client, args=(url,), daemon=True).start()
        rows = algorithm.sample(20).policy_batches["a"]["rewards"].tolist()
        count = len(rows) // 2
        assert count > 1 and rows[: 2 * count] == rewards * count
        episodes = algorithm.metrics.episodes
        assert [episode.agent_returns["a", "a"] for episode in episodes] == [total] * len(episodes)
        assert len(episodes) >= count - 1


def test_an_observation_after_the_end_is_refused():
    class ComesBack(Stepped):
        def step(self, action_dict):
            observations, *others = super().step(action_dict)
            return {**observations, "a": np.zeros(1, np.float32)}, *others

    with pytest.raises(BrokenRule, match="has an observation at step 3"):
        PGConfig().environment(ComesBack).multi_agent(policies="own").build()
