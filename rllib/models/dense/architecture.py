"""Base class of architectures: what a policy's network is made of beside the layers that its NetworkSpec describes.

A folder of models/ each, with its class in `spec.py`, the layout of the parameters in `layout.py`, and the network in
`in_numpy.py` and `in_torch.py`. `network_spec.ARCHITECTURES` lists those of the library, which checkpoints name by
`kind`, and `catalog.py` asks each by `of_settings` whether the `model` settings describe it.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np
from gymnasium import spaces

from rllib.config.conflicts import Unfit
from rllib.models.dense.batch_renorm import BatchRenorm
from rllib.models.dense.initializers import GAINS, INITIALIZERS
from rllib.models.dense.layout import LayersLayout, Layout
from rllib.storage.json_dataclass import Described

if TYPE_CHECKING:
    from rllib.models.network_spec import NetworkSpec


class Found(NamedTuple):
    """What a network is to be for, as far as an architecture may refuse it.

    Attributes:
        space: of the observations.
        has_images: they are read by convolutions.
        is_masked: they hold an action mask.
        is_filtered: they are filtered.
        has_value: the network has a value as well.
    """

    space: spaces.Space
    has_images: bool
    is_masked: bool
    is_filtered: bool
    has_value: bool


class Architecture(Described):
    """Builds networks; subclasses are dataclasses of what only they read. `spec` is the whole description.

    Attributes:
        has_layers: the hidden layers of the description are part of it.
        has_noise: the network draws random numbers of its own.
        max_seq_len: longest sequence that gradients flow through, in steps, where there is a memory.
        state_dependent_noise: standard deviations of actions depend on what the policy's head reads.
        batch_renorm: how inputs of the layers are normalised by batches; None: they are not.
        members: those of a group, who share the network; None: the policy is of one agent.
    """

    has_layers: ClassVar[bool] = True
    has_noise: ClassVar[bool] = False
    max_seq_len: int = 1
    state_dependent_noise: bool = False
    batch_renorm: BatchRenorm | None = None
    members: Any = None
    # Of networks whose message names a class of the user's.
    network_name = "the network"

    @classmethod
    def of_settings(cls, settings: Mapping[str, Any]) -> Self | None:
        """The architecture that the `model` settings describe; None: they describe another one."""
        return None

    def problem(self, found: Found) -> Unfit | None:
        """Why this network cannot be for what it is to be for, and what to do; None if it can."""
        return None

    @property
    def memory(self):
        """The cell, or the attention, between the hidden layers and the heads; None without."""
        return None

    @property
    def custom_loss(self) -> Callable | None:
        """The network's own change of an algorithm's loss, in the form of the setting custom_loss; None: no change."""
        return None

    def state_shapes_of(self, spec: "NetworkSpec") -> tuple[tuple[int, ...], ...]:
        """Shapes of the arrays of a memory's state; none without a memory."""
        return self.layout(spec).state_shapes if self.memory else ()

    def without_value(self) -> Self:
        """The same without what only a value has."""
        return self

    def layout(self, spec: "NetworkSpec") -> Layout:
        """Layout of the parameters in the flat vector, without those of noisy layers."""
        raise NotImplementedError

    def noisy_part(self, layout: Layout) -> LayersLayout | None:
        """The part of `layout` whose last layers may be noisy (dense/noisy.py); None: it takes no noise."""
        return None

    def initialize(self, spec: "NetworkSpec", layout: Layout, weights: np.ndarray, rng: np.random.Generator) -> None:
        """Fills the weights, flat float32 [layout.size]."""
        INITIALIZERS[spec.initializer](layout, weights, rng, spec.gains or GAINS)
        if spec.log_std_init:
            named = layout.named_parameters(weights)
            has_own = spec.free_log_std or self.state_dependent_noise
            log_std = named["policy.log_std"] if has_own else named["policy.head.bias"][spec.distribution.size :]
            log_std += spec.log_std_init

    def network(self, spec: "NetworkSpec", layout: Layout, weights: np.ndarray):
        """Builds the network that acts on these weights: a NumpyNetwork, or one with its methods."""
        raise NotImplementedError

    def torch(self, spec: "NetworkSpec", layout: Layout, flat, acting):
        """Builds the torch module that learns, on a flat tensor; it shares the noise of `acting`."""
        raise NotImplementedError

    def opened(self, spec: "NetworkSpec", module) -> tuple[Any, Callable]:
        """The module that users' losses call, and a function from rows to its input."""
        return module, lambda rows: rows

    def check(self, spec: "NetworkSpec") -> None:
        """Raises a ValueError if a user's network does not do what its description says."""
