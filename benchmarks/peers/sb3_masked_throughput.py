"""sb3-contrib's MaskablePPO on CartPole-v1 with masks, sampling and training: environment steps a second.

8 environments x 128 steps, 4 epochs, minibatches of 256, two 64x64 tanh towers (its default network). The environment
is that of rllib/env/tasks/masked.py, with the mask as a method instead of a part of the observation.
"""

import argparse
import json

import gymnasium
import numpy as np
import sb3_contrib
import torch
from gymnasium.spaces import Discrete
from sb3_common import Clock, versions
from sb3_contrib import MaskablePPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import DummyVecEnv

MASKS = np.array([[1, 0, 1, 0], [1, 0, 0, 1], [0, 1, 1, 0], [0, 1, 0, 1]], bool)


class MaskedCartPole(gymnasium.Wrapper):
    """Four actions, of which 0 and 1 push to the left and 2 and 3 to the right; one of each pair is legal."""

    def __init__(self):
        super().__init__(gymnasium.make("CartPole-v1", disable_env_checker=True))
        self.action_space = Discrete(4)
        self._legal = MASKS[0]

    def reset(self, **keywords):
        self._draw()
        return self.env.reset(**keywords)

    def step(self, action):
        if not self._legal[action]:
            raise ValueError(f"action {action} is illegal")
        result = self.env.step(int(action) // 2)
        self._draw()
        return result

    def action_masks(self) -> np.ndarray:
        return self._legal

    def _draw(self) -> None:
        self._legal = MASKS[self.unwrapped.np_random.integers(4)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--iterations", type=int, default=10)
    parser.add_argument("--warm-up", type=int, default=2, help="iterations before those that count")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    envs = make_vec_env(MaskedCartPole, n_envs=8, seed=0, vec_env_cls=DummyVecEnv)
    model = MaskablePPO("MlpPolicy", envs, seed=0, device="cpu", n_steps=128, batch_size=256, n_epochs=4)
    clock = Clock()
    # One iteration more than is counted: the last one has no rollout after it to say when it ended.
    model.learn((arguments.warm_up + arguments.iterations + 1) * 1024, callback=clock)
    seconds = clock.times[-1] - clock.times[arguments.warm_up]
    iterations = len(clock.times) - 1 - arguments.warm_up
    rate = iterations * 1024 / seconds
    print(json.dumps({"env_steps_per_s": rate, "sb3_contrib": sb3_contrib.__version__, **versions()}))


if __name__ == "__main__":
    main()
