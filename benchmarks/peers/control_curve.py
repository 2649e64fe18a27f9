"""One run of SAC or TD3 by one library: the steps and the return at the end of each episode, as CSV.

    control_curve.py SIDE TASK ALGORITHM SEED STEPS FILE

SIDE is `ours`, `sb3` or `sbx`. All get the same words, those of Stable-Baselines3's constructor, which ours takes, too.
"""

import csv
import importlib
import sys
from pathlib import Path

import gymnasium

RANDOM_STEPS = 1000
MODULES = {"sb3": "stable_baselines3", "sbx": "sbx"}
# Those of the tasks that the defaults are not for.
WORDS = {
    "Pendulum-v1": {
        "learning_rate": 1e-3, "learning_starts": 500, "batch_size": 128, "policy_kwargs": {"net_arch": [64, 64]},
    },
    "HalfCheetah-v5": {"learning_starts": RANDOM_STEPS},
}  # fmt: skip


class Noted(gymnasium.Wrapper):
    """Appends (steps so far, return) to `episodes` after each episode."""

    def __init__(self, env):
        super().__init__(env)
        self.episodes, self.steps, self.sum = [], 0, 0.0

    def reset(self, **options):
        self.sum = 0.0
        return self.env.reset(**options)

    def step(self, action):
        observation, reward, terminated, truncated, info = self.env.step(action)
        self.steps += 1
        self.sum += float(reward)
        if terminated or truncated:
            self.episodes.append((self.steps, self.sum))
        return observation, reward, terminated, truncated, info


def words(side: str, task: str, algorithm: str) -> dict:
    """Keywords of the constructor; TD3's noise as each library takes it."""
    given = dict(WORDS[task])
    if algorithm == "TD3" and side == "ours":
        given |= {"noise_type": "normal", "noise_std": 0.1}
    elif algorithm == "TD3":
        import numpy as np
        from stable_baselines3.common.noise import NormalActionNoise

        zeros = np.zeros(gymnasium.make(task).action_space.shape)
        given["action_noise"] = NormalActionNoise(zeros, zeros + 0.1)
    return given


def main() -> None:
    side, task, algorithm, seed, steps, file = sys.argv[1:]
    made = []

    def environment():
        made.append(Noted(gymnasium.make(task)))
        return made[-1]

    given = {"seed": int(seed), **words(side, task, algorithm)}
    if side == "ours":
        from rllib.algorithms.base.registry import get_algorithm_class

        with get_algorithm_class(algorithm)("MlpPolicy", environment, **given) as model:
            model.learn(int(steps))
    else:
        import torch

        torch.set_num_threads(1)
        model = getattr(importlib.import_module(MODULES[side]), algorithm)("MlpPolicy", environment(), **given)
        model.learn(int(steps))
    # Ours makes an environment to look at its spaces, too.
    episodes = max((env.episodes for env in made), key=len)
    whole = Path(file).with_suffix(".part")
    with whole.open("w", newline="") as out:
        csv.writer(out).writerows([("steps", "return"), *((at, f"{value:.2f}") for at, value in episodes)])
    whole.rename(file)


if __name__ == "__main__":
    main()
