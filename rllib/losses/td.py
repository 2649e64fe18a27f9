"""Temporal differences of action values: targets and losses, for expected returns and for their distributions.

Numbers are DQN's (Mnih et al., Nature 2015); double Q-learning (van Hasselt et al., arXiv:1509.06461) lets one network
choose the next action and another judge it. Distributions of returns on a fixed support are C51's (Bellemare et al.,
arXiv:1707.06887); quantiles.py has the loss of quantiles. Rescaled values are R2D2's (Kapturowski et al., ICLR 2019).
"""

from typing import Any, Protocol

import numpy as np

from rllib.losses.loss import Loss, LossOverModules, not_all_rows
from rllib.models.arithmetic.kernels import ONE
from rllib.models.distributions.q_values import log_softmax
from rllib.sample_batch import (
    ACTIONS,
    DISCOUNTS,
    NEXT_OBS,
    OBS,
    REWARDS,
    TARGET_PROBABILITIES,
    TARGET_QUANTILES,
    TD_TARGETS,
    WEIGHTS,
)

STATS = ("total_loss", "mean_q", "min_q", "max_q", "mean_td_error")
KINDS = ("huber", "mse")
TINY = np.finfo(np.float32).tiny


def q_targets(distribution, judged, choosing_q, rewards, discounts, rescaling=None):
    """Name and values of the column of targets that the loss reads.

    Args:
        distribution: describes the values (models/distributions/q_values.py).
        judged: values of the later observations [B], by the network that judges.
        choosing_q: [B, A] whose best action is judged.
        rewards, discounts: [B] as for `bootstrapped`.
        rescaling: epsilon of `rescaled`, where the network predicts rescaled returns (without atoms);
            None: they are returns.

    Returns:
        name and values: td_targets, [B], or where returns have distributions target_probabilities, [B, n], or
            target_quantiles, [B, n].
    """
    if distribution.num_atoms == 1:
        values = next_values(judged.q_values(), choosing_q)
        if rescaling is None:
            return TD_TARGETS, bootstrapped(rewards, discounts, values)
        return TD_TARGETS, rescaled(bootstrapped(rewards, discounts, unrescaled(values, rescaling)), rescaling)
    chosen = judged.chosen(choosing_q.argmax(-1))
    if distribution.quantiles:
        return TARGET_QUANTILES, bootstrapped(rewards, discounts, chosen.T)
    probabilities = np.exp(log_softmax(chosen)).T
    return TARGET_PROBABILITIES, project(probabilities, rewards, discounts, distribution.support)


def torch_q_targets(distribution, judged, choosing_q, rewards, discounts):
    """`q_targets` of tensors, on their device; `judged` is a TorchQBatch."""
    chosen = judged.chosen(choosing_q.argmax(-1))
    if distribution.num_atoms == 1:
        return TD_TARGETS, bootstrapped(rewards, discounts, chosen[0])
    if distribution.quantiles:
        return TARGET_QUANTILES, bootstrapped(rewards, discounts, chosen.T)
    return TARGET_PROBABILITIES, torch_project(chosen.T.softmax(-1), rewards, discounts, judged.support)


def next_values(target_q, choosing_q=None):
    """Values of the next observations, [B].

    Args:
        target_q: [B, A] by the target network.
        choosing_q: [B, A] whose best action is judged: the online network's for double Q-learning; None: target_q.
    """
    best = (target_q if choosing_q is None else choosing_q).argmax(-1)
    return target_q[np.arange(len(target_q)), best]


def bootstrapped(rewards, discounts, values):
    """rewards + discounts * values, what values are fitted to; float32 arrays or tensors.

    Args:
        rewards: [B], the discounted sum of the k rewards between the two observations.
        discounts: [B], gamma^k, or 0 where the task ended.
        values: of the later observation, [B]; or [B, n] of n samples, quantiles or members.

    Raises:
        ValueError: for other shapes.
    """
    if not rewards.shape == discounts.shape == values.shape[:1] or values.ndim > 2:
        raise not_all_rows(rewards=rewards, discounts=discounts, values=values)
    if values.ndim == 2:
        rewards, discounts = rewards[:, None], discounts[:, None]
    return rewards + discounts * values


def rescaled(returns, epsilon):
    """h(x) = sign(x) (sqrt(|x| + 1) - 1) + epsilon x, which brings returns of any size to a similar one.

    Pohlen et al., arXiv:1805.11593, proposition A.2; the difference of the root and 1 is written as a quotient, which
    loses no digits for small x.

    Args:
        returns: x, an array.
        epsilon: at least 0; with more than 0, h has an inverse that is Lipschitz continuous.
    """
    return returns / (np.sqrt(abs(returns) + 1) + 1) + epsilon * returns


def unrescaled(values, epsilon):
    """The inverse of `rescaled`.

    With u = sqrt(|x| + 1) - 1, |h| = epsilon u^2 + (1 + 2 epsilon) u and |x| = u (u + 2).
    """
    size, linear = abs(values), 1 + 2 * epsilon
    u = 2 * size / (linear + np.sqrt(linear * linear + 4 * epsilon * size))
    return np.sign(values) * u * (u + 2)


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
    position = bootstrapped(rewards, discounts, np.broadcast_to(support, (rows, atoms)))
    position -= v_min
    # Positions 0 ... n - 1, clipped after the division, so that rounding cannot lead past the last atom.
    position *= np.float32((atoms - 1) / (v_max - v_min))
    np.clip(position, 0, atoms - 1, out=position)
    lower = position.astype(np.int64)
    position -= lower
    to_upper = probabilities * position
    # Two flat histograms for the whole batch, float64 sums. What lies on a row's last atom has nothing above it, so
    # that its place there, in the next row, gets no mass.
    size = rows * atoms
    places = (lower + np.arange(0, size, atoms)[:, None]).ravel()
    masses = np.bincount(places, (probabilities - to_upper).ravel(), size)
    masses += np.bincount(places + 1, to_upper.ravel(), size + 1)[:size]
    return masses.reshape(rows, atoms).astype(np.float32)


def torch_project(probabilities, rewards, discounts, support):
    """`project` of tensors; on a GPU by `project_by_pairs`."""
    if support.is_cuda:
        return project_by_pairs(probabilities, rewards, discounts, support)
    import torch

    arrays = (given.numpy() for given in (probabilities, rewards, discounts, support))
    return torch.from_numpy(project(*arrays))


def project_by_pairs(probabilities, rewards, discounts, support):
    """`project` of tensors by the shares of all pairs of atoms [B, n, n]: sums by index have no fixed order on GPUs."""
    import torch

    atoms = len(support)
    returns = bootstrapped(rewards, discounts, support.expand(len(rewards), -1))
    step = (support[-1] - support[0]) / (atoms - 1)
    position = ((returns - support[0]) / step).clamp(0, atoms - 1)
    place = torch.arange(atoms, device=support.device)
    shares = (1 - (position[:, :, None] - place).abs()).clamp(min=0)
    return (probabilities[:, None] @ shares)[:, 0]


class ActionValueLoss(Loss):
    """Base class of the losses: their statistics, and no identity, since any weights may have sampled the rows."""

    stats = STATS
    row_stats = ("td_error",)

    def identity_error(self, at, outputs, minibatch):
        """None: the rows may have been sampled by any weights."""
        return None


class TDLoss(ActionValueLoss):
    """Mean of weight * h(Q(o, a) - target), as a Loss (losses/loss.py).

    Args:
        kind: "huber", h(x) = x^2 / 2 within |x| <= 1 and |x| - 1/2 beyond; or "mse", h(x) = x^2 / 2 everywhere.
    """

    columns = (ACTIONS, TD_TARGETS, WEIGHTS)

    def __init__(self, kind: str = "huber"):
        if kind not in KINDS:
            raise ValueError(f"kind must be one of {KINDS}, but got {kind!r}")
        self.kind = kind

    def numpy(self, distribution, outputs, minibatch):
        dist_inputs, no_values = outputs
        batch = distribution.at(dist_inputs)
        targets, weights = minibatch[TD_TARGETS], minibatch[WEIGHTS]
        chosen = batch.chosen(minibatch[ACTIONS])
        if not chosen[0].shape == targets.shape == weights.shape:
            raise not_all_rows(Q=chosen[0], targets=targets, weights=weights)
        error = chosen[0] - targets
        slope = np.minimum(np.maximum(error, -ONE), ONE) if self.kind == "huber" else error
        # h(x) = slope x - slope^2 / 2 for both kinds.
        loss = float(np.dot(weights, slope * (error - np.float32(0.5) * slope))) / len(error)
        gradient = batch.gradient((slope * weights * np.float32(1 / len(error)))[None])
        size = abs(error)
        statistics = q_statistics(loss, chosen, size)
        return statistics, (gradient, no_values), (size,)

    def torch(self, distribution, outputs, minibatch):
        from torch.nn import functional

        chosen = distribution.torch_at(outputs[0]).chosen(minibatch[ACTIONS])[0]
        targets, weights = minibatch[TD_TARGETS], minibatch[WEIGHTS]
        if not chosen.shape == targets.shape == weights.shape:
            raise not_all_rows(Q=chosen, targets=targets, weights=weights)
        if self.kind == "huber":
            loss = (weights * functional.huber_loss(chosen, targets, reduction="none")).mean()
        else:
            loss = (weights * 0.5 * functional.mse_loss(chosen, targets, reduction="none")).mean()
        size = (chosen - targets).abs().detach()
        return loss, torch_q_statistics(loss, chosen, size), (size,)


class DistributionalLoss(ActionValueLoss):
    """Mean of weight * cross-entropy(target, Z(o, a)), as a Loss (losses/loss.py).

    The row statistic td_error, for priorities, is KL(target || Z) as in Rainbow (arXiv:1710.02298): the cross-entropy
    without the target's own entropy, so that it is zero at the optimum.
    """

    columns = (ACTIONS, TARGET_PROBABILITIES, WEIGHTS)

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
        batch = distribution.torch_at(outputs[0])
        log_p = batch.chosen(minibatch[ACTIONS]).T.log_softmax(-1)
        targets, weights = minibatch[TARGET_PROBABILITIES], minibatch[WEIGHTS]
        if log_p.shape != targets.shape or weights.shape != targets.shape[:1]:
            raise ValueError(f"Z {tuple(log_p.shape)} and targets {tuple(targets.shape)} must be [B, n]")
        cross_entropy = -(targets * log_p).sum(-1)
        loss = (weights * cross_entropy).mean()
        q = log_p.exp() @ batch.support
        divergence = (cross_entropy.detach() + targets.xlogy(targets).sum(-1)).clamp(min=0)
        return loss, torch_q_statistics(loss, q, divergence), (divergence,)


class SoftTargets(Protocol):
    """Other targets than those of the best action (losses/munchausen.py)."""

    def targets(self, distribution, before, judged, actions, rewards, discounts) -> tuple[str, Any]:
        """Name and values of the column of targets that the loss reads."""


def with_targets(loss: Loss, double_q: bool, soft: SoftTargets | None = None) -> LossOverModules:
    """A loss of action values that computes its targets in torch, on the learner's device.

    Args:
        loss: reads the column of `q_targets`.
        double_q: the online network chooses the next action; False: the target network, which judges it.
        soft: computes the targets instead, from the target network alone.
    """
    read = [name for name in loss.columns if name not in (TD_TARGETS, TARGET_PROBABILITIES, TARGET_QUANTILES)]

    def with_its_targets(distribution, modules, minibatch, **settings):
        import torch

        following = minibatch[NEXT_OBS]
        with torch.no_grad():
            judged = distribution.torch_at(modules["target_policy"](following)[0])
            returns = minibatch[REWARDS], minibatch[DISCOUNTS]
            if soft:
                before = distribution.torch_at(modules["target_policy"](minibatch[OBS])[0])
                name, targets = soft.targets(distribution, before, judged, minibatch[ACTIONS], *returns)
            else:
                choosing = distribution.torch_at(modules["policy"](following)[0]) if double_q else judged
                name, targets = torch_q_targets(distribution, judged, choosing.q_values(), *returns)
        return loss.torch(distribution, modules["policy"](minibatch[OBS]), {**minibatch, name: targets}, **settings)

    columns = tuple(dict.fromkeys([*read, NEXT_OBS, REWARDS, DISCOUNTS]))
    return LossOverModules(columns, loss.stats, with_its_targets, loss.row_stats)


def q_statistics(loss: float, q: np.ndarray, error: np.ndarray) -> list[float]:
    """The numbers named in STATS, from the values [..., B] and the sizes of their errors [B] of a batch."""
    # Array methods take twice as long as the reductions that they call.
    add, least, largest = np.add.reduce, np.minimum.reduce, np.maximum.reduce
    q = q.reshape(-1)
    return [loss, float(add(q)) / len(q), float(least(q)), float(largest(q)), float(add(error)) / len(error)]


def torch_q_statistics(loss, q, error) -> tuple:
    """`q_statistics` in torch."""
    q = q.detach()
    return loss, q.mean(), q.min(), q.max(), error.mean()
