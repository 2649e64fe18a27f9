"""Observations outside the bounds of their space: an error, or a warning in programs for other libraries.

Neither Ray nor Stable-Baselines3 checks the bounds in training. So a program that runs unchanged there may have them
wrong, and it runs here as well: the warning comes once, and says what the observation was.
"""

import logging

from rllib.compat.names import foreign_program
from rllib.env.spaces.supported import mismatch
from rllib.notices import log_once


def misfit(space, observation, env: str, path: str = "observation", *, warns: bool = True) -> str | None:
    """Explains why an observation does not lie in its space; None if it does, or where it is only warned of.

    Args:
        space: space of the observation.
        observation: as the environment has returned it.
        env: class of the environment, for the warning.
        path: what the observation is called.
        warns: whether the warning is logged, which is the same in every worker.
    """
    problem = mismatch(space, observation, path)
    if problem and foreign_program.is_running() and mismatch(space, observation, path, bounded=False) is None:
        _warn(env, problem, warns)
        return None
    return problem


def refuse_or_warn(env: str, problem: str, remedy: str, *, warns: bool = True) -> None:
    """Deals with observations that no other library objects to.

    Raises:
        ValueError: with the remedy, where it is not only warned of.
    """
    if not foreign_program.is_running():
        raise ValueError(f"{env}: {problem}; {remedy}")
    _warn(env, problem, warns)


def _warn(env: str, problem: str, warns: bool) -> None:
    """Logs the first problem of this kind of environment in this process."""
    if warns:
        log_once(
            f"bounds of {env}",
            f"{env}: the {problem}. Training continues, because this is not checked where the program comes from; the "
            "policy gets the observation as it is.",
            logging.WARNING,
        )
