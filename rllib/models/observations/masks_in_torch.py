"""Action masks (masks.py) in torch."""

import torch
from torch import Tensor, nn

from rllib.models.observations.encoders import MaskedEncoder
from rllib.models.observations.masks import LOWEST, parts_of_mask


class MaskedModule(nn.Module):
    """A policy's network with a mask in its inputs, like MaskedNetwork (masks.py).

    Args:
        module: a module on a flat tensor; reads the inputs without the mask.
        encoder: puts the mask into the inputs.
        distribution: reads the outputs.
    """

    def __init__(self, module: nn.Module, encoder: MaskedEncoder, distribution):
        super().__init__()
        self.module = module
        self.flat, self.leaves, self.receive = module.flat, module.leaves, module.receive
        self._split, self._parts = encoder.split, parts_of_mask(distribution)

    def forward(self, inputs: Tensor, *sequences: Tensor) -> tuple[Tensor, Tensor]:
        """Distribution inputs [B, K] and values [B]."""
        mask, others = self._split(inputs)
        dist_inputs, values = self.module(others, *sequences)
        return self._masked(dist_inputs, mask), values

    def step(self, inputs: Tensor, state: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """`step` of a module with a memory, masked: one row of each sequence."""
        mask, others = self._split(inputs)
        dist_inputs, values, following = self.module.step(others, state)
        return self._masked(dist_inputs, mask), values, following

    def _masked(self, dist_inputs: Tensor, mask: Tensor) -> Tensor:
        dist_inputs = dist_inputs.float()  # LOWEST is no bfloat16
        illegal = torch.zeros_like(dist_inputs, dtype=torch.bool)
        for columns, where in self._parts:
            bad = mask[:, columns] == 0
            bad = bad & ~bad.all(1, keepdim=True)
            illegal[:, where] = bad.repeat_interleave((where.stop - where.start) // bad.shape[1], dim=1)
        return dist_inputs.masked_fill(illegal, float(LOWEST))
