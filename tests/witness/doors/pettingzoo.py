"""Doors of PettingZoo: parallel environments, and those in which one agent acts at a time (AEC)."""

from contextlib import contextmanager
from typing import ClassVar

from pettingzoo import AECEnv, ParallelEnv

from tests.witness.doors.scripted import Player, check, set_environment


def _name(agent: int) -> str:
    return f"agent_{agent}"


class _Spaces:
    """What both interfaces have in common: names, spaces, the player."""

    def __init__(self, config):
        self.player = Player(config)
        self.numbers = {_name(agent): agent for agent in range(self.player.family.num_agents)}
        self.possible_agents, self.agents = list(self.numbers), []

    def observation_space(self, agent):
        return self.player.form.space

    def action_space(self, agent):
        return self.player.actions.space

    def rewards_of(self, event, own):
        """Rewards by name of this event, with the terms of the actions."""
        rewards = dict.fromkeys(self.agents, 0.0)
        for agent, reward in event.rewards.items():
            rewards[_name(agent)] = reward
        for name, reward in own.items():
            rewards[name] += reward
        return rewards


class Parallel(_Spaces, ParallelEnv):
    """All living agents act in each step."""

    metadata: ClassVar[dict] = {"name": "scripted_parallel"}

    def reset(self, seed=None, options=None):
        self.player.reset(seed)
        self.agents = list(self.possible_agents)
        return self._observations(self.agents), {name: {} for name in self.agents}

    def step(self, actions):
        own = {name: self.player.reward_of(self.numbers[name], action) for name, action in actions.items()}
        event = self.player.step([self.numbers[name] for name in actions])
        acted, rewards = list(self.agents), self.rewards_of(event, own)
        terminations = {name: self.numbers[name] in event.terminated for name in acted}
        truncations = {name: self.numbers[name] in event.truncated for name in acted}
        self.agents = [name for name in acted if not (terminations[name] or truncations[name])]
        return self._observations(acted), rewards, terminations, truncations, {name: {} for name in acted}

    def _observations(self, names):
        return {name: self.player.observe(self.numbers[name]) for name in names}


class Turns(_Spaces, AECEnv):
    """One agent acts at a time; agents that have ended stay until they are stepped with None."""

    metadata: ClassVar[dict] = {"name": "scripted_turns", "is_parallelizable": False}

    def reset(self, seed=None, options=None):
        (first,) = self.player.reset(seed)
        self.agents = list(self.possible_agents)
        self.agent_selection = _name(first)
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict(self.rewards)
        self.terminations, self.truncations = dict.fromkeys(self.agents, False), dict.fromkeys(self.agents, False)
        self.infos = {name: {} for name in self.agents}

    def observe(self, agent):
        return self.player.observe(self.numbers[agent])

    def step(self, action):
        name = self.agent_selection
        if self.terminations[name] or self.truncations[name]:
            check(action is None, "an agent that has ended is stepped with None")
            self._was_dead_step(action)
            if self.agents and not self._ended():
                self.agent_selection = self._next
            return
        own = {name: self.player.reward_of(self.numbers[name], action)}
        event = self.player.step([self.numbers[name]])
        self._cumulative_rewards[name] = 0.0
        self.rewards = self.rewards_of(event, own)
        self._accumulate_rewards()
        for agent in self.agents:
            self.terminations[agent] |= self.numbers[agent] in event.terminated
            self.truncations[agent] |= self.numbers[agent] in event.truncated
        ended = self._ended()
        playing = [_name(agent) for agent in event.seen if _name(agent) not in ended]
        self._next = playing[0] if playing else ""
        self.agent_selection = ended[0] if ended else self._next

    def _ended(self):
        return [name for name in self.agents if self.terminations[name] or self.truncations[name]]


@contextmanager
def parallel(config, family, case):
    """PettingZoo's ParallelEnv."""
    set_environment(config, Parallel, family, case)
    yield


@contextmanager
def turns(config, family, case):
    """PettingZoo's AECEnv."""
    set_environment(config, Turns, family, case)
    yield
