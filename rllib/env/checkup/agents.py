"""Checks of environments with several agents: their ids and spaces, steps, repeatable episodes, PettingZoo's tests."""

import contextlib
import copy
import io
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from rllib.env.agents import agent_interface
from rllib.env.checkup.episodes import COMPARED_S, EPISODES_S, difference
from rllib.env.checkup.random_walk import arrays
from rllib.env.checkup.report import Found, one_line
from rllib.env.checkup.subject import SEED, Subject
from rllib.env.multi_agent.agent_spaces import ALL, RESERVED, AgentID, AgentSpaces, known_agents, random_action
from rllib.env.multi_agent.checks import BrokenRule, CheckedAgents
from rllib.env.spaces.supported import check_spaces
from rllib.env.streams.legacy import takes_seed
from rllib.extras import install_hint

_INTERFACES = {
    "dict": "MultiAgentEnv",
    "parallel": "PettingZoo, parallel",
    "turns": "PettingZoo, in turns",
    "arrays": "MultiAgentVectorEnv",
}
TIMED_S = 1.0
# Agents whose spaces are shown in the report.
SHOWN = 4


def agents_check(subject: Subject) -> Iterator[Found]:
    """Ids of the agents, and whether networks read their spaces."""
    env, measured = subject.env, subject.measured
    agents = known_agents(env)
    measured["interface"] = _INTERFACES[agent_interface(subject.given) or "dict"]
    if not list(env.possible_agents):
        yield (
            "note",
            "possible_agents is empty",
            "possible_agents has all agents that may ever appear, in their order.",
            "Set it, if they are known: ids are checked by it, a centralised critic and agent ids in observations need "
            "it.",
        )
    try:
        observations = env.reset(seed=SEED) if takes_seed(env) else env.reset()
        first = observations[0] if isinstance(observations, tuple) else observations
        own = AgentSpaces(env, first if isinstance(first, Mapping) else ())
        agents = agents or list(first)
        pairs = {agent: (own.observation(agent), own.action(agent)) for agent in agents}
    except ValueError as error:
        yield "error", one_line(str(error)), "Each agent has an observation space and an action space.", "See above."
        return
    for agent in agents:
        if agent in RESERVED:
            yield "error", f"an agent is called {agent!r}", "This key is reserved.", "Give it another id."
    measured["agents"] = len(agents)
    for agent in agents[:SHOWN]:
        measured[f"space of {agent}"] = f"{one_line(str(pairs[agent][0]))}, acts in {one_line(str(pairs[agent][1]))}"
    for agent, (observation_space, action_space) in pairs.items():
        try:
            check_spaces(observation_space, action_space, f"{subject.name}, agent {agent!r}")
        except ValueError as error:
            yield (
                "error",
                str(error),
                "Networks read Box, Discrete, MultiDiscrete, MultiBinary, Dict and Tuple.",
                ("Change the space, or wrap the environment."),
            )
            return


def steps_check(subject: Subject) -> Iterator[Found]:
    """Steps with random actions: dicts, ids, observations, rewards and flags of every agent; lengths and times."""
    walk = AgentWalk(subject)
    until = time.monotonic() + EPISODES_S
    try:
        walk.reset(SEED)
        while walk.count < subject.steps and time.monotonic() < until:
            kept = [(array, array.copy()) for array in arrays(walk.observations)]
            walk.step()
            if any(not np.array_equal(array, before, equal_nan=array.dtype.kind == "f") for array, before in kept):
                yield (
                    "warning",
                    f"step() has changed an array of the observations before it (step {walk.count})",
                    "Observations that were returned stay as they are: replays and callbacks may keep them.",
                    "Return copies.",
                )
            if walk.is_over:
                walk.reset()
    except BrokenRule as error:
        yield "error", error.seen, error.rule, error.remedy
        return
    subject.env = walk.checked.env  # adapted, if it has the old API
    subject.measured |= walk.measured()
    subject.short = min(subject.short, subject.steps, max(4, int(COMPARED_S / max(walk.mean_step_s, 1e-9))))
    if not walk.lengths:
        yield (
            "warning",
            f"no episode has ended within {walk.count} steps",
            'Episodes end, by terminateds["__all__"] or truncateds["__all__"]: returns are reported when they do.',
            "Set one of them when all agents are done, and truncate episodes at a time limit.",
        )
    if not any(walk.returns.values()):
        yield (
            "note",
            f"all rewards of {walk.count} random steps were 0",
            "A reward that random actions never find cannot be learned from without help.",
            "Reward progress as well.",
        )


def agent_seeds_check(subject: Subject) -> Iterator[Found]:
    """Whether equal seeds and actions give equal episodes, in one environment and in two."""
    with subject.another() as other:
        first, again = _record(subject, subject.env), _record(subject, subject.env)
        elsewhere = _record(subject, other)
    place = difference(first, again) or difference(first, elsewhere)
    subject.is_repeatable = place is None
    if place is not None:
        yield (
            "warning",
            f"with equal seeds and actions episodes differ {place}",
            "Equal seeds and actions give equal episodes: else runs cannot be repeated.",
            "Call super().reset(seed=seed), and draw from self.np_random alone.",
        )


def agent_instances_check(subject: Subject) -> Iterator[Found]:
    """Whether two environments of one process disturb one another."""
    if not subject.is_repeatable:
        return
    with subject.another() as other:
        neighbour = AgentWalk(subject, other)
        neighbour.reset(SEED + 1)
        place = difference(_record(subject, subject.env), _record(subject, subject.env, neighbour))
    if place is not None:
        yield (
            "error",
            f"an episode differs {place} when another environment is stepped in between",
            "Environments of one process are independent: with num_envs_per_worker a worker has several.",
            "Keep state in the instance, not in the class, the module or a shared object.",
        )


def pettingzoo_check(subject: Subject) -> Iterator[Found]:
    """PettingZoo's own tests; what they assert is a warning, since our own checks have the errors."""
    interface = agent_interface(subject.given)
    if interface not in ("turns", "parallel"):
        return
    try:
        from pettingzoo import test
    except ImportError:
        yield (
            "note",
            "PettingZoo is not installed, so its own tests were left out",
            "PettingZoo's tests pass.",
            f"{install_hint('multiagent')}.",
        )
        return
    cycles = min(subject.steps, 200)
    tests: dict[str, Callable] = (
        {
            "parallel_api_test": lambda: test.parallel_api_test(subject.make(), num_cycles=cycles),
            "parallel_seed_test": lambda: test.parallel_seed_test(subject.make, num_cycles=cycles),
        }
        if interface == "parallel"
        else {
            "api_test": lambda: test.api_test(subject.make(), num_cycles=cycles),
            "seed_test": lambda: test.seed_test(subject.make, num_cycles=cycles),
        }
    )
    for name, run in tests.items():
        rule, remedy = f"PettingZoo's {name} passes.", f"See pettingzoo.test.{name}."
        with warnings.catch_warnings(record=True) as caught, contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("always")
            try:
                run()
            except Exception as error:
                yield "warning", one_line(str(error) or repr(error)), rule, remedy
        for text in dict.fromkeys(one_line(str(each.message)) for each in caught if each.category is UserWarning):
            yield "note", text, f"PettingZoo's {name} gives no warning.", remedy


def agent_speed_check(subject: Subject) -> Iterator[Found]:
    """Steps a second, of the environment and of its agents, with the checks that training makes."""
    walk = AgentWalk(subject, num_checked=0)
    walk.reset(SEED)
    until = time.monotonic() + TIMED_S
    while walk.count < subject.steps and time.monotonic() < until:
        walk.step()
        if walk.is_over:
            walk.reset()
    measured = subject.measured
    measured |= walk.times()
    length = measured["mean_length"] or float("inf")
    rate = 1e6 / (measured["step_us"] + measured["reset_ms"] * 1000 / length)
    agent_rate = rate * measured["agent_steps_per_step"]
    measured |= {"steps_per_second": rate, "agent_steps_per_second": agent_rate}
    is_dense = measured["agent_steps_per_step"] == measured["agents"] > 1
    yield (
        "note",
        f"a step takes {measured['step_us']:.3g} us, a reset {measured['reset_ms']:.3g} ms: one core samples at most "
        f"{rate:,.0f} steps of the environment a second, {agent_rate:,.0f} of its agents",
        "Steps of the environment bound the speed of sampling; workers divide them.",
        "All agents act in each step: many environments in arrays are quicker (MultiAgentVectorEnv)."
        if is_dense
        else "Workers pay up to the number of cores: .rollouts(num_rollout_workers=...).",
    )


class AgentWalk:
    """Random steps of an environment with several agents, every result of which is checked.

    Args:
        subject: what is checked.
        env: another environment than the subject's.
        num_checked: number of steps that are examined whole.

    Attributes:
        checked: the environment with its checks.
        observations: by agent, the newest.
        result: result of the last step.
        count: number of steps.
        lengths: of the episodes that have ended.
        returns: {agent: sum of all rewards}.
        is_over: whether the last step has ended an episode.
    """

    def __init__(self, subject: Subject, env=None, num_checked: int = sys.maxsize):
        self.checked = CheckedAgents(subject.env if env is None else env, num_checked, warns=False)
        self.observations: Mapping[AgentID, Any] = {}
        self.result: tuple = ()
        self.lengths: list[int] = []
        self.returns: dict[AgentID, float] = {}
        self.count, self.is_over = 0, False
        self._times: list[float] = []
        self._reset_times: list[float] = []
        self._agent_steps = 0
        self._spaces: dict[AgentID, spaces.Space] = {}

    def reset(self, seed: int | None = None) -> None:
        started = time.perf_counter()
        self.observations, _ = self.checked.reset(seed)
        self._reset_times.append(time.perf_counter() - started)
        self.is_over = False

    def step(self) -> None:
        """Steps with the actions of the agents that have an observation and are not done."""
        acting = [agent for agent in self.observations if agent not in self.checked.ended]
        actions = {agent: self._draw(agent, self.observations[agent]) for agent in acting}
        started = time.perf_counter()
        self.result = self.checked.step(actions)
        self._times.append(time.perf_counter() - started)
        self.count += 1
        self._agent_steps += len(actions)
        self.observations, rewards, terminateds, truncateds, _ = self.result
        for agent, reward in rewards.items():
            self.returns[agent] = self.returns.get(agent, 0.0) + float(reward or 0.0)
        self.is_over = bool(terminateds[ALL]) or bool(truncateds[ALL])
        if self.is_over:
            self.lengths.append(self.checked.time)

    @property
    def mean_step_s(self) -> float:
        return sum(self._times) / self.count

    def measured(self) -> dict[str, Any]:
        """Numbers of steps and lengths of episodes."""
        total = sum(self.returns.values())
        return {
            "steps": self.count,
            "agent_steps_per_step": self._agent_steps / self.count,
            "episodes": len(self.lengths),
            "mean_length": float(np.mean(self.lengths)) if self.lengths else None,
            "mean_return_of_random_actions": total / len(self.lengths) if self.lengths else None,
        }

    def times(self) -> dict[str, Any]:
        """Times of steps and resets."""
        return {
            "step_us": float(np.median(self._times)) * 1e6,
            "slowest_step_ms": max(self._times) * 1000,
            "reset_ms": float(np.mean(self._reset_times)) * 1000,
        }

    def _draw(self, agent: AgentID, observation) -> Any:
        """A random action; a legal one where the observation has a mask."""
        if agent not in self._spaces:
            self._spaces[agent] = copy.deepcopy(self.checked.spaces.action(agent))
            self._spaces[agent].seed(SEED + len(self._spaces))
        return random_action(observation, self._spaces[agent])


def _record(subject: Subject, env, neighbour: AgentWalk | None = None) -> list[tuple]:
    """Observations, rewards and flags of a seeded reset and some random steps.

    Args:
        neighbour: another environment, which is stepped before each step.
    """
    walk = AgentWalk(subject, env)
    walk.reset(SEED)
    rows: list[tuple] = [(copy.deepcopy(dict(walk.observations)), {}, {}, {})]
    for _ in range(subject.short):
        if neighbour is not None:
            neighbour.step()
            if neighbour.is_over:
                neighbour.reset()
        walk.step()
        rows.append(copy.deepcopy(tuple(map(dict, walk.result[:4]))))
        if walk.is_over:
            walk.reset()
            rows.append((copy.deepcopy(dict(walk.observations)), {}, {}, {}))
    return rows
