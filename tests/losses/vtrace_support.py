"""Slow references and made-up sequences for the tests of V-trace and the losses on it."""

import numpy as np

from rllib import sample_batch as sb


def slow_vtrace(discounts, log_rho, rewards, values, bootstrap, rho_bar=1.0, pg_bar=1.0, lambda_=1.0):
    """Equation 1 of arXiv:1802.01561 as a double sum in float64, O(T^2); all [T, B]."""
    steps, rho = len(rewards), np.exp(log_rho)
    c, clipped, pg = lambda_ * np.minimum(rho, 1), np.minimum(rho, rho_bar), np.minimum(rho, pg_bar)
    next_values, targets = np.concatenate([values[1:], bootstrap[None]]), []
    for s in range(steps):
        target = np.array(values[s], np.float64)
        for t in range(s, steps):
            weight = np.prod(discounts[s:t], 0) * np.prod(c[s:t], 0) * clipped[t]
            target += weight * (rewards[t] + discounts[t] * next_values[t] - values[t])
        targets.append(target)
    targets = np.stack(targets)
    following = np.concatenate([targets[1:], bootstrap[None]])
    return targets, pg * (rewards + discounts * following - values)


def make_rows(distribution, sequences=((6, "end"), (4, "terminated"), (7, "truncated")), seed=0, moved=0.3):
    """Outputs of a policy that has moved on, and a minibatch of sequences, float32.

    Each sequence is (steps, how the last one ended); a row to bootstrap from follows it. A first step of more than
    four terminates as well, so that an episode ends inside a sequence.
    """
    rng = np.random.default_rng(seed)
    rows = sum(steps + 1 for steps, _ in sequences)
    behaviour = rng.standard_normal((rows, distribution.num_inputs)).astype(np.float32)
    new = behaviour + moved * rng.standard_normal(behaviour.shape).astype(np.float32)
    target = behaviour + moved * rng.standard_normal(behaviour.shape).astype(np.float32)
    values, rewards = rng.standard_normal((2, rows)).astype(np.float32)
    actions = distribution.sample(behaviour, distribution.noise(rng, rows))
    mask, terminated, truncated = np.ones(rows, bool), np.zeros(rows, bool), np.zeros(rows, bool)
    start = 0
    for steps, ended in sequences:
        mask[start + steps] = False
        terminated[start + steps - 1] = ended == "terminated"
        truncated[start + steps - 1] = ended == "truncated"
        terminated[start] |= steps > 4
        start += steps + 1
    rewards[~mask] = 0
    minibatch = {
        sb.ACTIONS: actions,
        sb.ACTION_LOGP: np.where(mask, distribution.at(behaviour).log_prob(actions), np.float32(0)),
        sb.REWARDS: rewards,
        sb.TERMINATEDS: terminated,
        sb.TRUNCATEDS: truncated,
        sb.LOSS_MASK: mask,
        sb.TARGET_DIST_INPUTS: target,
    }
    return (new, values), minibatch
