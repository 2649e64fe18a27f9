"""The policy gradient with a value baseline: REINFORCE (Williams 1992), and the loss of A2C and A3C (arXiv:1602.01783).

    loss = mean(-advantage log pi(a | o)) + vf_loss_coeff mean((V - target)^2) - entropy_coeff mean(entropy)

Departures: everything is a mean over the rows, so that the learning rate does not depend on the batch size. (The paper
sums over a fragment, and RLlib's A2C and A3C after it over the batch; for the same step of plain gradient descent a
learning rate from there has to be multiplied by the batch size; Adam and RMSprop are indifferent to the scale, but for
grad_clip.) The squared error has no factor 1/2, as in our PPO and in Stable-Baselines3 (RLlib has one). Advantages are
constants: they come with the batch.
"""

import numpy as np

from rllib.losses.loss import (
    ActorCriticLoss,
    advantages_and_targets,
    explained_variance,
    mean_of,
    torch_explained_variance,
)
from rllib.sample_batch import ACTION_LOGP, ACTIONS, ADVANTAGES, VALUE_TARGETS

STATS = ("total_loss", "policy_loss", "vf_loss", "policy_entropy", "vf_explained_var")


def policy_gradient(
    distribution,
    dist_inputs,
    values,
    minibatch,
    *,
    vf_loss_coeff,
    entropy_coeff,
    standardize_advantages=False,
    across=None,
):
    """Statistics and output gradients of the loss, in closed form. B rows, float32.

    Args:
        distribution: the action distribution (models/distributions/standard.py).
        dist_inputs: [B, K] what the network computed for it.
        values: [B] what the network computed.
        minibatch: columns actions [B, ...], advantages [B], value_targets [B].
        vf_loss_coeff: weight of the value loss.
        entropy_coeff: weight of the entropy bonus.
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
    now = distribution.at(dist_inputs)
    np.multiply(advantages, now.log_prob(minibatch[ACTIONS]), out=averaged[_SURROGATE])
    averaged[_ENTROPY] = now.entropy()
    d_dist_inputs = now.gradient(advantages * np.float32(-1 / rows), -entropy_coeff / rows)

    error = np.subtract(values, targets, out=averaged[_ERROR])
    np.multiply(error, error, out=averaged[_SQUARES])
    averaged[_TARGET] = targets
    d_values = error * np.float32(2 * vf_loss_coeff / rows)

    mean = averaged @ mean_of(rows)
    surrogate, entropy, vf_loss, _, _ = mean.tolist()
    statistics = [
        -surrogate + vf_loss_coeff * vf_loss - entropy_coeff * entropy,
        -surrogate,
        vf_loss,
        entropy,
        explained_variance(averaged[_ERROR:], mean[_ERROR:]),
    ]
    return statistics, d_dist_inputs, d_values


_AVERAGED = _SURROGATE, _ENTROPY, _SQUARES, _ERROR, _TARGET = range(5)


def policy_gradient_loss(
    distribution,
    dist_inputs,
    values,
    minibatch,
    *,
    vf_loss_coeff,
    entropy_coeff,
    standardize_advantages=False,
    across=None,
):
    """The loss for autograd: a scalar tensor, and its statistics in the order of STATS.

    Arguments and errors as for `policy_gradient`, with tensors for arrays.
    """
    advantages, targets = advantages_and_targets(values, minibatch, standardize_advantages, across)
    now = distribution.torch_at(dist_inputs)
    policy_loss = -(advantages * now.log_prob(minibatch[ACTIONS])).mean()
    vf_loss = (values - targets).square().mean()
    entropy = now.entropy().mean()
    loss = policy_loss + vf_loss_coeff * vf_loss - entropy_coeff * entropy
    explained = torch_explained_variance(values, targets, lambda column: column.mean())
    return loss, (loss, policy_loss, vf_loss, entropy, explained)


POLICY_GRADIENT_LOSS = ActorCriticLoss(
    (ACTIONS, ACTION_LOGP, ADVANTAGES, VALUE_TARGETS),
    STATS,
    policy_gradient,
    policy_gradient_loss,
)
