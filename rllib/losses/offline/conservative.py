"""The penalty of conservative Q-learning for choices, beside a loss of action values (arXiv:2006.04779, equation 4).

    J = J_TD + w mean(log sum_b exp Q(s, b) - Q(s, a))

It lowers the values of actions that the data does not have; masked ones count for nothing. With distributions of
returns Q is their mean.
"""

from rllib.losses.offline.value_penalty import ValuePenalty


class Conservative(ValuePenalty):
    """A loss of action values with the penalty of conservative Q-learning."""

    name = "cql_penalty"

    def of_rows(self, values, actions, minibatch):
        return values.logsumexp(-1) - values.gather(-1, actions)[:, 0]
