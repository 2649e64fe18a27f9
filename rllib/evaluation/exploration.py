"""Exploration in workers: the types of exploration_config.

A description (`Exploration`) is sent to the workers, and each makes an `Explorer` of it, which chooses the actions in
place of the policy. Everything random comes from the streams of the environments, so what an environment sees does not
depend on which worker it is in; schedules run over the environment steps of the whole run, step by step.

Names and settings are those of Ray 2.6's exploration classes. The explorers for continuous actions are in
exploration_noise.py, those by noise in the weights in parameter_noise.py.
"""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces

from rllib.policy import Policy


@dataclass(frozen=True)
class Place:
    """Where an explorer acts.

    Attributes:
        worker_index: 0 for the local worker, 1... for the remote ones.
        num_workers: remote workers of the run.
        num_envs: environments of this worker.
        low, high: bounds of a continuous action as the policy gives it, where there are some.
        shared_rng: draws what all environments of the run have in common, the same numbers in each worker.
    """

    worker_index: int
    num_workers: int
    num_envs: int
    low: np.ndarray | None = None
    high: np.ndarray | None = None
    shared_rng: np.random.Generator | None = None

    @property
    def stride(self) -> int:
        """Environment steps that the whole run makes in one step of this worker."""
        return self.num_envs * max(self.num_workers, 1)


class Explorer:
    """Chooses actions in the environments of one worker. This one samples from the policy's distribution.

    Args:
        exploration: the description.
        policy: the policy that acts.
        rngs: one for each environment.
        place: where it acts.
    """

    def __init__(self, exploration: "Exploration", policy: Policy, rngs: Sequence[np.random.Generator], place: Place):
        self.exploration = exploration.in_worker(place)
        self.policy = policy
        self.rngs = rngs
        self.place = place

    @property
    def gives_values(self) -> bool:
        """Whether `act` can write the values of the observations."""
        return self.policy.gives_values

    def begin(self, num_steps: int, timesteps: int, active: Sequence[bool] | None = None) -> np.ndarray:
        """Draws the noise of the next steps.

        Args:
            num_steps: T, steps of each environment.
            timesteps: environment steps that the run has made before.
            active: of each environment, whether it makes these steps; None: all do. For the others nothing is drawn, so
                that what an environment sees does not depend on how long the episodes of its neighbours are.

        Returns:
            noise [T, N, ...], whose rows `act` gets one by one; zeros where nothing was drawn.
        """
        numbers = self.exploration.numbers(timesteps + self.place.stride * np.arange(num_steps))
        drawn = {i: self.policy.noise(self.rngs[i], num_steps, **numbers) for i in self._drawing(active)}
        if len(drawn) == len(self.rngs):
            return np.stack(list(drawn.values()), axis=1)
        some = next(iter(drawn.values()))
        noise = np.zeros((num_steps, len(self.rngs), *some.shape[1:]), some.dtype)
        for i, own in drawn.items():
            noise[:, i] = own
        return noise

    def _drawing(self, active: Sequence[bool] | None) -> Sequence[int]:
        """The environments that make the next steps."""
        return range(len(self.rngs)) if active is None else np.flatnonzero(active).tolist()

    def act(
        self,
        observations: np.ndarray,
        noise: np.ndarray,
        dist_inputs: np.ndarray,
        actions: np.ndarray,
        values: np.ndarray | None = None,
        state: np.ndarray | None = None,
        next_state: np.ndarray | None = None,
    ) -> None:
        """Chooses one action per environment; arguments as for `Policy.act`."""
        self.policy.act(observations, noise, dist_inputs, actions, values, state, next_state)

    def episodes_ended(self, environments: Sequence[int]) -> None:
        """Called when these environments begin new episodes with the next action."""

    def end(self) -> None:
        """Called after the steps since `begin`; the policy's weights may change."""

    def start_over(self) -> None:
        """Called when the running episodes were dropped: every environment begins a new one."""

    def get_state(self) -> list[dict[str, Any]]:
        """The state of each environment's exploration, JSON-able."""
        return [{} for _ in self.rngs]

    def set_state(self, state: Sequence[Mapping[str, Any]]) -> None:
        """Restores what `get_state` returned; every environment begins a new episode."""


class Greedy(Explorer):
    """Takes the most probable actions: for `explore=False`. The streams of the environments move on all the same."""

    def begin(self, num_steps: int, timesteps: int, active: Sequence[bool] | None = None) -> np.ndarray:
        return np.zeros_like(super().begin(num_steps, timesteps, active))


class NoisyWeightsExplorer(Explorer):
    """Draws new noise in the weights at every step, the same for all environments of all workers.

    The paper of NoisyNet draws before every action of its one environment (arXiv:1706.10295, section 3.1). Environments
    in lockstep share a draw, so that one product computes all of them; their observations differ, and the next step
    draws again. Workers share it too, so that runs do not depend on how environments are shared out.
    """

    def act(self, observations, noise, dist_inputs, actions, values=None, state=None, next_state=None) -> None:
        self.policy.resample(self.place.shared_rng)
        self.policy.act(observations, noise, dist_inputs, actions, values, state, next_state)

    def get_state(self) -> list[dict[str, Any]]:
        return [{"shared_rng": self.place.shared_rng.bit_generator.state} for _ in self.rngs]

    def set_state(self, state: Sequence[Mapping[str, Any]]) -> None:
        # Checkpoints of earlier versions have none: there the first environment's stream drew.
        if "shared_rng" in state[0]:
            self.place.shared_rng.bit_generator.state = state[0]["shared_rng"]


class Exploration:
    """Base of the types of exploration_config, which are dataclasses: their fields are the settings, with defaults."""

    explorer: ClassVar[type[Explorer]] = Explorer

    def numbers(self, timesteps) -> dict[str, Any]:
        """Keyword arguments of the distribution's `noise` at these environment steps, a number or an array."""
        return {}

    def for_actions(self, action_space: spaces.Space) -> "Exploration":
        """The exploration to use with these actions."""
        return self

    def in_worker(self, place: Place) -> "Exploration":
        """The exploration of one worker."""
        return self


@dataclass(frozen=True)
class StochasticSampling(Exploration):
    """Actions are drawn from the policy's own distribution."""


@dataclass(frozen=True)
class EpsilonGreedy(Exploration):
    """The action of the highest value, or with probability epsilon any.

    Attributes:
        initial_epsilon: epsilon for the first warmup_timesteps environment steps.
        final_epsilon: epsilon in the end, reached in a straight line.
        epsilon_timesteps: environment steps from one to the other.
        warmup_timesteps: environment steps before that.
    """

    initial_epsilon: float = 1.0
    final_epsilon: float = 0.05
    epsilon_timesteps: int = 10_000
    warmup_timesteps: int = 0

    def numbers(self, timesteps) -> dict[str, Any]:
        return {"epsilon": np.interp(timesteps, *self._schedule)}

    @functools.cached_property
    def _schedule(self) -> np.ndarray:
        """Timesteps and epsilons of the corners, [2, corners]."""
        start, length = self.warmup_timesteps, self.epsilon_timesteps
        corners = [(0, self.initial_epsilon)] if start or length else []
        corners += [(start, self.initial_epsilon)] if start and length else []
        return np.array([*corners, (start + length, self.final_epsilon)], np.float64).T


STOCHASTIC_SAMPLING = StochasticSampling()

# Constants of Ape-X (arXiv:1803.00933, section 4.1).
BASE, EXPONENT = 0.4, 7.0


def worker_epsilon(worker_index: int, num_workers: int) -> float:
    """Epsilon of actor i of N, 0.4^(1 + 7 i / (N - 1)) with i from 0; the worker's index counts from 1."""
    return BASE ** (1 + EXPONENT * (worker_index - 1) / max(num_workers - 1, 1))


@dataclass(frozen=True)
class PerWorkerEpsilonGreedy(EpsilonGreedy):
    """Epsilon-greedy with a different epsilon in each worker, for the whole run; without workers, by the schedule."""

    def in_worker(self, place: Place) -> Exploration:
        if not place.num_workers:
            return EpsilonGreedy(*astuple(self))
        epsilon = worker_epsilon(place.worker_index, place.num_workers) if place.worker_index else 0.0
        return EpsilonGreedy(epsilon, epsilon, 0)


@dataclass(frozen=True)
class SoftQ(Exploration):
    """Actions are drawn with probabilities softmax(Q / temperature)."""

    temperature: float = 1.0

    def numbers(self, timesteps) -> dict[str, Any]:
        return {"temperature": self.temperature}


@dataclass(frozen=True)
class RandomValues(Exploration):
    """Any of the actions that have values, all with equal probability."""

    def numbers(self, timesteps) -> dict[str, Any]:
        return {"epsilon": 1.0}


@dataclass(frozen=True)
class NoisyWeights(Exploration):
    """The noise of noisy layers alone makes actions vary (arXiv:1706.10295)."""

    without_memory = "layers with noise in their weights have no state"
    explorer = NoisyWeightsExplorer
