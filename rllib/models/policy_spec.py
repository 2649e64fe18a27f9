"""The description of a policy: all that is needed to build its network, in any process."""

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from rllib.models.described import as_lists, as_tuples
from rllib.models.distributions import Distribution, distribution_from_json
from rllib.models.encoders import Encoder, encoder_from_json
from rllib.models.filters import Filter, MeanStdFilter, NoFilter
from rllib.models.initializers import INITIALIZERS
from rllib.models.layout import LayersLayout, Layout
from rllib.models.memory import Memory, MemoryLayout, memory_from_json
from rllib.models.noisy_network import NoisyLayout, NoisyNetwork, initialize_sigmas
from rllib.models.numpy_memory import NumpyMemoryNetwork
from rllib.models.numpy_network import NumpyNetwork
from rllib.models.numpy_torso import ConvolutionalNetwork
from rllib.models.torso import Torso, torso_from_json


@dataclass(frozen=True)
class PolicySpec:
    """The description of a policy: all that is needed to build its network, in any process.

    Attributes:
        encoder: turns stored observations into the network's input.
        distribution: of the actions.
        hiddens: widths of the hidden layers.
        activations: of each hidden layer, "tanh", "relu", "swish" or "linear".
        vf_share_layers: one tower for policy and value instead of two.
        free_log_std: a parameter instead of an output (DiagGaussian alone).
        observation_filter: "NoFilter" or "MeanStdFilter".
        critic: whether there is a value head; without one there is a single tower.
        layer_norm: hidden layers are normalised before their activation.
        torso: convolutions that read the stored observations, for the hidden layers to read; None without images.
        initializer: of the weights, a name in models/initializers.py.
        noisy_layers: number of last layers, head included, with noise in their weights (single tower).
        sigma0: initial scale of this noise (noisy_network.py).
        memory: a recurrent cell between the hidden layers and the heads; None without.
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
    memory: Memory | None = None

    @property
    def state_shapes(self) -> tuple[tuple[int, ...], ...]:
        """Shapes of the arrays that make up the state of a memory; none without one."""
        return self.layout().state_shapes if self.memory else ()

    @property
    def state_size(self) -> int:
        """Numbers of a memory's state; 0 without one."""
        return sum(math.prod(shape) for shape in self.state_shapes)

    @property
    def max_seq_len(self) -> int:
        """Longest sequence that gradients flow through, where there is a memory."""
        return self.memory.max_seq_len if self.memory else 1

    @property
    def input_width(self) -> int:
        """Columns of encoded observations; 0 where the network reads the rows as they are stored."""
        return 0 if self.encoder.as_stored else self.encoder.size + 1

    def layout(self) -> Layout:
        """Where the parameters lie in the flat vector."""
        num_log_std = self.distribution.size if self.free_log_std else 0
        heads = {"policy": self.distribution.num_inputs - num_log_std}
        if self.critic:
            heads["value"] = 1
        # Without any layers there is nothing to share or to separate: both heads read the observation.
        has_layers = bool(self.hiddens) or self.torso is not None or self.memory is not None
        num_inputs = self.encoder.size if self.torso is None else self.torso.num_features
        shared = "shared" if self.vf_share_layers or not has_layers or not self.critic else None
        rest = self.hiddens, heads, shared, num_log_std, self.layer_norm, self.torso
        if self.memory:
            return MemoryLayout(num_inputs, *rest, self.memory)
        plain = LayersLayout(num_inputs, *rest)
        return NoisyLayout(plain, self.noisy_layers) if self.noisy_layers else plain

    def initialize(self, layout: Layout, weights: np.ndarray, rng: np.random.Generator) -> None:
        """Fills the weights, flat float32 [layout.size]."""
        if isinstance(layout, NoisyLayout):
            initialize_sigmas(layout, weights, self.sigma0)
            layout, weights = layout.plain, weights[: layout.plain.size]
        INITIALIZERS[self.initializer](layout, weights, rng)
        if self.memory:
            layout.initialize_cells(weights, rng, self.initializer)

    def network(self, layout: Layout, weights: np.ndarray):
        """The network that acts, on these weights (see NumpyNetwork; with a memory NumpyMemoryNetwork).

        Raises:
            ValueError: for weights of another size.
        """
        if isinstance(layout, NoisyLayout):
            return NoisyNetwork(layout, lambda summed: self.network(layout.plain, summed), weights)
        if self.memory:
            return NumpyMemoryNetwork(layout, self.activations, weights)
        kind = ConvolutionalNetwork if layout.torso else NumpyNetwork
        return kind(layout, self.activations, weights)

    def torch(self, layout: Layout, flat, acting):
        """The torch module that learns, on a flat tensor; it shares the noise of `acting`, the policy's own network."""
        from rllib.models.torch_memory import TorchMemoryNetwork
        from rllib.models.torch_network import NoisyTorchNetwork, TorchNetwork

        if isinstance(layout, NoisyLayout):
            return NoisyTorchNetwork(layout, self.activations, flat, acting)
        return (TorchMemoryNetwork if self.memory else TorchNetwork)(layout, self.activations, flat)

    def opened(self, module) -> tuple[Any, Callable]:
        """What losses of the user's get of the torch module: a module to call, and rows -> what that module reads."""
        return module, lambda rows: rows

    def make_filter(self) -> Filter:
        """A new observation filter."""
        return MeanStdFilter(self.encoder.shape) if self.observation_filter == "MeanStdFilter" else NoFilter()

    def check(self) -> None:
        """Raises a ValueError where a network of the user's does not do what its description says."""

    def to_json(self) -> dict:
        """A JSON-able description, without what subclasses add; `from_json` reads it."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(PolicySpec)}
        return {
            name: value.to_json() if name in _READERS and value is not None else as_lists(value)
            for name, value in values.items()
        }

    @classmethod
    def from_json(cls, data: Mapping) -> "PolicySpec":
        """The description that `to_json` gave; attributes that an earlier version did not have take their defaults."""
        data = dict(data)
        if "activation" in data:  # of checkpoints from before each layer had its own
            data["activations"] = [data.pop("activation")] * len(data["hiddens"])
        return cls(**{name: _READERS.get(name, as_tuples)(value) for name, value in data.items()})


# Attribute -> what reads its own `to_json`; the others are numbers, texts, and tuples of them.
_READERS = {
    "encoder": encoder_from_json,
    "distribution": distribution_from_json,
    "torso": torso_from_json,
    "memory": memory_from_json,
}
