"""Checks an environment's first results, and adapts environments of the old gym API."""

import numpy as np

from rllib.env.spaces.bounds import misfit, refuse_or_warn
from rllib.env.spaces.supported import Rounding
from rllib.env.streams.legacy import LegacyEnvironment, call_reset, is_bare_observation, takes_seed, warn_of_legacy
from rllib.env.streams.process import EnvironmentProcess
from rllib.env.streams.rewards import reward_problem

WITHOUT_THIS_CHECK = ".environment(disable_env_checking=True) trains without this check."

RESET_RULE = "reset() must return (observation, info)"
STEP_RULE = "step() must return (observation, reward, terminated, truncated, info)"
# Advice where there are six values, as of Safety-Gymnasium's environments.
COST_IN_INFO = (
    "Safety-Gymnasium's environments return the cost as the third of six values: "
    "safety_gymnasium.wrappers.SafetyGymnasium2Gymnasium(env) puts it into the info."
)


class Examiner:
    """Checks the first results of one environment for a stream, and adapts it where it follows the old gym API.

    Args:
        env: the environment. After the first reset and step, `self.env` is it or the adapter that it needs.
        num_steps: number of results of step() that are checked against the spaces; with 0 only the form is checked.
        warns: whether warnings are logged: of an adapter, and of bounds, where these are no error.
    """

    def __init__(self, env, num_steps: int, warns: bool):
        self.env = env
        self._checks = num_steps > 0
        self._steps_left = max(num_steps, 1)
        self._warns = warns
        # A single step may well be too small to show.
        self._rounding = Rounding(env.observation_space) if num_steps > 1 else None

    @property
    def is_done(self) -> bool:
        """Whether `self.env` may be stepped directly from now on."""
        return self._steps_left == 0

    def reset(self, seed: int) -> tuple:
        """(observation, info) of the first episode's reset.

        Raises:
            ValueError, TypeError: if the observation does not lie in its space, or info is no dict.
        """
        result = call_reset(self.env, seed)
        bare = is_bare_observation(result, self.env.observation_space)
        observation = result if bare else result[0]
        self._check_observation(observation, "returned by reset()")
        if not bare and not isinstance(result[1], dict):
            raise TypeError(f"{RESET_RULE} with a dict as info, but info is {result[1]!r}")
        if bare:
            self._adapt("reset() returns the observation alone")
        elif not takes_seed(self.env):
            self._adapt("reset() takes no seed")
        return observation, {} if bare else result[1]

    def step(self, action) -> tuple:
        """(observation, reward, terminated, truncated, info) of a step.

        Raises:
            ValueError, TypeError: naming what violates the API, or lies outside its space.
        """
        result = self.env.step(action)
        if isinstance(result, tuple) and len(result) == 4:
            self._adapt("step() returns 4 values")
            result = LegacyEnvironment.convert(result)
        if not isinstance(result, tuple) or len(result) != 5:
            given = f"{len(result)} values" if isinstance(result, tuple) else f"{result!r} ({type(result).__name__})"
            raise TypeError(
                f"{STEP_RULE}, but {env_name(self.env)} returned {given}"
                + (f". {COST_IN_INFO}" if given == "6 values" else "")
            )
        if self._checks:
            self._check_step(result)
        self._steps_left -= 1
        return result

    def _check_step(self, result: tuple) -> None:
        observation, reward, terminated, truncated, info = result
        self._check_observation(observation, "returned by step()")
        if problem := reward_problem(reward):
            raise ValueError(f"{env_name(self.env)}: {problem}")
        for name, flag in (("terminated", terminated), ("truncated", truncated)):
            is_end(name, flag)
        if not isinstance(info, dict):
            raise TypeError(f"step() must return a dict as info, but it is {info!r}")

    def _check_observation(self, observation, where: str) -> None:
        name, problem = env_name(self.env), None
        if self._checks:
            problem = misfit(self.env.observation_space, observation, name, warns=self._warns)
        if self._rounding is not None and not problem:
            self._rounding(observation)
            if self._steps_left == 1 and (problem := self._rounding.problem()):
                refuse_or_warn(name, problem, WITHOUT_THIS_CHECK, warns=self._warns)
                return
        if problem:
            raise ValueError(
                f"{name}: the {problem} ({where}). Correct the observation or the observation_space; "
                f"{WITHOUT_THIS_CHECK}"
            )

    def _adapt(self, reason: str) -> None:
        if isinstance(self.env, LegacyEnvironment):
            return
        if self._warns:
            warn_of_legacy(self.env, reason)
        self.env = LegacyEnvironment(self.env)


def is_end(name: str, flag) -> bool:
    """A flag of a step's result as a bool; an array of one element counts as its element, as for rewards.

    Raises:
        TypeError: if it is neither true nor false, such as None.
    """
    if isinstance(flag, np.ndarray) and flag.size == 1:
        flag = flag.item()
    if isinstance(flag, bool | int | np.bool_ | np.integer):
        return bool(flag)
    raise TypeError(f"step() must return True or False as {name}, but it is {flag!r:.80}")


def form_error(error: BaseException, rule: str, file: str) -> TypeError | None:
    """The error for an environment's result that the code of `file` could not take apart; None for any other error."""
    frames = error.__traceback__
    while frames.tb_next is not None:
        frames = frames.tb_next
    if frames.tb_frame.f_code.co_filename != file or "unpack" not in str(error):
        return None
    return TypeError(f"{rule}: {error}")


def env_name(env) -> str:
    """The class of an environment below its wrappers, or a suite's word and id, for messages."""
    bare = getattr(env, "unwrapped", env)
    if isinstance(bare, EnvironmentProcess):
        return bare.class_name
    return getattr(bare, "name_in_suite", type(bare).__name__)
