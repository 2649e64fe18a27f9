"""Helpers of Stable-Baselines3 that its programs import: schedules, shapes, plots of results."""

import enum
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from gymnasium import spaces

from rllib.compat.programs.sb3.logger import Logger, configure
from rllib.env.spaces.batches import rows_of
from rllib.env.vec_env.monitor import load_results

Schedule = Callable[[float], float]


class TrainFrequencyUnit(enum.StrEnum):
    """Units of `train_freq`; the strings themselves are taken as well."""

    STEP = "step"
    EPISODE = "episode"


class TrainFreq(NamedTuple):
    """A `train_freq`."""

    frequency: int
    unit: TrainFrequencyUnit


def as_train_freq(given: Any) -> TrainFreq:
    """What a constructor takes as `train_freq`, a number of steps or a pair, as a model has it."""
    frequency, unit = given if isinstance(given, tuple | list) else (given, "step")
    return TrainFreq(frequency, TrainFrequencyUnit(unit))


class ConstantSchedule:
    """The same value at any time.

    Args:
        val: the value.
    """

    def __init__(self, val: float):
        self.val = val

    def __call__(self, progress_remaining: float) -> float:
        return self.val

    def __repr__(self) -> str:
        return f"ConstantSchedule(val={self.val})"


class LinearSchedule:
    """A line from `start` to `end`, which it reaches after a share of the run.

    Args:
        start, end: values.
        end_fraction: the share.
    """

    def __init__(self, start: float, end: float, end_fraction: float):
        self.start, self.end, self.end_fraction = start, end, end_fraction

    def __call__(self, progress_remaining: float) -> float:
        done = 1 - progress_remaining
        return self.end if done > self.end_fraction else self.start + done * (self.end - self.start) / self.end_fraction

    def __repr__(self) -> str:
        return f"LinearSchedule(start={self.start}, end={self.end}, end_fraction={self.end_fraction})"


class FloatSchedule:
    """A number or a function of the remaining share of a run.

    Args:
        value_schedule: as above.

    Raises:
        ValueError: for anything else.
    """

    def __init__(self, value_schedule: Any):
        if isinstance(value_schedule, FloatSchedule):
            value_schedule = value_schedule.value_schedule
        if isinstance(value_schedule, float | int):
            value_schedule = ConstantSchedule(float(value_schedule))
        if not callable(value_schedule):
            raise ValueError(f"value_schedule={value_schedule!r:.60} must be a number or a function")
        self.value_schedule = value_schedule

    def __call__(self, progress_remaining: float) -> float:
        return float(self.value_schedule(progress_remaining))

    def __repr__(self) -> str:
        return f"FloatSchedule({self.value_schedule})"


def get_schedule_fn(value_schedule: Any) -> Schedule:
    """A function of the remaining share, of one or a number."""
    return FloatSchedule(value_schedule)


def constant_fn(val: float) -> Schedule:
    """A function that returns `val`."""
    return ConstantSchedule(val)


def get_linear_fn(start: float, end: float, end_fraction: float) -> Schedule:
    """A line; see LinearSchedule."""
    return LinearSchedule(start, end, end_fraction)


def linear_schedule(initial_value: float | str) -> Schedule:
    """A line from `initial_value` to 0 over the whole run, as RL Zoo has it."""
    return LinearSchedule(float(initial_value), 0.0, 1.0)


def update_learning_rate(optimizer: torch.optim.Optimizer, learning_rate: float) -> None:
    """Sets the learning rate of an optimizer of torch."""
    for group in optimizer.param_groups:
        group["lr"] = learning_rate


def explained_variance(y_pred: np.ndarray, y_true: np.ndarray) -> float:
    """1 - Var[y_true - y_pred] / Var[y_true], NaN where y_true is constant; both [B]."""
    variance = np.var(y_true)
    return float("nan") if variance == 0 else float(1 - np.var(y_true - y_pred) / variance)


def safe_mean(arr: Any) -> float:
    """The mean, NaN of nothing."""
    return float(np.mean(arr)) if len(arr) else float("nan")


def zip_strict(*iterables: Iterable) -> Iterator[tuple]:
    """`zip` of iterables that must be of one length."""
    return zip(*iterables, strict=True)


def polyak_update(params: Iterable[torch.Tensor], target_params: Iterable[torch.Tensor], tau: float) -> None:
    """target <- (1 - tau) target + tau param, in place."""
    with torch.no_grad():
        for param, target in zip(params, target_params, strict=True):
            target.data.lerp_(param.data, tau)


def get_device(device: torch.device | str = "auto") -> torch.device:
    """The device of this name; "auto" is CUDA where there is one, as is "cuda"."""
    if device == "auto":
        device = "cuda"
    found = torch.device(device)
    return torch.device("cpu") if found.type == "cuda" and not torch.cuda.is_available() else found


def get_parameters_by_name(model: torch.nn.Module, included_names: Iterable[str]) -> list[torch.Tensor]:
    """Parameters and buffers of a torch module whose names contain one of these."""
    return [value for name, value in model.state_dict().items() if any(each in name for each in included_names)]


def get_latest_run_id(log_path: str = "", log_name: str = "") -> int:
    """The largest number of the directories NAME_1, NAME_2, ...; 0 without one."""
    numbers = (place.name.rpartition("_") for place in Path(log_path or ".").glob(f"{log_name}_[0-9]*"))
    return max((int(number) for name, _, number in numbers if name == log_name and number.isdigit()), default=0)


def configure_logger(
    verbose: int = 0, tensorboard_log: str | None = None, tb_log_name: str = "", reset_num_timesteps: bool = True
) -> Logger:
    """A logger as a model makes it: tables with `verbose`, events below `tensorboard_log`."""
    formats = ["stdout"] if verbose >= 1 else []
    if tensorboard_log is None:
        return configure(None, formats or [""])
    number = get_latest_run_id(tensorboard_log, tb_log_name) + (1 if reset_num_timesteps else 0)
    return configure(os.path.join(tensorboard_log, f"{tb_log_name}_{max(number, 1)}"), [*formats, "tensorboard"])


def check_for_correct_spaces(env: Any, observation_space: spaces.Space, action_space: spaces.Space) -> None:
    """Raises a ValueError if an environment has other spaces."""
    for name, wanted in (("observation_space", observation_space), ("action_space", action_space)):
        if getattr(env, name) != wanted:
            raise ValueError(f"the {name} is {getattr(env, name)}, and should be {wanted}")


def check_shape_equal(space1: spaces.Space, space2: spaces.Space) -> None:
    """Raises a ValueError if two spaces have other shapes; of Dict spaces each part."""
    if isinstance(space1, spaces.Dict):
        if not isinstance(space2, spaces.Dict) or space1.spaces.keys() != space2.spaces.keys():
            raise ValueError(f"{space1} and {space2} have other keys")
        for key in space1.spaces:
            check_shape_equal(space1.spaces[key], space2.spaces[key])
    elif isinstance(space1, spaces.Box) and space1.shape != space2.shape:
        raise ValueError(f"{space1} and {space2} have other shapes")


def is_vectorized_observation(observation: Any, observation_space: spaces.Space) -> bool:
    """Whether these are several observations of a space, [N, ...]; one, or several, else a ValueError."""
    if rows_of(observation_space, observation) is not None:
        return True
    if isinstance(observation_space, spaces.Dict):
        if all(np.shape(observation[key]) == (part.shape or ()) for key, part in observation_space.items()):
            return False
    elif np.shape(observation) == (observation_space.shape or ()):
        return False
    raise ValueError(f"an observation of {observation_space} has another shape than {np.shape(observation)}")


is_vectorized_box_observation = is_vectorized_dict_observation = is_vectorized_observation
is_vectorized_discrete_observation = is_vectorized_multidiscrete_observation = is_vectorized_observation
is_vectorized_multibinary_observation = is_vectorized_observation


def should_collect_more_steps(train_freq: Any, num_collected_steps: int, num_collected_episodes: int) -> bool:
    """Whether a round of `train_freq` (frequency, "step" or "episode") is not full."""
    frequency, unit = train_freq
    unit = getattr(unit, "value", unit)
    if unit not in ("step", "episode"):
        raise ValueError(f"train_freq={train_freq!r} must be in steps or episodes")
    return (num_collected_steps if unit == "step" else num_collected_episodes) < frequency


# ---------------------------------------------------------------------- plots

X_TIMESTEPS, X_EPISODES, X_WALLTIME = "timesteps", "episodes", "walltime_hrs"
POSSIBLE_X_AXES = [X_TIMESTEPS, X_EPISODES, X_WALLTIME]
EPISODES_WINDOW = 100


def rolling_window(array: np.ndarray, window: int) -> np.ndarray:
    """All windows of an array, [..., K] -> [..., K - window + 1, window]."""
    return np.lib.stride_tricks.sliding_window_view(array, window, axis=-1)


def window_func(var_1: np.ndarray, var_2: np.ndarray, window: int, func: Callable) -> tuple[np.ndarray, np.ndarray]:
    """`func(..., axis=-1)` of the windows of `var_2`, with the values of `var_1` at their ends."""
    return var_1[window - 1 :], func(rolling_window(var_2, window), axis=-1)


def ts2xy(data_frame: Any, x_axis: str) -> tuple[np.ndarray, np.ndarray]:
    """An axis and returns, of what `load_results` returned.

    Args:
        data_frame: as above.
        x_axis: "timesteps", "episodes" or "walltime_hrs".

    Raises:
        NotImplementedError: for another axis.
    """
    returns = data_frame.r.values
    axes = {
        X_TIMESTEPS: lambda: np.cumsum(data_frame.l.values),
        X_EPISODES: lambda: np.arange(len(data_frame)),
        X_WALLTIME: lambda: data_frame.t.values / 3600.0,
    }
    if x_axis not in axes:
        raise NotImplementedError(f"x_axis={x_axis!r} must be one of {', '.join(POSSIBLE_X_AXES)}")
    return axes[x_axis](), returns


def plot_curves(xy_list: list, x_axis: str, title: str, figsize: tuple[int, int] = (8, 2)) -> None:
    """Draws curves of returns with matplotlib: points, and means over 100 episodes."""
    from matplotlib import pyplot

    pyplot.figure(title, figsize=figsize)
    for x, y in xy_list:
        pyplot.scatter(x, y, s=2)
        if len(x) >= EPISODES_WINDOW:
            pyplot.plot(*window_func(x, y, EPISODES_WINDOW, np.mean))
    pyplot.title(title)
    pyplot.xlabel(x_axis)
    pyplot.ylabel("Episode Rewards")
    pyplot.tight_layout()


def plot_results(
    dirs: list[str], num_timesteps: int | None, x_axis: str, task_name: str, figsize: tuple[int, int] = (8, 2)
) -> None:
    """Draws the returns in Monitor's files of some directories."""
    frames = [load_results(folder) for folder in dirs]
    if num_timesteps is not None:
        frames = [frame[frame.l.cumsum() <= num_timesteps] for frame in frames]
    plot_curves([ts2xy(frame, x_axis) for frame in frames], x_axis, task_name, figsize)
