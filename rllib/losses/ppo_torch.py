"""The PPO loss for autograd: the reference of the closed form in ppo.py, and the loss on GPUs."""

import math

import torch
from torch import Tensor

from rllib.losses.loss import ROUNDING
from rllib.sample_batch import (
    ACTION_DIST_INPUTS,
    ACTION_LOGP,
    ACTIONS,
    ADVANTAGES,
    VALUE_TARGETS,
    VF_PREDS,
)


def ppo_loss(
    distribution,
    dist_inputs: Tensor,
    values: Tensor,
    minibatch,
    *,
    clip_param: float,
    kl_coeff: float,
    vf_loss_coeff: float,
    entropy_coeff: float,
    vf_clip_param: float | None = None,
) -> tuple[Tensor, Tensor]:
    """The loss and, without gradient, its statistics in the order of `ppo.STATS`; arguments as for `ppo.ppo_gradient`.

    Raises:
        ValueError: if values, value_targets and advantages are not all [B].
    """
    advantages, targets = minibatch[ADVANTAGES], minibatch[VALUE_TARGETS]
    if values.shape != targets.shape or values.shape != advantages.shape:
        raise ValueError(
            f"values {tuple(values.shape)}, targets {tuple(targets.shape)} and advantages {tuple(advantages.shape)} "
            "must all be [B]"
        )
    new = distribution.at(dist_inputs)

    # Equation 7: the smaller of the two, so that a ratio beyond the clip gives nothing to gain.
    ratio = torch.exp(new.log_prob(minibatch[ACTIONS]) - minibatch[ACTION_LOGP])
    clipped_ratio = ratio.clamp(1 - clip_param, 1 + clip_param)
    policy_loss = -torch.minimum(advantages * ratio, advantages * clipped_ratio).mean()

    # Equation 8's penalty and equation 9's bonus.
    kl = new.kl_from(minibatch[ACTION_DIST_INPUTS]).mean()
    entropy = new.entropy().mean()
    vf_loss = _value_loss(values, targets, minibatch[VF_PREDS], vf_clip_param)
    loss = policy_loss + kl_coeff * kl + vf_loss_coeff * vf_loss - entropy_coeff * entropy

    with torch.no_grad():
        explained = explained_variance(values, targets)
        clip_fraction = (ratio != clipped_ratio).float().mean()
        statistics = torch.stack((loss, policy_loss, vf_loss, kl, entropy, explained, clip_fraction))
    return loss, statistics


def _value_loss(values: Tensor, targets: Tensor, old_values: Tensor, vf_clip_param: float | None) -> Tensor:
    squares = (values - targets).square()
    if vf_clip_param is not None and not math.isinf(vf_clip_param):
        clipped = old_values + (values - old_values).clamp(-vf_clip_param, vf_clip_param)
        squares = torch.maximum(squares, (clipped - targets).square())
    return squares.mean()


def explained_variance(values: Tensor, targets: Tensor) -> Tensor:
    variance = targets.var(correction=0)
    explained = (1 - (targets - values).var(correction=0) / variance).clamp(min=-1)
    return torch.where(variance > (ROUNDING * targets.mean()) ** 2, explained, torch.zeros_like(variance))
