"""Implicit quantile networks in torch."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from rllib.models.dense.composed_in_torch import split_with_gradient
from rllib.models.dense.in_torch import TorchNetwork, register_parameters, with_gradient
from rllib.models.implicit.in_numpy import ImplicitNetwork
from rllib.models.implicit.layout import ImplicitLayout, frequencies, middles


class ImplicitTorchNetwork(nn.Module):
    """Like ImplicitNetwork, at the levels of a policy's own network.

    Args:
        layout: where the parameters lie.
        activations: activation functions of the hidden layers before the product, and behind it.
        flat: float32 [layout.size], on any device; the module's own memory, not copied.
        acting: the network that holds the levels, which are read at every forward pass; None: the middles of as many
            strata as `count` says.
        count: number of levels.
    """

    def __init__(
        self,
        layout: ImplicitLayout,
        activations: tuple[tuple[str, ...], tuple[str, ...]],
        flat: Tensor,
        acting: ImplicitNetwork | None,
        count: int,
    ):
        super().__init__()
        self.layout, self.flat = layout, with_gradient(flat)
        before, levels, behind = split_with_gradient(self.flat, layout.parts)
        # In a list, so that their parameters are not registered twice.
        self._networks = [
            TorchNetwork(layout.before, activations[0], before),
            TorchNetwork(layout.behind, activations[1], behind),
        ]
        self._phi = levels.requires_grad_()
        self._levels = None if acting is None else torch.from_numpy(acting.noise)
        self._drawn = torch.from_numpy(middles(count)).to(flat.device)
        self._frequencies = torch.from_numpy(frequencies(layout.num_cosines)).to(flat.device)
        register_parameters(self)

    def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Distribution inputs [B, K], and no values."""
        if self._levels is not None:
            self._drawn.copy_(self._levels)
        before, behind = self._networks
        psi = before(inputs)[0]
        cosines = (self._drawn[:, None] * self._frequencies).cos()
        phi = torch.addmm(self._phi[-1], cosines, self._phi[:-1]).relu()
        product = (phi[:, None] * psi).flatten(0, 1)  # [levels * B, width]
        outputs = behind(torch.cat([product, product.new_ones(product.shape[0], 1)], 1))[0]
        rows = psi.shape[0]
        by_output = outputs.reshape(len(self._drawn), rows, -1).permute(1, 2, 0).flatten(1)
        return torch.cat([by_output, self._drawn.expand(rows, -1)], 1), outputs.new_empty(0)

    def read_tail(self, start: int, flat: Tensor) -> None:
        """As StackedLayers.read_tail, of the layers behind the product."""
        first = self.layout.slices["behind"].start
        self._networks[1].read_tail(start - first, flat[first:])

    @property
    def leaves(self) -> list[Tensor]:
        before, behind = self._networks
        return [*before.leaves, self._phi, *behind.leaves]

    def receive(self, gradients: Sequence[Tensor]) -> None:
        before, behind = self._networks
        own = len(before.leaves)
        before.receive(gradients[:own])
        self._phi.grad.copy_(gradients[own])
        behind.receive(gradients[own + 1 :])
