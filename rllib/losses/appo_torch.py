"""The APPO loss for autograd: the reference of the closed form in appo.py, and the loss on GPUs."""

import math

import torch
from torch import Tensor

from rllib.losses.appo import LEAST_DEVIATION
from rllib.losses.impala_torch import explained_variance, mean_weight
from rllib.losses.vtrace_torch import vtrace_of_rows
from rllib.sample_batch import ACTION_LOGP, ACTIONS, LOSS_MASK, TARGET_DIST_INPUTS


def appo_loss(
    distribution,
    dist_inputs: Tensor,
    values: Tensor,
    minibatch,
    *,
    gamma: float,
    clip_param: float,
    kl_coeff: float,
    vf_loss_coeff: float,
    entropy_coeff: float,
    vtrace: bool = True,
    clip_rho: float | None = 1.0,
    clip_pg_rho: float | None = 1.0,
    lambda_: float = 1.0,
    standardize_advantages: bool = False,
    max_behaviour_ratio: float = 2.0,
) -> tuple[Tensor, Tensor]:
    """The loss and, without gradient, its statistics in the order of `appo.STATS`.

    Arguments as for `appo.appo_gradient`.
    """
    weight = mean_weight(minibatch[LOSS_MASK])
    actions, behaviour = minibatch[ACTIONS], minibatch[ACTION_LOGP]
    new = distribution.at(dist_inputs)
    log_prob = new.log_prob(actions)
    with torch.no_grad():
        target_log_prob = distribution.at(minibatch[TARGET_DIST_INPUTS]).log_prob(actions)
        log_rho = target_log_prob - behaviour if vtrace else torch.zeros_like(behaviour)
        behaviour_ratio = (behaviour - target_log_prob).clamp(max=math.log(max_behaviour_ratio)).exp()
    targets, advantages = vtrace_of_rows(
        log_rho, values.detach(), minibatch, gamma=gamma, clip_rho=clip_rho, clip_pg_rho=clip_pg_rho, lambda_=lambda_
    )
    if standardize_advantages:
        advantages = advantages - (weight * advantages).sum()
        advantages = advantages / (weight * advantages.square()).sum().sqrt().clamp(min=LEAST_DEVIATION)
    ratio = behaviour_ratio * (log_prob - behaviour).clamp(max=20).exp()
    clipped = ratio.clamp(1 - clip_param, 1 + clip_param)
    policy_loss = -(weight * torch.minimum(advantages * ratio, advantages * clipped)).sum()
    vf_loss = 0.5 * (weight * (values - targets).square()).sum()
    kl = (weight * new.kl_from(minibatch[TARGET_DIST_INPUTS])).sum()
    entropy = (weight * new.entropy()).sum()
    loss = policy_loss + kl_coeff * kl + vf_loss_coeff * vf_loss - entropy_coeff * entropy
    with torch.no_grad():
        explained = explained_variance(values, targets, weight)
        clip_fraction = (weight * (ratio != clipped)).sum()
        mean_ratio = (weight * ratio).sum()
        mean_rho = (weight * log_rho.clamp(max=20).exp()).sum()
        statistics = torch.stack(
            (loss, policy_loss, vf_loss, kl, entropy, explained, clip_fraction, mean_ratio, mean_rho)
        )
    return loss, statistics
