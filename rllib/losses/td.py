"""Temporal differences of action values: DQN's targets (Mnih et al., Nature 2015) and loss.

Double Q-learning (van Hasselt et al., arXiv:1509.06461) lets one network choose the next action and another judge it.
"""

import numpy as np

from rllib.sample_batch import ACTIONS, TD_TARGETS, WEIGHTS

STATS = ("total_loss", "mean_q", "min_q", "max_q", "mean_td_error")
KINDS = ("huber", "mse")


def next_values(target_q, choosing_q=None):
    """What the next observation is worth, [B].

    Args:
        target_q: [B, A] by the target network.
        choosing_q: [B, A] whose best action is judged: the online network's for double Q-learning; None: target_q.
    """
    best = (target_q if choosing_q is None else choosing_q).argmax(-1)
    return target_q[np.arange(len(target_q)), best]


def td_targets(rewards, discounts, values):
    """rewards + discounts * values, [B] float32 each.

    Args:
        rewards: the discounted sum of the k rewards between the two observations.
        discounts: gamma^k, or 0 where the task ended.
        values: of the later observation.

    Raises:
        ValueError: if the shapes differ.
    """
    if not rewards.shape == discounts.shape == values.shape or rewards.ndim != 1:
        raise ValueError(
            f"rewards {rewards.shape}, discounts {discounts.shape} and values {values.shape} must all be [B]"
        )
    return rewards + discounts * values


class TDLoss:
    """Mean of weight * h(Q(o, a) - target), in the form that learners ask for (losses/loss.py).

    Args:
        kind: "huber", h(x) = x^2 / 2 within |x| <= 1 and |x| - 1/2 beyond; or "mse", h(x) = x^2 / 2 everywhere.
    """

    columns = (ACTIONS, TD_TARGETS, WEIGHTS)
    stats = STATS
    row_stats = ("td_error",)

    def __init__(self, kind: str = "huber"):
        if kind not in KINDS:
            raise ValueError(f"kind must be one of {KINDS}, but got {kind!r}")
        self.kind = kind

    def numpy(self, distribution, outputs, minibatch):
        dist_inputs, no_values = outputs
        batch = distribution.at(dist_inputs)
        targets, weights = minibatch[TD_TARGETS], minibatch[WEIGHTS]
        chosen = batch.chosen(minibatch[ACTIONS])
        _check_shapes(chosen[0], targets, weights)
        error = chosen[0] - targets
        slope = error.clip(np.float32(-1), np.float32(1)) if self.kind == "huber" else error
        # h(x) = slope x - slope^2 / 2 for both kinds.
        loss = float(np.dot(weights, slope * (error - np.float32(0.5) * slope))) / len(error)
        gradient = batch.gradient((slope * weights * np.float32(1 / len(error)))[None])
        size = abs(error)
        statistics = q_statistics(loss, chosen, size)
        return statistics, (gradient, no_values), (size,)

    def torch(self, distribution, outputs, minibatch):
        from rllib.losses.td_torch import td_loss

        return td_loss(distribution, outputs[0], minibatch, self.kind)

    def identity_error(self, distribution, outputs, minibatch):
        """None: the rows may have been sampled by any weights."""
        return None


def q_statistics(loss: float, q: np.ndarray, error: np.ndarray) -> list[float]:
    """The numbers named in STATS, from the values [..., B] and the sizes of their errors [B] of a batch."""
    # Array methods take twice as long as the reductions that they call.
    add, least, largest = np.add.reduce, np.minimum.reduce, np.maximum.reduce
    q = q.reshape(-1)
    return [loss, float(add(q)) / len(q), float(least(q)), float(largest(q)), float(add(error)) / len(error)]


def _check_shapes(chosen, targets, weights):
    if not chosen.shape == targets.shape == weights.shape:
        raise ValueError(f"Q {chosen.shape}, targets {targets.shape} and weights {weights.shape} must all be [B]")
