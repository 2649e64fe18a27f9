"""Scripted episodes as environments: one agent, several agents."""

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete

from rllib.env.multi_agent import MultiAgentEnv
from tests.witness.script import (
    ACTION_REWARD,
    BASE,
    BOTH,
    CRASHED,
    OBSERVATION_SIZE,
    TERMINATED,
    TRUNCATED,
    Episode,
    Family,
    cost,
    episode,
    observation,
)

OBSERVATIONS, ACTIONS = Box(0.0, 1.0, (OBSERVATION_SIZE,), np.float32), Discrete(2)
ALL = "__all__"


class ScriptedCrashError(RuntimeError):
    """The environment fails, as its script says."""


class Player:
    """Goes through the episodes of one environment.

    Args:
        family: what the scripts may contain.
    """

    def __init__(self, family: Family):
        self.family, self.serial, self.number = family, -1, -1
        self.episode: Episode | None = None

    def reset(self, seed: int | None) -> list[int]:
        """Begins the next episode; returns the agents that are there."""
        if seed is not None:
            self.serial, self.number = seed % BASE**4, -1
        assert self.serial >= 0, "the first reset has a seed"
        self.number += 1
        self.episode, self.time = episode(self.family, self.serial, self.number), 0
        self._steps = {}
        self._open = set()
        return self.episode.first

    def observe(self, agent: int) -> np.ndarray:
        return observation(self.serial, self.number, agent, self._steps.get(agent, 0))

    def cost(self, agent: int) -> float:
        """Cost of the agent's next step."""
        return cost(self.serial, self.number, agent, self._steps.get(agent, 0))

    def step(self, acting):
        """The next event. Raises ScriptedCrashError where the script says so."""
        event = self.episode.events[self.time]
        assert sorted(acting) == event.acting, f"{sorted(acting)} act, not {event.acting}"
        self.time += 1
        self._open |= set(acting)
        if event.end == CRASHED:
            raise ScriptedCrashError("as the script says")
        for agent in {*event.seen, *event.terminated}:
            if agent in self._open:
                self._open.discard(agent)
                self._steps[agent] = self._steps.get(agent, 0) + 1
        return event


class Single(gymnasium.Env):
    """An environment with one agent."""

    observation_space, action_space = OBSERVATIONS, ACTIONS

    def __init__(self, config):
        self.player = Player(config["family"])

    def reset(self, *, seed=None, options=None):
        self.player.reset(seed)
        return self.player.observe(0), {}

    def step(self, action):
        info = {"cost": self.player.cost(0)}
        event = self.player.step([0])
        reward = event.rewards[0] + ACTION_REWARD * self.number(action)
        return self.player.observe(0), reward, event.end in (TERMINATED, BOTH), event.end in (TRUNCATED, BOTH), info

    @staticmethod
    def number(action) -> float:
        """An action as a number."""
        return float(np.asarray(action).item())


class Continuous(Single):
    """The same with actions of one number between bounds that are not symmetric."""

    action_space = Box(-1.0, 3.0, (1,), np.float32)


class Several(MultiAgentEnv):
    """An environment with several agents, who come late, wait and die."""

    observation_space, action_space = OBSERVATIONS, ACTIONS

    def __init__(self, config):
        super().__init__()
        self.player = Player(config["family"])
        # Else the end of all that have come would end the episode, and others may come later.
        self.possible_agents = list(range(config["family"].num_agents))
        self._own = {}

    def reset(self, *, seed=None, options=None):
        self._own = {}
        return {agent: self.player.observe(agent) for agent in self.player.reset(seed)}, {}

    def step(self, action_dict):
        event = self.player.step(action_dict)
        rewards = dict(event.rewards)
        for agent, action in action_dict.items():
            rewards[agent] = rewards.get(agent, 0.0) + ACTION_REWARD * int(action)
        terminateds = dict.fromkeys(event.terminated, True) | {ALL: event.end in (TERMINATED, BOTH)}
        truncateds = dict.fromkeys(event.truncated, True) | {ALL: event.end in (TRUNCATED, BOTH)}
        observations = {agent: self.player.observe(agent) for agent in event.seen}
        return observations, rewards, terminateds, truncateds, {}
