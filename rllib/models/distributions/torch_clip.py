"""Clipping that numbers can come back from, in torch."""

import torch
from torch import Tensor


class _Clipped(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Tensor, limit: float) -> Tensor:
        ctx.save_for_backward(x)
        ctx.limit = limit
        return x.clamp(-limit, limit)

    @staticmethod
    def backward(ctx, gradient: Tensor) -> tuple[Tensor, None]:
        (x,) = ctx.saved_tensors
        # A step against the gradient would lead farther away.
        outwards = (x.abs() > ctx.limit) & (x * gradient < 0)
        return gradient.masked_fill(outwards, 0.0), None


def clipped(x: Tensor, limit: float) -> Tensor:
    """x within -limit ... limit. Beyond these, only gradients against which a step leads back are passed on."""
    return _Clipped.apply(x, limit)
