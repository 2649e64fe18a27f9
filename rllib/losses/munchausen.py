"""Targets of Munchausen reinforcement learning (Vieillard, Pietquin and Geist, arXiv:2007.14430): M-DQN and M-IQN.

The target network's policy is pi = softmax(q / tau). Its log-probability of the action taken, scaled and clipped, is
added to the reward, and the bootstrap is soft:

    y = r + alpha clip(tau log pi(a | s), l, 0) + gamma^n sum_a' pi(a' | s') (q(s', a') - tau log pi(a' | s'))

With quantiles of returns (M-IQN) each quantile of q(s', a') gives its own target, and q of the policy is their
mean. A row of n steps adds the term of its first action alone, as the authors' code does. Illegal actions have no
probability.
"""

from dataclasses import dataclass

import numpy as np

from rllib.losses.td import bootstrapped
from rllib.sample_batch import TARGET_QUANTILES, TD_TARGETS

# Logarithms of probabilities are not below: times a probability of 0 they are 0, where that of -inf is not a number.
LEAST_LOG = -1e4


@dataclass(frozen=True)
class Munchausen:
    """The targets.

    Attributes:
        alpha: weight of the log-probability that is added to the reward.
        temperature: tau, in units of returns.
        clip: l, the least tau log pi that counts, at most 0.
    """

    alpha: float
    temperature: float
    clip: float

    def targets(self, distribution, before, judged, actions, rewards, discounts):
        """Name and values of the column that the loss reads.

        Args:
            distribution: describes the values (models/distributions/q_values.py), without a support.
            before, judged: values of the observations and of the later ones [B], by the target network; of arrays
                (QBatch) or of tensors (TorchQBatch).
            actions: int [B], taken at the observations.
            rewards, discounts: [B] as for `bootstrapped`.

        Returns:
            name and values: td_targets [B], or target_quantiles [B, n].
        """
        is_array = isinstance(rewards, np.ndarray)
        log_policy = log_softmax if is_array else torch_log_softmax
        log_probability = taken(log_policy(before.q_values(), self.temperature), actions)
        rewards = rewards + self.alpha * (self.temperature * log_probability).clip(self.clip, 0)
        later = log_policy(judged.q_values(), self.temperature)
        policy, of_actions = (np.exp(later) if is_array else later.exp()), judged.logits
        if is_array:
            of_actions = of_actions.transpose(2, 0, 1)  # [B, A, n], as tensors are
        entropy = -(policy * later).sum(-1)
        values = (policy[..., None] * of_actions).sum(1) + self.temperature * entropy[:, None]
        if distribution.quantiles:
            return TARGET_QUANTILES, bootstrapped(rewards, discounts, values)
        return TD_TARGETS, bootstrapped(rewards, discounts, values[:, 0])


def taken(values, actions):
    """Entries [B] of values [B, A] at actions [B]."""
    if isinstance(values, np.ndarray):
        return values[np.arange(len(actions)), actions]
    # An index made here would be copied to the device, which cannot be recorded in a CUDA graph.
    return values.gather(-1, actions[:, None])[:, 0]


def log_softmax(q: np.ndarray, temperature: float) -> np.ndarray:
    """Logarithms of the policy's probabilities [B, A], at least LEAST_LOG."""
    # The limit first: values of illegal actions are too large to be divided by a small temperature.
    scaled = np.maximum(q - q.max(-1, keepdims=True), np.float32(LEAST_LOG * temperature))
    scaled *= np.float32(1 / temperature)
    scaled -= np.log(np.exp(scaled).sum(-1, keepdims=True))
    return np.maximum(scaled, np.float32(LEAST_LOG), out=scaled)


def torch_log_softmax(q, temperature: float):
    """`log_softmax` of tensors."""
    scaled = (q - q.max(-1, keepdim=True).values).clamp(min=LEAST_LOG * temperature) / temperature
    return scaled.log_softmax(-1).clamp(min=LEAST_LOG)
