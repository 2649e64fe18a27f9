"""Formulas of off-policy estimates, in float64 and in logarithms of probabilities.

Steps stand one after the other, episode after episode, N in all; `starts` [episodes + 1] has the first step of each
episode and N. pi is the policy whose value is estimated, b the one that has acted. The ratio of step t is
pi(a_t | s_t) / b(a_t | s_t), and rho_t the product of an episode's ratios up to step t.
"""

import numpy as np

from rllib.evaluation.offline.episode_sums import linear_sums, step_by_step


def times(starts: np.ndarray) -> np.ndarray:
    """Number of each step in its episode, from 0; int64 [N]."""
    return np.arange(starts[-1]) - np.repeat(starts[:-1], np.diff(starts))


def discounted_returns(rewards: np.ndarray, starts: np.ndarray, gamma: float) -> np.ndarray:
    """sum_t gamma^t r_t of each episode, [episodes]."""
    return np.add.reduceat(gamma ** times(starts) * rewards, starts[:-1])


def log_cumulative(log_ratios: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """log rho_t [N] of log ratios [N]; -inf from the first ratio of 0 on."""
    logs = np.empty(len(log_ratios))
    sums = np.zeros(len(starts) - 1)
    for episodes, rows in step_by_step(starts):
        sums[episodes] += log_ratios[rows]
        logs[rows] = sums[episodes]
    return logs


def importance_sampling(rewards: np.ndarray, log_ratios: np.ndarray, starts: np.ndarray, gamma: float) -> np.ndarray:
    """sum_t gamma^t rho_t r_t of each episode, [episodes] (Precup, Sutton & Singh 2000, eq. 5).

    Infinite where a weight is too large for float64.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        weights = np.exp(log_cumulative(log_ratios, starts))
        # A weight may be infinite, which is nothing times a reward of 0.
        terms = np.where(rewards == 0, 0.0, gamma ** times(starts) * weights * rewards)
        return np.add.reduceat(terms, starts[:-1])


def weighted_importance_sampling(
    rewards: np.ndarray, log_ratios: np.ndarray, starts: np.ndarray, gamma: float, carried: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """sum_t gamma^t rho_t / w_t r_t of each episode, with w_t the mean of rho_t over episodes.

    Args:
        rewards, log_ratios, starts, gamma: as above.
        carried: the mean is over all episodes, with the last rho of those that have ended; False: over the episodes
            that have reached step t.

    Returns:
        values [episodes], and the same numbers as the estimate's first-order changes with each episode's weight: their
        mean is that of the values, and their deviation gives the error of a ratio of means, which the values' does not.
    """
    count = len(starts) - 1
    log_rho, values, changes = np.zeros(count), np.zeros(count), np.zeros(count)
    for step, (episodes, rows) in enumerate(step_by_step(starts)):
        log_rho[episodes] += log_ratios[rows]
        among = np.arange(count) if carried else episodes
        received = np.zeros(count)
        received[episodes] = rewards[rows]
        logs, received = log_rho[among], received[among]
        log_mean = np.logaddexp.reduce(logs) - np.log(len(among))
        # Where all weights are 0, no episode says anything about this step.
        weights = np.exp(logs - (0.0 if np.isneginf(log_mean) else log_mean))
        values[among] += gamma**step * weights * received
        # The estimate sums gamma^t n_t / N * (sum rho_t r_t) / (sum rho_t), with n_t episodes in the means. Its
        # derivative by the weight of an episode has a term for n_t, one for the upper sum and one for the lower.
        average = (weights * received).mean()
        changes[among] += gamma**step * (average + weights * (received - average))
    return values, changes


def doubly_robust(
    rewards: np.ndarray,
    log_ratios: np.ndarray,
    starts: np.ndarray,
    gamma: float,
    values: np.ndarray,
    action_values: np.ndarray,
    values_after: np.ndarray,
) -> np.ndarray:
    """V_0 of each episode, with V_t = v_t + ratio_t (r_t + gamma V_{t+1} - q_t) (Jiang & Li, arXiv:1511.03722, eq. 10).

    Args:
        rewards, log_ratios, starts, gamma: as above; the ratios are those of single steps.
        values: [N] v_t, a model's value of the observation under pi.
        action_values: [N] q_t, its value of the observation and the action that was taken.
        values_after: [episodes] V after the last step: 0 after a termination, else the model's value.

    Returns:
        float64 [episodes].
    """
    with np.errstate(over="ignore", invalid="ignore"):
        ratios = np.exp(log_ratios)
        sums = linear_sums(values + ratios * (rewards - action_values), gamma * ratios, starts, values_after)
    return sums[starts[:-1]]


def effective_sample_size(log_weights: np.ndarray) -> float:
    """(sum w)^2 / sum w^2 of log weights [episodes]: how many equal weights would say as much; 0 if all are 0."""
    largest = log_weights.max(initial=-np.inf)
    if np.isneginf(largest):
        return 0.0
    weights = np.exp(log_weights - largest)
    return float(weights.sum() ** 2 / np.square(weights).sum())
