"""Exploration by the values of discrete actions: epsilon-greedy, softmax, uniform."""

import functools
from typing import Annotated, Any

import msgspec
import numpy as np

from rllib.config.conflicts import conflict
from rllib.config.sections import above, at_least, between
from rllib.exploration.explorers import Exploration, WorkerPosition, line_between

# Constants of Ape-X (arXiv:1803.00933, section 4.1).
BASE, EXPONENT = 0.4, 7.0


class EpsilonGreedy(Exploration):
    """Takes the action of the highest value, or with probability epsilon a random one."""

    initial_epsilon: Annotated[float, "epsilon for the first warmup_timesteps", between(0, 1)] = 1.0
    final_epsilon: Annotated[float, "epsilon at the end of the linear schedule", between(0, 1)] = 0.05
    epsilon_timesteps: Annotated[
        int, "environment steps from initial_epsilon to final_epsilon; 0: epsilon changes at once", at_least(0)
    ] = 10_000
    warmup_timesteps: Annotated[int, "environment steps before the schedule begins", at_least(0)] = 0
    random_timesteps: Annotated[
        int, "environment steps whose actions are random, whatever epsilon is by its schedule", at_least(0)
    ] = 0

    conflicts = (
        conflict(
            "final_epsilon",
            "initial_epsilon",
            when=lambda keys: keys.final_epsilon > keys.initial_epsilon,
            why="epsilon does not grow",
            remedies=[
                lambda keys: {"final_epsilon": keys.initial_epsilon},
                lambda keys: {"initial_epsilon": keys.final_epsilon},
            ],
        ),
    )

    def numbers(self, timesteps) -> dict[str, Any]:
        epsilon = np.interp(timesteps, *self._schedule)
        if self.random_timesteps:
            epsilon = np.where(np.less(timesteps, self.random_timesteps), 1.0, epsilon)[()]
        return {"epsilon": epsilon}

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

    def in_worker(self, position: WorkerPosition) -> Exploration:
        if not position.num_workers:
            return EpsilonGreedy(*msgspec.structs.astuple(self))
        epsilon = worker_epsilon(position.worker_index, position.num_workers) if position.worker_index else 0.0
        return EpsilonGreedy(epsilon, epsilon, 0)


class SoftQ(Exploration):
    """Draws actions with probabilities softmax(Q / temperature)."""

    temperature: Annotated[
        float, "of the probabilities; near 0 it takes the best actions, as explore=False does", above(0, finite=True)
    ] = 1.0

    def numbers(self, timesteps) -> dict[str, Any]:
        return {"temperature": self.temperature}


class RandomValues(Exploration):
    """Takes uniformly random actions, among the legal ones."""

    def numbers(self, timesteps) -> dict[str, Any]:
        return {"epsilon": 1.0}
