"""Estimates of a checkpoint's policy from recorded steps, for the command line."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rllib.algorithms.base.algorithm import Algorithm
from rllib.algorithms.base.recorded.data import evaluated_data
from rllib.algorithms.base.wiring import time_limit_of
from rllib.cli.failures import Mistake
from rllib.evaluation.estimators.choose import SHORT_NAMES, estimate_all, make_estimators
from rllib.evaluation.estimators.recorded_steps import recorded_steps
from rllib.progress import counted

# Episodes of equal weights that estimates by importance sampling should at least be worth.
_ENOUGH = 10


def estimated(
    algorithm: Algorithm, data: Path, estimators: str, columns: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Estimates the value of an algorithm's policy.

    Args:
        algorithm: restored, with one policy.
        data: a file, a directory or a pattern.
        estimators: short names of estimators, with commas.
        columns: what columns of the data are, as input_read_schema.

    Returns:
        "data", "gamma", "steps", and under "estimates" what each estimator found.

    Raises:
        Mistake: for an unknown estimator, or if there is no such data.
        ValueError: if it cannot be estimated from.
    """
    names = [name.strip() for name in estimators.split(",") if name.strip()]
    if unknown := [name for name in names if name not in SHORT_NAMES]:
        raise Mistake(f"there is no estimator {unknown[0]!r}. There are {', '.join(SHORT_NAMES)}.")
    if not names:
        raise Mistake(f"--estimators names none. There are {', '.join(SHORT_NAMES)}.")
    config = algorithm.config.copy(copy_frozen=False)
    # How the data of training was to be read says nothing about this data.
    config.input_config, config.input_read_schema = {}, dict(columns or {})
    config.offline_data(input_=str(data), actions_in_input_normalized=None)
    limit = time_limit_of(algorithm._rollout_settings.env)
    try:
        dataset = evaluated_data(config, algorithm.observation_space, algorithm.action_space, limit)
    except FileNotFoundError as error:
        raise Mistake(str(error)) from error
    methods: dict[str, dict] = {name: {"type": name} for name in names}
    if "wis" in methods:
        methods["wis"]["carried"] = True  # right for episodes of different lengths as well
    made = make_estimators(methods, algorithm.policy, config.gamma, config)
    steps = recorded_steps(dataset, algorithm.policy, config)
    found = {"data": str(data), "gamma": config.gamma, "steps": len(steps)}
    return {**found, "estimates": estimate_all(made, steps)}


def table_of(found: Mapping[str, Any]) -> list[str]:
    """Lines of a table of estimates, and what the weights of the episodes are worth."""
    estimates: Mapping[str, Mapping[str, float]] = found["estimates"]
    one = next(iter(estimates.values()))
    episodes, truncated = one["num_episodes"], one["num_truncated"]
    rows = [["", "return", "95 % interval", "gain"], ["recorded", *_numbers(one, "v_behavior"), ""]]
    for name, each in estimates.items():
        gain = "-" if math.isnan(each["v_gain"]) else f"{each['v_gain']:.2f}"
        rows.append([name, *_numbers(each, "v_target"), gain])
    widths = [max(map(len, column)) for column in zip(*rows)]
    table = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]
    about = f"{found['data']}: {counted(episodes, 'episode')}, {counted(found['steps'], 'step')}"
    ends = [f"{counted(truncated, 'episode')} cut: rewards after the cut count in dm and dr alone"] if truncated else []
    return [f"{about}; returns are discounted by {found['gamma']:g}", *table, *ends, *_worth(estimates, episodes)]


def _numbers(estimate: Mapping[str, float], name: str) -> list[str]:
    low, high = estimate[f"{name}_low"], estimate[f"{name}_high"]
    interval = "-" if math.isnan(low) else f"{low:.2f} to {high:.2f}"
    return [f"{estimate[name]:.2f}", interval]


def _worth(estimates: Mapping[str, Mapping[str, float]], episodes: int) -> list[str]:
    sizes = {
        name: each["effective_sample_size"]
        for name, each in estimates.items()
        if not math.isnan(each["effective_sample_size"])
    }
    if not sizes:
        return []
    size = min(sizes.values())
    weights = f"the weights of {counted(episodes, 'episode')} are worth as many equal ones"
    lines = [f"effective sample size {size:.1f}: {weights}"]
    if size < _ENOUGH:
        names = ", ".join(sizes)
        lines.append(f"Below {_ENOUGH}, {names} and their intervals say little: the policy acts too differently.")
    return lines
