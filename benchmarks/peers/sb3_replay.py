"""Stable-Baselines3's ReplayBuffer: rows inserted and sampled a second. Prints a JSON line."""

import argparse
import json
from functools import partial

import numpy as np
from gymnasium.spaces import Box, Discrete
from replay_common import rate, rows
from stable_baselines3.common.buffers import ReplayBuffer

OBSERVATIONS = Box(-np.inf, np.inf, (4,), np.float32)


def filled(capacity: int, num_envs: int) -> tuple[ReplayBuffer, list]:
    """A full buffer that takes a row of so many environments at a time, and the arguments of its add()."""
    replay = ReplayBuffer(capacity, OBSERVATIONS, Discrete(2), device="cpu", n_envs=num_envs)
    new = rows(num_envs)
    arguments = [new["obs"], new["new_obs"], new["actions"], new["rewards"], new["terminateds"], [{}] * num_envs]
    # Written to in one go: a million calls of add() take longer than the measurement.
    for column in (replay.observations, replay.next_observations):
        column[:] = np.random.default_rng(0).normal(size=column.shape[1:])
    for column in (replay.actions, replay.rewards, replay.dones, replay.timeouts):
        column[:] = 0
    replay.full = True
    return replay, arguments


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--capacity", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=0.5)
    options = parser.parse_args()
    found = {}
    for num_envs in (1, 64):
        replay, arguments = filled(options.capacity, num_envs)
        found[f"insert {num_envs}"] = rate(partial(replay.add, *arguments), num_envs, options.seconds)
    replay, _ = filled(options.capacity, 1)
    for size in (64, 4096):
        found[f"sample {size}"] = rate(partial(replay.sample, size), size, options.seconds)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
