"""Modules that are trained in addition to a policy's network: critics, free numbers, models of the environment.

A module is described without torch, by an object with

- `layout(widths)`: the layout of its parameters in a flat vector (models/dense/layout.py: Layout);
- `initialize(layout, weights, rng)`: fills its slice of the vector;
- where its gradient has a closed form: `closed_form`, which is True, and `numpy(layout, weights)`, which computes in
  numpy on its slice, see NumpyLayers;
- `torch(layout, flat)`: the torch.nn.Module that losses call, on its slice of a flat tensor: a FlatModule around any
  torch.nn.Module, or an object with the attributes of one (models/dense/in_torch.py).

`CustomModule` (models/user/module.py) makes one from any torch.nn.Module.
"""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from rllib.models.dense.batch_renorm import BatchRenorm
from rllib.models.dense.encoded import EncodedLayout
from rllib.models.dense.in_numpy import NumpyNetwork
from rllib.models.dense.initializers import INITIALIZERS
from rllib.models.dense.layers_in_numpy import NumpyLayers
from rllib.models.dense.layout import LayersLayout, Layout
from rllib.models.dense.renormalized import RenormalizedNetwork
from rllib.models.observations.encoders import Encoder
from rllib.models.observations.torso import Torso
from rllib.models.residual.in_numpy import ResidualNetwork
from rllib.models.residual.layout import ResidualLayout
from rllib.models.residual.spec import Residual


def input_widths(reads: Sequence[str], widths: Mapping[str, int]) -> list[int]:
    """Lengths of the inputs that a module reads, in their order.

    Args:
        reads: names of inputs.
        widths: each input that the policy can give -> its length.

    Raises:
        ValueError: if there are none, or one is not an input of this policy.
    """
    unknown = [name for name in reads if name not in widths]
    if unknown or not reads:
        problem = f"{unknown[0]!r} is not one of them" if unknown else "a module needs at least one"
        raise ValueError(
            f"a module can read {', '.join(widths)} of this policy, but reads={tuple(reads)} was given: {problem}"
        )
    return [widths[name] for name in reads]


@dataclass(frozen=True)
class FullyConnected:
    """Fully connected layers, of one network or several. Losses call them with the inputs `reads`, [B, width] each.

    Attributes:
        reads: inputs of the first layer: "observation" (encoded, as in a learner's minibatches), "action", or both.
        hiddens: widths of the hidden layers.
        num_outputs: numbers that it computes for a row; None: one, and the results are [B] instead of [B, 1].
        copies: number of separate networks; one product computes a layer of all of them. With several (an ensemble
            of critics), the results are [copies, B] or [copies, B, num_outputs].
        activation: activation function of the hidden layers, one of activations.ACTIVATIONS.
        layer_norm: hidden layers are normalised before their activation.
        initializer: initializer of the weights, a name in models/dense/initializers.py.
        batch_renorm: inputs of each layer are normalised; for networks without layer_norm. Calls then take `by_batch`:
            True normalises by the rows of the call and moves the running statistics; False uses these.
        torso: convolutions that read the observation as it is stored; all copies read their features, in torch alone.
        shares_torso: the policy has the same convolutions, in the same memory (ModuleVector), and does not train them.
    """

    closed_form: ClassVar[bool] = True
    reads: tuple[str, ...] = ("observation", "action")
    hiddens: tuple[int, ...] = (256, 256)
    num_outputs: int | None = None
    copies: int | None = None
    activation: str = "relu"
    layer_norm: bool = False
    initializer: str = "uniform"
    batch_renorm: BatchRenorm | None = None
    torso: Torso | None = None
    shares_torso: bool = False

    def layout(self, widths: Mapping[str, int]) -> LayersLayout | EncodedLayout:
        """Layout of the parameters; `widths` maps each possible input to its length."""
        if self.torso is None:
            return self._layers_layout(widths)
        return EncodedLayout(self._layers_layout({**widths, "observation": self.torso.num_features}), self.torso)

    def _layers_layout(self, widths: Mapping[str, int]) -> LayersLayout:
        num_inputs = sum(input_widths(self.reads, widths))
        if self.copies is None:
            heads, shared = {"": self.num_outputs or 1}, ""
        else:
            heads, shared = {str(index): self.num_outputs or 1 for index in range(self.copies)}, None
        norms = {"layer_norm": self.layer_norm, "batch_renorm": self.batch_renorm}
        return LayersLayout(num_inputs, self.hiddens, heads, shared=shared, **norms)

    def initialize(self, layout: LayersLayout | EncodedLayout, weights: np.ndarray, rng: np.random.Generator) -> None:
        INITIALIZERS[self.initializer](layout, weights, rng)

    def numpy(self, layout: LayersLayout, weights: np.ndarray) -> NumpyLayers:
        kind = NumpyNetwork if self.batch_renorm is None else RenormalizedNetwork
        network = kind(layout, (self.activation,) * len(self.hiddens), weights)
        return NumpyLayers(network, layout.num_inputs, self.reads, self.num_outputs, self.copies)

    def torch(self, layout: LayersLayout | EncodedLayout, flat):
        from rllib.models.dense.encoded_in_torch import EncodedTorchLayers
        from rllib.models.dense.in_torch import TorchLayers

        form = {"stacked": self.copies is not None, "single": self.num_outputs is None}
        activations = (self.activation,) * len(self.hiddens)
        if self.torso is None:
            return TorchLayers(layout, activations, flat, self.reads, **form)
        # Features do not close with a 1, as encoded observations do.
        reads = tuple("features" if name == "observation" else name for name in self.reads)
        return EncodedTorchLayers(
            layout,
            lambda part: TorchLayers(layout.layers, activations, part, reads, **form),
            flat,
            self.reads.index("observation"),
        )


@dataclass(frozen=True)
class ResidualNetworks:
    """Networks of residual blocks, one or several. Losses call them with the inputs `reads`, [B, width] each.

    Attributes:
        residual: the blocks.
        reads: inputs: "observation", which comes first, alone or with "action".
        num_outputs, copies: as for FullyConnected.
    """

    residual: Residual
    reads: tuple[str, ...] = ("observation", "action")
    num_outputs: int | None = None
    copies: int | None = None

    @property
    def closed_form(self) -> bool:
        return self.residual.has_closed_form

    def layout(self, widths: Mapping[str, int]) -> ResidualLayout:
        """Layout of the parameters; `widths` maps each possible input to its length."""
        observed, *others = input_widths(self.reads, widths)
        owners = tuple(map(str, range(self.copies or 1)))
        return ResidualLayout(self.residual, observed, sum(others), (self.num_outputs or 1,), owners)

    def initialize(self, layout: ResidualLayout, weights: np.ndarray, rng: np.random.Generator) -> None:
        layout.initialize(weights, rng)

    def numpy(self, layout: ResidualLayout, weights: np.ndarray) -> NumpyLayers:
        network, num_inputs = ResidualNetwork(layout, weights), layout.trained.num_inputs
        return NumpyLayers(network, num_inputs, self.reads, self.num_outputs, self.copies)

    def torch(self, layout: ResidualLayout, flat):
        from rllib.models.residual.in_torch import ResidualCritics

        return ResidualCritics(layout, flat, stacked=self.copies is not None, single=self.num_outputs is None)


@dataclass(frozen=True)
class EncodedFirst:
    """Layers that encode observations themselves, where the policy's network reads them as they are stored.

    Attributes:
        layers: the layers, without convolutions.
        encoder: turns stored observations into their input.
    """

    layers: FullyConnected
    encoder: Encoder

    def layout(self, widths: Mapping[str, int]) -> LayersLayout:
        return self.layers.layout({**widths, "observation": self.encoder.size})

    def initialize(self, layout: LayersLayout, weights: np.ndarray, rng: np.random.Generator) -> None:
        self.layers.initialize(layout, weights, rng)

    def torch(self, layout: LayersLayout, flat):
        from rllib.models.dense.encoded_in_torch import EncodingModule
        from rllib.models.tensors import encoded

        encode, place = functools.partial(encoded, self.encoder), self.layers.reads.index("observation")
        return EncodingModule(self.layers.torch(layout, flat), encode, place)


@dataclass(frozen=True)
class Parameter:
    """A module of trainable numbers, free of any input. Losses call it without arguments.

    Attributes:
        initial: initial value of all numbers.
        shape: shape of the tensor that a call returns.
    """

    initial: float = 0.0
    shape: tuple[int, ...] = ()

    def layout(self, widths: Mapping[str, int]) -> Layout:
        return Layout({"value": self.shape})

    def initialize(self, layout: Layout, weights: np.ndarray, rng: np.random.Generator) -> None:
        weights[:] = self.initial

    def torch(self, layout: Layout, flat):
        from rllib.models.dense.in_torch import FlatModule, Values

        return FlatModule(Values(self.shape), flat)
