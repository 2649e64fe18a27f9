"""The losses of td.py and distributional.py for autograd: the reference of their closed forms, and for GPUs."""

import torch
from torch import Tensor

from rllib.sample_batch import ACTIONS, TARGET_PROBABILITIES, TD_TARGETS, WEIGHTS


def td_loss(distribution, dist_inputs: Tensor, minibatch, kind: str) -> tuple[Tensor, Tensor, tuple[Tensor, ...]]:
    """(loss, statistics, row statistics) of `td.TDLoss`."""
    chosen = distribution.at(dist_inputs).chosen(minibatch[ACTIONS])[0]
    targets, weights = minibatch[TD_TARGETS], minibatch[WEIGHTS]
    if not chosen.shape == targets.shape == weights.shape:
        raise ValueError(
            f"Q {tuple(chosen.shape)}, targets {tuple(targets.shape)} and weights {tuple(weights.shape)} must be [B]"
        )
    compute = torch.nn.functional.huber_loss if kind == "huber" else torch.nn.functional.mse_loss
    scale = 1.0 if kind == "huber" else 0.5
    loss = (weights * scale * compute(chosen, targets, reduction="none")).mean()
    size = (chosen - targets).abs().detach()
    return loss, _statistics(loss, chosen, size), (size,)


def distributional_loss(distribution, dist_inputs: Tensor, minibatch) -> tuple[Tensor, Tensor, tuple[Tensor, ...]]:
    """(loss, statistics, row statistics) of `distributional.DistributionalLoss`."""
    log_p = torch.log_softmax(distribution.at(dist_inputs).chosen(minibatch[ACTIONS]).T, -1)
    targets, weights = minibatch[TARGET_PROBABILITIES], minibatch[WEIGHTS]
    if log_p.shape != targets.shape or weights.shape != targets.shape[:1]:
        raise ValueError(f"Z {tuple(log_p.shape)} and targets {tuple(targets.shape)} must be [B, n]")
    cross_entropy = -(targets * log_p).sum(-1)
    loss = (weights * cross_entropy).mean()
    with torch.no_grad():
        q = log_p.exp() @ distribution.support.to(log_p.device)
        divergence = (cross_entropy + torch.xlogy(targets, targets).sum(-1)).clamp(min=0)
    return loss, _statistics(loss, q, divergence), (divergence,)


@torch.no_grad()
def _statistics(loss: Tensor, q: Tensor, error: Tensor) -> Tensor:
    return torch.stack((loss, q.mean(), q.min(), q.max(), error.mean()))
