"""Behaviour cloning of demonstrations during an algorithm's training, or before it: a part of a trainee.

Its loss is a term of the algorithm's (losses/offline/cloning.py). Before the first update it may be the only one: the
policy starts as a clone of the demonstrations then, and what adversarial imitation adds is the states that a clone
drifts into.
"""

from typing import TYPE_CHECKING

import numpy as np

from rllib import sample_batch as sb
from rllib.evaluation.offline import rows as recorded
from rllib.learners.learner import make_learner
from rllib.losses.offline.cloning import cloning
from rllib.offline.dataset import Dataset
from rllib.sample_batch import SampleBatch

if TYPE_CHECKING:
    from rllib.algorithms.base.trainee import Trainee


class Cloning:
    """Demonstrated steps that a policy clones.

    Args:
        trainee: trainee of the policy, which has no memory.
        demonstrations: the expert's steps.
    """

    def __init__(self, trainee: "Trainee", demonstrations: Dataset):
        self._trainee = trainee
        self._observations = demonstrations.columns[sb.OBS]
        self._actions = recorded.actions(demonstrations, trainee.policy, trainee.config)

    def beside(self, batch: SampleBatch, rng: np.random.Generator) -> SampleBatch:
        """Adds demonstrated steps to a batch, in separate columns: one for each row, drawn with replacement."""
        policy, chosen = self._trainee.policy, rng.integers(len(self._actions), size=batch.count)
        inputs = policy.encode(policy.filter(self._observations[chosen]), policy.new_inputs(batch.count))
        columns = {sb.DEMONSTRATED_OBS: inputs, sb.DEMONSTRATED_ACTIONS: self._actions[chosen]}
        return SampleBatch({**batch, **columns}, policy_version=batch.policy_version, num_steps=batch.num_steps)

    def pretrain(self, updates: int, rows: int, lr: float, rng: np.random.Generator) -> float:
        """Clones alone, with an optimizer that is dropped afterwards.

        Args:
            updates: gradient steps.
            rows: rows of each, drawn with replacement.
            lr: learning rate.
            rng: draws them.

        Returns:
            the loss of the last step.
        """
        policy = self._trainee.policy
        # In torch, where a value that no loss reads has a gradient of 0.
        learner = make_learner(policy, self._trainee.objective(cloning(policy.distribution)), kind="torch")
        stats = {}
        for _ in range(updates):
            chosen = rng.integers(len(self._actions), size=rows)
            columns = {sb.OBS: policy.filter(self._observations[chosen]), sb.ACTIONS: self._actions[chosen]}
            stats = learner.update(SampleBatch(columns), rng=rng, lr=lr, shuffle=False)
        return stats["policy_loss"]
