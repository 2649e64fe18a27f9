"""V-trace of rows in torch: the reference of vtrace.py, and its form on GPUs. Nothing here has a gradient."""

import math

import torch
from torch import Tensor

from rllib.sample_batch import LOSS_MASK, REWARDS, TERMINATEDS, TRUNCATEDS


@torch.no_grad()
def vtrace_of_rows(
    log_rho: Tensor, values: Tensor, minibatch, *, gamma: float, clip_rho, clip_pg_rho, lambda_: float
) -> tuple[Tensor, Tensor]:
    """Targets and advantages [R]; arguments as for `vtrace.vtrace_of_rows`."""
    steps, terminated = minibatch[LOSS_MASK], minibatch[TERMINATEDS]
    rewards = minibatch[REWARDS]
    discounts = gamma * (steps & ~terminated)
    cut = terminated | minibatch[TRUNCATEDS] | ~_shifted(steps)
    next_values = _shifted(values)
    # Equation 1 and the advantage of section 4.2.
    deltas = _clipped_ratio(log_rho, clip_rho) * (rewards + discounts * next_values - values)
    decays = discounts * lambda_ * _clipped_ratio(log_rho, 1.0) * ~cut
    corrections = _accumulated(deltas, decays)
    next_targets = next_values + _shifted(corrections) * ~cut
    advantages = _clipped_ratio(log_rho, clip_pg_rho) * (rewards + discounts * next_targets - values)
    return values + corrections, advantages


def _clipped_ratio(log_rho: Tensor, bar: float | None) -> Tensor:
    if bar is None or math.isinf(bar):
        return log_rho.exp()
    return log_rho.clamp(max=math.log(bar) if bar > 0 else -math.inf).exp()


def _accumulated(deltas: Tensor, decays: Tensor) -> Tensor:
    """x_t = deltas_t + decays_t x_{t+1}, by doubling: after k rounds each row has summed up 2^k rows.

    R rows take log2(R) rounds of operations on whole columns, where a loop over rows would launch R small kernels.
    """
    reach = 1
    while reach < len(deltas):
        ahead, ahead_decay = torch.zeros_like(deltas), torch.zeros_like(decays)
        ahead[:-reach], ahead_decay[:-reach] = deltas[reach:], decays[reach:]
        deltas = deltas + decays * ahead
        decays = decays * ahead_decay
        reach *= 2
    return deltas


def _shifted(column: Tensor) -> Tensor:
    following = torch.zeros_like(column)
    following[:-1] = column[1:]
    return following
