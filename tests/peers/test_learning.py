"""Returns after equal numbers of steps of the same program, beside Stable-Baselines3 and sb3-contrib: three seeds.

Our algorithms are made by the constructor in their words, whose other settings are their defaults.
"""

import numpy as np
import pytest

from rllib.algorithms.base.registry import get_algorithm_class
from tests.peers.tasks import TASKS, curve, environment

SEEDS = 1, 2, 3


def trained(task, seed):
    """Our curve."""
    name, _, policy, _, steps, words = TASKS[task]
    with get_algorithm_class(name)(policy, lambda: environment(task), seed=seed, **words) as algorithm:
        return curve(lambda: algorithm.learn(steps))


@pytest.mark.learning
@pytest.mark.parametrize("task", TASKS)
def test_returns(task, sb3):
    theirs = np.array([sb3.call("from_sb3.trained", {"task": task, "seed": seed})["curve"] for seed in SEEDS])
    ours = np.array([trained(task, seed) for seed in SEEDS])
    for name, curves in (("ours", ours), ("theirs", theirs)):
        print(f"\n{task}, {name}, a seed a row, mean return in each fifth of the steps:\n{np.round(curves, 1)}")
    ours, theirs = ours[:, -1], theirs[:, -1]
    # Three seeds each differ by chance: by two standard errors of the difference of their means, 19 times in 20.
    error = np.sqrt((np.var(ours, ddof=1) + np.var(theirs, ddof=1)) / len(SEEDS))
    assert np.mean(ours) >= np.mean(theirs) - 2 * error
