"""Losses of a policy that learns from a teacher's choices in its own observations: distillation and DAgger.

For one row, with the teacher's distribution t and action a_t, and the student's distribution s:

| kind       | choices                  | numbers, m_s the student's mean, d = |a_t - m_s| by component |
|------------|--------------------------|---------------------------------------------------------------|
| auto       | -sum_a p_t(a) log p_s(a) | mean of d^2                                                   |
| huber      | the same                 | mean of d^2 / 2 where d < 1, else of d - 1/2                  |
| kl         | KL(t || s)               | KL(t || s)                                                    |
| reverse_kl | KL(s || t)               | KL(s || t)                                                    |
| log_prob   | -log p_s(a_t)            | -log p_s(a_t)                                                 |

Where a teacher has no probabilities, p_t is 1 for a_t. Numbers are in units in which [-1, 1] spans finite bounds. Of
Tuple and Dict actions, the parts are summed up. Everything is a mean over the rows that are steps (`loss_mask`, where a
batch has it). Illegal choices have the same inputs on both sides (models/observations/masks.py), so they add 0.

The term alone is policy distillation (arXiv:1511.06295) on the student's own observations (DAgger, arXiv:1011.0686);
added to the loss of an algorithm it is kickstarting (arXiv:1803.03835).

Departure from rsl_rl, whose loss is a sum over the steps between two truncations of the gradient: with a mean the
learning rate does not depend on the length of sequences.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from rllib.losses.loss import NO_VALUES, Loss, LossAround, mean_of, mean_over_steps
from rllib.models.distributions.base import Distribution
from rllib.models.distributions.product import Product
from rllib.models.distributions.standard import DiagGaussian
from rllib.sample_batch import LOSS_MASK, TEACHER_ACTIONS, TEACHER_DIST_INPUTS

KINDS = ("auto", "kl", "reverse_kl", "log_prob", "huber")
# Kinds that compare distributions.
OF_DISTRIBUTIONS = ("kl", "reverse_kl")
# Name of the term's weight among the settings of a loss.
WEIGHT = "teacher_coeff"
STATS = ("distillation_loss", "teacher_agreement")


class _Part(NamedTuple):
    """A part of an action and its columns in the distribution inputs and in the row of an action."""

    distribution: Distribution
    inputs: slice
    action: slice


def _parts(distribution: Distribution) -> list[_Part]:
    if isinstance(distribution, Product):
        return [_Part(place.part, place.inputs, place.action) for place in distribution.places]
    return [_Part(distribution, slice(None), slice(None))]


@dataclass(frozen=True)
class DistillationTerm:
    """The distance of a student's distributions from what its teacher would do.

    Args:
        kind: one of KINDS.
        has_distribution: whether batches have teacher_dist_inputs; the teacher's actions they have in any case.

    Attributes:
        columns: names of the columns of a batch that it reads.
    """

    kind: str
    has_distribution: bool

    @property
    def columns(self) -> tuple[str, ...]:
        return (TEACHER_ACTIONS, TEACHER_DIST_INPUTS) if self.has_distribution else (TEACHER_ACTIONS,)

    @property
    def has_closed_form(self) -> bool:
        """Whether `gradient` computes it."""
        return self.kind != "reverse_kl"

    def gradient(self, distribution: Distribution, dist_inputs: np.ndarray, minibatch: Mapping) -> tuple:
        """The term in closed form. B rows, float32.

        Args:
            distribution: distribution of the student's actions.
            dist_inputs: [B, K] what the network computed for it.
            minibatch: teacher_actions [B, ...], as the student stores actions; teacher_dist_inputs [B, K]; loss_mask
                [B], where some rows are no steps.

        Returns:
            statistics in the order of STATS, and the gradient with respect to dist_inputs [B, K].
        """
        weights = _weights(minibatch, len(dist_inputs))
        if self.kind == "kl":
            now = distribution.at(dist_inputs)
            rows = now.kl_from(minibatch[TEACHER_DIST_INPUTS])
            gradient = now.gradient(None, 0.0, 1.0)
        elif self.kind == "log_prob":
            rows, gradient = _log_prob(distribution, dist_inputs, minibatch[TEACHER_ACTIONS])
        else:
            found = [
                self._of_part(part, *given) for part, *given in self._by_part(distribution, dist_inputs, minibatch)
            ]
            rows = sum(rows for rows, _ in found)
            gradient = np.concatenate([gradient for _, gradient in found], axis=1) if len(found) > 1 else found[0][1]
        agreement = _agreement(distribution, dist_inputs, minibatch[TEACHER_ACTIONS])
        # A row that is no step may have anything, but its weight is 0.
        gradient = gradient * weights[:, None]
        return (float(np.dot(weights, rows)), float(np.dot(weights, agreement))), gradient

    def torch(self, distribution: Distribution, dist_inputs, minibatch: Mapping) -> tuple:
        """The term with its graph, and its statistics; arguments as for `gradient`, with tensors for arrays."""
        mask = minibatch.get(LOSS_MASK)
        mean = (lambda column: column.mean()) if mask is None else mean_over_steps(mask)
        if self.kind == "kl":
            rows = distribution.torch_at(dist_inputs).kl_from(minibatch[TEACHER_DIST_INPUTS])
        elif self.kind == "reverse_kl":
            rows = distribution.torch_at(minibatch[TEACHER_DIST_INPUTS]).kl_from(dist_inputs)
        elif self.kind == "log_prob":
            rows = -distribution.torch_at(dist_inputs).log_prob(minibatch[TEACHER_ACTIONS])
        else:
            by_part = self._by_part(distribution, dist_inputs, minibatch)
            rows = sum(self._torch_of_part(part, *given) for part, *given in by_part)
        term = mean(rows)
        agreement = _agreement(distribution, dist_inputs.detach(), minibatch[TEACHER_ACTIONS])
        return term, (term.detach(), mean(agreement))

    def _by_part(self, distribution: Distribution, dist_inputs, minibatch: Mapping) -> Iterator[tuple]:
        """(part's distribution, its inputs, the teacher's actions, the teacher's inputs or None) for each part."""
        theirs = minibatch[TEACHER_DIST_INPUTS] if self.has_distribution else None
        actions = minibatch[TEACHER_ACTIONS]
        for part in _parts(distribution):
            own = actions.reshape(len(actions), -1)[:, part.action].reshape(-1, *part.distribution.action_shape)
            yield (
                part.distribution,
                dist_inputs[:, part.inputs],
                own,
                None if theirs is None else theirs[:, part.inputs],
            )

    def _of_part(self, distribution: Distribution, inputs: np.ndarray, actions: np.ndarray, theirs) -> tuple:
        """Term [B] and gradient [B, inputs] of each row, of a part: cross entropy of choices, distance of numbers."""
        if distribution.choices:
            if theirs is None:
                return _log_prob(distribution, inputs, actions.astype(np.int64, copy=False))
            now = distribution.at(inputs)
            return now.kl_from(theirs) + distribution.at(theirs).entropy(), now.gradient(None, 0.0, 1.0)
        mean, log_std = distribution.moments(inputs)
        read, difference = self._difference(distribution, mean, actions)
        size = np.abs(difference)
        gradient = np.zeros_like(inputs)
        if self.kind == "huber":
            rows = np.where(size < 1, 0.5 * difference * difference, size - 0.5)
            d_read = difference.clip(-1, 1)
        else:
            rows, d_read = difference * difference, 2 * difference
        slope = 1 - read * read if read is not mean else 1
        gradient[:, : distribution.size] = d_read * slope / distribution.size
        distribution.through_bounds(gradient, inputs, mean, log_std)
        return rows.mean(1), gradient

    def _torch_of_part(self, distribution: Distribution, inputs, actions, theirs):
        if distribution.choices:
            now = distribution.torch_at(inputs)
            if theirs is None:
                return -now.log_prob(actions.long())
            return now.kl_from(theirs) + distribution.torch_at(theirs).entropy()
        _, difference = self._difference(distribution, distribution.torch_moments(inputs)[0], actions)
        if self.kind == "huber":
            size = difference.abs()
            return (0.5 * difference.square()).where(size < 1, size - 0.5).mean(1)
        return difference.square().mean(1)

    def _difference(self, distribution: DiagGaussian, mean, actions) -> tuple:
        """The student's mean action [B, size], and its difference to the teacher's, arrays or tensors."""
        read = distribution.unit.read(mean)
        return read, read - distribution.unit.read(actions.reshape(len(actions), distribution.size))


def _log_prob(distribution: Distribution, inputs: np.ndarray, actions: np.ndarray) -> tuple:
    """-log p(actions) [B], and its gradient [B, inputs]."""
    now = distribution.at(inputs)
    return -now.log_prob(actions), now.gradient(np.full(len(inputs), -1, inputs.dtype))


def _weights(minibatch: Mapping, rows: int) -> np.ndarray:
    """Weights [B] whose product with a column is its mean over the steps."""
    if LOSS_MASK not in minibatch:
        return mean_of(rows)
    steps = minibatch[LOSS_MASK].astype(np.float32)
    return steps / max(steps.sum(), np.float32(1))


def _agreement(distribution: Distribution, inputs, actions):
    """[B], array or tensor: 1 where all choices are the teacher's; without choices, mean |m_s - a_t| of the numbers."""
    equal, distance, count = 1, 0, 0
    rows = actions.reshape(len(actions), -1)
    for part in _parts(distribution):
        own, theirs = inputs[:, part.inputs], rows[:, part.action]
        for index, (start, stop) in enumerate(part.distribution.choices):
            equal = equal * (own[:, start:stop].argmax(-1) == theirs[:, index])
        if not part.distribution.choices:
            moments = part.distribution.moments if isinstance(inputs, np.ndarray) else part.distribution.torch_moments
            read = part.distribution.unit.read
            distance = distance + abs(read(moments(own)[0]) - read(theirs)).sum(1)
            count += part.distribution.size
    if distribution.choices:
        return equal.astype(np.float32) if isinstance(inputs, np.ndarray) else equal.float()
    return distance / count


@dataclass(frozen=True)
class TaughtLoss(LossAround):
    """The loss of an algorithm, plus a weighted DistillationTerm; a setting of it is the weight, WEIGHT.

    Log-probabilities in batches are the student's, also where the teacher has acted, so that the identity error is the
    algorithm's.

    Args:
        loss: loss of the policy's outputs.
        term: what is added.
    """

    term: DistillationTerm

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys([*self.loss.columns, *self.term.columns]))

    @property
    def stats(self) -> tuple[str, ...]:
        return (*self.loss.stats, *STATS)

    @property
    def numpy(self):
        """The closed form; None where the loss or the term has none."""
        return self._gradients if self.loss.numpy is not None and self.term.has_closed_form else None

    def _gradients(self, distribution, outputs, minibatch, **settings):
        weight = settings.pop(WEIGHT)
        statistics, gradients, *of_rows = self.loss.numpy(distribution, outputs, minibatch, **settings)
        of_term, gradient = self.term.gradient(distribution, outputs[0], minibatch)
        statistics = [*statistics, *of_term]
        statistics[self.stats.index("total_loss")] += weight * of_term[0]
        return statistics, (gradients[0] + np.float32(weight) * gradient, *gradients[1:]), *of_rows

    def torch(self, distribution, outputs, minibatch, **settings):
        """The loss with its graph, and statistics; see Loss."""
        weight = settings.pop(WEIGHT)
        loss, statistics, *of_rows = self.loss.torch(distribution, outputs, minibatch, **settings)
        term, of_term = self.term.torch(distribution, outputs[0], minibatch)
        loss = loss + weight * term
        statistics = [*statistics, *of_term]
        statistics[self.stats.index("total_loss")] = loss.detach()
        return loss, tuple(statistics), *of_rows


class NoLoss(Loss):
    """The loss of an algorithm that learns from a teacher alone: 0."""

    columns: ClassVar[tuple[str, ...]] = ()
    stats: ClassVar[tuple[str, ...]] = ("total_loss",)

    def numpy(self, distribution, outputs, minibatch):
        """Statistics and gradients of the outputs; see Loss."""
        return (0.0,), (np.zeros_like(outputs[0]), NO_VALUES)

    def torch(self, distribution, outputs, minibatch):
        """The loss and its statistics; see Loss."""
        nothing = outputs[0].new_zeros(())
        return nothing, (nothing,)

    def identity_error(self, at, outputs, minibatch):
        """None: nothing depends on who has acted."""


NO_LOSS = NoLoss()
