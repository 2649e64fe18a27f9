"""Speed of an environment: alone, several in the streams that workers use, or a vector environment."""

import copy
import math
import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from rllib.env.checkup.report import Found
from rllib.env.checkup.subject import SEED, Subject
from rllib.env.factories.make import stream_over
from rllib.env.factories.registry import EnvContext, EnvFactory
from rllib.env.factories.vectorized import AsyncFactory
from rllib.env.spaces.batches import batch_of
from rllib.env.spaces.legal import MASK_KEY, legal_action
from rllib.env.streams.vector import autoreset_mode
from rllib.models.observations.flat_spaces import flat_leaves

LONG_RESET_SHARE = 0.25
TOGETHER_S = 1.0
# An environment that uses less than this share of a core waits for something.
WAITS_BELOW, WAITS_ABOVE_US = 0.5, 1000.0
QUICK_STEP_US, SLOW_STEP_US = 20.0, 200.0


def speed_check(subject: Subject) -> Iterator[Found]:
    """Advice for a run from the measured times."""
    if "step_us" not in subject.measured:
        return  # it raised
    step_us, reset_ms = subject.measured["step_us"], subject.measured["reset_ms"]
    length = subject.measured.get("mean_length") or math.inf
    per_step_us = step_us + reset_ms * 1000 / length
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    rate = 1e6 / per_step_us
    subject.measured["steps_per_second"] = rate
    if reset_ms * 1000 / length > LONG_RESET_SHARE * per_step_us:
        yield (
            "note",
            f"resets take {reset_ms * 1000 / length / per_step_us:.0%} of the time: {reset_ms:.3g} ms for an episode "
            f"of {length:.0f} steps",
            "A worker's environments wait for the one that is reset.",
            'Do less in reset(), or use .rollouts(gym_env_vectorize_mode="async"), where resets overlap.',
        )
    if per_step_us > WAITS_ABOVE_US and subject.measured["cpu_share"] < WAITS_BELOW:
        advice = (
            "It waits rather than computes: workers may be many more than cores, or several environments a worker with "
            '.rollouts(gym_env_vectorize_mode="async", num_envs_per_worker=8).'
        )
    elif per_step_us < QUICK_STEP_US:
        advice = (
            "It is quick: .rollouts(num_envs_per_worker=8) saves more than workers do; 0 to 2 workers are enough for "
            "most algorithms."
        )
    elif per_step_us < SLOW_STEP_US:
        advice = f"Workers pay up to about the number of cores, {cores} here: .rollouts(num_rollout_workers={cores})."
    else:
        advice = (
            f"It is slow: sampling takes most of the time. Workers pay up to the number of cores, {cores} here: "
            f".rollouts(num_rollout_workers={cores}); sampling gets as many times as fast."
        )
    yield (
        "note",
        f"a step takes {step_us:.3g} us, a reset {reset_ms:.3g} ms: one core samples at most {rate:,.0f} steps a "
        f"second, a million steps in {_duration(1e6 / rate)}",
        "Steps of the environment bound the speed of sampling; workers divide them.",
        advice,
    )


def together_check(subject: Subject) -> Iterator[Found]:
    """The speed of several environments in the streams that workers use: a loop, and a process each."""
    if not subject.num_envs:
        return
    rates = {}
    for mode, factory in (("sync", subject.factory), ("async", AsyncFactory(subject.factory))):
        rates[mode] = subject.measured[f"{mode}_steps_per_second"] = _rate_together(subject, factory)
    ratio = rates["async"] / rates["sync"]
    better = "async" if ratio > 1.2 else "sync"
    yield (
        "note",
        f"{subject.num_envs} environments make {rates['sync']:,.0f} steps a second in a loop (sync), "
        f"{rates['async']:,.0f} in a process each (async)",
        "A process for each pays where a step takes longer than the 30 to 40 us of sending it.",
        f'Use .rollouts(num_envs_per_worker={subject.num_envs}, gym_env_vectorize_mode="{better}").',
    )


def vector_check(subject: Subject) -> Iterator[Found]:
    """A vector environment, in the stream that workers use."""
    env = subject.env
    subject.measured |= {
        "observation_space": str(env.single_observation_space),
        "action_space": str(env.single_action_space),
        "num_envs": env.num_envs,
        "autoreset_mode": autoreset_mode(env).name,
    }
    with stream_over(lambda _: env, list(range(env.num_envs)), checked_steps=subject.steps) as stream:
        buffers, draw = stream.new_buffers(), _random_actions(stream)
        stream.reset(buffers)
        started, ended = time.perf_counter(), 0
        rounds = -(-subject.steps // env.num_envs)
        for _ in range(rounds):
            ended += len(stream.step(draw(buffers.observations), buffers))
        elapsed = time.perf_counter() - started
    subject.measured |= {"episodes": ended, "steps_per_second": rounds * env.num_envs / elapsed}
    if not ended:
        yield (
            "warning",
            f"no episode has ended within {rounds} steps of each environment",
            "Episodes end: returns are reported when they do.",
            "Truncate episodes at a time limit.",
        )


def _rate_together(subject: Subject, factory: EnvFactory) -> float:
    """Environment steps a second of `num_envs` environments in the stream that workers use."""
    count = subject.num_envs

    def make(index: int):
        return factory.make(EnvContext(subject.env_config, vector_index=index, num_envs=count))

    with stream_over(make, list(range(count))) as stream:
        buffers, draw = stream.new_buffers(), _random_actions(stream)
        stream.reset(buffers)
        steps, elapsed = 0, 0.0
        while elapsed < TOGETHER_S:
            actions, started = draw(buffers.observations), time.perf_counter()
            stream.step(actions, buffers)
            elapsed += time.perf_counter() - started
            steps += 1
    return steps * count / elapsed


def _random_actions(stream) -> Callable[[np.ndarray], Any]:
    """(observations as stored) -> random actions of all environments; legal ones where the observations have a mask."""
    space, count = copy.deepcopy(stream.action_space), stream.num_envs
    space.seed(SEED)
    masks = [leaf for leaf in flat_leaves(stream.observation_space) if leaf.path == f"[{MASK_KEY!r}]"]

    def draw(observations: np.ndarray):
        legal = [None] * count
        if masks:
            legal = observations[:, masks[0].start : masks[0].stop]
        return batch_of(space, [legal_action(space, mask) for mask in legal])

    return draw


def _duration(seconds: float) -> str:
    for size, unit in ((3600.0, "h"), (60.0, "min")):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} s"
