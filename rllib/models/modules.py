"""Modules that are trained beside a policy's network: critics, temperatures, models of the environment.

A module is described without torch, by an object with

- `layout(widths)`: where its parameters lie in a flat vector, a models/layout.py: Layout;
- `initialize(layout, weights, rng)`: fills its slice of the vector;
- `torch(layout, flat)`: the torch.nn.Module that losses call, on its slice of a flat tensor: a FlatModule around any
  torch.nn.Module, or an object with the attributes of one (models/torch_network.py).

`CustomModule` (models/custom.py) makes one of any torch.nn.Module.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from rllib.models.initializers import INITIALIZERS
from rllib.models.layout import LayersLayout, Layout


@dataclass(frozen=True)
class FullyConnected:
    """A module of fully connected layers. Losses call it with its inputs `reads`, [B, width] each, in that order.

    Attributes:
        reads: what its first layer reads: "observation" (encoded, as in a learner's minibatches), "action", or both.
        hiddens: widths of the hidden layers.
        num_outputs: numbers that it computes for a row; of 1, the results are [B] instead of [B, 1].
        activation: of the hidden layers, "tanh", "relu", "swish" or "linear".
        layer_norm: hidden layers are normalised before their activation.
        initializer: of the weights, a name in models/initializers.py.
    """

    reads: tuple[str, ...] = ("observation", "action")
    hiddens: tuple[int, ...] = (256, 256)
    num_outputs: int = 1
    activation: str = "relu"
    layer_norm: bool = False
    initializer: str = "uniform"

    def layout(self, widths: Mapping[str, int]) -> LayersLayout:
        """Where the parameters lie; `widths` has the length of each thing that can be read."""
        unknown = [name for name in self.reads if name not in widths]
        if unknown or not self.reads:
            raise ValueError(f"a module can read {', '.join(widths)} of this policy, but reads={self.reads} was given")
        num_inputs = sum(widths[name] for name in self.reads)
        return LayersLayout(num_inputs, self.hiddens, {"": self.num_outputs}, shared="", layer_norm=self.layer_norm)

    def initialize(self, layout: LayersLayout, weights: np.ndarray, rng: np.random.Generator) -> None:
        INITIALIZERS[self.initializer](layout, weights, rng)

    def torch(self, layout: LayersLayout, flat):
        from rllib.models.torch_network import TorchLayers

        return TorchLayers(layout, (self.activation,) * len(self.hiddens), flat, self.reads)


@dataclass(frozen=True)
class Parameter:
    """A module of trainable numbers, such as the logarithm of a temperature. Losses call it without arguments.

    Attributes:
        initial: initial value of all numbers.
        shape: of the tensor that the call gives.
    """

    initial: float = 0.0
    shape: tuple[int, ...] = ()

    def layout(self, widths: Mapping[str, int]) -> Layout:
        return Layout({"value": self.shape})

    def initialize(self, layout: Layout, weights: np.ndarray, rng: np.random.Generator) -> None:
        weights[:] = self.initial

    def torch(self, layout: Layout, flat):
        from rllib.models.torch_network import FlatModule, Values

        return FlatModule(Values(self.shape), flat)
