"""What tests of several algorithms ask of one."""

import os

import numpy as np


def train(algo, iterations: int):
    """The result of the last iteration; None for no iterations."""
    result = None
    for _ in range(iterations):
        result = algo.train()
    return result


def learner_stats(result) -> dict:
    return result["info/learner/default_policy/learner_stats"]


def values(algo, *observations: float) -> np.ndarray:
    """[B] of observations of one number."""
    return algo.policy.values(np.array(observations, np.float32)[:, None])


def q_values(algo, *observations: float) -> np.ndarray:
    """[B, A] of observations of one number, by a network without its noise."""
    algo.policy.silence()
    return algo.policy.action_values(np.array(observations, np.float32)[:, None]).q_values().copy()


def worker_pids(algo) -> list[int]:
    return algo.workers.foreach_worker(lambda worker: os.getpid())
