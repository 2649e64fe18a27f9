"""The losses of CrossQ (Bhatt et al., arXiv:1902.05605): soft actor-critic (losses/sac.py) without target copies.

    y = r + gamma^k (min_i Q_i(s', a') - alpha log p(a' | s')),     a' ~ pi(. | s')
    J(Q_i) = 1/2 mean w (Q_i(s, a) - y)^2

Q_i(s, a) and Q_i(s', a') come from one pass through the critics (figure 2 of the paper), so that batch renormalisation
is by the statistics of both together; y counts as a constant. a' is of the running statistics. The actor's loss is that
of soft actor-critic, with the actor normalised by the batch and the critics by the running statistics.
"""

import functools
from types import SimpleNamespace

import numpy as np

from rllib.losses.loss import LossOverModules
from rllib.losses.sac import ACTOR_LOSS as SAC_ACTOR_LOSS
from rllib.losses.sac import CRITIC_STATS, NEXT_NOISE, READ_BY_CRITICS, fit, fit_in_numpy
from rllib.losses.td import bootstrapped
from rllib.sample_batch import ACTIONS, DISCOUNTS, NEXT_OBS, OBS, REWARDS


def _critic(distribution, modules, minibatch, *, alpha):
    import torch

    with torch.no_grad():
        dist_inputs = modules["policy"](minibatch[NEXT_OBS])[0]
        following, log_prob = distribution.torch_draw(dist_inputs, minibatch[NEXT_NOISE])
        observations = torch.cat([minibatch[OBS], minibatch[NEXT_OBS]])
        actions = torch.cat([distribution.for_critics(minibatch[ACTIONS]), following])
    values, next_values = modules["critics"](observations, actions, by_batch=True).chunk(2, dim=-1)
    with torch.no_grad():
        targets = bootstrapped(minibatch[REWARDS], minibatch[DISCOUNTS], next_values.amin(0) - alpha * log_prob)
    return fit(values, targets, minibatch)


def _critic_in_numpy(distribution, modules, minibatch, *, alpha):
    drawn = distribution.draw(modules["policy"].forward(minibatch[NEXT_OBS])[0], minibatch[NEXT_NOISE])
    observations = np.concatenate([minibatch[OBS], minibatch[NEXT_OBS]])
    actions = np.concatenate([distribution.for_critics(minibatch[ACTIONS]), drawn.actions])
    both = modules["critics"].forward(observations, actions, by_batch=True)
    values, next_values = np.split(both, 2, axis=1)
    soft = next_values.min(0) - np.float32(alpha) * drawn.log_prob
    targets = bootstrapped(minibatch[REWARDS], minibatch[DISCOUNTS], soft)
    statistics, of_rows, d_values = fit_in_numpy(values, targets, minibatch)
    modules["critics"].backward(np.concatenate([d_values, np.zeros_like(d_values)], axis=1))
    return statistics, of_rows


def _actor(distribution, modules, minibatch, *, alpha):
    policy = functools.partial(modules["policy"], by_batch=True)
    return SAC_ACTOR_LOSS.torch(distribution, {**modules, "policy": policy}, minibatch, alpha=alpha)


def _actor_in_numpy(distribution, modules, minibatch, *, alpha):
    policy = modules["policy"]
    by_batch = SimpleNamespace(forward=functools.partial(policy.forward, by_batch=True), backward=policy.backward)
    return SAC_ACTOR_LOSS.numpy(distribution, {**modules, "policy": by_batch}, minibatch, alpha=alpha)


CRITIC_LOSS = LossOverModules((*READ_BY_CRITICS, NEXT_NOISE), CRITIC_STATS, _critic, ("td_error",), _critic_in_numpy)
# Of an actor with batch renormalisation; without it, the actor's loss is soft actor-critic's.
ACTOR_LOSS = LossOverModules(SAC_ACTOR_LOSS.columns, SAC_ACTOR_LOSS.stats, _actor, (), _actor_in_numpy)
