"""Exploration by the values of discrete actions: epsilon-greedy, softmax, uniform."""

import functools
from typing import Any

import msgspec
import numpy as np

from rllib.exploration.explorers import Exploration, WorkerSlot, line_between

# Constants of Ape-X (arXiv:1803.00933, section 4.1).
BASE, EXPONENT = 0.4, 7.0


class EpsilonGreedy(Exploration):
    """Takes the action of the highest value, or with probability epsilon a random one.

    Attributes:
        initial_epsilon: epsilon for the first warmup_timesteps environment steps.
        final_epsilon: epsilon at the end of the linear schedule.
        epsilon_timesteps: environment steps from initial_epsilon to final_epsilon; 0: epsilon changes at once.
        warmup_timesteps: environment steps before the schedule begins.
    """

    initial_epsilon: float = 1.0
    final_epsilon: float = 0.05
    epsilon_timesteps: int = 10_000
    warmup_timesteps: int = 0

    def numbers(self, timesteps) -> dict[str, Any]:
        return {"epsilon": np.interp(timesteps, *self._schedule)}

    @functools.cached_property
    def _schedule(self) -> np.ndarray:
        """Timesteps and epsilons of the schedule's two corners, [2, 2]; epsilon is constant outside them."""
        corners = line_between(self.warmup_timesteps, self.epsilon_timesteps)
        return np.array([corners, (self.initial_epsilon, self.final_epsilon)], np.float64)


def worker_epsilon(worker_index: int, num_workers: int) -> float:
    """Epsilon of actor i of N, 0.4^(1 + 7 i / (N - 1)) with i from 0; worker_index counts from 1."""
    return BASE ** (1 + EXPONENT * (worker_index - 1) / max(num_workers - 1, 1))


class PerWorkerEpsilonGreedy(EpsilonGreedy):
    """Epsilon-greedy with a different epsilon in each worker, for the whole run; without workers, by the schedule."""

    differs_by_worker = True

    def in_worker(self, slot: WorkerSlot) -> Exploration:
        if not slot.num_workers:
            return EpsilonGreedy(*msgspec.structs.astuple(self))
        epsilon = worker_epsilon(slot.worker_index, slot.num_workers) if slot.worker_index else 0.0
        return EpsilonGreedy(epsilon, epsilon, 0)


class SoftQ(Exploration):
    """Draws actions with probabilities softmax(Q / temperature)."""

    temperature: float = 1.0

    def numbers(self, timesteps) -> dict[str, Any]:
        return {"temperature": self.temperature}


class RandomValues(Exploration):
    """Takes uniformly random actions, among the legal ones."""

    def numbers(self, timesteps) -> dict[str, Any]:
        return {"epsilon": 1.0}
