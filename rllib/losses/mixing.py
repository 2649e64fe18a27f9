"""Temporal differences of the values that mixers make of a group's: QMIX, VDN, and each member on its own.

With Q_i(o_i, a_i) the values of the members, a* their greedy actions, Q' those of the target copies, and s the state,

    Q_tot = mix(Q_1(o_1, a_1), ..., Q_n(o_n, a_n); s)
    target = r + discount mix'(Q'_1(o'_1, a*_1), ..., Q'_n(o'_n, a*_n); s')
    loss = mean of weight * (Q_tot - target)^2

QMIX (Rashid et al., arXiv:1803.11485, equation 6) mixes by a network that is monotonic in each value, so that greedy
members make the action whose mixed value is the largest; VDN (Sunehag et al., arXiv:1706.05296) adds the values up.
Without a mixer each member's value is fitted to the group's reward, and the loss is the mean over the members.
"""

from collections.abc import Callable, Mapping

from rllib.losses.loss import LossOverModules, not_all_rows
from rllib.losses.td import STATS, bootstrapped, torch_q_statistics
from rllib.sample_batch import ACTIONS, DISCOUNTS, NEXT_OBS, OBS, REWARDS, WEIGHTS

MIXER = "mixer"
COLUMNS = (ACTIONS, REWARDS, NEXT_OBS, DISCOUNTS, WEIGHTS)


def own_values(modules: Mapping[str, Callable], prefix: str, values, inputs):
    """The members' values [B, n] as they are."""
    return values


def added_values(modules: Mapping[str, Callable], prefix: str, values, inputs):
    """The sum [B, 1] of the members' values [B, n]."""
    return values.sum(-1, keepdim=True)


def mixed_values(modules: Mapping[str, Callable], prefix: str, values, inputs):
    """The members' values [B, n] mixed by the module `mixer`, or its target copy, into [B, 1]."""
    return modules[prefix + MIXER](values, inputs)[:, None]


# The setting `mixer` -> (modules, prefix of their names, values [B, n], encoded observations [B, K]) -> [B, 1 or n].
MIXERS: Mapping[str | None, Callable] = {"qmix": mixed_values, "vdn": added_values, None: own_values}


def mixing_loss(mixer: str | None, double_q: bool) -> LossOverModules:
    """The loss over "policy", its target copy and, for "qmix", the module "mixer" and its target copy.

    The row statistic td_error is the size of the TD error, without a mixer the mean over the members.

    Args:
        mixer: a key of MIXERS.
        double_q: the online network chooses the next actions; False: the target network, which judges them.
    """
    mix = MIXERS[mixer]

    def loss_of_mixed(distribution, modules, minibatch):
        import torch

        inputs, following = minibatch[OBS], minibatch[NEXT_OBS]
        chosen = distribution.torch_at(modules["policy"](inputs)[0]).chosen(minibatch[ACTIONS])
        with torch.no_grad():
            judged = distribution.torch_at(modules["target_policy"](following)[0])
            choosing = distribution.torch_at(modules["policy"](following)[0]) if double_q else judged
            best = judged.chosen(choosing.q_values().argmax(-1))
            later = mix(modules, "target_", best, following)
            targets = bootstrapped(minibatch[REWARDS], minibatch[DISCOUNTS], later)
        value = mix(modules, "", chosen, inputs)
        weights, error = minibatch[WEIGHTS], value - targets
        if weights.shape != error.shape[:1]:
            raise not_all_rows(Q=value[:, 0], weights=weights)
        loss = (weights * error.square().mean(-1)).mean()
        size = error.detach().abs().mean(-1)
        return loss, torch_q_statistics(loss, value, size), (size,)

    return LossOverModules(COLUMNS, STATS, loss_of_mixed, ("td_error",))
