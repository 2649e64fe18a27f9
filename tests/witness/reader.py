"""Runs an algorithm on scripted episodes, and reads what its learners get and what its replays take in and give."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from unittest.mock import patch

import numpy as np

from rllib import sample_batch as sb
from rllib.algorithms.base.algorithm import Algorithm
from rllib.algorithms.base.trainee import Trainee
from rllib.losses import appo, impala
from rllib.replay.replay_buffer import ReplayBuffer
from rllib.sample_batch import MultiAgentBatch
from tests.witness.checks.rows import FRAGMENT

Columns = dict[str, np.ndarray]


@dataclass
class Traced:
    """A call of V-trace.

    Attributes:
        weights: of the policy that learns, at that time.
        log_rho, values: given, for rows [R].
        columns: of the minibatch.
        settings: gamma and clips.
        targets, advantages: the results.
    """

    weights: np.ndarray
    log_rho: np.ndarray
    values: np.ndarray
    columns: Columns
    settings: dict
    targets: np.ndarray
    advantages: np.ndarray


@dataclass
class Event:
    """A call of a replay.

    Attributes:
        method: "add", "sample" or "update_priorities".
        columns: rows that came in or were drawn; of new priorities batch_indexes and td_errors.
        numbers: of rows that came in.
        beta: exponent of the weights of rows that were drawn.
    """

    method: str
    columns: Columns
    numbers: range = range(0)
    beta: float = 0.0


@dataclass
class Read:
    """What came before the losses.

    Attributes:
        learned: (policy id, columns) of each batch that a learner got, in order.
        filters: state of the policy's filter at the time of each.
        stored: (policy id, columns) of the rows that replays took in, in order.
        replayed: policy id -> calls of its replay, in order.
        traced: calls of V-trace, in order.
        results: of each iteration.
    """

    learned: list[tuple[str, Columns]] = field(default_factory=list)
    filters: list[Columns] = field(default_factory=list)
    stored: list[tuple[str, Columns]] = field(default_factory=list)
    replayed: dict[str, list[Event]] = field(default_factory=dict)
    traced: list[Traced] = field(default_factory=list)
    results: list[dict] = field(default_factory=list)


@contextmanager
def reading(algorithm: Algorithm) -> Iterator[Read]:
    """Copies all batches while the algorithm runs."""
    read = Read()
    learn, sample_round = Trainee.learn_on_batch, Algorithm._sample_round
    fragments: dict[bytes, int] = {}  # observation of a row -> number of its fragment

    def sample(self):
        sampled = sample_round(self)
        for batch, _ in sampled if self is algorithm else ():
            number = len(fragments)
            for rows in batch.policy_batches.values() if isinstance(batch, MultiAgentBatch) else [batch]:
                fragments.update((row.tobytes(), number) for row in np.asarray(rows.get(sb.OBS, ())))
        return sampled

    def learn_on_batch(self, batch, **settings):
        if self.algorithm is algorithm:
            columns = _copied(batch)
            columns[FRAGMENT] = np.array([fragments.get(row.tobytes(), -1) for row in columns[sb.OBS]])
            read.learned.append((self.policy_id, columns))
            read.filters.append(self.policy.filter.get_state())
        return learn(self, batch, **settings)

    with ExitStack() as stack:
        stack.enter_context(patch.object(Trainee, "learn_on_batch", learn_on_batch))
        stack.enter_context(patch.object(Algorithm, "_sample_round", sample))
        for losses in (impala, appo):
            traced = _tracing(algorithm, read, losses.vtrace_of_rows)
            stack.enter_context(patch.object(losses, "vtrace_of_rows", traced))
        for policy_id, replay in getattr(algorithm, "replays", {}).items():
            events = read.replayed[policy_id] = []
            listening = {"add": _storing(read, policy_id)}
            if isinstance(replay, ReplayBuffer):
                listening |= {"sample": _drawing, "update_priorities": _rating}
            for name, listen in listening.items():
                replay.__dict__[name] = listen(events, getattr(replay, name))
                stack.callback(replay.__dict__.pop, name)
        yield read


def _copied(batch) -> Columns:
    return {name: np.array(column) for name, column in batch.items()}


def _storing(read, policy_id):
    def listen(events, add):
        def store(batch, *arguments, **named):
            read.stored.append((policy_id, _copied(batch)))
            numbers = add(batch, *arguments, **named)
            events.append(Event("add", read.stored[-1][1], numbers))
            return numbers

        return store

    return listen


def _drawing(events, sample):
    def draw(batch_size, rng, beta=0.0):
        batch = sample(batch_size, rng, beta)
        events.append(Event("sample", _copied(batch), beta=beta))
        return batch

    return draw


def _rating(events, update_priorities):
    def rate(indexes, td_errors):
        events.append(Event("update_priorities", {sb.INDICES: np.array(indexes), sb.TD_ERRORS: np.array(td_errors)}))
        return update_priorities(indexes, td_errors)

    return rate


def _tracing(algorithm, read, vtrace):
    def trace(log_rho, values, minibatch, **settings):
        # The loss has no observations: the whole batch is learned from at once, in its order.
        columns = {**read.learned[-1][1], **_copied(minibatch)}
        given = np.array(log_rho), np.array(values), columns, settings
        results = vtrace(log_rho, values, minibatch, **settings)
        weights = next(iter(algorithm.policies.values())).weights.copy()
        read.traced.append(Traced(weights, *given, *map(np.array, results)))
        return results

    return trace
