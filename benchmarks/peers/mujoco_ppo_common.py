"""PPO on a MuJoCo task: the sizes that every side of mujoco_ppo.py trains with, and the clock that it is timed by."""

import argparse
import json
import time

ENV, ENVS, STEPS = "HalfCheetah-v5", 8, 256
BATCH, MINIBATCH, EPOCHS = ENVS * STEPS, 64, 10
HIDDENS = [64, 64]
LR, GAMMA, LAMBDA, CLIP, GRAD_CLIP, VALUE_SHARE = 3e-4, 0.99, 0.95, 0.2, 0.5, 0.25


class Iterations:
    """Times of the starts (or of the ends) of all rollouts; the rate leaves the first iterations out."""

    def __init__(self, description: str | None):
        parser = argparse.ArgumentParser(description=description)
        parser.add_argument("--iterations", type=int, default=20)
        parser.add_argument("--warm-up", type=int, default=2)
        given = parser.parse_args()
        self.count, self._warm_up, self._times = given.iterations + given.warm_up + 1, given.warm_up, []

    def note(self) -> None:
        """Notes the time of a rollout."""
        self._times.append(time.perf_counter())

    def report(self, **versions: str) -> None:
        """Prints the rate as the peers of benchmarks do, one line of JSON."""
        seconds = self._times[-1] - self._times[self._warm_up]
        iterations = len(self._times) - 1 - self._warm_up
        print(json.dumps({"env_steps_per_s": iterations * BATCH / seconds, "iterations": iterations, **versions}))
