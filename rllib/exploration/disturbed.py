"""Disturbed actions, for recorded data that covers more than a policy does by itself."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from rllib.exploration.explorers import Exploration, Explorer, Greedy, WorkerPosition, random_choices
from rllib.policy import Policy


class Disturbed(Exploration):
    """Explores as another exploration does, or not at all, with some actions replaced and noise added to the others.

    Attributes:
        inner: the other exploration.
        explores: whether it is followed; otherwise the most probable actions are taken.
        random_share: share of the steps whose action is uniformly random among the legal ones.
        noise: standard deviation of normal noise, where [-1, 1] spans the bounds of actions.
    """

    inner: Exploration
    explores: bool = True
    random_share: float = 0.0
    noise: float = 0.0

    @property
    def explorer(self) -> type[Explorer]:
        return DisturbedExplorer

    def numbers(self, timesteps) -> dict[str, Any]:
        return self.inner.numbers(timesteps)


class DisturbedExplorer(Explorer):
    """Chooses actions by another explorer, and disturbs them; arguments as for Explorer."""

    follows_policy = False

    def __init__(
        self, exploration: Disturbed, policy: Policy, rngs: Sequence[np.random.Generator], position: WorkerPosition
    ):
        super().__init__(exploration, policy, rngs, position)
        kind = exploration.inner.explorer if exploration.explores else Greedy
        self._inner = kind(exploration.inner, policy, rngs, position)

    @property
    def gives_values(self) -> bool:
        return self._inner.gives_values

    def begin(self, num_steps: int, timesteps: int, active: Sequence[bool] | None = None) -> np.ndarray:
        return self._inner.begin(num_steps, timesteps, active)

    def act(self, observations, noise, dist_inputs, actions, values=None, state=None, next_state=None) -> None:
        self._inner.act(observations, noise, dist_inputs, actions, values, state, next_state)
        rows = actions.reshape(len(actions), -1)
        unit = self.policy.distribution.unit
        for i, rng in enumerate(self.rngs):
            is_random = rng.random() < self.exploration.random_share
            if is_random:
                rows[i] = self._random(observations[i : i + 1], rng)
            elif self.exploration.noise:
                added = self.exploration.noise * rng.standard_normal(rows.shape[1])
                rows[i] = unit.stored(unit.read(rows[i]) + added)

    def _random(self, observation: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """A uniformly random action, as a row of numbers."""
        if choices := self.policy.distribution.choices:
            return random_choices(self.policy, observation, rng.random((1, choices[-1][1])))[0]
        size = math.prod(self.policy.action_shape)
        low, high = self.position.low, self.position.high
        if low is None:
            low, high = -np.ones(size), np.ones(size)
        drawn = rng.uniform(np.maximum(low.reshape(-1), -1), np.minimum(high.reshape(-1), 1))
        return self.policy.distribution.unit.stored(drawn)

    def episodes_ended(self, environments: Sequence[int]) -> None:
        self._inner.episodes_ended(environments)

    def end(self) -> None:
        self._inner.end()

    def take_over(self, other: "DisturbedExplorer", environments: np.ndarray) -> None:
        self._inner.take_over(other._inner, environments)

    def start_over(self) -> None:
        self._inner.start_over()

    def get_state(self) -> list[dict[str, Any]]:
        return self._inner.get_state()

    def set_state(self, state) -> None:
        self._inner.set_state(state)
