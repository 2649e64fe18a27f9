"""Penalties on the values of choices, beside a loss of action values."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

from rllib.losses.loss import Loss
from rllib.sample_batch import ACTIONS


@dataclass(frozen=True)
class ValuePenalty(Loss, ABC):
    """A loss of action values with a penalty, for autograd alone.

    Args:
        loss: of action values, with one row statistic at least.
        weight: of the penalty.
    """

    loss: Loss
    weight: float
    numpy = None
    # Name of the penalty among the statistics, and columns that it reads beside the actions.
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
