"""The IMPALA loss for autograd: the reference of the closed form in impala.py, and the loss on GPUs."""

import torch
from torch import Tensor

from rllib.losses.loss import ROUNDING
from rllib.losses.vtrace_torch import vtrace_of_rows
from rllib.sample_batch import ACTION_LOGP, ACTIONS, LOSS_MASK


def impala_loss(
    distribution,
    dist_inputs: Tensor,
    values: Tensor,
    minibatch,
    *,
    gamma: float,
    vf_loss_coeff: float,
    entropy_coeff: float,
    vtrace: bool = True,
    clip_rho: float | None = 1.0,
    clip_pg_rho: float | None = 1.0,
    lambda_: float = 1.0,
) -> tuple[Tensor, Tensor]:
    """The loss and, without gradient, its statistics in the order of `impala.STATS`.

    Arguments as for `impala.impala_gradient`.
    """
    weight = mean_weight(minibatch[LOSS_MASK])
    new = distribution.at(dist_inputs)
    log_prob = new.log_prob(minibatch[ACTIONS])
    log_rho = (log_prob - minibatch[ACTION_LOGP]).detach()
    if not vtrace:
        log_rho = torch.zeros_like(log_rho)
    targets, advantages = vtrace_of_rows(
        log_rho, values.detach(), minibatch, gamma=gamma, clip_rho=clip_rho, clip_pg_rho=clip_pg_rho, lambda_=lambda_
    )
    policy_loss = -(weight * log_prob * advantages).sum()
    vf_loss = 0.5 * (weight * (values - targets).square()).sum()
    entropy = (weight * new.entropy()).sum()
    loss = policy_loss + vf_loss_coeff * vf_loss - entropy_coeff * entropy
    with torch.no_grad():
        explained = explained_variance(values, targets, weight)
        mean_rho = (weight * log_rho.clamp(max=20).exp()).sum()
        statistics = torch.stack((loss, policy_loss, vf_loss, entropy, explained, mean_rho))
    return loss, statistics


def mean_weight(mask: Tensor) -> Tensor:
    """The weights [R] of a mean over the rows that are steps."""
    steps = mask.float()
    return steps / steps.sum().clamp(min=1)


def explained_variance(values: Tensor, targets: Tensor, weight: Tensor) -> Tensor:
    """1 - Var(targets - values) / Var(targets) over the weighted rows, at least -1; 0 for equal targets."""
    mean = (weight * targets).sum()
    variance = (weight * (targets - mean).square()).sum()
    error = values - targets
    unexplained = (weight * (error - (weight * error).sum()).square()).sum()
    explained = (1 - unexplained / variance).clamp(min=-1)
    return torch.where(variance > (ROUNDING * mean) ** 2, explained, torch.zeros_like(variance))
