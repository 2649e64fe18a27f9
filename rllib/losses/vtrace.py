"""V-trace: value targets and advantages of a policy that others have acted for (arXiv:1802.01561, section 4.1)."""

import math

import numpy as np

from rllib.losses.returns import accumulated, gae
from rllib.sample_batch import LOSS_MASK, REWARDS, TERMINATEDS, TRUNCATEDS


def vtrace(
    log_rho,
    discounts,
    rewards,
    values,
    next_values,
    cut,
    *,
    rho_bar=1.0,
    c_bar=1.0,
    pg_rho_bar=1.0,
    lambda_=1.0,
):
    """V-trace targets (Espeholt et al., arXiv:1802.01561, eq. 1 and section 4.2), in O(T).

    T steps first; what follows (B environments, or nothing) is up to the caller. With c_bar = 1 and rho_bar >= 1 the
    trace is the paper's. On-policy (log_rho = 0) the targets are the lambda-returns, GAE's plus the value.

    Args:
        log_rho: [T, B] log(pi(a_t | o_t) / mu(a_t | o_t)), pi the policy that learns and mu the one that acted.
        discounts: [T, B] gamma, and 0 after terminations.
        rewards: [T, B] received after action t.
        values: [T, B] V(o_t).
        next_values: [T, B] V(o_{t+1}); at a truncation, of the episode's final observation.
        cut: [T, B] bool; true where row t + 1 does not follow row t in the same episode, so that the trace ends. The
            last row needs no mark.
        rho_bar: clips the ratios that weight the temporal differences, and so decides which policy's value is learned.
        c_bar: clips the ratios of the trace.
        pg_rho_bar: clips the ratios that weight the advantages.
        lambda_: shortens the trace.

    Returns:
        targets, advantages: [T, B] each; targets v_t of the values, and min(pg_rho_bar, rho) (r + gamma v_{t+1} - V).

    Raises:
        ValueError: if the shapes differ.
    """
    shapes = {np.shape(x) for x in (log_rho, discounts, rewards, values, next_values, cut)}
    if len(shapes) > 1 or not next(iter(shapes)):
        raise ValueError(f"vtrace needs arrays of one shape [T, ...], but got {sorted(shapes)}")
    # delta_t = rho_t (r_t + gamma V(o_{t+1}) - V(o_t))
    deltas = clipped_ratio(log_rho, rho_bar) * (rewards + discounts * next_values - values)
    # v_t - V(o_t) = delta_t + gamma c_t (v_{t+1} - V(o_{t+1})), where c_t = lambda min(c_bar, ratio)
    decays = np.where(cut, np.float32(0), discounts * clipped_ratio(log_rho, c_bar) * np.float32(lambda_))
    corrections = accumulated(deltas, decays)
    targets = values + corrections
    following = np.zeros_like(corrections)
    following[:-1] = np.where(cut[:-1], np.float32(0), corrections[1:])
    advantages = clipped_ratio(log_rho, pg_rho_bar) * (rewards + discounts * (next_values + following) - values)
    return targets, advantages


def clipped_ratio(log_rho, bar):
    """min(bar, exp(log_rho)), which does not overflow; bar None or inf clips nothing."""
    if bar is None or math.isinf(bar):
        return np.exp(log_rho)
    return np.exp(np.minimum(log_rho, np.float32(math.log(bar) if bar > 0 else -math.inf)))


def vtrace_of_rows(log_rho, values, minibatch, *, gamma, clip_rho=1.0, clip_pg_rho=1.0, lambda_=1.0):
    """V-trace of rows [R] in sequences: each sequence ends with a row whose observation alone counts (loss_mask False).

    The next value of a row is therefore always the value of the next row. Results in rows with loss_mask False mean
    nothing.

    Args:
        log_rho: [R] as for `vtrace`. None: the rows are taken as on-policy. Ratios are 1, whatever the clips, and
            advantages are GAE's; those of V-trace with lambda_ < 1 bootstrap from the whole target that follows.
        values: [R] V(o), also of the rows to bootstrap from.
        minibatch: columns rewards, terminateds, truncateds, loss_mask, [R] each.
        gamma: discount per step.
        clip_rho, clip_pg_rho: the paper's rho_bar, of temporal differences and of advantages.
        lambda_: as for `vtrace`.

    Returns:
        targets, advantages: [R] each.
    """
    steps, terminated, rewards = minibatch[LOSS_MASK], minibatch[TERMINATEDS], minibatch[REWARDS]
    cut = terminated | minibatch[TRUNCATEDS] | ~shifted(steps)
    if log_rho is None:
        columns = rewards, values, shifted(values), terminated, cut
        advantages, targets = gae(*(column[:, None] for column in columns), gamma, lambda_)
        return targets[:, 0], advantages[:, 0]
    return vtrace(
        log_rho,
        np.where(terminated | ~steps, np.float32(0), np.float32(gamma)),
        rewards,
        values,
        shifted(values),
        cut,
        rho_bar=clip_rho,
        pg_rho_bar=clip_pg_rho,
        lambda_=lambda_,
    )


def shifted(column: np.ndarray) -> np.ndarray:
    """Each row's successor; zero after the last."""
    following = np.zeros_like(column)
    following[:-1] = column[1:]
    return following


def torch_vtrace_of_rows(log_rho, values, minibatch, *, gamma, clip_rho=1.0, clip_pg_rho=1.0, lambda_=1.0):
    """`vtrace_of_rows` with tensors for arrays; the results have no gradient."""
    values = values.detach()
    log_rho = None if log_rho is None else log_rho.detach()
    steps, terminated = minibatch[LOSS_MASK], minibatch[TERMINATEDS]
    rewards = minibatch[REWARDS]
    discounts = gamma * (steps & ~terminated)
    cut = terminated | minibatch[TRUNCATEDS] | ~_ahead(steps, 1)
    next_values = _ahead(values, 1)
    # Equation 1 and the advantage of section 4.2.
    deltas, decays = rewards + discounts * next_values - values, discounts * lambda_ * ~cut
    if log_rho is not None:
        deltas = torch_clipped_ratio(log_rho, clip_rho) * deltas
        decays = decays * torch_clipped_ratio(log_rho, 1.0)
    corrections = deltas
    # x_t = deltas_t + decays_t x_{t+1}, by doubling: after k rounds each row has summed up 2^k rows. R rows take
    # log2(R) rounds of operations on whole columns, where a loop over rows would launch R small kernels.
    reach = 1
    while reach < len(deltas):
        corrections = corrections + decays * _ahead(corrections, reach)
        decays = decays * _ahead(decays, reach)
        reach *= 2
    if log_rho is None:
        return values + corrections, corrections
    next_targets = next_values + _ahead(corrections, 1) * ~cut
    advantages = torch_clipped_ratio(log_rho, clip_pg_rho) * (rewards + discounts * next_targets - values)
    return values + corrections, advantages


def torch_clipped_ratio(log_rho, bar):
    """`clipped_ratio` of a tensor."""
    ratio = log_rho.exp()
    return ratio if bar is None else ratio.clamp(max=bar)  # the bar may be a tensor, at which is not looked


def _ahead(column, rows: int):
    """For each row of a tensor the one `rows` further on; zeros past the end."""
    following = column.new_zeros(column.shape)
    following[:-rows] = column[rows:]
    return following
