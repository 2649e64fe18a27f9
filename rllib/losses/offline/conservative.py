"""The penalty of conservative Q-learning for choices, beside a loss of action values (arXiv:2006.04779, equation 4).

    J = J_TD + w mean(log sum_b exp Q(s, b) - Q(s, a))

It lowers the values of actions that the data does not have; masked ones count for nothing. With distributions of
returns Q is their mean.
"""

from dataclasses import dataclass

from rllib.losses.loss import Loss
from rllib.sample_batch import ACTIONS

PENALTY = "cql_penalty"


@dataclass(frozen=True)
class Conservative:
    """A loss of action values with the penalty, for autograd alone.

    Args:
        loss: of action values, with one row statistic at least.
        weight: w.
    """

    loss: Loss
    weight: float
    numpy = None

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns that the loss reads."""
        return self.loss.columns

    @property
    def stats(self) -> tuple[str, ...]:
        """Names of its statistics; the first is the sum."""
        return (*self.loss.stats, PENALTY)

    @property
    def row_stats(self) -> tuple[str, ...]:
        """Names of the inner loss's row statistics."""
        return self.loss.row_stats

    def torch(self, distribution, outputs, minibatch, **settings):
        """The loss with its graph, statistics and row statistics; see Loss."""
        loss, (_, *statistics), row_statistics = self.loss.torch(distribution, outputs, minibatch, **settings)
        values = distribution.torch_at(outputs[0]).q_values()
        taken = values.gather(-1, minibatch[ACTIONS].long()[:, None])[:, 0]
        penalty = self.weight * (values.logsumexp(-1) - taken).mean()
        whole = loss + penalty
        return whole, (whole, *statistics, penalty), row_statistics

    def identity_error(self, at, outputs, minibatch):
        """None: others have acted."""
