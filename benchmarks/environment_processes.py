"""Environment steps a second with a process for each environment, beside gymnasium's AsyncVectorEnv.

Both step the same environments with the same actions, and reset those that have ended.
"""

import time

import gymnasium
import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode
from measure import PEERS, Row, alternate, arguments, machine, table

import sys  # isort: skip

sys.path.insert(0, str(PEERS))


class Screens(gymnasium.Env):
    """Every step gives another picture of the size of an Atari screen, without working."""

    observation_space = gymnasium.spaces.Box(0, 255, (210, 160, 3), np.uint8)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, config: dict | None = None):
        self.screens = np.random.default_rng(0).integers(0, 256, (16, 210, 160, 3), np.uint8)
        self.steps = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self.screens[0], {}

    def step(self, action):
        self.steps += 1
        return self.screens[self.steps % 16], 1.0, self.steps == 200, False, {}


def ours(env, env_config: dict, count: int):
    from rllib.env import make_stream, resolve
    from rllib.env.factories.vectorized import AsyncFactory

    stream = make_stream(AsyncFactory(resolve(env)), num_envs=count, seeds=list(range(count)), env_config=env_config)
    buffers = stream.new_buffers()
    stream.reset(buffers)
    return (lambda actions: stream.step(actions, buffers)), stream.close


def gymnasiums(env, env_config: dict, count: int):
    def make():
        return env(env_config) if callable(env) else gymnasium.make(env)

    vector = AsyncVectorEnv([make] * count, autoreset_mode=AutoresetMode.SAME_STEP)
    vector.reset(seed=0)
    return vector.step, vector.close


def rate(side, env, env_config: dict, count: int, seconds: float) -> float:
    """Environment steps a second."""
    step, close = side(env, env_config, count)
    actions = np.random.default_rng(0).integers(0, 2, (64, count))
    for t in range(20):
        step(actions[t])
    steps, started = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - started) < seconds:
        step(actions[steps % 64])
        steps += 1
    close()
    return steps * count / elapsed


def row(name: str, env, env_config: dict, count: int, options) -> Row:
    """Both sides in turn."""
    what = env, env_config, count, options.seconds
    found = alternate(
        options.rounds, warm_up=0, ours=lambda: rate(ours, *what), gymnasium=lambda: rate(gymnasiums, *what)
    )
    return Row.of(found, "gymnasium", f"{name}, {count} environments", "env steps/s", bar=">= 1 peer")


def main() -> None:
    parser = arguments(__doc__, rounds=5)
    parser.add_argument("--envs", type=int, nargs="+", default=[2, 8], help="how many, one row each")
    parser.add_argument("--seconds", type=float, default=2, help="of each side in each round")
    parser.add_argument("--sleep-ms", type=float, default=5, help="of each step of the slow environment")
    options = parser.parse_args()
    from sleeping_env import SleepingEnv

    print(machine())
    kinds = [
        ("CartPole", "CartPole-v1", {}),
        ("screens of 100 kB", Screens, {}),
        (f"{options.sleep_ms:g} ms a step", SleepingEnv, {"sleep_ms": options.sleep_ms}),
    ]
    table([row(*kind, count, options) for kind in kinds for count in options.envs])


if __name__ == "__main__":
    main()
