"""The value loss alone: mean((V - target)^2), in units of the value (no factor 1/2, as in our PPO and A2C)."""

import numpy as np

from rllib.losses.loss import ActorCriticLoss, explained_variance, mean_of, not_all_rows, torch_explained_variance
from rllib.sample_batch import ACTION_LOGP, ACTIONS, VALUE_TARGETS

STATS = ("vf_loss", "vf_explained_var")


def value_gradient(distribution, dist_inputs, values, minibatch, *, across=None):
    """Statistics and output gradients of the loss, in closed form. B rows, float32.

    Args:
        distribution, across: not used.
        dist_inputs: [B, K], whose gradient is zero.
        values: [B] what the network computed.
        minibatch: the column value_targets [B].

    Returns:
        statistics (a list in the order of STATS), d_dist_inputs [B, K], d_values [B].

    Raises:
        ValueError: if values and value_targets are not both [B].
    """
    targets = _targets(values, minibatch)
    error_and_target = np.stack([values - targets, targets])
    mean = error_and_target @ mean_of(len(values))
    loss = float(np.square(error_and_target[0]).mean())
    d_values = error_and_target[0] * np.float32(2 / len(values))
    return [loss, explained_variance(error_and_target, mean)], np.zeros_like(dist_inputs), d_values


def value_loss(distribution, dist_inputs, values, minibatch, *, across=None):
    """The loss for autograd: a scalar tensor, and its statistics in the order of STATS.

    Arguments and errors as for `value_gradient`, with tensors for arrays.
    """
    targets = _targets(values, minibatch)
    loss = (values - targets).square().mean()
    return loss, (loss, torch_explained_variance(values, targets, lambda column: column.mean()))


def _targets(values, minibatch):
    targets = minibatch[VALUE_TARGETS]
    if values.shape != targets.shape:
        raise not_all_rows(values=values, targets=targets)
    return targets


VALUE_LOSS = ActorCriticLoss((ACTIONS, ACTION_LOGP, VALUE_TARGETS), STATS, value_gradient, value_loss)
