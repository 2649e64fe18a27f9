"""Checks of an environment's form: spaces, methods, pickling, rendering and closing."""

import contextlib
import time
import warnings
from collections.abc import Iterator

import cloudpickle
import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env as check_env_of_gymnasium
from gymnasium.vector import VectorEnv

from rllib.env.agents import is_multi_agent
from rllib.env.checkup.random_walk import INFO_RULE, OBSERVATION_RULE
from rllib.env.checkup.report import Found, error_line, one_line
from rllib.env.checkup.subject import SEED, Subject, close
from rllib.env.factories.registry import EnvContext
from rllib.env.multi_agent.adapt import as_multi_agent
from rllib.env.spaces.supported import check_spaces, mismatch
from rllib.env.streams.first_results import COST_IN_INFO, env_name
from rllib.env.streams.legacy import LegacyEnvironment, adapt_spaces, call_reset, is_bare_observation, takes_seed
from rllib.storage.unpickling import unpickled

_NEW_API = (
    "reset(self, *, seed=None, options=None) -> (observation, info); step(self, action) -> (observation, reward, "
    "terminated, truncated, info).",
    "Change it; the old gym API is adapted, but a done of a time limit counts as an end unless the info has "
    '"TimeLimit.truncated".',
)
_COST_IN_INFO = (
    'step(self, action) -> (observation, reward, terminated, truncated, info), with the cost as info["cost"].',
    COST_IN_INFO,
)
# Warnings of gymnasium's checker that are no fault of the environment, or that a check of ours reports.
_NOT_OURS = (
    "is different from the unwrapped version", "does not have a spec", "not having a spec", "render",
    "precision lowered", "recommend using a symmetric and normalized", "is not within the observation space",
    "infinity",
)  # fmt: skip


def construction_check(subject: Subject) -> Iterator[Found]:
    """Whether it can be made, and which packages its class and spaces are of."""
    if subject.env is None:
        started = time.perf_counter()
        subject.env = subject.given = subject.make()
        subject.measured["make_ms"] = (time.perf_counter() - started) * 1000
    if isinstance(subject.env, VectorEnv):
        return
    if is_multi_agent(subject.env):
        subject.env = as_multi_agent(subject.env)
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


def spaces_check(subject: Subject) -> Iterator[Found]:
    """Whether networks read the spaces, and bounds suit them."""
    observation_space, action_space = subject.env.observation_space, subject.env.action_space
    subject.measured |= {
        "observation_space": one_line(str(observation_space)),
        "action_space": one_line(str(action_space)),
    }
    try:
        check_spaces(observation_space, action_space, subject.name)
    except ValueError as error:
        yield (
            "error",
            str(error),
            "Networks read Box, Discrete, MultiDiscrete, MultiBinary, Dict and Tuple.",
            ("Change the space, or wrap the environment (env_wrappers)."),
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


def form_check(subject: Subject) -> Iterator[Found]:
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
        yield "error", f"step() returned {given}", *(_COST_IN_INFO if given == "6 values" else _NEW_API)
        return
    subject.env = subject.adapted(env)


def workers_check(subject: Subject) -> Iterator[Found]:
    """Whether the environment can be sent to workers, and made there."""
    try:
        sent = cloudpickle.dumps(subject.factory)
    except Exception as error:
        yield (
            "error",
            f"what makes the environment cannot be pickled: {error_line(error)}",
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
    close(unpickled(sent).make(EnvContext(subject.env_config)))


def rendering_check(subject: Subject) -> Iterator[Found]:
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


def _drawn(subject: Subject, mode: str) -> Iterator[Found]:
    try:
        with contextlib.closing(subject.make(render_mode=mode)) as env:
            env.reset(seed=SEED)
            frame = env.render()
    except Exception as error:
        yield (
            "note",
            f"render_mode={mode!r} fails: {error_line(error)}",
            f"What metadata['render_modes'] names can be drawn: {mode} by render().",
            "Install the missing package, or take render_mode as an argument and correct render().",
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


def closing_check(subject: Subject) -> Iterator[Found]:
    """Whether it can be closed, and twice."""
    env = subject.adapted(subject.make())
    env.reset(seed=SEED)
    close(env)
    try:
        close(env)
    except Exception as error:
        yield (
            "note",
            f"a second close() raises {error_line(error)}",
            "close() may be called twice.",
            "Set what was closed to None, and look for it first.",
        )


def gymnasium_check(subject: Subject) -> Iterator[Found]:
    """Gymnasium's own checker. Its assertions count as warnings, since our checks cover the errors."""
    bare = getattr(subject.env, "unwrapped", subject.env)
    if not isinstance(bare, gymnasium.Env) or isinstance(subject.env, LegacyEnvironment):
        return
    remedy = "See gymnasium.utils.env_checker.check_env, which says this."
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            check_env_of_gymnasium(bare, skip_render_check=True, skip_close_check=True)
        except Exception as error:
            yield "warning", one_line(str(error) or repr(error)), "gymnasium's own checker passes.", remedy
    for warning in caught:
        text = one_line(str(warning.message)).removeprefix("WARN: ")
        if issubclass(warning.category, UserWarning) and not any(part in text for part in _NOT_OURS):
            yield "note", text, "gymnasium's own checker gives no warning.", remedy


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
