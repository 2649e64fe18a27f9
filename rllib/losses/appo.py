"""The loss of APPO: PPO's clipped surrogate on V-trace advantages (after IMPACT, Luo et al., arXiv:1912.00167).

Three policies take part: mu acted, pi learns, and the target network's pi_t stands still between its updates. V-trace
corrects from mu to pi_t; the surrogate's ratio is pi / pi_t, written min(2, mu / pi_t) * pi / mu as in the paper, so
that actions which pi_t would hardly take do not weigh without bound.
"""

import math

import numpy as np

from rllib.losses.loss import (
    ActorCriticLoss,
    gradient_of_steps,
    mean_over_steps,
    torch_explained_variance,
    value_loss_of_steps,
)
from rllib.losses.returns import standardized, torch_standardized
from rllib.losses.vtrace import clipped_ratio, torch_clipped_ratio, torch_vtrace_of_rows, vtrace_of_rows
from rllib.sample_batch import (
    ACTION_LOGP,
    ACTIONS,
    LOSS_MASK,
    REWARDS,
    TARGET_DIST_INPUTS,
    TERMINATEDS,
    TRUNCATEDS,
)

STATS = (
    "total_loss", "policy_loss", "vf_loss", "kl", "entropy", "vf_explained_var", "clip_fraction", "mean_ratio",
    "mean_rho",
)  # fmt: skip


def appo_gradient(
    distribution,
    dist_inputs,
    values,
    minibatch,
    *,
    clip_param,
    kl_coeff,
    vf_loss_coeff,
    entropy_coeff,
    vtrace=True,
    standardize_advantages=False,
    across=None,
    max_behaviour_ratio=2.0,
    **trace,
):
    """Statistics and output gradients of the APPO loss, in closed form. R rows, float32.

    Args:
        distribution, dist_inputs, values, vf_loss_coeff, entropy_coeff, vtrace, trace: as for `impala.impala_gradient`;
            the ratios of V-trace are pi_t / mu.
        minibatch: the columns of IMPALA and target_dist_inputs [R, K].
        clip_param: the ratio pi / pi_t counts within 1 - clip_param ... 1 + clip_param.
        kl_coeff: weight of KL(pi_t || pi).
        standardize_advantages: give them mean 0 and standard deviation 1 over the steps of the minibatch.
        across: as for `returns.standardized`.
        max_behaviour_ratio: the largest mu / pi_t that counts.

    Returns:
        statistics (a list in the order of STATS), d_dist_inputs [R, K], d_values [R].
    """
    steps = minibatch[LOSS_MASK].astype(np.float32)
    weight = steps / max(steps.sum(), np.float32(1))
    actions, behaviour = minibatch[ACTIONS], minibatch[ACTION_LOGP]
    new = distribution.at(dist_inputs)
    log_prob = new.log_prob(actions)
    target_log_prob = distribution.at(minibatch[TARGET_DIST_INPUTS]).log_prob(actions)
    log_rho = target_log_prob - behaviour if vtrace else np.zeros_like(log_prob)
    targets, advantages = vtrace_of_rows(log_rho if vtrace else None, values, minibatch, **trace)
    if standardize_advantages:
        ratios = clipped_ratio(target_log_prob - behaviour, trace.get("clip_pg_rho", 1.0))
        advantages = standardized(advantages, weight, across, ratios)

    behaviour_ratio = np.exp(np.minimum(behaviour - target_log_prob, np.float32(math.log(max_behaviour_ratio))))
    ratio = behaviour_ratio * np.exp(np.minimum(log_prob - behaviour, np.float32(20)))
    clipped = ratio.clip(np.float32(1 - clip_param), np.float32(1 + clip_param))
    surrogate, clipped_surrogate = advantages * ratio, advantages * clipped
    policy_loss = -float(np.dot(weight, np.minimum(surrogate, clipped_surrogate)))
    # Where the clipped term is the smaller one it does not depend on the ratio, so nothing flows.
    d_log_prob = -weight * surrogate * (surrogate <= clipped_surrogate)

    entropy = float(np.dot(weight, new.entropy()))
    kl = float(np.dot(weight, new.kl_from(minibatch[TARGET_DIST_INPUTS])))
    d_dist_inputs = gradient_of_steps(new, d_log_prob, -entropy_coeff, kl_coeff, steps, weight)

    vf_loss, d_values, explained = value_loss_of_steps(values, targets, weight, vf_loss_coeff)
    statistics = [
        policy_loss + kl_coeff * kl + vf_loss_coeff * vf_loss - entropy_coeff * entropy,
        policy_loss,
        vf_loss,
        kl,
        entropy,
        explained,
        float(np.dot(weight, ratio != clipped)),
        float(np.dot(weight, ratio)),
        float(np.dot(weight, np.exp(np.minimum(log_rho, np.float32(20))))),
    ]
    return statistics, d_dist_inputs, d_values


def appo_loss(
    distribution,
    dist_inputs,
    values,
    minibatch,
    *,
    clip_param,
    kl_coeff,
    vf_loss_coeff,
    entropy_coeff,
    vtrace=True,
    standardize_advantages=False,
    across=None,
    max_behaviour_ratio=2.0,
    **trace,
):
    """The loss for autograd: a scalar tensor, and its statistics in the order of STATS.

    Arguments as for `appo_gradient`, with tensors for arrays.
    """
    mean = mean_over_steps(minibatch[LOSS_MASK])
    actions, behaviour = minibatch[ACTIONS], minibatch[ACTION_LOGP]
    new = distribution.torch_at(dist_inputs)
    log_prob = new.log_prob(actions)
    target_log_prob = distribution.torch_at(minibatch[TARGET_DIST_INPUTS]).log_prob(actions)
    log_rho = target_log_prob - behaviour if vtrace else behaviour.new_zeros(behaviour.shape)
    behaviour_ratio = (behaviour - target_log_prob).clamp(max=math.log(max_behaviour_ratio)).exp()
    targets, advantages = torch_vtrace_of_rows(log_rho if vtrace else None, values, minibatch, **trace)
    if standardize_advantages:
        # The action of a row that is no step may be an illegal one, whose log-probability has the largest size.
        ratios = torch_clipped_ratio(target_log_prob - behaviour, trace.get("clip_pg_rho", 1.0))
        advantages = torch_standardized(advantages, mean, across, ratios) * minibatch[LOSS_MASK]
    ratio = behaviour_ratio * (log_prob - behaviour).clamp(max=20).exp()
    clipped = ratio.clamp(1 - clip_param, 1 + clip_param)
    policy_loss = -mean((advantages * ratio).minimum(advantages * clipped))
    vf_loss = 0.5 * mean((values - targets).square())
    kl = mean(new.kl_from(minibatch[TARGET_DIST_INPUTS]))
    entropy = mean(new.entropy())
    loss = policy_loss + kl_coeff * kl + vf_loss_coeff * vf_loss - entropy_coeff * entropy
    explained = torch_explained_variance(values, targets, mean)
    moved = mean(ratio != clipped), mean(ratio.detach()), mean(log_rho.clamp(max=20).exp())
    return loss, (loss, policy_loss, vf_loss, kl, entropy, explained, *moved)


APPO_LOSS = ActorCriticLoss(
    (ACTIONS, ACTION_LOGP, REWARDS, TERMINATEDS, TRUNCATEDS, LOSS_MASK, TARGET_DIST_INPUTS),
    STATS,
    appo_gradient,
    appo_loss,
    by_newest_weights=False,  # they may have moved on, and V-trace corrects for it
)
