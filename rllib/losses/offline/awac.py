"""The losses of advantage-weighted actor-critic (Nair et al., arXiv:2006.09359).

    y = r + gamma^k min_j Q'_j(s', a'),     a' ~ pi(. | s')
    J(Q_j) = 1/2 mean w (Q_j(s, a) - y)^2
    J(pi)  = -mean min(exp(A / lambda), 100) log pi(a | s),     A = min_j Q_j(s, a) - min_j Q_j(s, b),  b ~ pi(. | s)

a is the recorded action. Drawn actions are clipped to [-1, 1], as the environment would get them. With discrete actions
the means over a' and b are sums over the policy's probabilities instead of draws.
"""

import numpy as np

from rllib.losses.loss import LossOverModules
from rllib.losses.offline.iql import ACTOR_STATS, MOST_WEIGHT, limited_exp, torch_weighted_cloning, weighted_cloning
from rllib.losses.sac import CRITIC_STATS, NEXT_NOISE, NOISE, READ_BY_CRITICS, fit, fit_in_numpy
from rllib.losses.td import bootstrapped
from rllib.sample_batch import ACTIONS, DISCOUNTS, NEXT_OBS, OBS, REWARDS


def _critic(distribution, modules, minibatch):
    import torch

    with torch.no_grad():
        drawn = distribution.torch_draw(modules["policy"](minibatch[NEXT_OBS])[0], minibatch[NEXT_NOISE])
        following = modules["target_critics"](minibatch[NEXT_OBS], drawn.actions).amin(0)
        targets = bootstrapped(minibatch[REWARDS], minibatch[DISCOUNTS], following)
        taken = distribution.for_critics(minibatch[ACTIONS])
    return fit(modules["critics"](minibatch[OBS], taken), targets, minibatch)


def _critic_in_numpy(distribution, modules, minibatch):
    following = minibatch[NEXT_OBS]
    drawn = distribution.draw(modules["policy"].forward(following)[0], minibatch[NEXT_NOISE])
    least = modules["target_critics"].forward(following, drawn.actions).min(0)
    targets = bootstrapped(minibatch[REWARDS], minibatch[DISCOUNTS], least)
    values = modules["critics"].forward(minibatch[OBS], distribution.for_critics(minibatch[ACTIONS]))
    statistics, of_rows, gradient = fit_in_numpy(values, targets, minibatch)
    modules["critics"].backward(gradient)
    return statistics, of_rows


CRITIC_LOSS = LossOverModules((*READ_BY_CRITICS, NEXT_NOISE), CRITIC_STATS, _critic, ("td_error",), _critic_in_numpy)


def actor_loss(temperature: float) -> LossOverModules:
    """The actor's loss, over "policy" and "critics".

    Args:
        temperature: lambda, above 0; small values clone the best actions alone.
    """

    def compute(distribution, modules, minibatch):
        import torch

        with torch.no_grad():
            critics, observations = modules["critics"], minibatch[OBS]
            drawn = distribution.torch_draw(modules["policy"](observations)[0], minibatch[NOISE])
            taken = critics(observations, distribution.for_critics(minibatch[ACTIONS])).amin(0)
            advantages = taken - critics(observations, drawn.actions).amin(0)
            weights = (advantages / temperature).exp().clamp(max=MOST_WEIGHT)
        return torch_weighted_cloning(distribution, modules, minibatch, weights)

    def compute_in_numpy(distribution, modules, minibatch):
        critics, observations = modules["critics"], minibatch[OBS]
        drawn = distribution.draw(modules["policy"].forward(observations)[0], minibatch[NOISE])
        taken = critics.forward(observations, distribution.for_critics(minibatch[ACTIONS])).min(0)
        advantages = taken - critics.forward(observations, drawn.actions).min(0)
        weights = limited_exp(advantages * np.float32(1 / temperature))
        return (weighted_cloning(distribution, modules["policy"], minibatch, weights),)

    return LossOverModules((ACTIONS, NOISE), ACTOR_STATS, compute, (), compute_in_numpy)


def _discrete_critic(distribution, modules, minibatch):
    import torch

    with torch.no_grad():
        policy = distribution.torch_at(modules["policy"](minibatch[NEXT_OBS])[0])
        following = (policy.probabilities * modules["target_critics"](minibatch[NEXT_OBS]).amin(0)).sum(-1)
        targets = bootstrapped(minibatch[REWARDS], minibatch[DISCOUNTS], following)
    values = modules["critics"](minibatch[OBS])
    return fit(values.gather(-1, minibatch[ACTIONS].expand(len(values), -1)[..., None])[..., 0], targets, minibatch)


DISCRETE_CRITIC_LOSS = LossOverModules(READ_BY_CRITICS, CRITIC_STATS, _discrete_critic, ("td_error",))


def discrete_actor_loss(temperature: float) -> LossOverModules:
    """The actor's loss with discrete actions; `temperature` as for `actor_loss`."""

    def compute(distribution, modules, minibatch):
        import torch

        with torch.no_grad():
            values = modules["critics"](minibatch[OBS]).amin(0)
            policy = distribution.torch_at(modules["policy"](minibatch[OBS])[0])
            taken = values.gather(-1, minibatch[ACTIONS][:, None])[:, 0]
            advantages = taken - (policy.probabilities * values).sum(-1)
            weights = (advantages / temperature).exp().clamp(max=MOST_WEIGHT)
        return torch_weighted_cloning(distribution, modules, minibatch, weights)

    return LossOverModules((ACTIONS,), ACTOR_STATS, compute)
