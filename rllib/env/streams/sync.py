"""A stream over N Python environments, stepped one after the other in one loop."""

import logging
import math
from collections.abc import Collection
from functools import partial

import numpy as np
from gymnasium.wrappers import TimeLimit

from rllib.env.agents import STANDARD_WRAPPERS
from rllib.env.spaces.actions import one_by_one
from rllib.env.spaces.supported import check_spaces, mismatch
from rllib.env.streams.base import MAX_FAILURES_IN_A_ROW, EnvironmentStream, log_exit, successor_seed
from rllib.env.streams.first_results import RESET_RULE, STEP_RULE, Examiner, env_name, form_error, is_end
from rllib.env.streams.legacy import adapt_spaces

logger = logging.getLogger("rllib.env")

NEVER = math.inf


class SyncStream(EnvironmentStream):
    """A stream over environments of one kind; an ended episode is followed by a reset within the same step.

    gymnasium's outermost TimeLimit, OrderEnforcing and PassiveEnvChecker are taken off, since each costs a Python call
    per step: the time limit is kept here instead, with one comparison for all environments.

    The form of every environment's first results is checked (old gym API, missing info, wrong shapes); later steps
    call the environment directly.

    Args:
        envs: N environments with the same spaces; the stream owns and closes them.
        seeds: one int per environment, given to its first reset.
        options: as for EnvironmentStream; `checked_steps` of 0 checks only the form.

    Raises:
        ValueError: if the spaces are not supported, or differ from environment to environment.
    """

    def __init__(self, envs: list, seeds: list[int], **options):
        self._envs, self._limits = [], []
        for env in map(adapt_spaces, envs):
            bare, limit = take_off_wrappers(env)
            self._envs.append(bare)
            self._limits.append(limit)
        first = self._envs[0]
        check_spaces(first.observation_space, first.action_space, env_name(first))
        for index, env in enumerate(self._envs):
            _check_same_spaces(env, first, index)
        super().__init__(len(envs), first.observation_space, first.action_space, **options)
        self._seeds: list[int | None] = []  # None once used; gymnasium takes no np.int64
        self._given_seeds: list[int] = []
        self.reseed(seeds)
        self._examiners = [Examiner(env, self._checked_steps, self._warns) for env in self._envs]
        self._to_python = one_by_one(first.action_space)
        # Each entry is first `_examined_step`, then the environment's own method.
        self._own_steps = [partial(self._examined_step, index) for index in range(self.num_envs)]
        # Called by position in the hot loop.
        self._steps = self._own_steps
        if self._remake is not None:
            self._steps = [partial(self._guarded_step, index) for index in range(self.num_envs)]
        # Infos of the newest steps (None where there was none) and of the newest observations.
        self._step_infos: list[dict | None] = [None] * self.num_envs
        self._newest_infos: list[dict | None] = [None] * self.num_envs  # None: it has not begun
        if self.info_columns:
            self._watch_steps()
        self._failures = [0] * self.num_envs  # in a row, without a step in between
        self._replacements = [0] * self.num_envs
        self._starts = [0] * self.num_envs  # clock at the start of the running episode
        self._deadlines = [NEVER] * self.num_envs  # clock at which it reaches its time limit
        self._next_deadline = NEVER  # the earliest of them

    @property
    def environments(self):
        return list(self._envs)

    @property
    def time_limits(self) -> list[int | None]:
        """Steps after which the stream truncates the episodes of each environment; None: never."""
        return [None if limit == NEVER else int(limit) for limit in self._limits]

    def watch(self, observer):
        super().watch(observer)
        if observer.follows_episodes:
            self._watch_steps()

    def _watch_steps(self) -> None:
        self._steps = [partial(self._watched_step, index) for index in range(self.num_envs)]

    def reset(self, buffers):
        rows = [self._reset_env(index) for index in range(self.num_envs)]
        self._next_deadline = min(self._deadlines)
        self.reset_rows = None
        self._write_rows(rows, buffers.observations)
        self._write_infos(self._newest_infos, buffers.infos, before_action=True)

    def reseed(self, seeds):
        self._given_seeds = [int(seed) for seed in seeds]
        self._seeds = list(self._given_seeds)

    def step(self, actions, buffers, active=None):
        if active is not None:
            return self._step_some(actions, buffers, active)
        observations, rewards, terminated, truncated, infos = buffers
        self._clock += 1
        self.replaced, self.lives_lost = [], []
        rows, given_rewards, ended = [], [], []
        terminated.fill(False)
        truncated.fill(False)
        commands = self._to_python(actions)
        try:
            for step, action in zip(self._steps, commands):
                observation, reward, is_terminated, is_truncated, info = step(action)
                if is_terminated is not False or is_truncated is not False:
                    index = len(rows)
                    terminated[index] = is_end("terminated", is_terminated)
                    truncated[index] = is_end("truncated", is_truncated)
                    if is_terminated or is_truncated:
                        ended.append(index)
                        if info.get("life_lost"):
                            self.lives_lost.append(index)
                rows.append(observation)
                given_rewards.append(reward)
        except (Exception, SystemExit) as raised:
            error = self._step_error(raised, len(rows), actions)
            if error is raised:
                raise
            raise error from None
        self._write_rewards(given_rewards, rewards)
        if self._clock >= self._next_deadline:
            ended = self._apply_time_limits(ended, truncated)
        finals = self._start_next(ended, rows) if ended else ended
        self._write_rows(rows, observations)
        self.reset_rows = np.isin(range(self.num_envs), self.replaced) if self.replaced else None
        if infos:
            self._write_all_infos(infos)
        return finals

    def restart(self, index, seed, observations):
        self._seeds[index] = int(seed)
        row = self._reset_env(index)
        self._next_deadline = min(self._deadlines)
        self._write_rows([row], observations[index : index + 1], index)

    def close(self):
        envs, self._envs, self._steps, self._own_steps, self._examiners = self._envs, [], [], [], []
        close_all(envs)

    # ---- off the hot path

    def _step_some(self, actions, buffers, active):
        """`step` for a part of the environments, one at a time."""
        observations, rewards, terminated, truncated, infos = buffers
        self._clock += 1
        self.replaced, self.lives_lost = [], []
        active = np.asarray(active, bool)
        for column in (rewards, terminated, truncated):
            column.fill(0)
        rows, ended = [None] * self.num_envs, []
        for index, action in enumerate(self._to_python(actions)):
            if not active[index]:
                self._starts[index] += 1  # its clock stands still
                self._deadlines[index] += 1
                self._step_infos[index] = None
                continue
            try:
                rows[index], reward, is_terminated, is_truncated, info = self._steps[index](action)
                terminated[index] = is_end("terminated", is_terminated)
                truncated[index] = is_end("truncated", is_truncated)
            except (Exception, SystemExit) as raised:
                error = self._step_error(raised, index, actions)
                if error is raised:
                    raise
                raise error from None
            self._write_rewards([reward], rewards[index : index + 1], index)
            if terminated[index] or truncated[index]:
                ended.append(index)
                if info.get("life_lost"):
                    self.lives_lost.append(index)
        finals = self._start_next(self._apply_time_limits(ended, truncated), rows)
        for index in np.flatnonzero(active):
            self._write_rows([rows[index]], observations[index : index + 1], index)
        self.reset_rows = ~active
        self.reset_rows[self.replaced] = True
        self._write_all_infos(infos)
        return finals

    def _write_all_infos(self, out):
        self._write_infos(self._step_infos, out, before_action=False)
        self._write_infos(self._newest_infos, out, before_action=True)

    def _write_rows(self, rows, out, first_index=0):
        try:
            self.column.write_rows(rows, out)
        except Exception as error:
            if misfit := self._misfit(rows, first_index):
                raise misfit from None
            error.add_note(f"in {self._worker}, at step {self._clock} of its environments")
            raise

    def _misfit(self, rows: list, first_index: int) -> ValueError | None:
        """The error that names the observation among `rows` that does not lie in its space."""
        for index, row in enumerate(rows, first_index):
            if problem := mismatch(self.observation_space, row):
                return ValueError(
                    f"{self._place(index)}: the {problem}, at step {self._clock} of the worker's environments"
                )
        return None

    def _apply_time_limits(self, ended: list[int], truncated) -> list[int]:
        """Marks episodes that have reached their limit as truncated, as TimeLimit does; returns all that ended."""
        due = [index for index, deadline in enumerate(self._deadlines) if deadline <= self._clock]
        truncated[due] = True
        return sorted({*ended, *due})

    def _start_next(self, ended: list[int], rows: list) -> list[tuple[int, np.ndarray]]:
        """Resets ended environments, whose entries in `rows` become first observations; returns the final ones."""
        finals = []
        is_reset = {i for i in ended if self.resets_ended and (self.wants_next is None or self.wants_next(i))}
        self._begin_resets(is_reset)
        for index in ended:
            # A copy, made before the reset: environments may hand out the same array again.
            final = self.column.row(rows[index])
            if final.shape != self.observation_shape:
                raise self._misfit([rows[index]], index)
            finals.append((index, final))
            if self._observer is not None:
                self._observer.ended(index)
            if index in is_reset:
                rows[index] = self._reset_env(index)
            else:
                self._deadlines[index] = NEVER
        self._next_deadline = min(self._deadlines)
        return finals

    def _begin_resets(self, indices: Collection[int]) -> None:
        """Begins the resets of environments that others compute meanwhile."""

    def _reset_env(self, index: int):
        """Starts an episode in one environment and returns its first observation, unconverted."""
        length = self._clock - self._starts[index]
        if self._observer is not None:
            self._observer.created(index)
        try:
            observation, info = self._first_result(index)
        except (Exception, SystemExit) as raised:
            error = form_error(raised, RESET_RULE, __file__) or raised
            where = "in reset()" + (f" after an episode of {length} steps" if length else "")
            error.add_note(f"{self._place(index)} raised {where}")
            if isinstance(error, SystemExit):
                log_exit(error, self._place(index), where)
            if isinstance(error, SystemExit) or self._remake is None:
                if error is raised:
                    raise
                raise error from None
            if self._observer is not None:
                self._observer.failed(index)
            return self._replace(index, error, where)
        self._starts[index] = self._clock
        self._deadlines[index] = self._clock + self._limits[index]
        self._newest_infos[index] = info
        if self._observer is not None:
            self._observer.started(index, observation, info)
        return observation

    def _first_result(self, index: int) -> tuple:
        seed, self._seeds[index] = self._seeds[index], None
        if seed is None:
            return self._envs[index].reset()
        result = self._examiners[index].reset(seed)
        self._envs[index] = self._examiners[index].env
        return result

    def _examined_step(self, index: int, action) -> tuple:
        """A step of an environment that is still examined; after the last one this method is not called again."""
        examiner = self._examiners[index]
        result = examiner.step(action)
        self._envs[index] = examiner.env
        if examiner.is_done:
            self._own_steps[index] = examiner.env.step
        return result

    def _watched_step(self, index: int, action) -> tuple:
        """A step whose info is kept, and which is reported to the observer, unless the environment failed in it."""
        result = self._own_steps[index](action) if self._remake is None else self._guarded_step(index, action)
        if index in self.replaced:
            self._step_infos[index] = None
            return result
        *_, self._step_infos[index] = result
        self._newest_infos[index] = self._step_infos[index]
        if self._observer is not None:
            self._observer.stepped(index, action, result)
        return result

    # ---- environments that fail, where `remake` replaces them

    def _guarded_step(self, index: int, action) -> tuple:
        """Steps an environment, and replaces it if it raises: the observation is then the first of a new episode."""
        try:
            result = self._own_steps[index](action)
        except Exception as error:
            step = self._clock - self._starts[index]
            if self._observer is not None:
                self._observer.failed(index)
            observation = self._replace(index, error, f"in step() at step {step} of its episode")
            self.replaced.append(index)
            return observation, 0.0, False, False, {}
        self._failures[index] = 0
        return result

    def _replace(self, index: int, error: Exception, where: str):
        """Closes a failed environment, makes a new one in its place and returns its first observation.

        Raises:
            error itself, if there were too many in a row.
        """
        self._failures[index] += 1
        if self._failures[index] > MAX_FAILURES_IN_A_ROW:
            error.add_note(
                f"environment {index} of {self._worker} is not replaced again: it has failed "
                f"{self._failures[index]} times in a row"
            )
            raise error
        logger.warning("%s raised %s; it is replaced by a new one", self._place(index), where, exc_info=error)
        close_all([self._envs[index]])
        try:
            env, limit = take_off_wrappers(adapt_spaces(self._remake(index)))
        except Exception as failure:
            return self._replace(index, failure, "when it was made again")
        _check_same_spaces(env, self, index)
        self._replacements[index] += 1
        self._seeds[index] = successor_seed(self._given_seeds[index], self._replacements[index])
        self._envs[index], self._limits[index] = env, limit
        self._examiners[index] = Examiner(env, self._checked_steps, warns=False)
        self._own_steps[index] = partial(self._examined_step, index)
        if self._observer is not None:
            self._observer.environment_made(index, env)
        observation = self._reset_env(index)
        self._next_deadline = min(self._deadlines)
        return observation

    def _place(self, index: int) -> str:
        return f"environment {index} of {self._worker} ({env_name(self._envs[index])})"

    def _step_error(self, raised: BaseException, index: int, actions) -> BaseException:
        """The error of an environment's step, or of its result's form, with a note of environment, step and action."""
        error = form_error(raised, STEP_RULE, __file__) or raised
        step = self._clock - self._starts[index]
        action = self._to_python(actions)[index]
        shown = action.tolist() if isinstance(action, np.ndarray) else action
        where = f"in step() at step {step} of its episode, action {shown!r}"
        error.add_note(f"{self._place(index)} raised {where}")
        if isinstance(error, SystemExit):
            log_exit(error, self._place(index), where)
        return error


def _check_same_spaces(env, first, index: int) -> None:
    """Checks that an environment has the spaces of `first`.

    Raises:
        ValueError: with both spaces.
    """
    for kind in ("observation_space", "action_space"):
        if getattr(env, kind) != getattr(first, kind):
            raise ValueError(
                f"the {kind} of environment {index} is {getattr(env, kind)}, but environment 0 has "
                f"{getattr(first, kind)}. All environments of a run must have the same spaces."
            )


def take_off_wrappers(env) -> tuple:
    """The environment without gymnasium's outermost standard wrappers, and the limit of its episodes in steps."""
    limit = NEVER
    while type(env) in STANDARD_WRAPPERS:
        if type(env) is TimeLimit:
            limit = min(limit, env._max_episode_steps)
        env = env.env
    return env, limit


def close_all(envs: list) -> None:
    """Closes environments; a failure to close is logged, and the others are closed all the same."""
    for env in envs:
        try:
            if hasattr(env, "close"):
                env.close()
        except Exception:
            logger.warning("%s failed to close", env_name(env), exc_info=True)
