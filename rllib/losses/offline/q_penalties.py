"""Penalties on the values of actions, added to a loss of action values.

With distributions of returns Q is their mean; masked actions count for nothing.

- `Conservative` lowers the values of actions that the data does not have (arXiv:2006.04779, equation 4):
  J = J_TD + w mean(log sum_b exp Q(s, b) - Q(s, a))
- `LargeMargin` makes the demonstrated action worth more than each other one by the margin m at least; rows that were
  sampled add nothing (arXiv:1704.03732, section "DQfD", J_E):
  J = J_TD + w mean(max_b (Q(s, b) + m 1[b != a]) - Q(s, a)) over demonstrated rows
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

from rllib.losses.loss import Loss
from rllib.sample_batch import ACTIONS, RECORDED


@dataclass(frozen=True)
class ValuePenalty(Loss, ABC):
    """A loss of action values with a penalty, for autograd alone.

    Args:
        loss: loss of action values, with one row statistic at least.
        weight: weight of the penalty.
    """

    loss: Loss
    weight: float
    numpy = None
    # Name of the penalty among the statistics, and columns that it reads in addition to the actions.
    name: ClassVar[str]
    reads: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def of_rows(self, values, actions, minibatch) -> Any:
        """The penalty [B] of each row, before its weight.

        Args:
            values: tensor [B, actions]; with distributions of returns their means.
            actions: tensor [B, 1], int64, the ones that were taken.
            minibatch: with the columns of `reads`.
        """

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns that the loss reads."""
        return (*self.loss.columns, *self.reads)

    @property
    def stats(self) -> tuple[str, ...]:
        """Names of its statistics; the first is the sum."""
        return (*self.loss.stats, self.name)

    @property
    def row_stats(self) -> tuple[str, ...]:
        """Names of the inner loss's row statistics."""
        return self.loss.row_stats

    def torch(self, distribution, outputs, minibatch, **settings):
        """The loss with its graph, statistics and row statistics; see Loss."""
        loss, (_, *statistics), row_statistics = self.loss.torch(distribution, outputs, minibatch, **settings)
        values = distribution.torch_at(outputs[0]).q_values()
        penalty = self.weight * self.of_rows(values, minibatch[ACTIONS].long()[:, None], minibatch).mean()
        whole = loss + penalty
        return whole, (whole, *statistics, penalty), row_statistics

    def identity_error(self, at, outputs, minibatch):
        """None: others have acted."""


class Conservative(ValuePenalty):
    """A loss of action values with the penalty of conservative Q-learning."""

    name = "cql_penalty"

    def of_rows(self, values, actions, minibatch):
        return values.logsumexp(-1) - values.gather(-1, actions)[:, 0]


@dataclass(frozen=True)
class LargeMargin(ValuePenalty):
    """A loss of action values with the large-margin loss of demonstrated rows.

    Args:
        margin: m.
    """

    margin: float = 0.8
    name = "margin_loss"
    reads = (RECORDED,)

    def of_rows(self, values, actions, minibatch):
        others = (values + self.margin).scatter(-1, actions, values.gather(-1, actions))
        return minibatch[RECORDED] * (others.amax(-1) - values.gather(-1, actions)[:, 0])
