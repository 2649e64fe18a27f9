"""The large-margin loss of deep Q-learning from demonstrations, beside a loss of action values (arXiv:1704.03732).

    J = J_TD + w mean(max_b (Q(s, b) + m 1[b != a]) - Q(s, a)) over demonstrated rows        (section "DQfD", J_E)

The demonstrated action is worth more than each other one by the margin m at least; rows that were sampled add nothing.
With distributions of returns Q is their mean; masked actions count for nothing.
"""

from dataclasses import dataclass

from rllib.losses.offline.value_penalty import ValuePenalty
from rllib.sample_batch import RECORDED


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
