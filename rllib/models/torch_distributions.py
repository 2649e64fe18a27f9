"""The action distributions in torch, for autograd: the reference of the closed forms in distributions.py.

Same names, same inputs, same results; see there for shapes.
"""

import torch
from torch import Tensor

from rllib.models.distributions import HALF_LOG_2_PI, Categorical, DiagGaussian, Distribution, MultiCategorical
from rllib.models.q_values import QValues


class TorchDistribution:
    """The torch side of a distribution.

    Args:
        distribution: its description.
    """

    def __init__(self, distribution: Distribution):
        self._make = _MAKERS[type(distribution)]
        self._description = distribution

    @property
    def support(self) -> Tensor:
        """The returns [n] that atoms stand for (QValues alone)."""
        return torch.tensor(self._description.support)

    def at(self, inputs: Tensor):
        """The distributions of a batch, inputs [B, num_inputs]."""
        return self._make(self._description, inputs)


class _CategoricalBatch:
    def __init__(self, description: Categorical | None, inputs: Tensor):
        self.log_probabilities = torch.log_softmax(inputs, -1)
        self.probabilities = self.log_probabilities.exp()

    def log_prob(self, actions: Tensor) -> Tensor:
        return self.log_probabilities.gather(-1, actions[:, None])[:, 0]

    def entropy(self) -> Tensor:
        return -(self.probabilities * self.log_probabilities).sum(-1)

    def kl_from(self, old_inputs: Tensor) -> Tensor:
        old = torch.log_softmax(old_inputs, -1)
        return (old.exp() * (old - self.log_probabilities)).sum(-1)


class _MultiCategoricalBatch:
    def __init__(self, description: MultiCategorical, inputs: Tensor):
        self._slices = description.slices()
        self._parts = [_CategoricalBatch(None, inputs[:, part]) for part in self._slices]

    def log_prob(self, actions: Tensor) -> Tensor:
        columns = actions.reshape(len(actions), len(self._parts)).T
        return sum(part.log_prob(column) for part, column in zip(self._parts, columns))

    def entropy(self) -> Tensor:
        return sum(part.entropy() for part in self._parts)

    def kl_from(self, old_inputs: Tensor) -> Tensor:
        return sum(part.kl_from(old_inputs[:, where]) for part, where in zip(self._parts, self._slices))


class _DiagGaussianBatch:
    def __init__(self, description: DiagGaussian, inputs: Tensor):
        self._size = description.size
        self.mean, self.log_std = inputs[:, : self._size], inputs[:, self._size :]

    def log_prob(self, actions: Tensor) -> Tensor:
        z = (actions.reshape(len(actions), self._size) - self.mean) * (-self.log_std).exp()
        return -(0.5 * z * z + self.log_std).sum(-1) - self._size * HALF_LOG_2_PI

    def entropy(self) -> Tensor:
        return self.log_std.sum(-1) + self._size * (HALF_LOG_2_PI + 0.5)

    def kl_from(self, old_inputs: Tensor) -> Tensor:
        old_mean, old_log_std = old_inputs[:, : self._size], old_inputs[:, self._size :]
        log_ratio = old_log_std - self.log_std
        difference = (self.mean - old_mean) * (-self.log_std).exp()
        return (0.5 * ((2 * log_ratio).exp() + difference * difference) - log_ratio - 0.5).sum(-1)


class _QBatch:
    def __init__(self, description: QValues, inputs: Tensor):
        actions, atoms = description.num_actions, description.num_atoms
        self._description = description
        self.logits = inputs[:, : actions * atoms].reshape(-1, actions, atoms)
        if description.dueling:
            values = inputs[:, None, actions * atoms :]
            self.logits = values + self.logits - self.logits.mean(1, keepdim=True)

    def q_values(self) -> Tensor:
        if self._description.num_atoms == 1:
            return self.logits[..., 0]
        return torch.softmax(self.logits, -1) @ torch.tensor(self._description.support, device=self.logits.device)

    def chosen(self, actions: Tensor) -> Tensor:
        """The logits [n, B] of the actions [B]."""
        return self.logits[torch.arange(len(actions), device=actions.device), actions].T


_MAKERS = {
    Categorical: _CategoricalBatch,
    MultiCategorical: _MultiCategoricalBatch,
    DiagGaussian: _DiagGaussianBatch,
    QValues: _QBatch,
}
