"""NetworkSpec: the description of a policy's network, and Architecture, the base class of what is built of it.

An architecture is a folder of models/, with its class in `spec.py`, the layout of the parameters in `layout.py`, and
the network in `in_numpy.py` and `in_torch.py`. `architectures.py` lists those of the library, which checkpoints name
by `kind`, and `catalog.py` asks each by `of_settings` whether the `model` settings describe it.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from gymnasium import spaces

from rllib.config.conflicts import Unfit
from rllib.models.dense.batch_renorm import BatchRenorm
from rllib.models.dense.in_numpy import NetworkPerRow
from rllib.models.dense.initializers import GAINS, INITIALIZERS
from rllib.models.dense.layout import LayersLayout, Layout
from rllib.models.dense.noisy import NoisyLayout, NoisyNetwork, initialize_sigmas
from rllib.models.distributions.standard import Distribution
from rllib.models.observations.encoders import Encoder, MaskedEncoder
from rllib.models.observations.filters import CLIP, Filter, MeanStdFilter, NoFilter
from rllib.models.observations.masks import MaskedNetwork, MaskedNetworkPerRow
from rllib.models.observations.torso import Torso
from rllib.storage.json_dataclass import Described, as_lists


class Found(NamedTuple):
    """What a network is to be for, as far as an architecture may refuse it.

    Attributes:
        space: space of the observations.
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
        has_noise: the network draws its own random numbers.
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
    def is_built_in(self) -> bool:
        """Whether it is the library's own, not of a class of the user's, which a checkpoint names by import."""
        return type(self).__module__.startswith("rllib.")

    def to_json(self) -> dict:
        return super().to_json() if self.is_built_in else {"kind": UserArchitecture.kind}

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


@dataclass(frozen=True)
class UserArchitecture(Architecture):
    """An architecture of the user's code, which checkpoints name; builds no network itself."""

    kind = "user"
    is_built_in = False


@dataclass(frozen=True)
class NetworkSpec:
    """The description of a policy: all that is needed to build its network, in any process.

    Attributes:
        encoder: turns stored observations into the network's input.
        distribution: distribution of the actions.
        hiddens: widths of the hidden layers.
        activations: activation function of each hidden layer, one of activations.ACTIVATIONS.
        vf_share_layers: one tower for policy and value instead of two.
        free_log_std: a parameter instead of an output (DiagGaussian alone).
        observation_filter: "NoFilter" or "MeanStdFilter".
        critic: whether there is a value head; without one there is a single tower.
        layer_norm: hidden layers are normalised before their activation.
        torso: convolutions that read the stored observations, for the hidden layers to read; None without images.
        initializer: initializer of the weights, a name in models/dense/initializers.py.
        noisy_layers: number of last layers, head included, with noise in their weights (single tower).
        sigma0: initial scale of this noise (dense/noisy.py).
        observation_clip: bound of filtered observations, in standard deviations; None: unbounded.
        log_std_init: initial logarithm of the standard deviation of continuous actions; with state_dependent_noise of
            sigma.
        gains: of orthogonal weights in hidden layers, the policy's head and the value's; None: initializers.GAINS.
        head_bias: whether the policy's head and the value's have a bias.
        architecture: what is built of these layers, or in their place.
    """

    encoder: Encoder
    distribution: Distribution
    hiddens: tuple[int, ...]
    activations: tuple[str, ...]
    vf_share_layers: bool = False
    free_log_std: bool = False
    observation_filter: str = "NoFilter"
    critic: bool = True
    layer_norm: bool = False
    torso: Torso | None = None
    initializer: str = "orthogonal"
    noisy_layers: int = 0
    sigma0: float = 0.5
    observation_clip: float | None = CLIP
    log_std_init: float = 0.0
    gains: tuple[float, float, float] | None = None
    head_bias: bool = True
    architecture: Architecture = field(kw_only=True)

    @property
    def memory(self):
        """The cell, or the attention, between the hidden layers and the heads; None without."""
        return self.architecture.memory

    @property
    def state_shapes(self) -> tuple[tuple[int, ...], ...]:
        """Shapes of the arrays of a memory's state; none without a memory."""
        return self.architecture.state_shapes_of(self)

    @property
    def state_size(self) -> int:
        """Length of a memory's state; 0 without a memory."""
        return sum(math.prod(shape) for shape in self.state_shapes)

    @property
    def has_noise(self) -> bool:
        """Whether the network has its own random numbers, in its weights or as levels of quantiles."""
        return bool(self.noisy_layers) or self.architecture.has_noise

    @property
    def is_masked(self) -> bool:
        """Whether observations hold a mask of legal actions (models/observations/masks.py)."""
        return isinstance(self.encoder, MaskedEncoder)

    @property
    def acts_unpadded(self) -> bool:
        """Whether a row costs too much to pad batches of them: convolutions read it, or a user's network an image."""
        return self.encoder.as_stored and (self.torso is not None or len(self.encoder.shape) == 3)

    @property
    def num_inputs(self) -> int:
        """Number of inputs that the network reads from an encoded observation, without the mask."""
        return self.encoder.inner.size if self.is_masked else self.encoder.size

    @property
    def input_width(self) -> int:
        """Number of columns of encoded observations; 0 if the network reads the rows as they are stored."""
        return 0 if self.encoder.as_stored else self.encoder.size + 1

    @property
    def num_features(self) -> int:
        """Number of inputs of the first hidden layer: those of the network, or the features of its convolutions."""
        return self.num_inputs if self.torso is None else self.torso.num_features

    @property
    def num_log_std(self) -> int:
        """Length of the free log standard deviation, 0 for none."""
        return self.distribution.size if self.free_log_std else 0

    @property
    def heads(self) -> dict[str, int]:
        """Name of a head -> number of outputs."""
        policy = {"policy": self.distribution.num_inputs - self.num_log_std}
        return policy | {"value": 1} if self.critic else policy

    @property
    def shared(self) -> str | None:
        """Name of the hidden layers that all heads read; None: each has its own layers."""
        # Without any layers there is nothing to share or to separate: both heads read the observation.
        has_layers = bool(self.hiddens) or self.torso is not None or self.memory is not None
        return "shared" if self.vf_share_layers or not has_layers or not self.critic else None

    def without_value(self, **changes) -> "NetworkSpec":
        """The same network without a value and its layers, with further changes of attributes."""
        changes = {"architecture": self.architecture.without_value(), **changes}
        return dataclasses.replace(self, critic=False, vf_share_layers=True, **changes)

    def layout(self) -> Layout:
        """Layout of the parameters in the flat vector."""
        plain = self.architecture.layout(self)
        noisy = self.architecture.noisy_part(plain) if self.noisy_layers else None
        return plain if noisy is None else NoisyLayout(plain, noisy, self.noisy_layers)

    def initialize(self, layout: Layout, weights: np.ndarray, rng: np.random.Generator) -> None:
        """Fills the weights, flat float32 [layout.size]."""
        if isinstance(layout, NoisyLayout):
            initialize_sigmas(layout, weights, self.sigma0)
            layout, weights = layout.plain, weights[: layout.plain.size]
        self.architecture.initialize(self, layout, weights, rng)

    def network(self, layout: Layout, weights: np.ndarray):
        """Builds the network that acts on these weights, unmasked: a NumpyNetwork, or one with its methods.

        Raises:
            ValueError: for weights of another size.
        """
        if isinstance(layout, NoisyLayout):
            return NoisyNetwork(layout, lambda summed: self.network(layout.plain, summed), weights)
        return self.architecture.network(self, layout, weights)

    def torch(self, layout: Layout, flat, acting):
        """Builds the torch module that learns, on a flat tensor, unmasked; it shares the noise of `acting`."""
        if isinstance(layout, NoisyLayout):
            from rllib.models.dense.in_torch import NoisyTorchNetwork

            return NoisyTorchNetwork(layout, lambda mu: self.torch(layout.plain, mu, acting.network), flat, acting)
        return self.architecture.torch(self, layout, flat, acting)

    def opened(self, module) -> tuple[Any, Callable]:
        """The module that users' losses call, and a function from rows to its input."""
        return self.architecture.opened(self, module)

    def masked_opened(self, module) -> tuple[Any, Callable]:
        """`opened` for a module of `masked_torch`."""
        if not self.is_masked:
            return self.opened(module)
        called, read = self.opened(module.module)
        return called, lambda rows: read(self.encoder.split(rows)[1])

    def masked_network(self, layout: Layout, weights: np.ndarray):
        """`network`, masked if observations hold a mask."""
        return self.with_mask(self.network(layout, weights))

    def with_mask(self, network):
        """Wraps a network that acts, if observations hold a mask."""
        return MaskedNetwork(network, self.encoder, self.distribution) if self.is_masked else network

    def masked_torch(self, layout: Layout, flat, acting):
        """`torch`, masked if observations hold a mask; `acting` is a result of `masked_network`."""
        if not self.is_masked:
            return self.torch(layout, flat, acting)
        from rllib.models.observations.in_torch import MaskedModule

        return MaskedModule(self.torch(layout, flat, acting.network), self.encoder, self.distribution)

    def network_per_row(self, layout: Layout, weights: np.ndarray):
        """Builds a NetworkPerRow, which acts with separate weights in each row, float32 [N, layout.size]."""
        network = NetworkPerRow(layout, self.activations, weights)
        return MaskedNetworkPerRow(network, self.encoder, self.distribution) if self.is_masked else network

    def make_filter(self) -> Filter:
        """A new observation filter."""
        if self.observation_filter == "NoFilter":
            return NoFilter()
        keep = self.encoder.ranges if self.is_masked else ()
        return MeanStdFilter(self.encoder.shape, self.observation_clip, keep)

    def check(self) -> None:
        """Raises a ValueError if a user's network does not do what its description says."""
        self.architecture.check(self)

    def to_json(self) -> dict:
        """A JSON-able description, without the user's code; `architectures.spec_from_json` reads it."""
        values = {each.name: getattr(self, each.name) for each in dataclasses.fields(self)}
        return {
            name: value.to_json() if isinstance(value, Described | Torso) else as_lists(value)
            for name, value in values.items()
        }
