"""Steps of an environment with random actions, and the faults of their results."""

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from rllib.env.checkup.driver import CHECKED_STEPS
from rllib.env.checkup.report import Found
from rllib.env.spaces.supported import Rounding, mismatch
from rllib.env.streams.legacy import call_reset
from rllib.env.streams.rewards import reward_problem

# Rules, and what to do where one is broken.
INFO_RULE = "info is a dict.", "Return {} where there is nothing to report."
OBSERVATION_RULE = (
    "Observations lie in the observation_space: shape, bounds, no NaN.",
    "Correct the observation or the space. build() refuses this in the first steps, unless "
    ".environment(disable_env_checking=True).",
)


class RandomWalk:
    """Steps an environment with random actions, and finds faults in the results.

    Args:
        env: the environment.
        draw: (observation) -> random action.
    """

    def __init__(self, env, draw: Callable):
        self._env, self._draw, self._space = env, draw, env.observation_space
        self._observation = self._result = self._before = None
        self._kept: list[tuple[np.ndarray, np.ndarray]] = []  # arrays of the last observation, and what was in them
        self._first = None
        self.rounding = Rounding(self._space)  # of the first steps, as build() sees them
        self._times: list[float] = []  # of steps (seconds)
        self._reset_s = self._cpu_s = 0.0
        self.count = self._resets = self._length = 0
        self.lengths: list[int] = []
        self.rewards_seen: list[float] = []
        self.is_constant, self.is_over = True, False

    def reset(self, seed: int | None = None) -> None:
        started = time.perf_counter()
        self._observation = call_reset(self._env, seed)[0]
        if seed is None:
            self._reset_s += time.perf_counter() - started
            self._resets += 1
        self._length, self.is_over = 0, False

    def step(self) -> None:
        self._kept = [(array, array.copy()) for array in arrays(self._observation)]
        action = self._draw(self._observation)
        started, cpu = time.perf_counter(), time.process_time()
        self._result = self._env.step(action)
        self._times.append(time.perf_counter() - started)
        self._cpu_s += time.process_time() - cpu
        self._observation = self._result[0]
        self.count += 1
        self._length += 1
        self.is_over = bool(self._result[2]) or bool(self._result[3])
        if self.is_over:
            self.lengths.append(self._length)

    def problems(self) -> Iterator[Found]:
        """Faults of the last step."""
        _, reward, terminated, truncated, info = self._result
        where = f"step() at step {self._length} of episode {len(self.lengths) + (not self.is_over)}"
        yield from self.problems_of_observation(where)
        if problem := reward_problem(reward):
            yield "error", f"{problem} ({where})", "A reward is a finite number.", (
                "Return a float; look for a division by zero or an overflow where it is nan or infinite."
            )
        else:
            self.rewards_seen.append(float(np.asarray(reward).item()))
            if isinstance(reward, np.ndarray):
                yield "note", f"the reward is an array, {reward!r}", "A reward is a number.", "Return float(reward)."
        for name, flag in (("terminated", terminated), ("truncated", truncated)):
            if not isinstance(flag, bool | np.bool_):
                severity = "warning" if isinstance(flag, int | np.integer) else "error"
                yield severity, f"{name} is {flag!r} ({type(flag).__name__}, {where})", (
                    "terminated and truncated are True or False."
                ), f"Return bool({name})."
        if not isinstance(info, dict):
            yield "error", f"info is {info!r:.60} ({where})", *INFO_RULE
        if any(not np.array_equal(array, kept, equal_nan=array.dtype.kind == "f") for array, kept in self._kept):
            yield (
                "warning",
                f"step() has changed the array of the observation before it ({where})",
                "An observation that was returned stays as it is: replays, callbacks and wrappers may keep it.",
                "Return a copy: return self._state.copy(), ...",
            )

    def problems_of_observation(self, where: str) -> Iterator[Found]:
        """Faults of the last observation."""
        if problem := mismatch(self._space, self._observation):
            self.is_constant = False  # it is not known
            yield "error", f"the {problem} ({where})", *OBSERVATION_RULE
            return
        for path, space, value in _parts(self._space, self._observation, "observation"):
            if not isinstance(value, np.ndarray) and isinstance(space, spaces.Box):
                yield (
                    "note",
                    f"{path} is a {type(value).__name__} ({where})",
                    "Observations of a Box are numpy arrays.",
                    "Return np.array(..., dtype=...); a list is converted in every step.",
                )
            elif isinstance(value, np.ndarray) and isinstance(space, spaces.Box) and value.dtype != space.dtype:
                yield (
                    "warning",
                    f"{path} has dtype {value.dtype}, its space {space.dtype} ({where})",
                    "Observations have the dtype of their space.",
                    f"Return {path}.astype(np.{space.dtype}); it is converted in every step.",
                )
        if self.count <= CHECKED_STEPS:
            self.rounding(self._observation)
        values = [np.array(part) for _, _, part in _parts(self._space, self._observation, "observation")]
        if self._first is None:
            self._first = values
        elif self.is_constant:
            self.is_constant = all(map(np.array_equal, self._first, values))

    @property
    def mean_step_s(self) -> float:
        return sum(self._times) / self.count

    def measured(self) -> dict[str, Any]:
        """Times and lengths."""
        return {
            "steps": self.count,
            "episodes": len(self.lengths),
            "mean_length": float(np.mean(self.lengths)) if self.lengths else None,
            "mean_return_of_random_actions": sum(self.rewards_seen) / len(self.lengths) if self.lengths else None,
            "step_us": float(np.median(self._times)) * 1e6,
            "slowest_step_ms": max(self._times) * 1000,
            "cpu_share": min(1.0, self._cpu_s / max(sum(self._times), 1e-9)),
            "reset_ms": self._reset_s / self._resets * 1000 if self._resets else 0.0,
        }


def _parts(space, value, path: str) -> Iterator[tuple[str, Any, Any]]:
    """(path, space, value) of each leaf of an observation that lies in its space."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        keys = space.spaces if isinstance(space, spaces.Dict) else range(len(space.spaces))
        for key in keys:
            yield from _parts(space[key], value[key], f"{path}[{key!r}]")
    else:
        yield path, space, value


def arrays(value) -> Iterator[np.ndarray]:
    """The arrays in an observation, or in a dict of observations."""
    if isinstance(value, np.ndarray):
        yield value
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from arrays(part)
    elif isinstance(value, tuple | list):
        for part in value:
            yield from arrays(part)
