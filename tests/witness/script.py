"""Scripted episodes: from a seed alone, everything that happens in them, and what each observation says.

An episode is named by (serial, number): the serial of its environment comes from the seed of the environment's first
reset, and the number counts its episodes. Nothing in it depends on actions but one term of each reward, so `lives` says
in any process what every row of a batch must hold.
"""

import functools
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

# Ways in which an episode ends. CRASHED: `step` raises, and nothing of that step is known.
TERMINATED, TRUNCATED, BOTH, CRASHED = "terminated", "truncated", "both", "crashed"
# An observation is a row of digits k / BASE, which float32 holds exactly and a network can tell apart.
BASE = 64
DIGITS = {"serial": 4, "number": 2, "agent": 1, "step": 2}
OBSERVATION_SIZE = sum(DIGITS.values()) + 1
# Term of a reward for each unit of the action.
ACTION_REWARD = 0.25


@dataclass(frozen=True)
class Family:
    """What scripts may contain.

    Attributes:
        ends: ways in which episodes end.
        num_agents: in each episode; 1 for environments with one agent, who acts in every step.
        longest: number of environment steps after which an episode ends all the same.
        end_chance: probability of an end in each step.
    """

    ends: tuple[str, ...] = (TERMINATED, TRUNCATED)
    num_agents: int = 1
    longest: int = 12
    end_chance: float = 0.15


@dataclass
class Life:
    """An agent in an episode, by its own steps.

    Attributes:
        rewards: without the term of the action.
        terminated: whether the task ended with the last step.
        is_cut: whether the environment failed, so that what followed the last step is not known.
    """

    rewards: list[float]
    terminated: bool = False
    is_cut: bool = False

    @property
    def length(self) -> int:
        return len(self.rewards)


@dataclass
class Event:
    """A step of the environment.

    Attributes:
        acting: agents that act in it.
        rewards: of agents, without the term of the action.
        seen: agents that have an observation after it.
        terminated, truncated: agents whose episodes end with it.
        end: way in which the episode ends for all; "" if it goes on.
    """

    acting: list[int]
    rewards: dict[int, float]
    seen: list[int]
    terminated: list[int]
    truncated: list[int]
    end: str


class Episode:
    """One scripted episode.

    Args:
        family: what it may contain.
        serial, number: its name.

    Attributes:
        first: agents that are there at the reset.
        events: the steps of the environment.
        lives: agent -> its life, as the rows of its steps must show it.
    """

    def __init__(self, family: Family, serial: int, number: int):
        self.family, self.serial, self.number = family, serial, number
        self._rng = np.random.default_rng((serial, number, family.num_agents, family.longest))
        self.events: list[Event] = []
        self.lives: dict[int, Life] = {}
        self._waiting: dict[int, float] = {}  # agent that has acted and has not seen what followed -> rewards since
        self._ended: set[int] = set()
        agents = range(family.num_agents)
        self.first = [i for i in agents if family.num_agents == 1 or self._rng.random() < 0.7] or [0]
        seen = self.first
        while not self.events or not self.events[-1].end:
            seen = self._add_event(seen)
        del self._rng

    def _add_event(self, seen: Iterable[int]) -> list[int]:
        rng, family = self._rng, self.family
        acting = [agent for agent in seen if agent not in self._ended]
        for agent in acting:
            self.lives.setdefault(agent, Life([]))
            self._waiting[agent] = 0.0
        is_last = len(self.events) + 1 == family.longest
        end = str(rng.choice(family.ends)) if is_last or rng.random() < family.end_chance else ""
        living = [agent for agent in range(family.num_agents) if agent not in self._ended]
        if end == CRASHED:
            for agent in living:
                self._end(agent, terminated=False, is_seen=False)
            self.events.append(Event(acting, {}, [], [], [], end))
            return []
        single = family.num_agents == 1
        rewards = {agent: float(rng.integers(1, 256)) for agent in living if single or rng.random() < 0.7}
        for agent, reward in rewards.items():
            if agent in self._waiting:
                self._waiting[agent] += reward
        seen = [agent for agent in living if single or rng.random() < 0.6]
        dying = {}
        if not single:
            has_acted = [agent for agent in living if agent in self.lives]
            dying = {agent: bool(rng.random() < 0.5) for agent in has_acted if rng.random() < 0.08}
            if len(dying) == len(living) and not end:
                end = TERMINATED
        ending = dict(dying)
        if end:
            ending = {agent: end in (TERMINATED, BOTH) or dying.get(agent, False) for agent in living}
        for agent, terminated in ending.items():
            self._end(agent, terminated, agent in seen)
        for agent in seen:
            if agent not in ending and agent in self._waiting:
                self.lives[agent].rewards.append(self._waiting.pop(agent))
        terminated = [agent for agent, flag in ending.items() if flag]
        truncated = [agent for agent, flag in ending.items() if not flag or end == BOTH]
        self.events.append(Event(acting, rewards, seen, terminated, truncated, end))
        return seen

    def _end(self, agent: int, terminated: bool, is_seen: bool) -> None:
        """Ends a life. A step whose agent was truncated unseen has no row: nothing is known of what followed."""
        self._ended.add(agent)
        reward = self._waiting.pop(agent, None)
        if agent not in self.lives:
            return
        life = self.lives[agent]
        if reward is not None and (terminated or is_seen):
            life.rewards.append(reward)
            life.terminated = terminated
        elif reward is not None:
            life.is_cut = True


@functools.lru_cache(maxsize=10_000)
def episode(family: Family, serial: int, number: int) -> Episode:
    """The episode of this name."""
    return Episode(family, serial, number)


def observation(serial: int, number: int, agent: int, step: int) -> np.ndarray:
    """Float32, [OBSERVATION_SIZE]: the digits of the four numbers, and a checksum."""
    digits = []
    for value, count in zip((serial, number, agent, step), DIGITS.values(), strict=True):
        digits += [value // BASE**k % BASE for k in range(count)]
    return np.array([*digits, sum(digits) % BASE], np.float32) / BASE


def cost(serial: int, number: int, agent: int, step: int) -> float:
    """Cost of a step of the only agent: every third one or so has one, and hardly two are alike."""
    hashed = (serial * 7919 + number * 104729 + agent * 1299709 + step * 15485863) % 1021
    return hashed / 256 if hashed % 3 == 0 else 0.0


def decoded(row: np.ndarray) -> tuple[int, int, int, int]:
    """(serial, number, agent, step) of an observation.

    Raises:
        AssertionError: it is none: its checksum is wrong, or its numbers are no digits.
    """
    digits = np.asarray(row, np.float64) * BASE
    assert np.array_equal(digits, np.round(digits)), f"no digits: {row}"
    digits = [int(digit) for digit in digits]
    assert digits[-1] == sum(digits[:-1]) % BASE, f"wrong checksum: {digits}"
    values, start = [], 0
    for count in DIGITS.values():
        values.append(sum(digits[start + k] * BASE**k for k in range(count)))
        start += count
    return tuple(values)
