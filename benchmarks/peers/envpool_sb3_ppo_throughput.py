"""Stable-Baselines3 PPO over EnvPool's environments, sampling and training: environment steps a second.

An environment of numbers with SB3's default network and one thread for torch, or Pong-v5 (84x84, stack of 4, four
frames a step) with CnnPolicy and as many threads as there are cores, as in sb3_ppo_throughput.py and
sb3_pong_throughput.py. EnvPool steps all environments at once in its threads, as many as there are cores.
"""

import argparse
import json
import os
import sys
from importlib import metadata

if "Pong-v5" in sys.argv:
    # The benchmarks set one thread for processes that share the cores; this one is alone.
    os.environ["OMP_NUM_THREADS"] = str(len(os.sched_getaffinity(0)))

import envpool
import numpy as np
import torch
from sb3_common import pong_ppo, rate, versions
from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import VecEnv
from stable_baselines3.common.vec_env.base_vec_env import VecEnvObs, VecEnvStepReturn


class EnvPoolVecEnv(VecEnv):
    """EnvPool as SB3's vector environment: one that has ended is reset in the same step."""

    def __init__(self, name: str, num_envs: int):
        self._pool = envpool.make(name, env_type="gymnasium", num_envs=num_envs, seed=0)
        super().__init__(num_envs, self._pool.observation_space, self._pool.action_space)

    def reset(self) -> VecEnvObs:
        return self._pool.reset()[0]

    def step_async(self, actions: np.ndarray) -> None:
        self._actions = actions

    def step_wait(self) -> VecEnvStepReturn:
        observations, rewards, terminated, truncated, _ = self._pool.step(self._actions)
        ended = terminated | truncated
        infos = [{} for _ in range(self.num_envs)]
        if ended.any():
            indices = np.flatnonzero(ended)
            observations = observations.copy()
            for index in indices:
                infos[index] = {
                    "terminal_observation": observations[index].copy(),
                    "TimeLimit.truncated": bool(truncated[index] and not terminated[index]),
                }
            observations[indices] = self._pool.reset(indices)[0]
        return observations, rewards, ended, infos

    def close(self) -> None:
        self._pool.close()

    def get_attr(self, attr_name, indices=None):
        return [None] * self.num_envs

    def set_attr(self, attr_name, value, indices=None):
        raise NotImplementedError("EnvPool's environments have no attributes to set.")

    def env_method(self, method_name, *args, indices=None, **kwargs):
        raise NotImplementedError("EnvPool's environments have no methods to call.")

    def env_is_wrapped(self, wrapper_class, indices=None):
        return [False] * self.num_envs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--env", default="CartPole-v1")
    parser.add_argument("--envs", type=int, default=8)
    parser.add_argument("--fragment", type=int, default=128, help="steps of each environment an iteration")
    parser.add_argument("--iterations", type=int, default=20)
    parser.add_argument("--batch", type=int, default=256, help="rows of a minibatch; not of Pong's")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--warm-up", type=int, default=1, help="iterations before those that count")
    arguments = parser.parse_args()
    envs = EnvPoolVecEnv(arguments.env, arguments.envs)
    if arguments.env == "Pong-v5":
        model = pong_ppo(envs, arguments.fragment)
    else:
        torch.set_num_threads(1)
        sizes = {"n_steps": arguments.fragment, "batch_size": arguments.batch, "n_epochs": arguments.epochs}
        model = PPO("MlpPolicy", envs, seed=0, device="cpu", verbose=0, **sizes)
    found = {"env_steps_per_s": rate(model, arguments.iterations, arguments.warm_up)}
    threads = torch.get_num_threads()
    print(json.dumps({**found, "threads": threads, "envpool": metadata.version("envpool"), **versions()}))


if __name__ == "__main__":
    main()
