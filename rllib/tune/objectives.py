"""Objectives of an experiment: one metric with its mode, or several of each; and the Pareto front of several.

One objective is a str and a mode, several are two lists of equal length, as users give them and the journal has them.
"""

from collections.abc import Sequence

import numpy as np

from rllib.tune.checks import check, check_mode

Metric = str | Sequence[str]
Mode = str | Sequence[str]


def is_several(metric) -> bool:
    """Whether these are several metrics."""
    return isinstance(metric, list | tuple)


def checked_objective(metric: Metric | None, mode: Mode | None) -> tuple[Metric | None, Mode | None]:
    """(metric, mode) in their plain form: a list of one is its entry, and several metrics have a mode each.

    Args:
        metric: a result key, or a list of them.
        mode: "max" or "min", for all metrics, or a list with one for each.

    Raises:
        ValueError: if a mode is unknown, missing or superfluous, or a metric comes twice.
        TypeError: if a metric is no str.
    """
    if not is_several(metric):
        if is_several(mode):
            check("mode", mode, len(mode) == 1, "one mode for one metric; several need metric=[...]")
            mode = mode[0]
        if not (metric is None or isinstance(metric, str)):
            raise TypeError(f"metric must be a result key, or a list of them, but got {metric!r:.80}")
        check("metric", metric, metric != "", "a result key")
        return metric, check_mode(mode)
    if wrong := [each for each in metric if not isinstance(each, str)]:
        raise TypeError(f"metric must be a list of result keys, but {wrong[0]!r:.80} is among them")
    check("metric", metric, len(metric) > 0 and len(set(metric)) == len(metric), "a list of different result keys")
    given = list(mode) if is_several(mode) else [mode] * len(metric)
    rule = f"one of 'max' and 'min' for each of metric={list(metric)}"
    check("mode", mode, len(given) == len(metric) and all(each in ("max", "min") for each in given), rule)
    return (list(metric), given) if len(metric) > 1 else (metric[0], given[0])


def pairs(metric: Metric | None, mode: Mode | None) -> list[tuple[str, str]]:
    """[(metric, mode)] of one objective or several; [] without a metric. The default mode is "max"."""
    if metric is None:
        return []
    return list(zip(metric, mode)) if is_several(metric) else [(metric, mode or "max")]


def names(metric: Metric | None) -> list[str]:
    """The metrics of one objective or several."""
    return [] if metric is None else list(metric) if is_several(metric) else [metric]


def pareto_front(values: Sequence[Sequence[float]], modes: Sequence[str]) -> list[int]:
    """Indices of the points that no other dominates: one that is as good in all objectives, and better in one.

    Args:
        values: [N, K], K objectives of N points. Points with NaN are not compared.
        modes: "max" or "min" of each objective.

    Returns:
        in the order of the points. Equal points are on the front together.
    """
    signs = np.array([1.0 if mode == "max" else -1.0 for mode in modes])
    heights = np.asarray(values, float).reshape(-1, len(modes)) * signs
    known = [index for index, point in enumerate(heights) if not np.isnan(point).any()]
    compared = heights[known]
    return [
        index for index in known if not ((compared >= heights[index]).all(1) & (compared > heights[index]).any(1)).any()
    ]


def described(metric: Metric | None, mode: Mode | None) -> str:
    """ "return (max) and energy (min)"."""
    return " and ".join(f"{name} ({each})" for name, each in pairs(metric, mode))
