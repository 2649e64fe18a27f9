"""Action distributions written by users, in torch: model={"custom_action_dist": Class}, shaped like RLlib's.

class Dist(TorchDistributionWrapper):
    def __init__(self, inputs, model): ...       # inputs [B, K], what the network computed
    def deterministic_sample(self): ...          # -> the actions to take without exploration [B, ...]
    @staticmethod
    def required_model_output_shape(action_space, model_config): ...    # -> K
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Self

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from rllib.models.distributions.base import Distribution
from rllib.models.observations.flat_spaces import action_form

logger = logging.getLogger(__name__)


class TorchDistributionWrapper:
    """Base of distributions that set `self.dist`, a torch.distributions.Distribution, in their constructor.

    Results with an axis for the parts of an action are summed over it.
    """

    dist: torch.distributions.Distribution

    def __init__(self, inputs: Tensor, model=None):
        self.inputs, self.model = inputs, model

    def sample(self) -> Tensor:
        return self.dist.sample()

    def deterministic_sample(self) -> Tensor:
        return self.dist.mode

    def logp(self, actions: Tensor) -> Tensor:
        return self.dist.log_prob(actions)

    def entropy(self) -> Tensor:
        return self.dist.entropy()

    def kl(self, other: Self) -> Tensor:
        """KL(self || other)."""
        return torch.distributions.kl_divergence(self.dist, other.dist)


@dataclass(frozen=True)
class TorchDistribution(Distribution):
    """Description of a distribution that a user's class evaluates; methods as in distributions/standard.py.

    Attributes:
        name: name of the class.
        num_inputs: numbers that the network computes for an action.
        action_shape: shape of one action.
        dtype: dtype of actions, "int64" or "float32".
        user_class: (inputs [B, num_inputs], model) -> the distributions of B rows; None where a checkpoint was read
            without the user's code.
    """

    name: str
    num_inputs: int
    action_shape: tuple[int, ...]
    dtype: str
    user_class: Callable | None = field(default=None, compare=False)
    kind = "torch"
    has_log_prob = True
    gives_values = False
    # There is no `gradient`, so learners use torch.
    closed_form = False

    @classmethod
    def of(cls, user_class: Callable, action_space: spaces.Space, model: Mapping) -> "TorchDistribution":
        """Describes the distribution for the actions of a space.

        Raises:
            ValueError: if the class does not say how many inputs it takes.
        """
        name = getattr(user_class, "__qualname__", repr(user_class))
        if not hasattr(user_class, "required_model_output_shape"):
            raise ValueError(
                f"the action distribution {name} needs a static method required_model_output_shape(action_space, "
                "model_config) that returns how many numbers the network computes for an action"
            )
        num_inputs = int(np.prod(user_class.required_model_output_shape(action_space, dict(model))))
        shape, dtype = action_form(action_space)
        return cls(name, num_inputs, shape, dtype.name, user_class)

    @property
    def action_dtype(self) -> np.dtype:
        """Dtype of stored actions."""
        return np.dtype(self.dtype)

    def to_json(self) -> dict:
        """The description without the class."""
        return {
            "kind": self.kind,
            "name": self.name,
            "num_inputs": self.num_inputs,
            "action_shape": list(self.action_shape),
            "dtype": self.dtype,
        }

    def noise(self, rng: np.random.Generator, *shape: int) -> np.ndarray:
        """Seeds for `sample`, int64 [*shape], at least 1."""
        return rng.integers(1, 2**62, size=shape)

    def sample(self, inputs: np.ndarray, noise: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        """Actions [B, *action_shape], drawn for all rows at once from the seeds; zeros alone give the mode."""
        if not noise.any():
            actions = self.mode(inputs)
        else:
            with torch.random.fork_rng(devices=[]), torch.no_grad():
                torch.manual_seed(int(np.bitwise_xor.reduce(noise)))
                actions = self._as_stored(self._distributions(inputs).sample())
        if out is None:
            return actions
        out[:] = actions
        return out

    @torch.no_grad()
    def mode(self, inputs: np.ndarray) -> np.ndarray:
        """The actions [B, *action_shape] to take without exploration."""
        return self._as_stored(self._distributions(inputs).deterministic_sample())

    def at(self, inputs: np.ndarray) -> "NumpyBatch":
        """The distributions of a batch, for arrays."""
        return NumpyBatch(self.torch_at(torch.from_numpy(inputs)))

    def torch_at(self, inputs: Tensor) -> "TorchBatch":
        """The distributions of a batch, for autograd."""
        return TorchBatch(self.user_class, inputs)

    def check(self) -> None:
        """Tries the class with two rows of zeros.

        Raises:
            ValueError: for actions or log-probabilities that do not fit.
        """
        rows = np.zeros((2, self.num_inputs), np.float32)
        for what, actions in (
            ("sample()", self.sample(rows, self.noise(np.random.default_rng(0), 2))),
            ("deterministic_sample()", self.mode(rows)),
        ):
            if actions.shape != (2, *self.action_shape):
                raise ValueError(
                    f"the action distribution {self.name}: {what} must return actions {[2, *self.action_shape]} for "
                    f"two rows, but returned {list(actions.shape)}"
                )
        batch = self.at(rows)
        for what, numbers in (("logp()", batch.log_prob(actions)), ("entropy()", batch.entropy())):
            if numbers.shape != (2,) or not np.isfinite(numbers).all():
                raise ValueError(
                    f"the action distribution {self.name}: {what} must return one finite number for each of two rows, "
                    f"or one for each part of an action, but gave {numbers!r:.80}"
                )
        try:
            self._distributions(rows).kl(self._distributions(rows))
        except NotImplementedError:
            logger.warning("the action distribution %s has no kl(): it counts as 0, also in a penalty on it", self.name)

    def _distributions(self, inputs: np.ndarray):
        return self.user_class(torch.from_numpy(inputs), None)

    def _as_stored(self, actions: Tensor) -> np.ndarray:
        return actions.numpy().astype(self.action_dtype, copy=False)


class TorchBatch:
    """The distributions of B rows; methods as in CategoricalBatch.

    Args:
        user_class: as for TorchDistribution.
        inputs: [B, K].
    """

    def __init__(self, user_class: Callable, inputs: Tensor):
        self._class, self._rows = user_class, len(inputs)
        self._distributions = user_class(inputs, None)

    def log_prob(self, actions: Tensor) -> Tensor:
        return self._summed(self._distributions.logp(actions))

    def entropy(self) -> Tensor:
        return self._summed(self._distributions.entropy())

    def kl_from(self, old_inputs: Tensor) -> Tensor:
        try:
            return self._summed(self._class(old_inputs, None).kl(self._distributions))
        except NotImplementedError:
            return old_inputs.new_zeros(len(old_inputs))

    def _summed(self, numbers: Tensor) -> Tensor:
        return numbers if numbers.dim() == 1 else numbers.reshape(self._rows, -1).sum(1)


class NumpyBatch:
    """TorchBatch for arrays."""

    def __init__(self, batch: TorchBatch):
        self._batch = batch

    @torch.no_grad()
    def log_prob(self, actions: np.ndarray) -> np.ndarray:
        return self._batch.log_prob(torch.from_numpy(actions)).numpy()

    @torch.no_grad()
    def entropy(self) -> np.ndarray:
        return self._batch.entropy().numpy()

    @torch.no_grad()
    def kl_from(self, old_inputs: np.ndarray) -> np.ndarray:
        return self._batch.kl_from(torch.from_numpy(old_inputs)).numpy()
