"""Updates of a run with one learner, recorded so that other learners can make the same ones."""

from typing import NamedTuple

import numpy as np
import pytest

from rllib.learners.learner import Learner
from rllib.sample_batch import SampleBatch


class Update(NamedTuple):
    """One call of Learner.update, as it can be made again.

    Attributes:
        rng_state: of the permutations; None: a call of compute_gradient, and of apply_gradient with what it found.
        lr: of apply_gradient.
        clock: what the target copies were then moved by; None: they were not asked.
    """

    batch: SampleBatch
    arguments: dict
    rng_state: dict | None = None
    lr: float | None = None
    clock: int | None = None


def record(config, count: int) -> list[Update]:
    """The first updates of a run."""
    updates: list[Update] = []
    originals = Learner.update, Learner.compute_gradient, Learner.apply_gradient, Learner.update_targets
    with config.build() as algo, pytest.MonkeyPatch.context() as patch:

        def keep(batch, arguments, rng_state=None) -> None:
            kept = SampleBatch({name: column.copy() for name, column in batch.items()})
            kept.policy_version = batch.policy_version
            updates.append(Update(kept, arguments, rng_state))

        def update(learner, batch, *, rng, **arguments):
            keep(batch, arguments, rng.bit_generator.state)
            return originals[0](learner, batch, rng=rng, **arguments)

        def compute_gradient(learner, batch, **arguments):
            keep(batch, arguments)
            return originals[1](learner, batch, **arguments)

        def apply_gradient(learner, gradient, *, lr):
            updates[-1] = updates[-1]._replace(lr=lr)
            return originals[2](learner, gradient, lr=lr)

        def update_targets(learner, now):
            updates[-1] = updates[-1]._replace(clock=now)
            return originals[3](learner, now)

        for stand_in in (update, compute_gradient, apply_gradient, update_targets):
            patch.setattr(Learner, stand_in.__name__, stand_in)
        while len(updates) < count:
            algo.train()
    return updates[:count]


def replay(algo, updates: list[Update], meanwhile=None) -> np.ndarray:
    """The weights after the same updates by this algorithm's learner."""
    for number, update in enumerate(updates):
        algo.policy.resample(np.random.default_rng(number))
        if update.rng_state is None:
            gradient, _ = algo.learner.compute_gradient(update.batch, **update.arguments)
            algo.learner.apply_gradient(gradient, lr=update.lr)
        else:
            rng = np.random.default_rng()
            rng.bit_generator.state = update.rng_state
            more = {} if meanwhile is None else {"meanwhile": meanwhile}
            algo.learner.update(update.batch, rng=rng, **{**update.arguments, **more})
        if update.clock is not None:
            algo.learner.update_targets(update.clock)
    return algo.learner.weights.copy()


def process_ids(algo) -> list[int]:
    """Of the learners, in their order."""
    fleet = algo.learner.backend.fleet
    return list(fleet.ask_all(lambda handle, index: handle.process_id.remote()).values())
