"""Torch networks behind one torso, or behind an encoder of their own.

Critics that read the same features, a policy whose torso critics train, and layers next to a policy that reads
observations as they are stored.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from rllib.models.dense.composed_in_torch import split_with_gradient
from rllib.models.dense.encoded import EncodedLayout, TorsoLayout
from rllib.models.dense.in_torch import TorchNetwork, register_parameters, torso_features, torso_pieces, with_gradient
from rllib.models.dense.layout import LayersLayout


class TorchTorso(nn.Module):
    """Convolutions of one tower on a flat tensor, like FlatModule.

    Args:
        layout: where the parameters lie.
        flat: float32 [layout.size], on any device; the module's own memory, not copied.
    """

    def __init__(self, layout: TorsoLayout, flat: Tensor):
        super().__init__()
        self.layout, self.flat = layout, with_gradient(flat)
        self._parts = torso_pieces(layout.torso, layout.blocks(self.flat.detach()), 1)
        self.leaves = [part.requires_grad_() for part in self._parts.values()]
        self._gradients = list(torso_pieces(layout.torso, layout.blocks(self.flat.grad), 1).values())
        register_parameters(self)

    def forward(self, rows: Tensor) -> Tensor:
        """Features [B, num_features] of stored rows [B, ...] of any numeric dtype."""
        return torso_features(self.layout.torso, self._parts, rows, 1)[0]

    def receive(self, gradients: Sequence[Tensor]) -> None:
        torch._foreach_copy_(self._gradients, gradients)


class EncodedTorchLayers(nn.Module):
    """Layers that read the features of a torso instead of stored observations; the torso is computed once for all.

    Args:
        layout: where the parameters lie.
        layers: (flat) -> the layers on this part of the memory, called with the features and the other inputs.
        flat: float32 [layout.size], on any device; the module's own memory, not copied.
        place: number of the argument of a call that holds the observations.
    """

    def __init__(self, layout: EncodedLayout, layers: Callable[[Tensor], nn.Module], flat: Tensor, place: int = 0):
        super().__init__()
        self.layout, self.flat, self._place = layout, with_gradient(flat), place
        of_layers, of_encoder = split_with_gradient(self.flat, layout.parts)
        # In a list, so that their parameters are not registered twice.
        self._networks = [layers(of_layers), TorchTorso(layout.encoder, of_encoder)]
        register_parameters(self)

    def forward(self, *read: Tensor, by_batch: bool = False) -> Tensor:
        """Results of the layers; `read` as for TorchLayers, with observations as they are stored."""
        layers, torso = self._networks
        read = list(read)
        read[self._place] = torso(read[self._place])
        return layers(*read, by_batch=by_batch)

    @property
    def leaves(self) -> list[Tensor]:
        return [leaf for network in self._networks for leaf in network.leaves]

    def receive(self, gradients: Sequence[Tensor]) -> None:
        layers, torso = self._networks
        layers.receive(gradients[: len(layers.leaves)])
        torso.receive(gradients[len(layers.leaves) :])


class EncodingModule(nn.Module):
    """A module on a flat tensor that is called with stored observations instead of encoded ones.

    Args:
        module: reads encoded observations.
        encode: (stored observations) -> encoded ones.
        place: number of the argument of a call that holds the observations.
    """

    def __init__(self, module: nn.Module, encode: Callable[[Tensor], Tensor], place: int = 0):
        super().__init__()
        self.module, self._encode, self._place = module, encode, place
        self.layout, self.flat, self.leaves, self.receive = module.layout, module.flat, module.leaves, module.receive

    def forward(self, *read: Tensor, by_batch: bool = False) -> Tensor:
        """Results of the module; `read` as for TorchLayers, with observations as they are stored."""
        read = list(read)
        read[self._place] = self._encode(read[self._place])
        return self.module(*read, by_batch=by_batch)


class DetachedTorsoNetwork(nn.Module):
    """A policy's network like TorchNetwork, whose torso other modules train in the same memory.

    No gradient reaches the torso here: `flat`, `leaves` and the parameters are of what follows it.

    Args:
        layout: layout of the whole network, of one tower, whose torso comes first.
        activations: activation function of each hidden layer.
        flat: float32 [layout.size], on any device; the module's own memory, not copied.
    """

    def __init__(self, layout: LayersLayout, activations: tuple[str, ...], flat: Tensor):
        super().__init__()
        encoder = TorsoLayout(layout.torso)
        network = TorchNetwork(replace(layout, torso=None), activations, flat[encoder.size :])
        # In a list, so that their parameters are not registered twice.
        self._networks = [TorchTorso(encoder, flat[: encoder.size]), network]
        self.layout, self.flat = network.layout, network.flat
        self.leaves, self.receive = network.leaves, network.receive
        register_parameters(self)

    def forward(self, rows: Tensor, by_batch: bool = False) -> tuple[Tensor, Tensor]:
        """As TorchNetwork.forward."""
        torso, network = self._networks
        with torch.no_grad():
            features = torso(rows)
        return network(torch.cat([features, features.new_ones((features.shape[0], 1))], dim=1), by_batch)
