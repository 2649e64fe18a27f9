"""The policy gradient loss for autograd: the reference of the closed form in policy_gradient.py."""

import torch
from torch import Tensor

from rllib.losses.ppo_torch import explained_variance
from rllib.sample_batch import ACTIONS, ADVANTAGES, VALUE_TARGETS


def policy_gradient_loss(
    distribution, dist_inputs: Tensor, values: Tensor, minibatch, *, vf_loss_coeff: float, entropy_coeff: float
) -> tuple[Tensor, Tensor]:
    """The loss and, without gradient, its statistics; arguments as for `policy_gradient.policy_gradient`.

    Raises:
        ValueError: if values, value_targets and advantages are not all [B].
    """
    advantages, targets = minibatch[ADVANTAGES], minibatch[VALUE_TARGETS]
    if values.shape != targets.shape or values.shape != advantages.shape:
        raise ValueError(
            f"values {tuple(values.shape)}, targets {tuple(targets.shape)} and advantages {tuple(advantages.shape)} "
            "must all be [B]"
        )
    now = distribution.at(dist_inputs)
    policy_loss = -(advantages * now.log_prob(minibatch[ACTIONS])).mean()
    vf_loss = (values - targets).square().mean()
    entropy = now.entropy().mean()
    loss = policy_loss + vf_loss_coeff * vf_loss - entropy_coeff * entropy
    with torch.no_grad():
        statistics = torch.stack((loss, policy_loss, vf_loss, entropy, explained_variance(values, targets)))
    return loss, statistics
