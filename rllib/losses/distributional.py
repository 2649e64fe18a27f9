"""Distributions of returns on a fixed support: C51 (Bellemare et al., arXiv:1707.06887, algorithm 1)."""

import numpy as np

from rllib.losses.td import STATS, q_statistics
from rllib.models.q_values import log_softmax
from rllib.sample_batch import ACTIONS, TARGET_PROBABILITIES, WEIGHTS


def project(probabilities, rewards, discounts, support):
    """The distribution of rewards + discounts * Z on the support of Z.

    Each atom's mass goes to its two neighbours in proportion to how near they are; what lies outside of the support
    goes to its end. (Written as a hat function around each atom, so an atom that lands on another one exactly keeps
    all its mass, where the floor and ceiling of the paper's listing would lose it.)

    Args:
        probabilities: [B, n] of Z.
        rewards, discounts: [B].
        support: [n], evenly spaced, increasing.

    Returns:
        [B, n] float32; rows sum to 1.

    Raises:
        ValueError: if the shapes do not fit.
    """
    rows, atoms = np.shape(probabilities)
    if np.shape(rewards) != (rows,) or np.shape(discounts) != (rows,) or np.shape(support) != (atoms,):
        raise ValueError(
            f"probabilities {np.shape(probabilities)} need rewards and discounts of shape {(rows,)} and a support of "
            f"shape {(atoms,)}, but got {np.shape(rewards)}, {np.shape(discounts)} and {np.shape(support)}"
        )
    v_min, v_max = support[0], support[-1]
    moved = rewards[:, None] + discounts[:, None] * support
    # Positions 0 ... n - 1, clipped after the division, so that rounding cannot lead past the last atom.
    position = ((moved - v_min) * np.float32((atoms - 1) / (v_max - v_min))).clip(0, atoms - 1)
    lower = np.floor(position).astype(np.int64)
    upper_share = position - lower
    upper = np.minimum(lower + 1, atoms - 1)
    # One flat histogram for the whole batch; float64 sums.
    first = np.arange(rows)[:, None] * atoms
    places = np.concatenate(((first + lower).ravel(), (first + upper).ravel()))
    masses = np.concatenate(((probabilities * (1 - upper_share)).ravel(), (probabilities * upper_share).ravel()))
    return np.bincount(places, masses, rows * atoms).reshape(rows, atoms).astype(np.float32)


class DistributionalLoss:
    """Mean of weight * cross-entropy(target, Z(o, a)), in the form that learners ask for (losses/loss.py).

    The row statistic td_error, for priorities, is KL(target || Z) as in Rainbow (arXiv:1710.02298): the cross-entropy
    without the target's own entropy, so that it is zero where nothing is left to learn.
    """

    columns = (ACTIONS, TARGET_PROBABILITIES, WEIGHTS)
    stats = STATS
    row_stats = ("td_error",)

    def numpy(self, distribution, outputs, minibatch):
        dist_inputs, no_values = outputs
        batch = distribution.at(dist_inputs)
        targets, weights = minibatch[TARGET_PROBABILITIES].T, minibatch[WEIGHTS]
        log_p = log_softmax(batch.chosen(minibatch[ACTIONS]))
        if log_p.shape != targets.shape or weights.shape != targets.shape[1:]:
            raise ValueError(
                f"Z {log_p.T.shape} and targets {targets.T.shape} must be [B, n], and weights {weights.shape} [B]"
            )
        p = np.exp(log_p)
        cross_entropy = -np.einsum("nb,nb->b", targets, log_p)
        loss = float(np.dot(weights, cross_entropy)) / len(weights)
        gradient = batch.gradient((p - targets) * (weights * np.float32(1 / len(weights))))
        q = distribution.support @ p
        divergence = cross_entropy + np.einsum("nb,nb->b", targets, np.log(np.maximum(targets, TINY)))
        divergence = np.maximum(divergence, np.float32(0))
        return q_statistics(loss, q, divergence), (gradient, no_values), (divergence,)

    def torch(self, distribution, outputs, minibatch):
        from rllib.losses.td_torch import distributional_loss

        return distributional_loss(distribution, outputs[0], minibatch)

    def identity_error(self, distribution, outputs, minibatch):
        """None: the rows may have been sampled by any weights."""
        return None


TINY = np.finfo(np.float32).tiny
