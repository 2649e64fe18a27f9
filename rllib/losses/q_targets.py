"""What the values of actions are fitted to: numbers (td.py), or distributions of returns (distributional.py)."""

import numpy as np

from rllib.losses.distributional import project
from rllib.losses.td import next_values, td_targets
from rllib.models.q_values import log_softmax
from rllib.sample_batch import TARGET_PROBABILITIES, TD_TARGETS


def q_targets(distribution, judged, choosing_q, rewards, discounts):
    """The column that the loss reads, and what to fill it with.

    Args:
        distribution: describes the values (models/q_values.py).
        judged: values of the later observations [B], by the network that judges.
        choosing_q: [B, A] whose best action is judged.
        rewards, discounts: [B] as for td_targets.

    Returns:
        name and values: td_targets, [B], or where returns have distributions target_probabilities, [B, n].
    """
    if distribution.num_atoms == 1:
        return TD_TARGETS, td_targets(rewards, discounts, next_values(judged.q_values(), choosing_q))
    probabilities = np.exp(log_softmax(judged.chosen(choosing_q.argmax(-1)))).T
    return TARGET_PROBABILITIES, project(probabilities, rewards, discounts, distribution.support)
