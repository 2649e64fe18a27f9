"""Checks of an environment's behaviour: its steps, repeatable episodes, growth of memory."""

import copy
import gc
import math
import random
import time
import tracemalloc
from collections.abc import Iterator, Mapping
from itertools import pairwise

import numpy as np

from rllib.env.checkup.random_walk import RandomWalk
from rllib.env.checkup.report import Found
from rllib.env.checkup.subject import SEED, Subject
from rllib.env.streams.sync import take_off_wrappers

# Bounds of the random steps, and of the episodes that are compared.
EPISODES_S, COMPARED_S = 60.0, 2.0
MEMORY_ROUNDS = 6
LEAK_BYTES_PER_STEP, RESIDENT_LEAK_BYTES = 64, 16 << 20


def episodes_check(subject: Subject) -> Iterator[Found]:
    """Steps with random actions: every observation, reward, flag and info; how long episodes are and calls take."""
    env, walk = subject.env, RandomWalk(subject.env, subject.actions(subject.env))
    walk.reset(SEED)
    yield from walk.problems_of_observation("reset()")
    until = time.monotonic() + EPISODES_S
    while walk.count < subject.steps and time.monotonic() < until:
        walk.step()
        yield from walk.problems()
        if walk.is_over:
            walk.reset()
            yield from walk.problems_of_observation("reset()")
    if not walk.lengths:
        walk.reset()  # for its time
    subject.measured |= walk.measured()
    subject.short = min(subject.short, subject.steps, max(4, int(COMPARED_S / walk.mean_step_s)))
    limit = take_off_wrappers(env)[1]
    if not walk.lengths:
        severity = "warning" if math.isinf(limit) else "note"
        yield (
            severity,
            f"no episode has ended within {walk.count} steps"
            + ("" if math.isinf(limit) else f"; the time limit is {limit} steps"),
            "Episodes end: returns are reported when they do, and an evaluation plays whole ones.",
            'Give it a time limit: .environment(env_wrappers=[{"TimeLimit": {"max_episode_steps": 1000}}]).',
        )
    elif max(walk.lengths) == 1 and len(walk.lengths) > 1:
        yield (
            "note",
            "every episode has one step",
            "With one step an episode, nothing is learned about consequences (a contextual bandit).",
            "Nothing, if this is intended; else check when terminated is set.",
        )
    if walk.rewards_seen and not any(walk.rewards_seen):
        yield (
            "note",
            f"all rewards of {walk.count} random steps were 0",
            "A reward that random actions never find cannot be learned from without help.",
            "Reward progress as well, or use exploration_config (docs/guide/exploration.md).",
        )
    if problem := walk.rounding.problem():
        what, _, advice = problem.partition(". ")
        yield "error", what, "Observations are stored as float32, which has 24 binary digits.", f"{advice}."
    if walk.is_constant:
        yield (
            "warning",
            f"all observations of {walk.count} steps were equal",
            "Observations tell states apart.",
            "Look at what reset() and step() return: a copy of an array that is never written?",
        )


def seeds_check(subject: Subject) -> Iterator[Found]:
    """Whether equal seeds and actions give equal episodes, in one environment and in two."""
    with subject.another() as other:
        first, again = _episode(subject, subject.env, SEED), _episode(subject, subject.env, SEED)
        elsewhere, differs = _episode(subject, other, SEED), _episode(subject, subject.env, SEED + 1)
    place = difference(first, again) or difference(first, elsewhere)
    subject.is_repeatable = place is None
    if place is None:
        if difference(first, differs) is None:
            yield (
                "note",
                f"seeds {SEED} and {SEED + 1} give equal episodes",
                "Episodes differ by the seed where there is chance.",
                "Nothing, if the environment has no chance; else draw from self.np_random.",
            )
        return
    with_global = [_episode(subject, subject.env, SEED, seeds_global=True) for _ in range(2)]
    if difference(*with_global) is None:
        yield (
            "warning",
            f"with equal seeds and actions episodes differ {place}; they do not with random and numpy.random seeded",
            "Chance comes from self.np_random alone, which reset(seed=...) seeds: else runs cannot be repeated.",
            "Call super().reset(seed=seed), and replace random.x() and np.random.x() by self.np_random.x().",
        )
        return
    yield (
        "warning",
        f"with equal seeds and actions episodes differ {place}",
        "Equal seeds and actions give equal episodes: else runs cannot be repeated.",
        "Seed all that draws in reset(), and reset every attribute there that an episode changes. A simulator that "
        "runs in real time cannot be repeated; then nothing can be done.",
    )


def instances_check(subject: Subject) -> Iterator[Found]:
    """Whether two environments of one process disturb one another."""
    if not subject.is_repeatable:
        return
    alone = _episode(subject, subject.env, SEED)
    with subject.another() as other:
        draw = subject.actions(other)

        def disturb(observation):
            return other.step(draw(observation))

        def begin():
            return other.reset(seed=SEED + 1)

        place = difference(alone, _episode(subject, subject.env, SEED, neighbour=(begin, disturb)))
    if place is not None:
        yield (
            "error",
            f"an episode differs {place} when another environment is stepped in between",
            "Environments of one process are independent: with num_envs_per_worker a worker has several.",
            "Keep state in the instance (self.x = ... in reset), not in the class, the module or a shared object.",
        )


def memory_check(subject: Subject) -> Iterator[Found]:
    """Whether memory grows from episode to episode."""
    import psutil  # here, so that the library's import does without

    env, draw = subject.env, subject.actions(subject.env)
    sizes, resident, frozen = [], [], gc.get_freeze_count()
    gc.freeze()  # excludes the program's own objects, which may be millions, from the collections of each round
    tracemalloc.start()
    try:
        for _ in range(MEMORY_ROUNDS):
            observation = env.reset()[0]
            for _ in range(subject.short):
                observation, _, terminated, truncated, _ = env.step(draw(observation))
                if terminated or truncated:
                    observation = env.reset()[0]
            env.reset()
            gc.collect()
            sizes.append(tracemalloc.get_traced_memory()[0])
            resident.append(psutil.Process().memory_info().rss)
    finally:
        tracemalloc.stop()
        if not frozen:
            gc.unfreeze()
    steps = (MEMORY_ROUNDS - 2) * subject.short
    per_step = (sizes[-1] - sizes[1]) / steps
    grows = all(one < next_ for one, next_ in pairwise(sizes[1:])) and per_step > LEAK_BYTES_PER_STEP
    outside = resident[-1] - resident[1]
    subject.measured["growth_bytes_per_step"] = max(0.0, per_step)
    if grows or outside > RESIDENT_LEAK_BYTES + (sizes[-1] - sizes[1]):
        growth = per_step if grows else outside / steps
        yield (
            "warning",
            f"memory grows by {growth:,.0f} bytes a step{'' if grows else ', outside of Python'}, over episodes: "
            f"{growth * 1e6 / 2**30:.1f} GB in a million steps",
            "What an episode has allocated is freed by the next reset().",
            "Clear lists of states, frames and statistics in reset().",
        )


def _episode(
    subject: Subject, env, seed: int, seeds_global: bool = False, neighbour: tuple | None = None
) -> list[tuple]:
    """Records a seeded reset and `subject.short` random actions, over as many episodes as that takes.

    Args:
        seeds_global: whether random and numpy.random are seeded first; their states are restored.
        neighbour: functions that reset another environment, and step it for an observation, before each step.
    """
    states = random.getstate(), np.random.get_state()
    if seeds_global:
        random.seed(seed)
        np.random.seed(seed)
    draw = subject.actions(env)
    observation = env.reset(seed=seed)[0]
    rows = [(copy.deepcopy(observation), 0.0, False, False)]
    others = neighbour[0]()[0] if neighbour else None
    for _ in range(subject.short):
        if neighbour:
            others, _, *flags, _ = neighbour[1](others)
            if any(flags):
                others = neighbour[0]()[0]
        observation, reward, terminated, truncated, _ = env.step(draw(observation))
        rows.append((copy.deepcopy(observation), reward, bool(terminated), bool(truncated)))
        if terminated or truncated:
            observation = env.reset()[0]
            rows.append((copy.deepcopy(observation), 0.0, False, False))
    if seeds_global:
        random.setstate(states[0])
        np.random.set_state(states[1])
    return rows


def difference(one: list[tuple], other: list[tuple]) -> str | None:
    """Finds the first difference of two records of `_episode`, in words; None if they are equal."""
    for t, (a, b) in enumerate(zip(one, other)):
        for name, x, y in zip(("observation", "reward", "terminated", "truncated"), a, b):
            if not _equal(x, y):
                return f"in the {name} of " + ("the first reset" if t == 0 else f"step {t}")
    return None if len(one) == len(other) else "in their lengths"


def _equal(x, y) -> bool:
    if isinstance(x, Mapping):
        return isinstance(y, Mapping) and x.keys() == y.keys() and all(_equal(x[key], y[key]) for key in x)
    if isinstance(x, tuple | list):
        return isinstance(y, tuple | list) and len(x) == len(y) and all(map(_equal, x, y))
    x, y = np.asarray(x), np.asarray(y)
    return np.array_equal(x, y, equal_nan=x.dtype.kind == "f" and y.dtype.kind == "f")
