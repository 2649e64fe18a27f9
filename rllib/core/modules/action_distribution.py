"""Action distributions in the form of RLlib's new API stack, over the library's own."""

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from rllib.models.distributions.choose import distribution_for
from rllib.models.distributions.standard import Categorical, DiagGaussian, MultiCategorical


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


# ---------------------------------------------------------------------- RLlib's classes by name


class TorchCategorical(ActionDistribution):
    """Categorical distributions by their logits, one a number of the last axis.

    Args:
        logits: tensor [B, K].
        model: without effect; RLlib 2.6's constructor has it.
    """

    kind = Categorical

    def __init__(self, logits: Tensor, model: Any = None):
        self.description = Categorical(logits.shape[-1])
        super().__init__(logits)


class TorchDiagGaussian(ActionDistribution):
    """Normal distributions of independent numbers; arguments as for TorchCategorical.

    The first half of the logits has the means, the second the logarithms of the standard deviations.
    """

    kind = DiagGaussian

    def __init__(self, logits: Tensor, model: Any = None):
        self.description = DiagGaussian((logits.shape[-1] // 2,))
        super().__init__(logits)


class TorchMultiCategorical(ActionDistribution):
    """Several choices in one action; `get_partial_dist_cls(input_lens=(3, 2))` gives the class for their numbers."""

    kind = MultiCategorical

    @classmethod
    def get_partial_dist_cls(cls, *, input_lens: Sequence[int], **kwargs: Any) -> type["TorchMultiCategorical"]:
        """The class for choices among these numbers of values."""
        sizes = tuple(map(int, input_lens))
        return type(cls.__name__, (cls,), {"description": MultiCategorical(sizes, (len(sizes),))})

    @classmethod
    def from_logits(cls, logits: Tensor, *, input_lens: Sequence[int] = (), **kwargs: Any) -> ActionDistribution:
        """The distributions with these parameters; `input_lens`: numbers of values, where the class has none."""
        return (cls.get_partial_dist_cls(input_lens=input_lens) if input_lens else cls)(logits)


def is_that_of(given: Any, description: Any) -> bool:
    """Whether a class that a module names is the one that actions are drawn from anyway.

    Args:
        given: class of a distribution.
        description: description of the policy's distribution (models/distributions).
    """
    is_class = isinstance(given, type) and issubclass(given, ActionDistribution)
    if not is_class:
        return False
    kind = getattr(given, "kind", None)
    return type(description) is kind if kind else getattr(given, "description", None) == description
