"""The loss of IMPALA (Espeholt et al., arXiv:1802.01561, section 4.2): policy gradient, value and entropy on V-trace.

Departures: means over the transitions instead of sums, so that the gradient's scale does not depend on the batch size;
the value loss carries RLlib's factor 1/2.
"""

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
from rllib.sample_batch import ACTION_LOGP, ACTIONS, LOSS_MASK, REWARDS, TERMINATEDS, TRUNCATEDS

STATS = ("total_loss", "policy_loss", "vf_loss", "entropy", "vf_explained_var", "mean_rho")


def impala_gradient(
    distribution,
    dist_inputs,
    values,
    minibatch,
    *,
    vf_loss_coeff,
    entropy_coeff,
    vtrace=True,
    standardize_advantages=False,
    across=None,
    **trace,
):
    """Statistics and output gradients of the IMPALA loss, in closed form. R rows, float32.

    Targets and advantages count as constants: nothing flows through them.

    Args:
        distribution: the action distribution (models/distributions/standard.py).
        dist_inputs: [R, K] what the network computed for it.
        values: [R] what the network computed.
        minibatch: columns actions [R, ...], action_logp [R] of the policy that acted, rewards, terminateds, truncateds,
            loss_mask [R]; rows in sequences, see `vtrace.vtrace_of_rows`.
        vf_loss_coeff: weight of the value loss, half the mean squared error.
        entropy_coeff: weight of the entropy bonus.
        vtrace: False takes every ratio for 1, as if the weights had not changed since the actions were drawn, and
            advantages for GAE's.
        standardize_advantages: give them mean 0 and standard deviation 1 over the steps of the minibatch.
        across: as for `returns.standardized`.
        trace: gamma and, where they differ from 1, clip_rho, clip_pg_rho and lambda_, as for `vtrace.vtrace_of_rows`.

    Returns:
        statistics (a list in the order of STATS), d_dist_inputs [R, K], d_values [R].
    """
    steps = minibatch[LOSS_MASK].astype(np.float32)
    weight = steps / max(steps.sum(), np.float32(1))
    new = distribution.at(dist_inputs)
    log_prob = new.log_prob(minibatch[ACTIONS])
    log_rho = log_prob - minibatch[ACTION_LOGP] if vtrace else np.zeros_like(log_prob)
    targets, advantages = vtrace_of_rows(log_rho if vtrace else None, values, minibatch, **trace)
    if standardize_advantages:
        ratios = clipped_ratio(log_prob - minibatch[ACTION_LOGP], trace.get("clip_pg_rho", 1.0))
        advantages = standardized(advantages, weight, across, ratios)
    # Rows that are no steps may have illegal actions, of which a log-probability times an advantage is infinite.
    advantages = advantages * steps

    policy_loss = -float(np.dot(weight, log_prob * advantages))
    d_log_prob = -weight * advantages

    entropy = float(np.dot(weight, new.entropy()))
    d_dist_inputs = gradient_of_steps(new, d_log_prob, -entropy_coeff, 0.0, steps, weight)

    vf_loss, d_values, explained = value_loss_of_steps(values, targets, weight, vf_loss_coeff)
    statistics = [
        policy_loss + vf_loss_coeff * vf_loss - entropy_coeff * entropy,
        policy_loss,
        vf_loss,
        entropy,
        explained,
        float(np.dot(weight, np.exp(np.minimum(log_rho, np.float32(20))))),
    ]
    return statistics, d_dist_inputs, d_values


def impala_loss(
    distribution,
    dist_inputs,
    values,
    minibatch,
    *,
    vf_loss_coeff,
    entropy_coeff,
    vtrace=True,
    standardize_advantages=False,
    across=None,
    **trace,
):
    """The loss for autograd: a scalar tensor, and its statistics in the order of STATS.

    Arguments as for `impala_gradient`, with tensors for arrays.
    """
    mean = mean_over_steps(minibatch[LOSS_MASK])
    new = distribution.torch_at(dist_inputs)
    log_prob = new.log_prob(minibatch[ACTIONS])
    log_rho = (log_prob - minibatch[ACTION_LOGP]).detach()
    if not vtrace:
        log_rho = log_rho.new_zeros(log_rho.shape)
    targets, advantages = torch_vtrace_of_rows(log_rho if vtrace else None, values, minibatch, **trace)
    if standardize_advantages:
        ratios = torch_clipped_ratio(log_prob.detach() - minibatch[ACTION_LOGP], trace.get("clip_pg_rho", 1.0))
        advantages = torch_standardized(advantages, mean, across, ratios)
    advantages = advantages * minibatch[LOSS_MASK]
    policy_loss = -mean(log_prob * advantages)
    vf_loss = 0.5 * mean((values - targets).square())
    entropy = mean(new.entropy())
    loss = policy_loss + vf_loss_coeff * vf_loss - entropy_coeff * entropy
    explained = torch_explained_variance(values, targets, mean)
    return loss, (loss, policy_loss, vf_loss, entropy, explained, mean(log_rho.clamp(max=20).exp()))


IMPALA_LOSS = ActorCriticLoss(
    (ACTIONS, ACTION_LOGP, REWARDS, TERMINATEDS, TRUNCATEDS, LOSS_MASK),
    STATS,
    impala_gradient,
    impala_loss,
    by_newest_weights=False,  # they may have moved on, and V-trace corrects for it
)
