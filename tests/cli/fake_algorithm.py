"""A stand-in for an algorithm, so that the command line is tested without training."""

import math
from pathlib import Path


class FakeConfig:
    """Remembers what it is given; `behaviour` says what its algorithm does in which iteration."""

    def __init__(self, behaviour):
        self.behaviour = behaviour
        self.settings = {"num_rollout_workers": 2}

    def environment(self, env):
        self.settings["env"] = env
        return self

    def update_from_dict(self, settings):
        if "lrr" in settings:
            raise ValueError("unknown setting 'lrr'. Did you mean 'lr'?")
        self.settings.update(settings)
        return self

    def debugging(self, seed):
        self.settings["seed"] = seed
        return self

    def to_dict(self):
        return self.settings

    def build(self):
        self.behaviour.get("build", lambda: None)()
        return FakeAlgorithm(self)


class FakeAlgorithm:
    """Its return is ten times the iteration; the first iteration ends no episode."""

    stopped = 0  # algorithms that were

    def __init__(self, config):
        self.config = config
        self.seed = config.settings.get("seed", 5)
        self.iteration = 0
        self.is_stopped = False

    def train(self):
        self.iteration += 1
        self.config.behaviour.get(self.iteration, lambda: None)()
        return {
            "training_iteration": self.iteration,
            "timesteps_total": 100 * self.iteration,
            "time_total_s": 0.01 * self.iteration,
            "episode_reward_mean": math.nan if self.iteration == 1 else 10.0 * self.iteration,
            "episode_reward_min": 0.0,
            "episode_reward_max": 20.0 * self.iteration,
            "episode_len_mean": 20.0,
            "num_env_steps_sampled_throughput_per_sec": 1e4,
            "num_healthy_workers": 2,
            "timers": {"training_iteration_time_ms": 10.0, "sample_time_ms": 6.0, "learn_time_ms": 3.0},
            "config": self.config.to_dict(),
        }

    def save(self, path):
        Path(path).mkdir()
        return Path(path)

    def stop(self):
        FakeAlgorithm.stopped += not self.is_stopped
        self.is_stopped = True
