"""Runs an algorithm on scripted episodes, and reads what its learners get and what its replays take in."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from unittest.mock import patch

import numpy as np

from rllib.algorithms.base.algorithm import Algorithm


@dataclass
class Read:
    """What came before the losses.

    Attributes:
        learned: (policy id, columns) of each batch that a learner got, in order.
        stored: (policy id, columns) of the rows that replays took in, in order.
        results: of each iteration.
    """

    learned: list[tuple[str, dict[str, np.ndarray]]] = field(default_factory=list)
    stored: list[tuple[str, dict[str, np.ndarray]]] = field(default_factory=list)
    results: list[dict] = field(default_factory=list)


@contextmanager
def reading(algorithm: Algorithm) -> Iterator[Read]:
    """Copies all batches while the algorithm runs."""
    read = Read()
    learn = Algorithm.learn_on_batch

    def learn_on_batch(self, batch, policy_id="default_policy", **settings):
        if self is algorithm:
            read.learned.append((policy_id, {name: np.array(column) for name, column in batch.items()}))
        return learn(self, batch, policy_id, **settings)

    with patch.object(Algorithm, "learn_on_batch", learn_on_batch):
        replays = getattr(algorithm, "replays", {})
        originals = {policy_id: replay.add for policy_id, replay in replays.items()}
        for policy_id, replay in replays.items():
            replay.add = _storing(read, policy_id, originals[policy_id])
        try:
            yield read
        finally:
            for replay in replays.values():
                del replay.add


def _storing(read, policy_id, add):
    def store(batch, *arguments, **named):
        read.stored.append((policy_id, {name: np.array(column) for name, column in batch.items()}))
        return add(batch, *arguments, **named)

    return store
