"""What tests of several algorithms ask of one."""

import os
import time

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


def shard_pids(algo) -> list[int]:
    """Of a replay in processes of its own."""
    return list(algo.replay.fleet.ask_all(lambda shard, _: shard.pid.remote(), is_work=False).values())


def train_until(algo, condition=lambda result: False, timeout_s=30):
    """Iterations until the result is as wished, or one raises; less than 30 s, as everything after a death has to be.

    An asynchronous algorithm that waits for no single worker makes a hundred iterations in less time than the news of
    a death may take on a busy machine: what has to become of one is a matter of time, not of a number of iterations.
    """
    started = time.monotonic()
    while not condition(result := algo.train()):
        assert time.monotonic() - started < timeout_s
    assert time.monotonic() - started < timeout_s
    return result
