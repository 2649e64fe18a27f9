"""Action values, or distributions of returns, as an action distribution: greedy, or random with probability epsilon.

Its inputs, which the network computes, are, feature by feature,

| part       | length               | there when                                     |
|------------|----------------------|------------------------------------------------|
| advantages | num_actions * num_atoms | always, actions first: [A, n]               |
| values     | num_atoms            | dueling                                        |
| levels     | num_atoms            | implicit: of the quantiles                     |

A dueling head (Wang et al., arXiv:1511.06581, eq. 9) adds the two after taking the mean over actions from the
advantages. With one atom the sum is Q itself; with more it is the logits of a distribution over `support`
(C51, arXiv:1707.06887), whose mean is Q, or the quantiles of the return (QR-DQN, arXiv:1710.10044), whose mean is Q.

The advantages of illegal actions are LOWEST, all atoms (masks.py). Where that can be, the mean is over the legal
actions, and Q of the others is about LOWEST: no maximum finds them.
"""

import functools
from dataclasses import dataclass

import numpy as np

from rllib.models.distributions.base import Distribution
from rllib.models.observations.masks import LOWEST

# Inputs of legal actions are above this number.
LEGAL = float(LOWEST) / 2


@dataclass(frozen=True)
class QValues(Distribution):
    """A distribution over `num_actions` integers: the one with the largest Q, or any with probability epsilon.

    Attributes:
        num_actions: number of actions.
        dueling: the inputs hold a value in addition to the advantages.
        num_atoms: points of the support of a return's distribution, or its quantiles; 1: no distribution, Q itself.
        v_min, v_max: ends of the support.
        masked: some actions may be illegal.
        quantiles: the atoms are quantiles of the return; False: logits of the points of the support.
        implicit: the network says at which levels they are; False: at the middles of as many equal parts of 0 ... 1.
    """

    num_actions: int
    dueling: bool = False
    num_atoms: int = 1
    v_min: float = -10.0
    v_max: float = 10.0
    masked: bool = False
    quantiles: bool = False
    implicit: bool = False
    kind = "epsilon_greedy"
    action_shape = ()
    action_dtype = np.dtype(np.int64)
    has_log_prob = False
    gives_values = True

    @property
    def num_inputs(self) -> int:
        """Number of network outputs for one action."""
        return (self.num_actions + self.dueling + self.implicit) * self.num_atoms

    @property
    def choices(self) -> tuple[tuple[int, int], ...]:
        """Columns (start, stop) of the inputs with the choices of each part of an action."""
        return ((0, self.num_actions * self.num_atoms),)

    @property
    def support(self) -> np.ndarray:
        """The returns [n] that the atoms represent, float32."""
        return _support(self.num_atoms, self.v_min, self.v_max)

    def noise(
        self, rng: np.random.Generator, *shape: int, epsilon: float | np.ndarray = 0.0, temperature: float = 0.0
    ) -> np.ndarray:
        """The noise for `sample`, [*shape, num_actions] float32: zeros, or infinity at an action drawn at random.

        Args:
            rng: source of randomness.
            shape: shape of the actions.
            epsilon: probability of a random action, a number or an array of that shape.
            temperature: the others are drawn with probabilities softmax(Q / temperature); 0 takes the best.
        """
        noise = np.zeros((*shape, self.num_actions), np.float32)
        if temperature:
            # The best of Q / temperature + Gumbel noise is a draw from the softmax.
            noise += np.float32(temperature) * rng.gumbel(size=noise.shape)
        # Both are always drawn, so that the streams of two runs with different epsilons stay in step.
        by_chance = rng.random(shape, dtype=np.float32) < epsilon
        if self.masked:
            # Far above every Q, and far below what LOWEST lacks: the best legal action is any of them, equally often.
            ranks = rng.random(noise.shape, dtype=np.float32) + 1
            noise[by_chance] = ranks[by_chance] * np.float32(1e30)
            return noise
        actions = rng.integers(self.num_actions, size=shape)
        if by_chance.any():  # a fragment of a few steps seldom has one
            noise[(*by_chance.nonzero(), actions[by_chance])] = np.inf
        return noise

    def sample(self, inputs: np.ndarray, noise: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        """Actions [B]; zeros for noise give the greedy ones."""
        return np.add(self._scores(inputs), noise).argmax(-1, out=out)

    def mode(self, inputs: np.ndarray) -> np.ndarray:
        """The greedy actions [B]."""
        return self._scores(inputs).argmax(-1)

    def _scores(self, inputs: np.ndarray) -> np.ndarray:
        """Numbers [B, A] in the order of Q: the advantages themselves, unless they are logits."""
        return inputs[:, : self.num_actions] if self.num_atoms == 1 else self.at(inputs).q_values()

    def best(self, inputs: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        """Values [B] of the observations: Q of the best action."""
        return np.maximum.reduce(self.at(inputs).q_values(), -1, out=out)

    def at(self, inputs: np.ndarray) -> "QBatch":
        """The values of a batch."""
        return QBatch(self, inputs)

    def torch_at(self, inputs) -> "TorchQBatch":
        """As `at`, for a tensor."""
        return TorchQBatch(self, inputs)


@functools.lru_cache(maxsize=16)
def _support(num_atoms: int, v_min: float, v_max: float) -> np.ndarray:
    support = np.linspace(v_min, v_max, num_atoms, dtype=np.float32)
    support.setflags(write=False)
    return support


class QBatch:
    """Action values of a batch, from inputs [B, num_inputs].

    Attributes:
        logits: [A, n, B], the dueling head summed up; with one atom they are the Q-values, or they are quantiles.
        levels: [n, B] of the quantiles, where the network says them; else None.
    """

    def __init__(self, description: QValues, inputs: np.ndarray):
        self._description = description
        actions, atoms = description.num_actions, description.num_atoms
        features = inputs.T
        self.levels = features[-atoms:] if description.implicit else None
        advantages = features[: actions * atoms].reshape(actions, atoms, -1)
        self._legal = advantages[:, :1] > LEGAL if description.masked else None
        if description.dueling:
            self._share, summed = np.float32(1 / actions), advantages
            if self._legal is not None:
                self._share = np.float32(1) / np.add.reduce(self._legal, 0, dtype=np.float32)
                summed = np.where(self._legal, advantages, np.float32(0))
            values = features[actions * atoms : (actions + 1) * atoms] - np.add.reduce(summed, 0) * self._share
            self.logits = advantages + values
        else:
            self.logits = advantages
        self._chosen: tuple[np.ndarray, slice, np.ndarray] | None = None

    def q_values(self) -> np.ndarray:
        """Q [B, A]; with atoms, the means of the distributions."""
        if self._description.num_atoms == 1:
            return self.logits[:, 0].T
        if self._description.quantiles:
            # Divided first: sums of LOWEST are too large.
            means = np.add.reduce(self.logits * np.float32(1 / self._description.num_atoms), 1)
        else:
            means = self._means_over_support()
        if self._legal is not None:
            np.copyto(means, LOWEST, where=~self._legal[:, 0])
        return means.T

    def _means_over_support(self) -> np.ndarray:
        """Means [A, B] of the distributions whose logits the atoms are."""
        mass = self.logits - np.maximum.reduce(self.logits, -2, keepdims=True)
        np.exp(mass, out=mass)
        return np.matmul(self._description.support, mass) / np.add.reduce(mass, -2)

    def chosen(self, actions: np.ndarray) -> np.ndarray:
        """The logits [n, B] of the actions [B]."""
        self._chosen = actions, slice(None), np.arange(self.logits.shape[2])
        return self.logits[self._chosen].T

    def gradient(self, d_chosen: np.ndarray) -> np.ndarray:
        """Gradient [B, num_inputs] with respect to the inputs, from that with respect to the last `chosen` [n, B]."""
        actions, atoms = self._description.num_actions, self._description.num_atoms
        rows = self.logits.shape[2]
        gradient = np.zeros((self._description.num_inputs, rows), np.float32)
        advantages = gradient[: actions * atoms].reshape(actions, atoms, rows)
        advantages[self._chosen] = d_chosen.T
        if self._description.dueling:
            gradient[actions * atoms : (actions + 1) * atoms] = d_chosen
            shared = d_chosen * self._share
            advantages -= shared if self._legal is None else shared * self._legal
        return gradient.T


class TorchQBatch:
    """QBatch of a tensor, for autograd; logits are [B, A, n], levels [B, n]."""

    def __init__(self, description: QValues, inputs):
        import torch

        actions, atoms = description.num_actions, description.num_atoms
        advantages = inputs[:, : actions * atoms].reshape(-1, actions, atoms)
        self.levels = inputs[:, -atoms:] if description.implicit else None
        self._legal = advantages[..., :1] > LEGAL if description.masked else None
        self._quantiles = description.quantiles
        self.logits = advantages
        if description.dueling:
            mean = advantages.mean(1, keepdim=True) if self._legal is None else _mean_of_legal(advantages, self._legal)
            self.logits = inputs[:, None, actions * atoms : (actions + 1) * atoms] + advantages - mean
        # Made on the device: a copy to it would wait, and could not be recorded in a CUDA graph.
        ends, like = (description.v_min, description.v_max), {"dtype": torch.float64, "device": inputs.device}
        self.support = torch.linspace(*ends, description.num_atoms, **like).float()
        self._rows = torch.arange(inputs.shape[0], device=inputs.device)

    def q_values(self):
        """Q [B, A]."""
        if len(self.support) == 1:
            return self.logits[..., 0]
        means = self.logits.mean(-1) if self._quantiles else self.logits.softmax(-1) @ self.support
        return means if self._legal is None else means.masked_fill(~self._legal[..., 0], float(LOWEST))

    def chosen(self, actions):
        """The logits [n, B] of the actions [B]."""
        return self.logits[self._rows, actions].T


def _mean_of_legal(advantages, legal):
    """Mean [B, 1, n] over the legal actions, of tensors."""
    return advantages.masked_fill(~legal, 0.0).sum(1, keepdim=True) / legal.sum(1, keepdim=True)


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """Logarithms of the probabilities of atoms [..., n, B]."""
    shifted = logits - logits.max(-2, keepdims=True)
    shifted -= np.log(np.exp(shifted).sum(-2, keepdims=True))
    return shifted
