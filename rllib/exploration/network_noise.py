"""Exploration by noise that the policy's network makes: NoisyNet and gSDE."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rllib.exploration.explorers import Exploration, Explorer, RandomStartExplorer


class NoisyWeightsExplorer(Explorer):
    """Draws new noise in the weights at every step, the same for all environments of all workers.

    NoisyNet draws before every action of its one environment (arXiv:1706.10295, section 3.1). Here environments in
    lockstep share a draw, so one product computes their actions; their observations differ, and the next step draws
    again. Workers share it as well, so a run does not depend on how environments are distributed among workers.
    """

    def act(self, observations, noise, dist_inputs, actions, values=None, state=None, next_state=None) -> None:
        self.policy.resample(self.slot.shared_rng)
        self.policy.act(observations, noise, dist_inputs, actions, values, state, next_state)

    def get_state(self) -> list[dict[str, Any]]:
        return [{"shared_rng": self.slot.shared_rng.bit_generator.state} for _ in self.rngs]

    def set_state(self, state: Sequence[Mapping[str, Any]]) -> None:
        # Checkpoints of earlier versions lack it: the first environment's stream drew the noise.
        if "shared_rng" in state[0]:
            self.slot.shared_rng.bit_generator.state = state[0]["shared_rng"]


class NoisyWeights(Exploration):
    """Explores by the noise of noisy layers alone (arXiv:1706.10295)."""

    without_memory = "layers with noise in their weights have no state"
    explorer = NoisyWeightsExplorer


class StateDependentNoiseExplorer(Explorer):
    """Adds noise that is linear in the inputs of the policy's head, by a matrix Theta of each environment (gSDE).

    Theta is drawn when a fragment begins, and every `sample_freq` steps if that is positive.
    """

    def __init__(self, exploration, policy, rngs, slot):
        super().__init__(exploration, policy, rngs, slot)
        self._thetas: np.ndarray | None = None  # [N, width, actions]
        self._steps = 0  # since the fragment began
        self._active: Sequence[int] = range(len(rngs))

    def begin(self, num_steps: int, timesteps: int, active: Sequence[bool] | None = None) -> np.ndarray:
        if active is None:
            self._thetas, self._steps = None, 0
        self._active = self._drawing(active)
        return np.zeros((num_steps, len(self.rngs), self.policy.distribution.size), np.float32)

    def act(self, observations, noise, dist_inputs, actions, values=None, state=None, next_state=None) -> None:
        sigma = self.policy.network.sigma
        if self._thetas is None:
            self._thetas = np.zeros((len(self.rngs), *sigma.shape), np.float32)
        freq = self.exploration.sample_freq
        if self._steps == 0 or (freq > 0 and self._steps % freq == 0):
            for i in self._active:
                self._thetas[i] = sigma * self.rngs[i].standard_normal(sigma.shape, dtype=np.float32)
        self._steps += 1
        self.policy.act(observations, noise, dist_inputs, actions, values, state, next_state)
        # One product for each environment: its bits then do not depend on the number of environments.
        drawn = np.matmul(self.policy.acting_features(len(actions))[:, None, :], self._thetas)
        actions += drawn.reshape(actions.shape)


class RandomStartStateDependentNoiseExplorer(RandomStartExplorer, StateDependentNoiseExplorer):
    """Takes uniformly random actions in the first steps of the run, then adds noise that depends on the state."""


class StateDependentNoise(Exploration):
    """Noise that is one function of the state for several steps; needs a network with model={"use_sde": True}.

    Attributes:
        sample_freq: steps of an environment between draws of the function; -1 draws it only when a fragment begins.
        random_timesteps: as for StochasticSampling.
    """

    sample_freq: int = -1
    random_timesteps: int = 0

    @property
    def explorer(self) -> type[Explorer]:
        return RandomStartStateDependentNoiseExplorer if self.random_timesteps else StateDependentNoiseExplorer
