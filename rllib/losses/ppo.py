"""The clipped surrogate objective of PPO (Schulman et al., arXiv:1707.06347, eq. 7 to 9).

Departures: the KL penalty of eq. 8 is added to the clipped objective, as RLlib does (kl_coeff 0 switches it off), and
the value loss is the larger of the clipped and the unclipped squared error, in units of the value (no factor 1/2).
Advantages are taken as they come, or standardised over the minibatch.
"""

import math

import numpy as np

from rllib.losses.loss import (
    ActorCriticLoss,
    advantages_and_targets,
    explained_variance,
    mean_of,
    torch_explained_variance,
)
from rllib.sample_batch import (
    ACTION_DIST_INPUTS,
    ACTION_LOGP,
    ACTIONS,
    ADVANTAGES,
    VALUE_TARGETS,
    VF_PREDS,
)

STATS = ("total_loss", "policy_loss", "vf_loss", "kl", "entropy", "vf_explained_var", "clip_fraction")


def adapted_kl_coeff(kl_coeff: float, kl: float, kl_target: float) -> float:
    """The coefficient of the KL penalty for the next update (section 4 of the paper, with RLlib's factors).

    Args:
        kl_coeff: coefficient of the last update.
        kl: mean KL(old || new) that it led to (nats).
        kl_target: KL that the coefficient adapts to (nats).
    """
    if kl > 2.0 * kl_target:
        return 1.5 * kl_coeff
    if kl < 0.5 * kl_target:
        return 0.5 * kl_coeff
    return kl_coeff


def ppo_gradient(
    distribution,
    dist_inputs,
    values,
    minibatch,
    *,
    clip_param,
    kl_coeff,
    vf_loss_coeff,
    entropy_coeff,
    vf_clip_param=None,
    standardize_advantages=False,
    across=None,
):
    """Statistics and output gradients of the PPO loss, in closed form. B rows, float32.

    Args:
        distribution: the action distribution (models/distributions/standard.py).
        dist_inputs: [B, K] what the network computed for it.
        values: [B] what the network computed.
        minibatch: columns actions [B, ...], action_logp [B], action_dist_inputs [B, K], advantages [B],
            value_targets [B], vf_preds [B].
        clip_param: the ratio counts within 1 - clip_param ... 1 + clip_param.
        kl_coeff: weight of KL(old || new).
        vf_loss_coeff: weight of the value loss.
        entropy_coeff: weight of the entropy bonus.
        vf_clip_param: how far a value may move from vf_preds with effect, in units of the value; None or inf: any way.
        standardize_advantages: give them mean 0 and standard deviation 1 over the minibatch.
        across: as for `returns.standardized`.

    Returns:
        statistics (a list in the order of STATS), d_dist_inputs [B, K], d_values [B].

    Raises:
        ValueError: if values, value_targets and advantages are not all [B].
    """
    advantages, targets = advantages_and_targets(values, minibatch, standardize_advantages, across)
    rows = len(values)
    # One row of this matrix for each number that is averaged over the minibatch, all of them at once at the end.
    averaged = np.empty((len(_AVERAGED), rows), np.float32)
    new = distribution.at(dist_inputs)

    ratio = np.exp(new.log_prob(minibatch[ACTIONS]) - minibatch[ACTION_LOGP])
    clipped_ratio = ratio.clip(np.float32(1 - clip_param), np.float32(1 + clip_param))
    surrogate, clipped_surrogate = advantages * ratio, advantages * clipped_ratio
    np.minimum(surrogate, clipped_surrogate, out=averaged[_SURROGATE])
    np.not_equal(ratio, clipped_ratio, out=averaged[_CLIPPED], casting="unsafe")
    # Where the clipped term is the smaller one it does not depend on the ratio, so nothing flows.
    d_log_prob = surrogate * (surrogate <= clipped_surrogate)
    d_log_prob *= np.float32(-1 / rows)

    averaged[_ENTROPY] = new.entropy()
    averaged[_KL] = new.kl_from(minibatch[ACTION_DIST_INPUTS])
    d_dist_inputs = new.gradient(d_log_prob, -entropy_coeff / rows, kl_coeff / rows)

    error = np.subtract(values, targets, out=averaged[_ERROR])
    averaged[_TARGET] = targets
    d_values = error * np.float32(2 * vf_loss_coeff / rows)
    _value_loss(values, targets, minibatch[VF_PREDS], vf_clip_param, averaged, d_values)

    mean = averaged @ mean_of(rows)
    surrogate, clip_fraction, entropy, kl, vf_loss, _, _ = mean.tolist()
    statistics = [
        -surrogate + kl_coeff * kl + vf_loss_coeff * vf_loss - entropy_coeff * entropy,
        -surrogate,
        vf_loss,
        kl,
        entropy,
        explained_variance(averaged[_ERROR:], mean[_ERROR:]),
        clip_fraction,
    ]
    return statistics, d_dist_inputs, d_values


_AVERAGED = _SURROGATE, _CLIPPED, _ENTROPY, _KL, _SQUARES, _ERROR, _TARGET = range(7)


def _value_loss(values, targets, old_values, vf_clip_param, averaged, d_values):
    """Writes max((v - t)^2, (clipped v - t)^2) into averaged[_SQUARES]; the clipped v stays near old_values.

    d_values comes as the gradient of the unclipped error and is set to zero where the clipped one counts.
    """
    error, squares = averaged[_ERROR], averaged[_SQUARES]
    np.multiply(error, error, out=squares)
    if vf_clip_param is None or math.isinf(vf_clip_param):
        return
    limit = np.float32(vf_clip_param)
    moved = values - old_values
    within = np.abs(moved) <= limit
    if within.all():
        return
    clipped_squares = old_values + moved.clip(-limit, limit)
    clipped_squares -= targets
    clipped_squares *= clipped_squares
    # Beyond the limit the clipped error does not depend on the value. (Within it the two squares may differ by
    # rounding, so their order alone does not tell.)
    d_values *= within | (squares >= clipped_squares)
    np.maximum(squares, clipped_squares, out=squares)


def ppo_loss(
    distribution,
    dist_inputs,
    values,
    minibatch,
    *,
    clip_param,
    kl_coeff,
    vf_loss_coeff,
    entropy_coeff,
    vf_clip_param=None,
    standardize_advantages=False,
    across=None,
):
    """The loss for autograd: a scalar tensor, and its statistics in the order of STATS.

    Arguments and errors as for `ppo_gradient`, with tensors for arrays.
    """
    advantages, targets = advantages_and_targets(values, minibatch, standardize_advantages, across)
    new = distribution.torch_at(dist_inputs)

    # Equation 7: the smaller of the two, so that a ratio beyond the clip gives nothing to gain.
    ratio = (new.log_prob(minibatch[ACTIONS]) - minibatch[ACTION_LOGP]).exp()
    clipped_ratio = ratio.clamp(1 - clip_param, 1 + clip_param)
    policy_loss = -(advantages * ratio).minimum(advantages * clipped_ratio).mean()

    # Equation 8's penalty and equation 9's bonus.
    kl = new.kl_from(minibatch[ACTION_DIST_INPUTS]).mean()
    entropy = new.entropy().mean()
    squares, old_values = (values - targets).square(), minibatch[VF_PREDS]
    # A tensor is finite (RecordedSteps); to look at its number would wait for the device.
    if vf_clip_param is not None and not (isinstance(vf_clip_param, float) and math.isinf(vf_clip_param)):
        clipped = old_values + (values - old_values).clamp(-vf_clip_param, vf_clip_param)
        squares = squares.maximum((clipped - targets).square())
    vf_loss = squares.mean()
    loss = policy_loss + kl_coeff * kl + vf_loss_coeff * vf_loss - entropy_coeff * entropy
    explained = torch_explained_variance(values, targets, lambda column: column.mean())
    clip_fraction = (ratio != clipped_ratio).float().mean()
    return loss, (loss, policy_loss, vf_loss, kl, entropy, explained, clip_fraction)


PPO_LOSS = ActorCriticLoss(
    (ACTIONS, ACTION_LOGP, ACTION_DIST_INPUTS, ADVANTAGES, VALUE_TARGETS, VF_PREDS),
    STATS,
    ppo_gradient,
    ppo_loss,
)
