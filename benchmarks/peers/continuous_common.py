"""Continuous control, what all sides do alike: sizes, cores, clocks; and SB3's loop, which SBX shares.

Networks of 256x256, batches of 256, a replay of a million rows, one update per environment step after 100 random steps.
"""

import argparse
import json
import os
import time
from collections.abc import Callable

ALGORITHMS = ("SAC", "TD3", "DDPG", "CrossQ", "TQC")
LEARNING_STARTS = 100
BATCH = 256
REPLAY = 1_000_000
HIDDENS = [256, 256]


def options(description: str) -> argparse.Namespace:
    """Arguments of one side's process, which is kept to its cores before a library counts them."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("algorithm", choices=ALGORITHMS)
    add_options(parser)
    parser.add_argument("--policy", default="MlpPolicy", help="of the library")
    parser.add_argument("--hiddens", type=int, nargs="+", default=HIDDENS, help="sizes of layers, or of blocks")
    given = parser.parse_args()
    keep_to(given.cores)
    return given


def add_options(parser: argparse.ArgumentParser) -> None:
    """The arguments that every side takes."""
    parser.add_argument("--environment", default="Pendulum-v1")
    parser.add_argument("--cores", type=int, default=2, help="cores that a side may use")
    parser.add_argument("--warm-up", type=int, default=200, help="updates before those that count")
    parser.add_argument("--seconds", type=float, default=10, help="that count, after the warm-up")
    parser.add_argument("--train-freq", type=int, default=1, help="steps in a row, before as many updates")


def keep_to(cores: int) -> None:
    """Keeps this process and those that it starts to the first `cores` cores."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])


class Watch:
    """Times the calls of some methods, each of which is replaced on its object.

    Attributes:
        seconds: name -> how long all calls took.
        calls: name -> number of calls.
        ends: name -> when the first ten calls ended.
    """

    def __init__(self):
        self.seconds: dict[str, float] = {}
        self.calls: dict[str, int] = {}
        self.ends: dict[str, list[float]] = {}

    def method(self, name: str, owner, method: str) -> None:
        """Times `owner.method` under a name."""
        call = getattr(owner, method)
        self.seconds[name], self.calls[name], self.ends[name] = 0.0, 0, []

        def timed(*args, **kwargs):
            started = time.perf_counter()
            result = call(*args, **kwargs)
            ended = time.perf_counter()
            self.seconds[name] += ended - started
            self.calls[name] += 1
            if self.calls[name] <= 10:
                self.ends[name].append(ended)
            return result

        setattr(owner, method, timed)

    def compile_times(self, started: float) -> dict[str, float]:
        """Seconds from the start of learning to the end of the first update, and to the end of the tenth.

        The tenth because policies that are updated with a delay have more than one program to compile.
        """
        first, tenth = (self.ends["update"][index] - started for index in (0, 9))
        return {"first_update_s": first, "tenth_update_s": tenth}


def stable_baselines(algorithm: Callable, given: argparse.Namespace, versions: dict) -> None:
    """Trains a class of SB3, sb3-contrib or SBX, and prints a JSON line of env_steps_per_s, times and shares."""
    import numpy as np
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.noise import NormalActionNoise

    envs = make_vec_env(given.environment, n_envs=1, seed=0)
    arguments = {"seed": 0, "device": "cpu", "verbose": 0}
    arguments |= {"train_freq": given.train_freq, "gradient_steps": given.train_freq}
    if given.algorithm in ("TD3", "DDPG"):
        zeros = np.zeros(envs.action_space.shape)
        arguments["action_noise"] = NormalActionNoise(zeros, zeros + 0.1)
    model = algorithm(
        given.policy, envs, batch_size=BATCH, buffer_size=REPLAY, learning_starts=LEARNING_STARTS,
        policy_kwargs={"net_arch": {"pi": given.hiddens, "qf": given.hiddens}}, **arguments,
    )  # fmt: skip
    watch = Watch()
    watch.method("physics", envs, "step_wait")
    watch.method("acting", model, "_sample_action")
    watch.method("update", model, "train")

    class Clock(BaseCallback):
        """Stops when the time is over."""

        begun = None

        def _on_step(self) -> bool:
            if watch.calls["update"] * given.train_freq < given.warm_up:
                return True
            now = time.perf_counter()
            if self.begun is None:
                self.begun, self.steps, self.before = now, self.num_timesteps, dict(watch.seconds)
            elapsed = now - self.begun
            if elapsed < given.seconds:
                return True
            self.rate = (self.num_timesteps - self.steps) / elapsed
            self.shares = {name: (total - self.before[name]) / elapsed for name, total in watch.seconds.items()}
            return False

    clock = Clock()
    started = time.perf_counter()
    model.learn(10**9, callback=clock)
    found = {"env_steps_per_s": clock.rate, **watch.compile_times(started), "shares": clock.shares}
    print(json.dumps({**found, **versions}))
