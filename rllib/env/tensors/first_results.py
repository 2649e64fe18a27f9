"""Checks the form of the first results of environments of torch tensors: structure, shapes, dtypes, device.

Nothing here reads a number, so that nothing waits for the device.
"""

from gymnasium.vector import VectorEnv
from torch import Tensor

from rllib.env.spaces.supported import parts, structure_problem
from rllib.env.streams.first_results import RESET_RULE, STEP_RULE, env_name


def check_first_reset(env: VectorEnv, result, device: str) -> None:
    """Checks the result of reset().

    Args:
        env: has given it.
        result: holds a tensor of observations.
        device: device of the environment's tensors.

    Raises:
        ValueError, TypeError: naming what was given, and the rule.
    """
    if not (isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], dict)):
        raise TypeError(f"{env_name(env)}: {RESET_RULE}, tensors and a dict, but gave {_short(result)}")
    _check_observations(env, result[0], device, "reset()")


def check_first_step(env: VectorEnv, result, device: str) -> None:
    """Checks the result of step(); arguments and errors as for `check_first_reset`."""
    if not (isinstance(result, tuple) and len(result) == 5):
        given = f"{len(result)} values" if isinstance(result, tuple) else _short(result)
        raise TypeError(f"{env_name(env)}: {STEP_RULE}, but gave {given}")
    observations, rewards, terminated, truncated, infos = result
    _check_observations(env, observations, device, "step()")
    for name, column in (("rewards", rewards), ("terminated", terminated), ("truncated", truncated)):
        if problem := _problem(column, (env.num_envs,), device):
            raise ValueError(f"{env_name(env)}: step() must return {name} as {problem}")
        if name != "rewards" and column.is_floating_point():
            raise TypeError(f"{env_name(env)}: step() must return {name} as bools, but gave {column.dtype}")
    if not isinstance(infos, dict):
        raise TypeError(f"{env_name(env)}: step() must return a dict as info, but gave {_short(infos)}")


def _check_observations(env: VectorEnv, batch, device: str, method: str) -> None:
    if problem := _observation_problem(env.single_observation_space, batch, env.num_envs, device, "observations"):
        raise ValueError(f"{env_name(env)}: {method} must return {problem}. Correct them or the observation_space.")


def _observation_problem(space, value, num_envs: int, device: str, path: str) -> str | None:
    if (inner := parts(space)) is not None:
        problems = (_observation_problem(part, value[key], num_envs, device, f"{path}[{key!r}]") for key, part in inner)
        wrong = structure_problem(space, value, path)
        return f"observations in the form of their space, but {wrong}" if wrong else next(filter(None, problems), None)
    problem = _problem(value, (num_envs, *space.shape), device)
    return f"{path} as {problem}" if problem else None


def _problem(value, shape: tuple[int, ...], device: str) -> str | None:
    """The rule, and what was given, where a value is not a tensor of numbers of this shape on this device."""
    rule = f"a tensor of shape {list(shape)}"
    if not isinstance(value, Tensor):
        return f"{rule}, but gave {_short(value)}"
    if tuple(value.shape) != shape:
        return f"{rule}, but gave {list(value.shape)}"
    if value.is_complex():
        return f"{rule} of real numbers, but gave {value.dtype}"
    if str(value.device) != device:
        return f"{rule} on {device}, where its other tensors are, but gave one on {value.device}"
    return None


def _short(value) -> str:
    return f"{value!r:.60} ({type(value).__name__})"
