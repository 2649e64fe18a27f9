"""A stream over a gymnasium VectorEnv of any autoreset mode."""

import logging
import traceback
from operator import methodcaller

import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv

from rllib.env.spaces.bounds import misfit, refuse_or_warn
from rllib.env.spaces.supported import Rounding, check_spaces
from rllib.env.streams.base import MAX_FAILURES_IN_A_ROW, EnvironmentStream, StepBuffers, log_exit, successor_seed
from rllib.env.streams.first_results import STEP_RULE, WITHOUT_THIS_CHECK, env_name, form_error
from rllib.env.streams.tensors_as_arrays import AsArrays, device_below, device_of

logger = logging.getLogger("rllib.env")

CLOSE_TIMEOUT_S = 5.0


class _ResetError(Exception):
    """The reset of a part of the environments has raised `error`."""

    def __init__(self, error: Exception):
        super().__init__()
        self.error = error


class VectorEnvStream(EnvironmentStream):
    """A stream over a VectorEnv, which does the resets that the autoreset mode leaves to the caller.

    | mode      | at the end of an episode                                                      | reset_rows        |
    |-----------|-------------------------------------------------------------------------------|-------------------|
    | NEXT_STEP | the final observation is returned; the next call ignores the action and resets | from that call     |
    | SAME_STEP | the first observation is returned, the final one in infos["final_obs"]        | none              |
    | DISABLED  | the final observation is returned; this stream resets by `reset_mask`         | none              |

    Args:
        env: the vector environment; the stream owns and closes it.
        seeds: one int for each environment that the worker should have. Vector environments that take a single seed
            are given the first; gymnasium's own and those with an attribute `takes_a_seed_each` get the list.
        options: as for EnvironmentStream; `remake` is called with 0 and makes the whole vector environment again.

    Tensors that the environment hands over are copied into arrays (streams/tensors_as_arrays.py); TensorStream leaves
    them on the device.

    Raises:
        ValueError: if the number of environments differs, the spaces are not supported, or the autoreset mode is
            not declared.
    """

    def __init__(self, env: VectorEnv, seeds: list[int], **options):
        num_envs = len(seeds)
        check_vector(env, num_envs)
        super().__init__(env.num_envs, env.single_observation_space, env.single_action_space, **options)
        self._env, self.steps_apart = env, False
        # A copy, which the environments may keep or change; actions of several parts are new already.
        dtype = env.action_space.dtype
        self._to_env = methodcaller("astype", dtype) if dtype is not None else lambda actions: actions
        self._mode = autoreset_mode(env)
        self.has_gaps = self._mode is AutoresetMode.NEXT_STEP
        self._rounding = Rounding(self.observation_space) if self._checked_steps > 1 else None
        self._given_seeds = seeds
        self._seed = seed_argument(env, seeds)
        self._failures = 0  # in a row, without a step in between
        self._replacements = 0
        # NEXT_STEP: whether each environment's next step is no transition; None: all are.
        self._resets_next: np.ndarray | None = None
        self._has_failed = False
        self._newest_infos: list[dict] = []  # of the newest observations
        self._mask_is_kept = False  # DISABLED: whether reset_mask has been seen to spare the others

    @property
    def environments(self):
        return list(getattr(self._env.unwrapped, "envs", [self._env]))

    def reset(self, buffers):
        if self._observer is not None:
            for index in range(self.num_envs):
                self._observer.created(index)
        try:
            batch, infos = self._call("reset", lambda: self._env.reset(seed=self._seed))
        except Exception as error:
            self._replace(error, buffers)
            return
        if device_of(batch) is not None:
            self._env = AsArrays(self._env, self._mode)
            batch, infos = self._env.converted((batch, infos))
        self.device = device_below(self._env)
        self._seed = None
        if not _reset_forgotten(self._env):
            self._resets_next = None
        self.reset_rows = None
        self._check(batch)
        self.column.write_batch(batch, buffers.observations)
        if self.info_columns:
            self._newest_infos = self._each(infos)
            self._write_infos(self._newest_infos, buffers.infos, before_action=True)
        self._report_starts(range(self.num_envs), batch, infos)

    def reseed(self, seeds):
        self._given_seeds = seeds
        self._seed = seed_argument(self._env, seeds)

    def restart(self, index, seed, observations):
        raise ValueError(
            f"{env_name(self._env)} resets all its environments at once, but each of them has to start episodes on "
            "separate seeds here. Use the environment that it is made of, not the VectorEnv."
        )

    def step(self, actions, buffers, active=None):
        if active is not None and not all(active):
            raise ValueError(
                f"{env_name(self._env)} steps all its environments at once, and cannot step a part of them alone. "
                'Use .rollouts(batch_mode="truncate_episodes").'
            )
        observations, rewards, terminated, truncated, out = buffers
        self._clock += 1
        self.replaced = self.lives_lost = ()
        given = self._to_env(actions)
        try:
            batch, given_rewards, is_terminated, is_truncated, infos = self._call("step", lambda: self._env.step(given))
        except Exception as raised:
            error = form_error(raised, STEP_RULE, __file__) or raised
            if error is not raised:
                error.add_note(f"{self._place} was at its step {self._clock}")
            self._replace(error, StepBuffers(*buffers))
            for column in (rewards, terminated, truncated):
                column.fill(0)
            self._write_infos([None] * self.num_envs, out, before_action=False)
            self.replaced, self.reset_rows = range(self.num_envs), np.ones(self.num_envs, bool)
            return []
        self._failures = 0
        self._check(batch)
        self._write_rewards(given_rewards, rewards)
        terminated[:] = self._flags("terminated", is_terminated)
        truncated[:] = self._flags("truncated", is_truncated)
        self._drop_reset_rows(rewards, terminated, truncated)
        self.column.write_batch(batch, observations)
        (ended,) = (terminated | truncated).nonzero()
        if len(ended):
            self.lives_lost = self._games_that_go_on(infos, ended)
        if self._observer is not None:
            self._report_step(actions, (batch, rewards, terminated, truncated, infos))
        if self.info_columns:
            self._newest_infos = self._each(infos)
            self._write_infos(self._step_infos(infos, ended), out, before_action=False)
        try:
            finals = self._start_next(ended, infos, observations) if len(ended) else []
        except _ResetError as failed:
            return self._replace_after(failed, ended, StepBuffers(*buffers))
        if self.info_columns:
            self._write_infos(self._newest_infos, out, before_action=True)
        return finals

    def _replace_after(self, failed: "_ResetError", ended: np.ndarray, buffers: StepBuffers) -> list:
        """Replaces a vector environment whose reset after the end of these episodes has raised; mode DISABLED.

        Their last steps count. The episodes of the other environments are void, and so are the steps just made there.
        """
        finals = [(int(index), buffers.observations[index].copy()) for index in ended]
        self._replace(failed.error, buffers)
        self.reset_rows = np.ones(self.num_envs, bool)
        self.reset_rows[ended] = False
        self.replaced = np.flatnonzero(self.reset_rows).tolist()
        for column in (buffers.rewards, buffers.terminated, buffers.truncated):
            column[self.reset_rows] = 0
        return finals

    def _start_next(self, ended: np.ndarray, infos: dict, observations: np.ndarray) -> list[tuple[int, np.ndarray]]:
        """Resets the ended environments, or marks them as reset by the next step; returns their final observations."""
        if self._mode is AutoresetMode.SAME_STEP:
            return [(int(index), self._final_from(infos, index)) for index in ended]
        finals = [(int(index), observations[index].copy()) for index in ended]
        if self._mode is AutoresetMode.NEXT_STEP:
            self._resets_next = np.zeros(self.num_envs, bool)
            self._resets_next[ended] = True
        else:
            self._reset_masked(ended, observations)
        return finals

    def close(self):
        env, self._env = self._env, None
        if env is None:
            return
        asynchronous = isinstance(env.unwrapped, AsyncVectorEnv)
        if asynchronous and self._has_failed:
            _end_processes(env)  # its close() would wait for answers that no longer come
            return
        try:
            env.close(**({"timeout": CLOSE_TIMEOUT_S} if asynchronous else {}))
        except Exception:
            logger.warning("%s failed to close", env_name(env), exc_info=True)
            _end_processes(env)

    def _report_starts(self, indices, batch, infos: dict) -> None:
        """Reports resets whose episodes were created."""
        for index in indices if self._observer is not None else ():
            self._observer.started(index, entry(batch, index), info_at(infos, index))

    def _report_step(self, actions, results: tuple) -> None:
        """Reports the step of every environment, and episodes that it began or ended; mode DISABLED resets later."""
        observer, (batch, rewards, terminated, truncated, infos) = self._observer, results
        same_step = self._mode is AutoresetMode.SAME_STEP
        for index in range(self.num_envs):
            if self.reset_rows is not None and self.reset_rows[index]:
                observer.created(index)
                self._report_starts([index], batch, infos)
                continue
            is_over = terminated[index] or truncated[index]
            final = is_over and same_step
            observation = entry(infos["final_obs"] if final and "final_obs" in infos else batch, index)
            info = info_at(infos.get("final_info", {}) if final else infos, index)
            flags = bool(terminated[index]), bool(truncated[index])
            observer.stepped(index, entry(actions, index), (observation, float(rewards[index]), *flags, info))
            if is_over:
                observer.ended(index)
            if final:
                observer.created(index)
                self._report_starts([index], batch, infos)

    def _replace(self, error: Exception, buffers: StepBuffers) -> None:
        """Closes the failed vector environment, makes a new one in its place and resets it.

        Raises:
            error itself, if it is not to be replaced, or there were too many in a row.
        """
        self._failures += 1
        if self._remake is None or self._failures > MAX_FAILURES_IN_A_ROW:
            raise error
        if self._observer is not None:
            for index in range(self.num_envs):
                self._observer.failed(index)
        logger.warning("%s raised; it is replaced, all its environments at once", env_name(self._env), exc_info=error)
        self.close()
        self._env, self._has_failed = self._remake(0), False
        self._replacements += 1
        seeds = [successor_seed(seed, self._replacements) for seed in self._given_seeds]
        self._seed = seed_argument(self._env, seeds)
        self._resets_next = None
        if self._observer is not None:
            for index, env in enumerate(self.environments):
                self._observer.environment_made(index, env)
        self.reset(buffers)

    def _drop_reset_rows(self, rewards, terminated, truncated) -> None:
        self.reset_rows, self._resets_next = self._resets_next, None
        if self.reset_rows is None:
            return
        for column in (rewards, terminated, truncated):
            column[self.reset_rows] = 0

    def _reset_masked(self, starting: np.ndarray, observations: np.ndarray) -> None:
        """Resets these environments, and writes their first observations; mode DISABLED."""
        mask = np.zeros(self.num_envs, bool)
        mask[starting] = True
        # gymnasium takes the mask out of the dict it is given, hence a new dict and a new array each time.
        if self._observer is not None:
            for index in starting:
                self._observer.created(index)
        try:
            batch, infos = self._call("reset", lambda: self._env.reset(options={"reset_mask": mask.copy()}))
        except Exception as error:
            raise _ResetError(error) from None
        self._report_starts(starting, batch, infos)
        fresh = np.empty_like(observations)
        self.column.write_batch(batch, fresh)
        if not self._mask_is_kept and not mask.all():
            if not np.array_equal(fresh[~mask], observations[~mask], equal_nan=fresh.dtype.kind == "f"):
                raise mask_is_ignored(self._env)
            self._mask_is_kept = True
        observations[mask] = fresh[mask]
        for index in starting if self.info_columns else ():
            self._newest_infos[index] = info_at(infos, index)

    def _each(self, infos: dict) -> list[dict]:
        """The info of each environment."""
        return [info_at(infos, index) for index in range(self.num_envs)]

    def _step_infos(self, infos: dict, ended: np.ndarray) -> list[dict | None]:
        """The infos that came with the rewards; None where there was no step."""
        of_steps: list[dict | None] = list(self._newest_infos)
        if self._mode is AutoresetMode.SAME_STEP:
            for index in ended:
                of_steps[index] = info_at(infos.get("final_info", {}), index)
        if self.reset_rows is not None:
            for index in np.flatnonzero(self.reset_rows):
                of_steps[index] = None
        return of_steps

    @staticmethod
    def _games_that_go_on(infos: dict, ended: np.ndarray) -> list[int]:
        """The ended environments whose infos say that a life was lost; after a reset within the step, final ones."""
        merged = {**infos, **infos.get("final_info", {})}
        if "life_lost" not in merged:
            return []
        return [index for index in ended.tolist() if info_at(merged, index).get("life_lost")]

    def _final_from(self, infos: dict, index: int) -> np.ndarray:
        mask = infos.get("_final_obs")
        if mask is None or not mask[index]:
            raise ValueError(
                f"{env_name(self._env)} says that its autoreset mode is SAME_STEP, but has no final observation of "
                f'environment {index}, which has just ended: infos["final_obs"] and infos["_final_obs"] must hold it.'
            )
        return self.column.row(entry(infos["final_obs"], index))

    def _flags(self, name: str, given) -> np.ndarray:
        flags = np.asarray(given)
        if flags.dtype.kind not in "biu" or flags.shape != (self.num_envs,):
            raise TypeError(
                f"{self._place}: step() must return {self.num_envs} bools as {name}, but it is {given!r:.80}, at its "
                f"step {self._clock}"
            )
        return flags

    def _check(self, batch) -> None:
        if self._checked_steps <= 0:
            return
        self._checked_steps -= 1
        name = env_name(self._env)
        for index in range(self.num_envs):
            path = f"observation of environment {index}"
            if problem := misfit(self.observation_space, entry(batch, index), name, path, warns=self._warns):
                raise ValueError(
                    f"{name}: the {problem}. Correct the observation or the single_observation_space; "
                    f"{WITHOUT_THIS_CHECK}"
                )
        if self._rounding is not None:
            self._rounding(batch)
            if self._checked_steps == 0 and (problem := self._rounding.problem()):
                refuse_or_warn(name, problem, WITHOUT_THIS_CHECK, warns=self._warns)

    @property
    def _place(self) -> str:
        return f"vector environment {env_name(self._env)} of {self._worker}"

    def _call(self, method: str, call):
        try:
            return call()
        except SystemExit as error:
            log_exit(error, self._place, f"in {method}() at its step {self._clock}")
            raise
        except Exception as raised:
            self._has_failed = True
            error = _error_of_subprocess(raised) or raised
            error.add_note(f"{self._place} raised in {method}() at its step {self._clock}")
            if error is raised:
                raise
            raise error from None


def check_vector(env: VectorEnv, num_envs: int) -> None:
    """Checks the number and the spaces of the environments in a vector.

    Raises:
        ValueError: if there is another number of them, or a space is not supported.
    """
    if env.num_envs != num_envs:
        raise ValueError(
            f"{env_name(env)} has {env.num_envs} environments, but each worker was asked to have {num_envs}. "
            f"Use .rollouts(num_envs_per_worker={env.num_envs}), or make it with context.num_envs environments."
        )
    check_spaces(env.single_observation_space, env.single_action_space, env_name(env))


def mask_is_ignored(env: VectorEnv) -> ValueError:
    """The error for a vector environment that resets all its environments where a part of them was to be reset."""
    return ValueError(
        f"{env_name(env)} says that its autoreset mode is DISABLED, but its reset() ignores "
        'options["reset_mask"] and resets every environment. Use the mode NEXT_STEP or SAME_STEP.'
    )


def autoreset_mode(env: VectorEnv) -> AutoresetMode:
    """The autoreset mode that a vector environment declares.

    Some vector environments write their mode into the dict that all classes share, `VectorEnv.metadata`. That one is
    used only if there is no other declaration.

    Raises:
        ValueError: if no mode is declared: stored transitions would be wrong without an error.
    """
    base = env.unwrapped
    owners = [vars(base), *(vars(kind) for kind in type(base).__mro__ if kind is not VectorEnv)]
    own = [owner["metadata"]["autoreset_mode"] for owner in owners if "autoreset_mode" in owner.get("metadata", {})]
    if own:
        return AutoresetMode(own[0])
    declared = getattr(base, "autoreset_mode", None) or base.metadata.get("autoreset_mode")
    if declared is None:
        raise ValueError(
            f"{env_name(env)} does not declare its autoreset mode, so that final and first observations cannot be "
            'distinguished. Give the class metadata = {"autoreset_mode": gymnasium.vector.AutoresetMode.NEXT_STEP} '
            "(or SAME_STEP, or DISABLED)."
        )
    if not hasattr(base, "autoreset_mode"):
        logger.warning(
            "%s defines no metadata; its autoreset mode %s comes from the dict that all vector environments "
            "share, into which some class has written it",
            env_name(env),
            declared,
        )
    return AutoresetMode(declared)


def seed_argument(env: VectorEnv, seeds: list[int]) -> list[int] | int:
    """The argument of reset(seed=...): a seed for each of the vector's environments, or the first alone."""
    seeds = [int(seed) for seed in seeds]
    takes_each = isinstance(env.unwrapped, (SyncVectorEnv, AsyncVectorEnv)) or getattr(env, "takes_a_seed_each", False)
    return seeds if takes_each else seeds[0]


def _reset_forgotten(env: VectorEnv) -> bool:
    """Whether an explicit reset does not cancel a pending autoreset: the next step then resets once more.

    True for AsyncVectorEnv without shared memory (gymnasium 1.4.0).
    """
    base = env.unwrapped
    return isinstance(base, AsyncVectorEnv) and not base.shared_memory


def _error_of_subprocess(raised: Exception) -> Exception | None:
    """The error that an environment of an AsyncVectorEnv raised in its process, with the traceback from there.

    gymnasium (1.4.0) raises the class again, but only logs the traceback, and while logging fails on a '%' in it.
    Class, value and traceback are then still in the frame that was about to raise.
    """
    for frame, _ in traceback.walk_tb(raised.__traceback__):
        if frame.f_code is AsyncVectorEnv._raise_if_errors.__code__ and "trace" in frame.f_locals:
            raising = frame.f_locals
            try:
                error = raising["exctype"](raising["value"])
            except Exception:  # a class that is not made from one argument
                error = raised
            error.add_note(f"environment {raising['index']} of the vector, in its own process:\n{raising['trace']}")
            return error
    return None


def _end_processes(env: VectorEnv) -> None:
    """Ends the subprocesses, if there are any, of a vector environment that cannot close itself any more."""
    for process in getattr(env.unwrapped, "processes", ()):
        if process.is_alive():
            process.terminate()
            process.join(CLOSE_TIMEOUT_S)
    env.unwrapped.closed = True  # keeps its __del__ from trying once more


def info_at(infos: dict, index: int) -> dict:
    """The info of one environment, out of gymnasium's dict of arrays with their masks."""
    return {
        name: entry(values, index)
        for name, values in infos.items()
        if isinstance(values, (np.ndarray, list, tuple, dict))
        and not name.startswith("_")
        and infos.get(f"_{name}", [True] * (index + 1))[index]
    }


def entry(batch, index: int):
    """Entry `index` of a batched value."""
    if isinstance(batch, dict):
        return {key: entry(part, index) for key, part in batch.items()}
    if isinstance(batch, tuple):
        return tuple(entry(part, index) for part in batch)
    return batch[index]
