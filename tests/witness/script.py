"""Scripted episodes: from a seed alone, everything that happens in them, and what each observation says.

An episode is named by (serial, number): the serial of its environment comes from the seed of the environment's first
reset, and the number counts its episodes. Nothing in it depends on actions but one term of each reward, so `lives` says
in any process what every row of a batch must hold.
"""

import functools
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

# Ways in which an episode ends.
TERMINATED, TRUNCATED, BOTH = "terminated", "truncated", "both"
# `step` raises, the process dies in it, or it does not return: nothing of that step is known.
CRASHED, DIED, HUNG = "crashed", "died", "hung"
CRASHES = (CRASHED, DIED, HUNG)
# The episode terminates, and the reset that follows raises.
BEFORE_CRASH = "before crash"
FAILURES = (*CRASHES, BEFORE_CRASH)
# Who is there, acts and sees in an environment with several agents.
# MIXED: agents come late, wait, die and get late rewards; a final observation is not certain.
# TOGETHER: all are there from the reset to the end. PARALLEL: all that live act and see in each step.
# TURNS: one acts and sees at a time; a final observation is not certain. TURNS_SEEN: it is.
MIXED, TOGETHER, PARALLEL, TURNS, TURNS_SEEN = "mixed", "together", "parallel", "turns", "turns seen"
# An observation is a row of digits k / BASE, which float32 holds exactly and a network can tell apart.
BASE = 64
# Seeds below this number are those of environments that the driver checks before a run.
DRIVERS = 16
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
        kind: of environments with several agents.
        limit: number of environment steps after which a time limit around the environment truncates; None: there is
            no such limit.
        limit_is_end: whether a truncation counts as a termination (time_limit_ends_episode).
    """

    ends: tuple[str, ...] = (TERMINATED, TRUNCATED)
    num_agents: int = 1
    longest: int = 12
    end_chance: float = 0.15
    kind: str = MIXED
    limit: int | None = None
    limit_is_end: bool = False


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
        terminated, truncated: agents whose episodes end with it, as the environment says it.
        end: way in which the episode ends for all; "" if it goes on.
        said: the same, as the environment says it: without the time limit around it.
    """

    acting: list[int]
    rewards: dict[int, float]
    seen: list[int]
    terminated: list[int]
    truncated: list[int]
    end: str
    said: str

    @property
    def flags(self) -> tuple[bool, bool]:
        """Whether the environment says that the episode is terminated, and truncated, for all."""
        return self.said in (TERMINATED, BOTH, BEFORE_CRASH), self.said in (TRUNCATED, BOTH)


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
        self.first = self._first()
        seen = self.first
        while not self.events or not self.events[-1].end:
            seen = self._add_event(seen)
        del self._rng

    def _first(self) -> list[int]:
        agents = list(range(self.family.num_agents))
        if len(agents) == 1 or self.family.kind in (TOGETHER, PARALLEL):
            return agents
        if self.family.kind in (TURNS, TURNS_SEEN):
            return [int(self._rng.integers(len(agents)))]
        return [agent for agent in agents if self._rng.random() < 0.7] or [0]

    def _drawn_end(self) -> tuple[str, str]:
        """Way in which the episode ends with the next event, as it is and as the environment says it; "" if not."""
        rng, family, count = self._rng, self.family, len(self.events) + 1
        said = str(rng.choice(family.ends)) if count >= family.longest or rng.random() < family.end_chance else ""
        # An environment is replaced a few times in a row only, and that which is checked in the driver never is.
        if said in FAILURES and (count == 1 or self.serial < DRIVERS):
            said = ""
        end = said
        if count == family.limit and said not in CRASHES:
            end = BOTH if said in (TERMINATED, BOTH) else said or TRUNCATED
        return end, said

    def _seen_next(self, living: list[int]) -> list[int]:
        """Agents that have an observation after the next event, if none dies."""
        rng, kind = self._rng, self.family.kind
        if self.family.num_agents == 1 or kind in (TOGETHER, PARALLEL):
            return living
        if kind in (TURNS, TURNS_SEEN):
            return [living[rng.integers(len(living))]]
        return [agent for agent in living if rng.random() < 0.6]

    def _dying(self, living: list[int]) -> dict[int, bool]:
        """Agents that end before the others -> whether they are terminated."""
        rng = self._rng
        if self.family.num_agents == 1 or self.family.kind == TOGETHER:
            return {}
        has_acted = [agent for agent in living if agent in self.lives]
        return {agent: bool(rng.random() < 0.5) for agent in has_acted if rng.random() < 0.08}

    def _add_event(self, seen: Iterable[int]) -> list[int]:
        rng, family = self._rng, self.family
        acting = [agent for agent in seen if agent not in self._ended]
        for agent in acting:
            self.lives.setdefault(agent, Life([]))
            self._waiting[agent] = 0.0
        end, said = self._drawn_end()
        living = [agent for agent in range(family.num_agents) if agent not in self._ended]
        if end in CRASHES:
            for agent in living:
                self._end(agent, terminated=False, is_seen=False)
            self.events.append(Event(acting, {}, [], [], [], end, said))
            return []
        single = family.num_agents == 1
        rewards = {agent: float(rng.integers(1, 256)) for agent in living if single or rng.random() < 0.7}
        for agent, reward in rewards.items():
            if agent in self._waiting:
                self._waiting[agent] += reward
        seen = self._seen_next(living)
        dying = self._dying(living)
        if len(dying) == len(living) and not end:
            end = said = TERMINATED
        if family.kind in (TURNS, TURNS_SEEN) and not said:  # somebody has the next turn
            left = [agent for agent in living if agent not in dying]
            seen = [agent for agent in seen if agent in left] or left[:1]
        is_over = end in (TERMINATED, BOTH, BEFORE_CRASH)
        ending = {agent: is_over or dying.get(agent, False) for agent in living} if end else dict(dying)
        if not single and family.kind in (PARALLEL, TURNS_SEEN):
            ended = [agent for agent in ending if said or agent in dying]  # as the environment says
            seen = sorted({*seen, *ended}) if not said or family.kind == PARALLEL else sorted(ended)
        terminated, truncated = self._said(living, dying, said)
        for agent, is_terminal in ending.items():
            self._end(agent, is_terminal or (family.limit_is_end and agent in seen), agent in seen)
        for agent in seen:
            if agent not in ending and agent in self._waiting:
                self.lives[agent].rewards.append(self._waiting.pop(agent))
        self.events.append(Event(acting, rewards, seen, terminated, truncated, end, said))
        return seen

    @staticmethod
    def _said(living: list[int], dying: dict[int, bool], said: str) -> tuple[list[int], list[int]]:
        """Agents that are terminated, and truncated, as the environment says it."""
        ending = {agent: dying.get(agent, False) for agent in living} if said else dying
        is_over = said in (TERMINATED, BOTH, BEFORE_CRASH)
        terminated = [agent for agent, flag in ending.items() if flag or is_over]
        truncated = [agent for agent, flag in ending.items() if not (flag or is_over) or said == BOTH]
        return terminated, truncated

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
    """Float32, [OBSERVATION_SIZE]: the digits of the four numbers, and a checksum.

    Raises:
        AssertionError: a number has more digits; the same observation would tell another step.
    """
    digits = []
    for value, (name, count) in zip((serial, number, agent, step), DIGITS.items(), strict=True):
        assert value < BASE**count, f"{name} {value} of a step has more than {count} digits: has the run not ended?"
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
