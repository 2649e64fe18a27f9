"""Exploration by noise in the policy's network: NoisyNet, gSDE, and weights perturbed for an episode."""

import functools
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar

import numpy as np

from rllib.config.sections import Checked, at_least
from rllib.exploration.epsilon import EpsilonGreedy
from rllib.exploration.explorers import NOT_NEGATIVE, Exploration, Explorer, RandomStartExplorer

# The scale of ParameterNoise changes by this factor after an episode.
ADAPTATION = 1.01
TINY = 1e-12


class NoisyWeightsExplorer(Explorer):
    """Draws new noise in the weights at every step, the same for all environments of all workers.

    NoisyNet draws before every action of its one environment (arXiv:1706.10295, section 3.1). Here environments in
    lockstep share a draw, so one product computes their actions; their observations differ, and the next step draws
    again. Workers share it as well, so a run does not depend on how environments are distributed among workers.
    """

    def act(self, observations, noise, dist_inputs, actions, values=None, state=None, next_state=None) -> None:
        self.policy.resample(self.position.shared_rng)
        self.policy.act(observations, noise, dist_inputs, actions, values, state, next_state)

    def take_over(self, other: "NoisyWeightsExplorer", environments: np.ndarray) -> None:
        self.position.shared_rng.bit_generator.state = other.position.shared_rng.bit_generator.state

    def get_state(self) -> list[dict[str, Any]]:
        return [{"shared_rng": self.position.shared_rng.bit_generator.state} for _ in self.rngs]

    def set_state(self, state: Sequence[Mapping[str, Any]]) -> None:
        # Checkpoints of earlier versions lack it: the first environment's stream drew the noise.
        if "shared_rng" in state[0]:
            self.position.shared_rng.bit_generator.state = state[0]["shared_rng"]


class NoisyWeights(Exploration):
    """Explores by the noise of noisy layers alone (arXiv:1706.10295)."""

    without_memory = "layers with noise in their weights have no state"
    # Settings without which there is none.
    left_out_by: ClassVar[Mapping[str, Any]] = {"noisy": False}
    explorer = NoisyWeightsExplorer


class StateDependentNoiseExplorer(Explorer):
    """Adds noise that is linear in the inputs of the policy's head, by a matrix Theta of each environment (gSDE).

    Theta is drawn when a fragment begins, and every `sample_freq` steps if that is positive.
    """

    def __init__(self, exploration, policy, rngs, position):
        super().__init__(exploration, policy, rngs, position)
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


class ParameterNoiseExplorer(Explorer):
    """Noise in the weights, the same for a whole episode (Plappert et al., arXiv:1706.01905).

    Each environment acts by separate weights: the policy's plus scale * a normal direction, drawn for every episode. It
    takes a random action with probability epsilon as well. The scale adapts to the change of behaviour: let D be
    KL(plain || perturbed) of softmax(Q), averaged over the episode, and D' the KL of epsilon-greedy actions,
    -log(1 - epsilon + epsilon / actions). The scale shrinks by the factor 1.01 if D exceeds D', else it grows.

    Departures from the paper: the scale adapts after each episode rather than every 50 steps, and each environment has
    a separate scale, so that a run does not depend on how environments are distributed among workers.
    """

    # The perturbed weights compute other values than the policy.
    gives_values = False

    def __init__(self, exploration, policy, rngs, position):
        super().__init__(exploration, policy, rngs, position)
        size = policy.layout.size
        self.scales = np.full(len(rngs), self.exploration.initial_stddev)
        self._directions = np.zeros((len(rngs), size), np.float32)
        self._perturbed = np.zeros((len(rngs), size), np.float32)
        self._network = policy.spec.network_per_row(policy.layout, self._perturbed)
        self._begins = np.ones(len(rngs), bool)
        self._acting = np.ones(len(rngs), bool)  # environments that make the steps since `begin`
        # Divergence and tolerance of the running episodes, summed over their steps.
        self._divergence, self._tolerance = np.zeros(len(rngs)), np.zeros(len(rngs))
        # Observations, outputs of the perturbed networks and epsilon of each step since `begin`, and the number of
        # these steps that each environment's sums hold.
        self._observations: list[np.ndarray] = []
        self._inputs: list[np.ndarray] = []
        self._epsilons = np.empty(0)
        self._measured = np.zeros(len(rngs), int)

    def begin(self, num_steps: int, timesteps: int, active: Sequence[bool] | None = None) -> np.ndarray:
        self._observations, self._inputs = [], []
        self._measured[:] = 0
        steps = timesteps + self.position.stride * np.arange(num_steps)
        self._epsilons = self.exploration.numbers(steps)["epsilon"]
        noise = super().begin(num_steps, timesteps, active)
        # The policy's weights may have changed.
        self._acting[:] = True if active is None else active
        self._perturb(np.flatnonzero(self._acting))
        return noise

    def _perturb(self, environments: Sequence[int]) -> None:
        for i in environments:
            if self._begins[i]:
                self.rngs[i].standard_normal(dtype=np.float32, out=self._directions[i])
            np.multiply(self._directions[i], np.float32(self.scales[i]), out=self._perturbed[i])
            self._perturbed[i] += self.policy.weights
        self._begins[environments] = False

    def act(self, observations, noise, dist_inputs, actions, values=None, state=None, next_state=None) -> None:
        begins = self._begins & self._acting
        if begins.any():
            self._perturb(np.flatnonzero(begins))
        dist_inputs[:] = self._network.forward(self.policy.encode(observations))
        self._observations.append(observations)
        self._inputs.append(dist_inputs.copy())
        self.policy.distribution.sample(dist_inputs, noise, actions)

    def episodes_ended(self, environments: Sequence[int]) -> None:
        for i in environments:
            self._measure(i)
            self.scales[i] *= ADAPTATION if self._divergence[i] < self._tolerance[i] else 1 / ADAPTATION
            self._divergence[i] = self._tolerance[i] = 0
        self._begins[environments] = True

    def end(self) -> None:
        for i in np.flatnonzero(self._acting):
            self._measure(i)
        self._observations, self._inputs = [], []

    def take_over(self, other: "ParameterNoiseExplorer", environments: np.ndarray) -> None:
        own = self.scales, self._directions, self._begins, self._divergence, self._tolerance
        given = other.scales, other._directions, other._begins, other._divergence, other._tolerance
        for mine, others in zip(own, given):
            mine[environments] = others

    def start_over(self) -> None:
        self._begins[:] = True
        self._divergence[:] = self._tolerance[:] = 0

    def _measure(self, i: int) -> None:
        """Adds the steps of environment i that are not in its sums yet."""
        steps = slice(self._measured[i], len(self._inputs))
        self._measured[i] = steps.stop
        if steps.start == steps.stop:
            return
        plain = self._log_probabilities(self.policy.dist_inputs(np.stack([o[i] for o in self._observations[steps]])))
        noisy = self._log_probabilities(np.stack([inputs[i] for inputs in self._inputs[steps]]))
        self._divergence[i] += (np.exp(plain) * (plain - noisy)).sum()
        by_chance = self._epsilons[steps] * (1 - 1 / self.policy.distribution.num_actions)
        self._tolerance[i] += -np.log(np.maximum(1 - by_chance, TINY)).sum()

    def _log_probabilities(self, inputs: np.ndarray) -> np.ndarray:
        """log softmax(Q) [B, A]."""
        q = self.policy.distribution.at(inputs).q_values().astype(np.float64)
        q -= q.max(1, keepdims=True)
        return q - np.log(np.exp(q).sum(1, keepdims=True))

    def get_state(self) -> list[dict[str, Any]]:
        return [{"scale": float(scale)} for scale in self.scales]

    def set_state(self, state: Sequence[Mapping[str, Any]]) -> None:
        # A run that explored otherwise had none.
        self.scales[:] = [each.get("scale", own) for each, own in zip(state, self.scales)]
        self.start_over()


def _are_of_epsilon_greedy(given: Mapping | None) -> bool:
    own = dict(given or {})
    if own.pop("type", "EpsilonGreedy") != "EpsilonGreedy":
        return False
    if mistake := EpsilonGreedy.keys().mistake(own, "sub_exploration"):
        raise ValueError(mistake.problem)
    return True


class ParameterNoise(Exploration):
    """Noise in the weights, together with epsilon-greedy actions."""

    initial_stddev: Annotated[float, "scale of the noise before it has adapted", NOT_NEGATIVE] = 1.0
    random_timesteps: Annotated[
        int, "environment steps with random actions, after which epsilon is 0.01, as in Ray", at_least(0)
    ] = 10_000
    sub_exploration: Annotated[
        dict | None, "settings of EpsilonGreedy to use instead", Checked(_are_of_epsilon_greedy, "EpsilonGreedy's")
    ] = None
    explorer = ParameterNoiseExplorer
    without_memory = "ParameterNoise perturbs fully connected networks, which have no state"

    def numbers(self, timesteps) -> dict[str, Any]:
        return self._epsilon_greedy.numbers(timesteps)

    @functools.cached_property
    def _epsilon_greedy(self) -> EpsilonGreedy:
        if self.sub_exploration is not None:
            return EpsilonGreedy(**{name: value for name, value in self.sub_exploration.items() if name != "type"})
        return EpsilonGreedy(1.0, 0.01, 0, self.random_timesteps)
