"""The distribution of Tuple and Dict actions: independent parts, each with its own distribution.

An action is one row of numbers, its parts side by side in the order of the space's leaves (flat_spaces.py): int64 if
all are choices, else float32. Given the observation the parts are independent, so log-probabilities, entropies and
divergences are sums, and gradients are concatenated.
"""

import functools
import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from rllib.config.conflicts import Unfit
from rllib.models.distributions.base import Distribution
from rllib.models.distributions.standard import Categorical, DiagGaussian, MultiCategorical, joint_log_prob

# float32 holds all integers up to this one.
MAX_CHOICES_IN_FLOATS = 2**24


class _Place(NamedTuple):
    """A part and its columns in the distribution inputs, the noise and the row of an action."""

    part: Categorical | MultiCategorical | DiagGaussian
    inputs: slice
    noise: slice
    action: slice


@dataclass(frozen=True)
class Product(Distribution):
    """Several actions at once; inputs are the inputs of all parts side by side.

    Attributes:
        parts: the distributions, in the order of the leaves.

    Raises:
        ValueError: if a row of float32 cannot hold the choices of a part.
    """

    parts: tuple[Categorical | MultiCategorical | DiagGaussian, ...]
    kind = "product"
    has_log_prob = True
    gives_values = False

    def __post_init__(self):
        largest = max((stop - start for start, stop in self.choices), default=0)
        if self.action_dtype.kind == "f" and largest > MAX_CHOICES_IN_FLOATS:
            raise Unfit(
                f"actions of floats and choices are stored as float32, which cannot hold a choice among {largest:,} "
                f"(at most {MAX_CHOICES_IN_FLOATS:,}).",
                "Make several choices of it.",
            )

    @functools.cached_property
    def places(self) -> tuple[_Place, ...]:
        """The parts with their columns."""
        inputs = _side_by_side([part.num_inputs for part in self.parts])
        noises = _side_by_side([part.num_noise for part in self.parts])
        actions = _side_by_side([math.prod(part.action_shape) for part in self.parts])
        return tuple(map(_Place, self.parts, inputs, noises, actions))

    @functools.cached_property
    def action_shape(self) -> tuple[int, ...]:
        """(numbers of all parts,)."""
        return (self.places[-1].action.stop,)

    @functools.cached_property
    def action_dtype(self) -> np.dtype:
        """int64 where all parts are choices, else float32."""
        return np.dtype(np.int64 if all(part.action_dtype.kind == "i" for part in self.parts) else np.float32)

    @property
    def num_inputs(self) -> int:
        """Number of network outputs for one action."""
        return self.places[-1].inputs.stop

    @property
    def num_noise(self) -> int:
        """Number of random numbers for one action."""
        return self.places[-1].noise.stop

    @property
    def choices(self) -> tuple[tuple[int, int], ...]:
        """Columns (start, stop) of the inputs with the choices of each part of an action; none for numbers."""
        return tuple(
            (place.inputs.start + start, place.inputs.start + stop)
            for place in self.places
            for start, stop in place.part.choices
        )

    def to_json(self) -> dict:
        """The descriptions of the parts."""
        return {"kind": self.kind, "parts": [part.to_json() for part in self.parts]}

    def noise(self, rng: np.random.Generator, *shape: int) -> np.ndarray:
        """The noise for `sample`, [*shape, num_noise] float32."""
        return np.concatenate([part.noise(rng, *shape) for part in self.parts], axis=-1)

    def sample(self, inputs: np.ndarray, noise: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        """Actions [B, *action_shape]."""
        drawn = (place.part.sample(inputs[:, place.inputs], noise[:, place.noise]) for place in self.places)
        return self._in_rows(len(inputs), drawn, out)

    def mode(self, inputs: np.ndarray) -> np.ndarray:
        """The most probable actions [B, *action_shape]."""
        return self._in_rows(len(inputs), (place.part.mode(inputs[:, place.inputs]) for place in self.places))

    def _in_rows(self, count: int, actions, out: np.ndarray | None = None) -> np.ndarray:
        if out is None:
            out = np.empty((count, *self.action_shape), self.action_dtype)
        for place, of_part in zip(self.places, actions):
            columns = out[:, place.action]
            columns[:] = of_part.reshape(columns.shape)
        return out

    def at(self, inputs: np.ndarray) -> "ProductBatch":
        """The distributions of a batch."""
        return ProductBatch(self.places, [place.part.at(inputs[:, place.inputs]) for place in self.places])

    def torch_at(self, inputs) -> "TorchProductBatch":
        """As `at`, for a tensor."""
        return TorchProductBatch(self.places, [place.part.torch_at(inputs[:, place.inputs]) for place in self.places])


def _side_by_side(sizes: list[int]) -> list[slice]:
    ends = np.cumsum(sizes).tolist()
    return [slice(end - size, end) for size, end in zip(sizes, ends)]


class ProductBatch:
    """Distributions of several parts, one per row; methods as in CategoricalBatch."""

    def __init__(self, places: tuple[_Place, ...], batches: list):
        self._places, self._batches = places, batches

    def log_prob(self, actions: np.ndarray) -> np.ndarray:
        parts = zip(self._batches, self._places)
        return joint_log_prob([batch.log_prob(self._of_part(actions, place)) for batch, place in parts])

    def _of_part(self, actions: np.ndarray, place: _Place) -> np.ndarray:
        own = actions[:, place.action].reshape(len(actions), *place.part.action_shape)
        # Floats stay what they are: tests compute in float64.
        return own.astype(np.int64, copy=False) if place.part.action_dtype.kind == "i" else own

    def entropy(self) -> np.ndarray:
        return sum(batch.entropy() for batch in self._batches)

    def kl_from(self, old_inputs: np.ndarray) -> np.ndarray:
        return sum(batch.kl_from(old_inputs[:, place.inputs]) for batch, place in zip(self._batches, self._places))

    def gradient(self, d_log_prob: np.ndarray | None, d_entropy: float = 0.0, d_kl: float = 0.0) -> np.ndarray:
        return np.concatenate([batch.gradient(d_log_prob, d_entropy, d_kl) for batch in self._batches], axis=-1)


class TorchProductBatch(ProductBatch):
    """ProductBatch of a tensor, for autograd."""

    def _of_part(self, actions, place):
        own = actions[:, place.action].reshape(len(actions), *place.part.action_shape)
        return own.long() if place.part.action_dtype.kind == "i" else own
