"""N Python environments stepped one after the other in one loop, as fast as Python allows."""

import logging
import math
from functools import partial

import numpy as np
from gymnasium import spaces
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker, TimeLimit

from rllib.env.legacy import LegacyEnvironment, adapt_spaces, call_reset, is_bare_observation, takes_seed, tell_legacy
from rllib.env.spaces import check_spaces, mismatch
from rllib.env.stream import EnvironmentStream, reward_problem, write_rewards

logger = logging.getLogger("rllib.env")

NEVER = math.inf


class SyncStream(EnvironmentStream):
    """Steps environments of one kind, resetting those whose episode has ended within the same step.

    gymnasium's outermost TimeLimit, OrderEnforcing and PassiveEnvChecker are taken off, since each costs a Python call
    per step: the time limit is kept here instead, with one comparison for all environments.

    The first results of every environment pass a check of form (old gym API, missing info, wrong shapes), which then
    removes itself from the path.

    Args:
        envs: N environments with the same spaces; the stream owns and closes them.
        seeds: one int per environment, given to its first reset.
        worker_index: for messages; 0 is the driver.
        checked_steps: how many results of each environment are held against its observation space; 0 checks only
            the form.

    Raises:
        ValueError: if the spaces are not supported, or differ from environment to environment.
    """

    def __init__(self, envs: list, seeds: list[int], *, worker_index: int = 0, checked_steps: int = 1):
        self._envs, self._limits = [], []
        for env in map(adapt_spaces, envs):
            bare, limit = take_off_wrappers(env)
            self._envs.append(bare)
            self._limits.append(limit)
        first = self._envs[0]
        check_spaces(first.observation_space, first.action_space, _name(first))
        for index, env in enumerate(self._envs):
            for kind in ("observation_space", "action_space"):
                if getattr(env, kind) != getattr(first, kind):
                    raise ValueError(
                        f"the {kind} of environment {index} is {getattr(env, kind)}, that of environment 0 is "
                        f"{getattr(first, kind)}. All environments of a run must have the same spaces."
                    )
        super().__init__(len(envs), first.observation_space, first.action_space)
        self._seeds: list[int | None] = [int(seed) for seed in seeds]  # None once used; gymnasium takes no np.int64
        self._worker_index = worker_index
        self._checked_steps = [checked_steps] * self.num_envs
        self._rows_to_check = checked_steps > 0
        self._action_dtype = None if isinstance(first.action_space, spaces.Discrete) else first.action_space.dtype
        # Called by position in the hot loop; each entry is first `_examined_step`, then the environment's own method.
        self._steps = [partial(self._examined_step, index) for index in range(self.num_envs)]
        self._clock = 0  # steps of the stream so far
        self._starts = [0] * self.num_envs  # clock at the start of the running episode
        self._deadlines = [NEVER] * self.num_envs  # clock at which it reaches its time limit
        self._next_deadline = NEVER  # the earliest of them

    def reset(self, observations):
        rows = [self._reset_env(index) for index in range(self.num_envs)]
        self._next_deadline = min(self._deadlines)
        self.reset_rows = None
        self.column.write_rows(rows, observations)

    def step(self, actions, observations, rewards, terminated, truncated, active=None):
        if active is not None:
            return self._step_some(actions, observations, rewards, terminated, truncated, active)
        self._clock += 1
        rows, given_rewards, ended = [], [], []
        terminated.fill(False)
        truncated.fill(False)
        try:
            for step, action in zip(self._steps, self._to_python(actions)):
                observation, reward, is_terminated, is_truncated, _ = step(action)
                rows.append(observation)
                given_rewards.append(reward)
                if is_terminated or is_truncated:
                    index = len(rows) - 1
                    terminated[index] = is_terminated
                    truncated[index] = is_truncated
                    ended.append(index)
        except Exception as error:
            self._add_step_note(error, len(rows), actions)
            raise
        self._write_rewards(given_rewards, rewards)
        if self._clock >= self._next_deadline:
            ended = self._apply_time_limits(ended, truncated)
        finals = self._start_next(ended, rows) if ended else ended
        self.column.write_rows(rows, observations)
        self.reset_rows = None
        return finals

    def close(self):
        envs, self._envs = self._envs, []
        close_all(envs)

    # ---- off the hot path

    def _step_some(self, actions, observations, rewards, terminated, truncated, active):
        """`step` for a part of the environments; a row at a time."""
        self._clock += 1
        active = np.asarray(active, bool)
        for column in (rewards, terminated, truncated):
            column.fill(0)
        rows, ended = [None] * self.num_envs, []
        for index, action in enumerate(self._to_python(actions)):
            if not active[index]:
                self._starts[index] += 1  # its clock stands still
                self._deadlines[index] += 1
                continue
            try:
                result = self._steps[index](action)
            except Exception as error:
                self._add_step_note(error, index, actions)
                raise
            rows[index], reward, terminated[index], truncated[index], _ = result
            self._write_rewards([reward], rewards[index : index + 1], index)
            if terminated[index] or truncated[index]:
                ended.append(index)
        finals = self._start_next(self._apply_time_limits(ended, truncated), rows)
        for index in np.flatnonzero(active):
            self.column.write_rows([rows[index]], observations[index : index + 1])
        self.reset_rows = ~active
        return finals

    def _to_python(self, actions):
        """The actions one by one: ints for Discrete, otherwise rows of a copy that environments may keep or change."""
        return actions.tolist() if self._action_dtype is None else actions.astype(self._action_dtype)

    def _write_rewards(self, given, out, first_index=0):
        try:
            write_rewards(given, out)
        except ValueError as error:
            error.add_note(f"in rollout worker {self._worker_index}, at step {self._clock} of its environments")
            raise

    def _apply_time_limits(self, ended: list[int], truncated) -> list[int]:
        """Marks episodes that have reached their limit as truncated, as TimeLimit does; returns all that ended."""
        due = [index for index, deadline in enumerate(self._deadlines) if deadline <= self._clock]
        truncated[due] = True
        return sorted({*ended, *due})

    def _start_next(self, ended: list[int], rows: list) -> list[tuple[int, np.ndarray]]:
        """Resets ended environments, whose entries in `rows` become first observations; returns the final ones."""
        finals = []
        for index in ended:
            # A copy, made before the reset: environments may hand out the same array again.
            finals.append((index, self.column.row(rows[index])))
            rows[index] = self._reset_env(index)
        self._next_deadline = min(self._deadlines)
        return finals

    def _reset_env(self, index: int):
        """Starts an episode in one environment and returns its first observation, unconverted."""
        length = self._clock - self._starts[index]
        try:
            observation = self._first_observation(index)
        except Exception as error:
            before = f" after an episode of {length} steps" if length else ""
            error.add_note(f"{self._place(index)} raised in reset(){before}")
            raise
        self._starts[index] = self._clock
        self._deadlines[index] = self._clock + self._limits[index]
        return observation

    def _first_observation(self, index: int):
        env = self._envs[index]
        if self._seeds[index] is None:
            return env.reset()[0]
        seed, self._seeds[index] = self._seeds[index], None
        result = call_reset(env, seed)
        bare = is_bare_observation(result, env.observation_space)
        observation = result if bare else result[0]
        self._check_observation(index, observation, "returned by reset()")
        if not bare and not isinstance(result[1], dict):
            raise TypeError(f"reset() must return (observation, info) with a dict as info, but info is {result[1]!r}")
        if bare:
            self._adapt(index, "reset() returns the observation alone")
        elif not takes_seed(env):
            self._adapt(index, "reset() takes no seed")
        return observation

    def _examined_step(self, index: int, action):
        """The first steps of an environment: brings its results into form, checks them, then gets out of the way."""
        result = self._envs[index].step(action)
        if isinstance(result, tuple) and len(result) == 4 and not isinstance(self._envs[index], LegacyEnvironment):
            self._adapt(index, "step() returns 4 values")
            result = self._envs[index].convert(result)
        if not isinstance(result, tuple) or len(result) != 5:
            raise TypeError(
                "step() must return (observation, reward, terminated, truncated, info), "
                f"but {_name(self._envs[index])} returned {_described(result)}"
            )
        if self._checked_steps[index] > 0:
            self._checked_steps[index] -= 1
            self._check_step(index, result)
        if self._checked_steps[index] == 0:
            self._steps[index] = self._envs[index].step
        return result

    def _check_step(self, index: int, result: tuple) -> None:
        observation, reward, is_terminated, is_truncated, info = result
        self._check_observation(index, observation, "returned by step()")
        problem = reward_problem(reward)
        if problem:
            raise ValueError(f"{_name(self._envs[index])}: {problem}")
        for name, flag in (("terminated", is_terminated), ("truncated", is_truncated)):
            if not isinstance(flag, (bool, int, np.bool_, np.integer)):
                raise TypeError(f"step() must return True or False as {name}, but it is {flag!r}")
        if not isinstance(info, dict):
            raise TypeError(f"step() must return a dict as info, but it is {info!r}")

    def _check_observation(self, index: int, observation, where: str) -> None:
        if not self._rows_to_check:
            return
        problem = mismatch(self.observation_space, observation)
        if problem:
            raise ValueError(
                f"{_name(self._envs[index])}: the {problem} ({where}). Correct the observation or the "
                "observation_space; .environment(disable_env_checking=True) trains without this check."
            )

    def _adapt(self, index: int, reason: str) -> None:
        if not isinstance(self._envs[index], LegacyEnvironment):
            if self._worker_index == 0:
                tell_legacy(self._envs[index], reason)
            self._envs[index] = LegacyEnvironment(self._envs[index])

    def _place(self, index: int) -> str:
        return f"environment {index} of rollout worker {self._worker_index} ({_name(self._envs[index])})"

    def _add_step_note(self, error: Exception, index: int, actions) -> None:
        step = self._clock - self._starts[index]
        error.add_note(
            f"{self._place(index)} raised in step() at step {step} of its episode, action {actions[index]!r}"
        )


def take_off_wrappers(env) -> tuple:
    """The environment without gymnasium's outermost standard wrappers, and the limit of its episodes in steps."""
    limit = NEVER
    while type(env) in (TimeLimit, OrderEnforcing, PassiveEnvChecker):
        if type(env) is TimeLimit:
            limit = min(limit, env._max_episode_steps)
        env = env.env
    return env, limit


def close_all(envs: list) -> None:
    """Closes environments; one that fails to close is logged and holds up none of the others."""
    for env in envs:
        try:
            if hasattr(env, "close"):
                env.close()
        except Exception:
            logger.warning("%s failed to close", _name(env), exc_info=True)


def _name(env) -> str:
    return type(getattr(env, "unwrapped", env)).__name__


def _described(result) -> str:
    return f"{len(result)} values" if isinstance(result, tuple) else f"{result!r} ({type(result).__name__})"
