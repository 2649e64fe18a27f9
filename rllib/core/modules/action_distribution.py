"""Action distributions in the form of RLlib's new API stack, over the library's own."""

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from rllib.models.distributions.choose import distribution_for


class ActionDistribution:
    """The distributions of a batch of actions; `distribution_class` gives the subclass of a space.

    Args:
        logits: tensor [B, K], the outputs of a network.
    """

    description: ClassVar[Any]

    def __init__(self, logits: Tensor):
        self.logits = logits
        self._batch = self.description.torch_at(logits)

    @classmethod
    def from_logits(cls, logits: Tensor, **kwargs: Any) -> "ActionDistribution":
        """The distributions with these parameters."""
        return cls(logits)

    def sample(self, *, sample_shape: Sequence[int] = (), rng: np.random.Generator | None = None) -> Tensor:
        """Actions, a tensor [B, ...] without gradient.

        Args:
            sample_shape: has to be empty.
            rng: draws them; by default a fresh one.
        """
        if tuple(sample_shape):
            raise ValueError(f"sample_shape={sample_shape!r} must be empty: one action is drawn for each row")
        noise = self.description.noise(np.random.default_rng() if rng is None else rng, len(self.logits))
        return torch.as_tensor(self.description.sample(self._numbers, noise))

    def to_deterministic(self) -> "MostProbable":
        """The distribution whose sample is the most probable action."""
        return MostProbable(torch.as_tensor(self.description.mode(self._numbers)))

    def logp(self, value: Tensor) -> Tensor:
        """Log-probabilities [B] of actions."""
        return self._batch.log_prob(value)

    def entropy(self) -> Tensor:
        """Entropies [B]."""
        return self._batch.entropy()

    def kl(self, other: "ActionDistribution") -> Tensor:
        """KL(self || other) [B]."""
        return self.description.torch_at(other.logits).kl_from(self.logits)

    @property
    def _numbers(self) -> np.ndarray:
        return self.logits.detach().cpu().numpy()


class MostProbable:
    """Actions that are certain.

    Args:
        actions: tensor [B, ...].
    """

    def __init__(self, actions: Tensor):
        self._actions = actions

    def sample(self, **kwargs: Any) -> Tensor:
        """The actions."""
        return self._actions


def distribution_class(description: Any, action_space: spaces.Space | None) -> type[ActionDistribution]:
    """The class of distributions with this description (models/distributions); None: the action space's own."""
    chosen = distribution_for(action_space) if description is None else description
    return type("ActionDistribution", (ActionDistribution,), {"description": chosen})
