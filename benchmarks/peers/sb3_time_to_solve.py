"""Stable-Baselines3 PPO with RL Zoo's settings for CartPole-v1, until the last 100 episodes return 475 on average."""

import time

STARTED = time.perf_counter()  # before the imports: they are part of what a user waits for

import argparse  # noqa: E402
import json  # noqa: E402

from sb3_common import ppo, versions  # noqa: E402
from stable_baselines3.common.callbacks import BaseCallback  # noqa: E402

# rl-baselines3-zoo hyperparams/ppo.yml, CartPole-v1. "lin_x" falls linearly from x to 0 over its 100,000 steps.
TOTAL_TIMESTEPS = 100_000
SETTINGS = {
    "n_steps": 32,
    "batch_size": 256,
    "n_epochs": 20,
    "gamma": 0.98,
    "gae_lambda": 0.8,
    "ent_coef": 0.0,
    "learning_rate": lambda remaining: 1e-3 * remaining,
    "clip_range": lambda remaining: 0.2 * remaining,
}


class UntilSolved(BaseCallback):
    """Stops when the last 100 episodes (the monitor's window) reach the mean return."""

    def __init__(self, target: float):
        super().__init__()
        self.target = target
        self.solved = False

    def _on_rollout_start(self) -> None:
        episodes = self.model.ep_info_buffer
        mean = sum(episode["r"] for episode in episodes) / max(len(episodes), 1)
        self.solved = len(episodes) == 100 and mean >= self.target

    def _on_step(self) -> bool:
        return not self.solved


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--target", type=float, default=475)
    arguments = parser.parse_args()
    imported = time.perf_counter()
    callback = UntilSolved(arguments.target)
    model = ppo(8, arguments.seed, **SETTINGS)
    model.learn(TOTAL_TIMESTEPS, callback=callback)
    ended = time.perf_counter()
    result = {"solved": callback.solved, "env_steps": model.num_timesteps}
    seconds = {"train_s": ended - imported, "total_s": ended - STARTED}
    print(json.dumps(result | seconds | versions()))


if __name__ == "__main__":
    main()
