"""Advantages of a part of an episode that a program has sampled itself, by the names of RLlib's postprocessing."""

from typing import Any

import numpy as np

from rllib.losses.returns import gae
from rllib.policy import Policy
from rllib.sample_batch import ADVANTAGES, REWARDS, VALUE_TARGETS, VF_PREDS, Postprocessing, SampleBatch

__all__ = ["Postprocessing", "compute_advantages", "compute_gae_for_sample_batch"]


def compute_advantages(
    rollout: SampleBatch,
    last_r: float,
    gamma: float = 0.9,
    lambda_: float = 1.0,
    use_gae: bool = True,
    use_critic: bool = True,
) -> SampleBatch:
    """Adds advantages and value_targets, float32 [B] each, to the rows of one episode, and returns the batch.

    Args:
        rollout: rewards in the order of the steps; vf_preds as well if `use_gae` or `use_critic`.
        last_r: value of what follows the last row; 0 if the task has ended.
        gamma: discount per step.
        lambda_: of generalized advantage estimation (arXiv:1506.02438, eq. 16).
        use_gae: False: advantages are discounted returns, minus vf_preds if `use_critic`.
        use_critic: False without `use_gae`: value_targets are zeros.

    Raises:
        KeyError: without a column that is needed.
    """
    rewards = np.asarray(rollout[REWARDS], np.float32)
    zeros = np.zeros_like(rewards)
    values = rollout[VF_PREDS] if use_gae or use_critic else zeros
    baseline = np.asarray(values if use_gae else zeros, np.float32)
    following = np.append(baseline[1:], np.float32(last_r))
    never = np.zeros(rewards.shape, bool)
    columns = rewards, baseline, following, never, never
    advantages, targets = gae(*(column[:, None] for column in columns), gamma, lambda_ if use_gae else 1.0)
    advantages, targets = advantages[:, 0], targets[:, 0]
    if not use_gae:
        targets = advantages if use_critic else zeros
        advantages = advantages - values
    rollout.update({ADVANTAGES: advantages, VALUE_TARGETS: targets})
    return rollout


def compute_gae_for_sample_batch(
    policy: Policy, sample_batch: SampleBatch, other_agent_batches: Any = None, episode: Any = None
) -> SampleBatch:
    """`Policy.postprocess_trajectory` with gamma and lambda_ of the policy's config.

    Args:
        policy: values the observations.
        sample_batch: the rows of a part of one episode.
        other_agent_batches, episode: without effect.
    """
    return policy.postprocess_trajectory(
        sample_batch, gamma=policy.config["gamma"], lambda_=policy.config["lambda_"]
    )
