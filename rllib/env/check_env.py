"""Checks of an environment that teach: what was seen, the rule, what to do. `rllib check-env` and `rllib.check_env`.

Each check is a generator of findings over a `_Subject`. Those that compare episodes or look for speed are left out
where the environment cannot be made, reset or stepped at all.
"""

import contextlib
import copy
import gc
import math
import os
import pickle
import random
import re
import time
import traceback
import tracemalloc
import warnings
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import Any

import cloudpickle
import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env as check_env_of_gymnasium
from gymnasium.vector import VectorEnv
from gymnasium.vector.utils import concatenate, create_empty_array

from rllib.env.env_report import EnvironmentCheckError, EnvReport, Finding, Found
from rllib.env.examiner import env_name
from rllib.env.legacy import LegacyEnvironment, adapt_spaces, call_reset, is_bare_observation, takes_seed
from rllib.env.random_walk import INFO_RULE, OBSERVATION_RULE, RandomWalk
from rllib.env.registry import EnvContext, EnvFactory, resolve
from rllib.env.spaces import check_spaces, mismatch
from rllib.env.sync_stream import take_off_wrappers
from rllib.env.vector import stream_over
from rllib.env.vector_stream import autoreset_mode
from rllib.env.vectorized import AsyncFactory
from rllib.env.wrappers import WrappedFactory, resolve_wrappers
from rllib.errors import EnvironmentPackageError
from rllib.models.flat_spaces import flat_leaves

SEED = 7
# Bounds of the random steps, and of the episodes that are compared (steps, and about this time).
EPISODES_S, COMPARED_S = 60.0, 2.0
COMPARED_STEPS, MEMORY_ROUNDS = 64, 6
LEAK_BYTES_PER_STEP, RESIDENT_LEAK_BYTES = 64, 16 << 20
LONG_RESET_SHARE = 0.25
TOGETHER_S = 1.0
# An environment that uses less than this share of a core waits for something.
WAITS_BELOW, WAITS_ABOVE_US = 0.5, 1000.0
QUICK_STEP_US, SLOW_STEP_US = 20.0, 200.0
MASK_KEY = "action_mask"


def check_env(
    env,
    env_config: Mapping | None = None,
    *,
    env_wrappers=None,
    num_envs: int = 0,
    steps: int = 2000,
    raise_errors: bool = True,
) -> EnvReport:
    """Checks an environment with random actions, and reports what was found.

    Args:
        env: whatever `.environment(env)` takes, or an environment that is already made, for which the checks that need
            a second one are left out.
        env_config: for its constructor.
        env_wrappers: as the setting of this name.
        num_envs: also run this many of them, in a loop and in a process each, and compare the speed; 0: do not.
        steps: number of steps that are taken and checked.
        raise_errors: raise if there are findings that are errors.

    Raises:
        EnvironmentCheckError: with the report, if there are errors.
        ValueError, TypeError: if `env` names no environment, or `steps` is not positive.
    """
    if steps < 1:
        raise ValueError(f"steps={steps} must be at least 1")
    report = _Subject(env, env_config, env_wrappers, num_envs, steps).report()
    if raise_errors and not report.passes():
        raise EnvironmentCheckError(report)
    return report


class _Subject:
    """An environment that is being checked.

    Attributes:
        env: the environment.
        factory: what makes another one; None if only this one was given.
        measured: for the report.
        is_legacy: whether reset() or step() have the form of the old gym API.
        short: number of steps of the checks that repeat episodes.
        is_repeatable: whether equal seeds and actions gave equal episodes; None if it was not tried.
    """

    def __init__(self, env, env_config, env_wrappers, num_envs: int, steps: int):
        is_made = isinstance(env, gymnasium.Env | VectorEnv) or (hasattr(env, "step") and not isinstance(env, type))
        self.factory: EnvFactory | None = None if is_made else resolve(env)
        if self.factory and (wrappers := resolve_wrappers(env_wrappers)):
            self.factory = WrappedFactory(self.factory, wrappers)
        self.env = env if is_made else None
        self.name = self.factory.name if self.factory else env_name(env)
        self.env_config, self.num_envs, self.steps = dict(env_config or {}), num_envs, steps
        self.measured: dict[str, Any] = {}
        self.is_legacy, self.is_repeatable, self.short = False, None, COMPARED_STEPS
        self._findings: dict[tuple, Finding] = {}
        self._checks: list[str] = []

    def report(self) -> EnvReport:
        """Makes all checks that can be made."""
        given = self.env
        try:
            if self._passes(_construction):
                is_vector = isinstance(self.env, VectorEnv)
                if self._passes(_vector if is_vector else _spaces) and not is_vector and self._passes(_form):
                    for check in _OTHERS:
                        if self.factory is not None or check not in _NEED_FACTORY:
                            self._passes(check)
        finally:
            if self.env is not given:
                with contextlib.suppress(Exception):
                    _close(self.env)
        order = ["error", "warning", "note"]
        findings = sorted(self._findings.values(), key=lambda finding: order.index(finding.severity))
        return EnvReport(self.name, tuple(findings), tuple(self._checks), self.measured)

    def _passes(self, check: Callable[["_Subject"], Iterator[Found]]) -> bool:
        """Makes a check, and keeps the first finding of each rule; whether it found no error."""
        name = check.__name__.strip("_")
        self._checks.append(name)
        try:
            for severity, seen, rule, remedy in check(self):
                self._findings.setdefault((name, rule), Finding(severity, name, seen, rule, remedy))
        except EnvironmentPackageError:
            raise  # nothing can be checked
        except (Exception, SystemExit) as error:
            rule = "No call raises as long as actions lie in the action space."
            finding = Finding("error", name, _told(error), rule, "Correct it at the place that is named.")
            self._findings.setdefault((rule, finding.seen), finding)  # once, if it raises in several checks
            return False
        return not any(found.severity == "error" for found in self._findings.values() if found.check == name)

    def make(self, **config):
        """A further environment; the caller closes it."""
        return self.factory.make(EnvContext({**self.env_config, **config}, num_envs=max(1, self.num_envs)))

    @contextlib.contextmanager
    def another(self) -> Iterator[Any]:
        """A further environment, closed at the end of the block; the same one if there is no other."""
        env = self.env if self.factory is None else self.adapted(self.make())
        try:
            yield env
        finally:
            if env is not self.env:
                _close(env)

    def adapted(self, env):
        """The environment in the form of the new API."""
        env = adapt_spaces(env)
        return LegacyEnvironment(env) if self.is_legacy and not isinstance(env, LegacyEnvironment) else env

    def actions(self, env) -> Callable:
        """(observation) -> random action, the same ones each time; legal ones where the observation has a mask."""
        space = copy.deepcopy(env.action_space)
        space.seed(SEED)

        def draw(observation):
            mask = observation.get(MASK_KEY) if isinstance(observation, Mapping) else None
            if mask is None or not isinstance(space, spaces.Discrete):
                return space.sample()
            return space.sample(mask=np.asarray(mask, np.int8))

        return draw


# ---- each check


def _construction(subject: _Subject) -> Iterator[Found]:
    if subject.env is None:
        started = time.perf_counter()
        subject.env = subject.make()
        subject.measured["make_ms"] = (time.perf_counter() - started) * 1000
    if isinstance(subject.env, VectorEnv):
        return
    adapted = adapt_spaces(subject.env)
    if adapted is not subject.env:
        subject.env = adapted
        yield (
            "warning",
            "the spaces are those of the old gym package",
            "Spaces are gymnasium's.",
            "Import spaces from gymnasium: from gymnasium.spaces import Box, Discrete.",
        )
    if not isinstance(subject.env, gymnasium.Env):
        yield (
            "note",
            f"{env_name(subject.env)} is not derived from gymnasium.Env",
            "gymnasium.Env gives np_random, and wrappers take nothing else.",
            "Derive it: class MyEnv(gymnasium.Env).",
        )


def _spaces(subject: _Subject) -> Iterator[Found]:
    observation_space, action_space = subject.env.observation_space, subject.env.action_space
    subject.measured |= {
        "observation_space": _one_line(str(observation_space)),
        "action_space": _one_line(str(action_space)),
    }
    try:
        check_spaces(observation_space, action_space, subject.name)
    except ValueError as error:
        yield "error", str(error), "Networks read Box, Discrete, MultiDiscrete, MultiBinary, Dict and Tuple.", (
            "Change the space, or wrap the environment (env_wrappers)."
        )
    is_continuous = isinstance(action_space, spaces.Box) and action_space.dtype.kind == "f"
    if is_continuous and not (np.isfinite(action_space.low) & np.isfinite(action_space.high)).all():
        yield (
            "warning",
            f"the action space {action_space} has infinite bounds",
            "Policies act in [-1, 1], which is stretched to the bounds; an infinite one cannot be stretched to.",
            "Give the Box the bounds that the actions have.",
        )
    for path, space in _boxes(observation_space, "observation"):
        is_picture = len(space.shape) == 3
        if is_picture and space.dtype != np.uint8:
            yield (
                "note",
                f"{path} has the shape of a picture, {space.shape}, and dtype {space.dtype}",
                "Pictures are bytes, 0 to 255: networks scale them, and batches are a quarter of the size.",
                "Use Box(0, 255, shape, np.uint8) and return uint8 arrays.",
            )
        elif not is_picture and space.dtype.kind == "f" and np.max(np.abs(_finite(space)), initial=0) > 1000:
            yield (
                "note",
                f"{path} has bounds of up to {np.max(np.abs(_finite(space))):g}",
                "Networks learn fastest from numbers of the order of 1.",
                'Scale them in the environment, or use .rollouts(observation_filter="MeanStdFilter").',
            )


def _form(subject: _Subject) -> Iterator[Found]:
    """The form of the first reset and step, and what the old gym API had."""
    env = subject.env
    result = call_reset(env, SEED)
    is_bare = is_bare_observation(result, env.observation_space)
    subject.is_legacy = is_bare or not takes_seed(env)
    if is_bare:
        yield "warning", "reset() returns the observation alone", *_NEW_API
    elif not isinstance(result[1], dict):
        yield "error", f"reset() returned {result[1]!r:.60} as info", *INFO_RULE
        return
    elif not takes_seed(env):
        yield "warning", "reset() takes no seed", *_NEW_API
    observation = result if is_bare else result[0]
    if problem := mismatch(env.observation_space, observation):
        yield "error", f"the {problem} (returned by reset())", *OBSERVATION_RULE
        return
    step = env.step(subject.actions(env)(observation))
    if isinstance(step, tuple) and len(step) == 4:
        subject.is_legacy = True
        yield "warning", "step() returns 4 values", *_NEW_API
    elif not isinstance(step, tuple) or len(step) != 5:
        given = f"{len(step)} values" if isinstance(step, tuple) else repr(step)[:60]
        yield "error", f"step() returned {given}", *_NEW_API
        return
    subject.env = subject.adapted(env)


def _episodes(subject: _Subject) -> Iterator[Found]:
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
            "Nothing, if that is what is meant; else look at when terminated is set.",
        )
    if walk.rewards_seen and not any(walk.rewards_seen):
        yield (
            "note",
            f"all rewards of {walk.count} random steps were 0",
            "A reward that random actions never find cannot be learned from without help.",
            "Reward progress as well, or use exploration_config (docs/exploration.md).",
        )
    if walk.is_constant:
        yield (
            "warning",
            f"all observations of {walk.count} steps were equal",
            "Observations tell states apart.",
            "Look at what reset() and step() return: a copy of an array that is never written?",
        )


def _seeds(subject: _Subject) -> Iterator[Found]:
    """Whether equal seeds and actions give equal episodes, in one environment and in two."""
    with subject.another() as other:
        first, again = _episode(subject, subject.env, SEED), _episode(subject, subject.env, SEED)
        elsewhere, differs = _episode(subject, other, SEED), _episode(subject, subject.env, SEED + 1)
    place = _difference(first, again) or _difference(first, elsewhere)
    subject.is_repeatable = place is None
    if place is None:
        if _difference(first, differs) is None:
            yield (
                "note",
                f"seeds {SEED} and {SEED + 1} give equal episodes",
                "Episodes differ by the seed where there is chance.",
                "Nothing, if the environment has no chance; else draw from self.np_random.",
            )
        return
    with_global = [_episode(subject, subject.env, SEED, seeds_global=True) for _ in range(2)]
    if _difference(*with_global) is None:
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


def _instances(subject: _Subject) -> Iterator[Found]:
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

        place = _difference(alone, _episode(subject, subject.env, SEED, beside=(begin, disturb)))
    if place is not None:
        yield (
            "error",
            f"an episode differs {place} when another environment is stepped in between",
            "Environments of one process are independent: with num_envs_per_worker a worker has several.",
            "Keep state in the instance (self.x = ... in reset), not in the class, the module or a shared object.",
        )


def _workers(subject: _Subject) -> Iterator[Found]:
    """Whether the environment can be sent to workers, and made there."""
    try:
        sent = cloudpickle.dumps(subject.factory)
    except Exception as error:
        yield (
            "error",
            f"what makes the environment cannot be pickled: {_told(error)}",
            "Workers are processes: a class or function is sent to them (num_rollout_workers > 0).",
            "Make the connection, file or lock that cannot be pickled in the environment's __init__.",
        )
        return
    if len(sent) > 10 << 20:
        yield (
            "warning",
            f"what makes the environment takes {len(sent) / 2**20:.0f} MB when it is sent",
            "Every worker gets a copy.",
            "Load large data in the environment's __init__, from a file.",
        )
    _close(pickle.loads(sent).make(EnvContext(subject.env_config)))


def _memory(subject: _Subject) -> Iterator[Found]:
    """Whether memory grows from episode to episode."""
    env, draw = subject.env, subject.actions(subject.env)
    sizes, resident, frozen = [], [], gc.get_freeze_count()
    gc.freeze()  # the program's own objects, of which there may be millions, need not be looked at in each round
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
            resident.append(_resident_bytes())
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
        seen = f"{per_step:,.0f} bytes a step" if grows else f"{outside / steps:,.0f} bytes a step, outside of Python"
        yield (
            "warning",
            f"memory grows by {seen}, over episodes: {_per_million(per_step if grows else outside / steps)}",
            "What an episode has allocated is freed by the next reset().",
            "Clear lists of states, frames and statistics in reset().",
        )


def _rendering(subject: _Subject) -> Iterator[Found]:
    """Whether the environment draws itself in the modes that it declares; windows are not opened."""
    metadata = getattr(subject.env, "metadata", None) or {}
    modes = [mode for mode in metadata.get("render_modes") or () if mode in ("rgb_array", "ansi")]
    if "rgb_array" not in modes:
        yield (
            "note",
            f"metadata['render_modes'] is {metadata.get('render_modes')}",
            'Videos need "rgb_array" among the render modes.',
            'Nothing, if none are wanted; else metadata = {"render_modes": ["rgb_array"]}, and a render() of it.',
        )
    for mode in modes:
        yield from _drawn(subject, mode)


def _drawn(subject: _Subject, mode: str) -> Iterator[Found]:
    try:
        with contextlib.closing(subject.make(render_mode=mode)) as env:
            env.reset(seed=SEED)
            frame = env.render()
    except Exception as error:
        yield (
            "note",
            f"render_mode={mode!r} fails: {_told(error)}",
            f"What metadata['render_modes'] names can be drawn: {mode} by render().",
            "Install what is missing, or take render_mode as an argument and correct render().",
        )
        return
    if mode == "rgb_array":
        is_picture = isinstance(frame, np.ndarray) and frame.ndim == 3 and frame.shape[2] == 3
        if not is_picture or frame.dtype != np.uint8:
            shown = f"{frame.shape} {frame.dtype}" if isinstance(frame, np.ndarray) else type(frame).__name__
            yield (
                "warning",
                f"render() gives {shown} with render_mode='rgb_array'",
                "A frame is a uint8 array [height, width, 3].",
                "Return such an array, and take render_mode as an argument.",
            )


def _closing(subject: _Subject) -> Iterator[Found]:
    env = subject.adapted(subject.make())
    env.reset(seed=SEED)
    _close(env)
    try:
        _close(env)
    except Exception as error:
        yield (
            "note",
            f"a second close() raises {_told(error)}",
            "close() may be called twice.",
            "Set what was closed to None, and look for it first.",
        )


def _gymnasium(subject: _Subject) -> Iterator[Found]:
    """gymnasium's own checker; what it asserts is a warning, since our own checks have the errors."""
    bare = getattr(subject.env, "unwrapped", subject.env)
    if not isinstance(bare, gymnasium.Env) or isinstance(subject.env, LegacyEnvironment):
        return
    remedy = "See gymnasium.utils.env_checker.check_env, which says this."
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            check_env_of_gymnasium(bare, skip_render_check=True, skip_close_check=True)
        except Exception as error:
            yield "warning", _one_line(str(error) or repr(error)), "gymnasium's own checker passes.", remedy
    for warning in caught:
        text = _one_line(str(warning.message)).removeprefix("WARN: ")
        if issubclass(warning.category, UserWarning) and not any(part in text for part in _NOT_OURS):
            yield "note", text, f"gymnasium's own checker warns of nothing ({text[:40]}).", remedy


def _speed(subject: _Subject) -> Iterator[Found]:
    """What the measured times mean for a run."""
    if "step_us" not in subject.measured:
        return  # it raised
    step_us, reset_ms = subject.measured["step_us"], subject.measured["reset_ms"]
    length = subject.measured.get("mean_length") or math.inf
    per_step_us = step_us + reset_ms * 1000 / length
    cores = len(os.sched_getaffinity(0))
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


def _together(subject: _Subject) -> Iterator[Found]:
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


def _vector(subject: _Subject) -> Iterator[Found]:
    """A vector environment, in the stream that workers use."""
    env = subject.env
    subject.measured |= {
        "observation_space": str(env.single_observation_space),
        "action_space": str(env.single_action_space),
        "num_envs": env.num_envs,
        "autoreset_mode": autoreset_mode(env).name,
    }
    with stream_over(lambda _: env, list(range(env.num_envs)), checked_steps=subject.steps) as stream:
        row, draw = stream.new_row(), _random_actions(stream)
        stream.reset(row)
        started, ended = time.perf_counter(), 0
        rounds = -(-subject.steps // env.num_envs)
        for _ in range(rounds):
            ended += len(stream.step(draw(row.observations), row))
        elapsed = time.perf_counter() - started
    subject.measured |= {"episodes": ended, "steps_per_second": rounds * env.num_envs / elapsed}
    if not ended:
        yield (
            "warning",
            f"no episode has ended within {rounds} steps of each environment",
            "Episodes end: returns are reported when they do.",
            "Truncate episodes at a time limit.",
        )


_OTHERS = (
    _episodes, _seeds, _instances, _workers, _memory, _rendering, _closing, _gymnasium, _speed, _together,
)  # fmt: skip
_NEED_FACTORY = {_instances, _workers, _rendering, _closing, _together}

_NEW_API = (
    "reset(self, *, seed=None, options=None) -> (observation, info); step(self, action) -> (observation, reward, "
    "terminated, truncated, info).",
    "Change it; the old gym API is adapted, but a done of a time limit counts as an end unless the info has "
    '"TimeLimit.truncated".',
)
# What gymnasium's checker warns of that is none of the environment's business, or told by a check of ours.
_NOT_OURS = (
    "is different from the unwrapped version", "does not have a spec", "not having a spec", "render",
    "precision lowered", "recommend using a symmetric and normalized", "is not within the observation space",
    "infinity",
)  # fmt: skip


def _episode(subject: _Subject, env, seed: int, seeds_global: bool = False, beside: tuple | None = None) -> list[tuple]:
    """What a seeded reset and `subject.short` random actions give, over as many episodes as that takes.

    Args:
        seeds_global: whether random and numpy.random are seeded first; their states are restored.
        beside: functions that reset another environment, and step it for an observation, before each step.
    """
    states = random.getstate(), np.random.get_state()
    if seeds_global:
        random.seed(seed)
        np.random.seed(seed)
    draw = subject.actions(env)
    observation = env.reset(seed=seed)[0]
    rows = [(copy.deepcopy(observation), 0.0, False, False)]
    others = beside[0]()[0] if beside else None
    for _ in range(subject.short):
        if beside:
            others, _, *flags, _ = beside[1](others)
            if any(flags):
                others = beside[0]()[0]
        observation, reward, terminated, truncated, _ = env.step(draw(observation))
        rows.append((copy.deepcopy(observation), reward, bool(terminated), bool(truncated)))
        if terminated or truncated:
            observation = env.reset()[0]
            rows.append((copy.deepcopy(observation), 0.0, False, False))
    if seeds_global:
        random.setstate(states[0])
        np.random.set_state(states[1])
    return rows


def _difference(one: list[tuple], other: list[tuple]) -> str | None:
    """Where two records of `_episode` differ first, in words; None if they are equal."""
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


def _rate_together(subject: _Subject, factory: EnvFactory) -> float:
    """Environment steps a second of `num_envs` environments in the stream that workers use."""
    count = subject.num_envs

    def make(index: int):
        return factory.make(EnvContext(subject.env_config, vector_index=index, num_envs=count))

    with stream_over(make, list(range(count))) as stream:
        row, draw = stream.new_row(), _random_actions(stream)
        stream.reset(row)
        steps, elapsed = 0, 0.0
        while elapsed < TOGETHER_S:
            actions, started = draw(row.observations), time.perf_counter()
            stream.step(actions, row)
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
        if masks and isinstance(space, spaces.Discrete):
            legal = observations[:, masks[0].start : masks[0].stop].astype(np.int8)
        return concatenate(space, [space.sample(mask=mask) for mask in legal], create_empty_array(space, count))

    return draw


def _boxes(space, path: str) -> Iterator[tuple[str, spaces.Box]]:
    if isinstance(space, spaces.Box):
        yield path, space
    elif isinstance(space, spaces.Dict | spaces.Tuple):
        items = space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces)
        for key, part in items:
            yield from _boxes(part, f"{path}[{key!r}]")


def _finite(space: spaces.Box) -> np.ndarray:
    bounds = np.concatenate([space.low.ravel(), space.high.ravel()]).astype(np.float64)
    return bounds[np.isfinite(bounds) & (np.abs(bounds) < 1e30)]  # gymnasium's own environments have the largest float


def _close(env) -> None:
    if hasattr(env, "close"):
        env.close()


def _told(error: BaseException) -> str:
    """An exception in a line, with the place that raised it."""
    text = _one_line(str(error))
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({os.path.basename(frames[-1].filename)}:{frames[-1].lineno} in {frames[-1].name})" if frames else ""
    return f"{type(error).__name__}: {text}{place}"


def _one_line(text: str) -> str:
    """Without line breaks and the colours of a terminal, which gymnasium's warnings have."""
    return " ".join(re.sub(r"\x1b\[[0-9;]*m", "", text).split())[:300]


def _resident_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _per_million(bytes_per_step: float) -> str:
    return f"{bytes_per_step * 1e6 / 2**30:.1f} GB in a million steps"


def _duration(seconds: float) -> str:
    for size, unit in ((3600.0, "h"), (60.0, "min")):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} s"
