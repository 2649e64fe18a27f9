"""Quantile regression of returns (Dabney et al., arXiv:1710.10044), for critics and for action values.

M quantiles theta of a return, at the levels tau_m = (m - 1/2) / M, are fitted to samples y_k of it:

    J = mean over rows, m and k of  w |tau_m - 1[y_k < theta_m]| huber(y_k - theta_m)

huber(x) is x^2 / 2 within -1 ... 1 and |x| - 1/2 beyond; w are importance weights. QR-DQN's loss (the paper's equation
10) is the sum over m instead of the mean: M J, with targets y_k = r + gamma^n theta_k(s', a'). An implicit quantile
network (arXiv:1806.06923, equation 3) says itself at which levels its quantiles are.
"""

import numpy as np

from rllib.losses.td import ActionValueLoss, q_statistics, torch_q_statistics
from rllib.sample_batch import ACTIONS, TARGET_QUANTILES, WEIGHTS


class QuantileLoss(ActionValueLoss):
    """Quantile regression of the values of the actions taken, as a Loss (losses/loss.py).

    The row statistic td_error, for priorities, is the distance of the means.
    """

    columns = (ACTIONS, TARGET_QUANTILES, WEIGHTS)

    def numpy(self, distribution, outputs, minibatch):
        dist_inputs, no_values = outputs
        batch = distribution.at(dist_inputs)
        theta, targets = batch.chosen(minibatch[ACTIONS]), minibatch[TARGET_QUANTILES]
        _check_shapes(theta.T, targets)
        (loss, *_), (errors,), gradient = fit_quantiles_in_numpy(theta.T[None], targets, minibatch, batch.levels)
        count = len(theta)
        statistics = q_statistics(float(count * loss), theta.mean(0), errors)
        return statistics, (batch.gradient(count * gradient[0].T), no_values), (errors,)

    def torch(self, distribution, outputs, minibatch):
        batch = distribution.torch_at(outputs[0])
        theta, targets = batch.chosen(minibatch[ACTIONS]).T, minibatch[TARGET_QUANTILES]
        _check_shapes(theta, targets)
        loss, _, (errors,) = fit_quantiles(theta[None], targets, minibatch, batch.levels)
        loss = theta.shape[1] * loss
        return loss, torch_q_statistics(loss, theta.mean(1), errors), (errors,)


def _check_shapes(theta, targets):
    if theta.shape[0] != targets.shape[0] or len(targets.shape) != 2:
        raise ValueError(f"quantiles {tuple(theta.shape)} and targets {tuple(targets.shape)} must be [B, M] and [B, K]")


def fit_quantiles(quantiles, targets, minibatch, levels=None) -> tuple:
    """The loss of quantiles [critics, B, M] that are fitted to targets [B, K], its statistics, and TD errors [B].

    Args:
        quantiles, targets: tensors.
        minibatch: with the column of importance weights.
        levels: [B, M] of the quantiles; None: (m - 1/2) / M.
    """
    import torch
    from torch.nn import functional

    count = quantiles.shape[-1]
    if levels is None:
        levels = (torch.arange(count, device=quantiles.device, dtype=quantiles.dtype) + 0.5) / count
    levels = levels[..., None]
    errors = targets[:, None, :] - quantiles[..., None]
    huber = functional.huber_loss(errors, torch.zeros_like(errors), reduction="none")
    losses = ((levels - (errors < 0).to(levels)).abs() * huber).mean((-2, -1))
    loss = (minibatch[WEIGHTS] * losses).mean(-1).sum()
    with torch.no_grad():
        values = quantiles.mean(-1)
        statistics = loss, values.mean(), values.min(), values.max()
        td_errors = (values - targets.mean(-1)).abs().mean(0)
    return loss, statistics, (td_errors,)


def fit_quantiles_in_numpy(
    quantiles: np.ndarray, targets: np.ndarray, minibatch, levels: np.ndarray | None = None
) -> tuple:
    """As `fit_quantiles`, for arrays: statistics, row statistics, and the gradient with respect to the quantiles.

    Here `levels` are [M, B].
    """
    # The network's memory is [critics, M, B]. The pairs with one target at a time fit into the processor's cache.
    theta = quantiles.swapaxes(1, 2)
    error, slope, below = (np.empty_like(theta) for _ in range(3))
    slopes, slopes_below, halves, halves_below, zero = (np.zeros_like(theta) for _ in range(5))
    one = np.ones_like(theta)  # numpy is four times as fast with two arrays as with an array and a number
    minus_one = -one
    for target in np.ascontiguousarray(targets.T):
        np.subtract(target, theta, out=error)
        np.maximum(error, minus_one, out=slope)
        np.minimum(slope, one, out=slope)  # d huber / d error
        np.minimum(slope, zero, out=below)
        slopes += slope
        slopes_below += below
        # huber(x) = s (x - s / 2), where s is its slope
        slope *= np.float32(0.5)
        error -= slope
        slope *= error
        below *= error
        halves += slope
        halves_below += below
    # |tau - 1[x < 0]| f(x), summed over targets, is tau times the sum, plus 1 - 2 tau times the sum over negative x.
    count = theta.shape[1]
    if levels is None:
        levels = ((np.arange(count, dtype=np.float32) + np.float32(0.5)) / np.float32(count))[:, None]
    for_below, rows = 1 - 2 * levels, len(targets)
    weights = minibatch[WEIGHTS] / np.float32(rows * count * targets.shape[1])
    loss = ((2 * levels * halves + for_below * halves_below) * weights).sum()
    gradient = (levels * slopes + for_below * slopes_below) * -weights
    values = theta.mean(1)
    td_errors = np.abs(values - targets.mean(1)).mean(0)
    return (loss, values.mean(), values.min(), values.max()), (td_errors,), gradient.swapaxes(1, 2)
