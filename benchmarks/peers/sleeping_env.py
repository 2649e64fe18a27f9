"""An environment whose step takes a fixed time without working: a simulator behind a socket, a robot, a web page."""

import time

import gymnasium
import numpy as np


class SleepingEnv(gymnasium.Env):
    """Every step sleeps `sleep_ms`; an episode has 200 steps. Takes its config as RLlib hands it out: a dict."""

    observation_space = gymnasium.spaces.Box(-1, 1, (4,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, config: dict | None = None):
        self.sleep_s = (config or {}).get("sleep_ms", 5) / 1000
        self.steps = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(4, np.float32), {}

    def step(self, action):
        time.sleep(self.sleep_s)
        self.steps += 1
        return np.zeros(4, np.float32), 1.0, self.steps == 200, False, {}
