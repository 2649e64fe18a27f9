"""The losses of truncated quantile critics (Kuznetsov et al., arXiv:2005.04269).

Each of C critics gives M quantiles theta of the return, at the levels tau_m = (m - 1/2) / M. The quantiles z of all
target copies are sorted together, and the K = C (M - dropped) smallest ones make the targets of every critic:

    y_k = r + gamma^n (z_k(s', a') - alpha log p(a' | s')),     a' ~ pi(. | s'),     z_1 <= z_2 <= ... <= z_K
    J(Z_c) = mean over rows, m and k of  w |tau_m - 1[y_k < theta_cm]| huber(y_k - theta_cm)
    J(pi) = mean (alpha log p(a | s) - mean over c and m of theta_cm(s, a)),     a ~ pi(. | s)

huber(x) is x^2 / 2 within -1 ... 1 and |x| - 1/2 beyond. The critics' losses are added up. Rows, noise, importance
weights w and alpha are as in losses/sac.py. The TD error of a row is computed from means over quantiles.
"""

import numpy as np

from rllib.losses.loss import NO_VALUES, LossOverModules
from rllib.losses.quantiles import fit_quantiles, fit_quantiles_in_numpy
from rllib.losses.sac import CRITIC_STATS, NEXT_NOISE, NOISE, READ_BY_CRITICS
from rllib.losses.td import bootstrapped
from rllib.sample_batch import ACTIONS, DISCOUNTS, NEXT_OBS, OBS, REWARDS


def critic_loss(dropped: int) -> LossOverModules:
    """The critics' loss.

    Args:
        dropped: number of largest quantiles that each critic leaves out of the targets.
    """

    def compute(distribution, modules, minibatch, *, alpha):
        import torch

        with torch.no_grad():
            following = minibatch[NEXT_OBS]
            actions, log_prob = distribution.torch_draw(modules["policy"](following)[0], minibatch[NEXT_NOISE])
            quantiles = modules["target_critics"](following, actions)
            pooled = quantiles.transpose(0, 1).flatten(1).sort(-1).values
            soft = pooled[:, : kept(quantiles)] - alpha * log_prob[:, None]
            targets = bootstrapped(minibatch[REWARDS], minibatch[DISCOUNTS], soft)
            taken = distribution.for_critics(minibatch[ACTIONS])
        return fit_quantiles(modules["critics"](minibatch[OBS], taken), targets, minibatch)

    def compute_in_numpy(distribution, modules, minibatch, *, alpha):
        following = minibatch[NEXT_OBS]
        drawn = distribution.draw(modules["policy"].forward(following)[0], minibatch[NEXT_NOISE])
        quantiles = modules["target_critics"].forward(following, drawn.actions)
        pooled = np.sort(quantiles.swapaxes(0, 1).reshape(len(following), -1), axis=1)
        soft = pooled[:, : kept(quantiles)] - np.float32(alpha) * drawn.log_prob[:, None]
        targets = bootstrapped(minibatch[REWARDS], minibatch[DISCOUNTS], soft)
        quantiles = modules["critics"].forward(minibatch[OBS], distribution.for_critics(minibatch[ACTIONS]))
        statistics, of_rows, gradient = fit_quantiles_in_numpy(quantiles, targets, minibatch)
        modules["critics"].backward(gradient)
        return statistics, of_rows

    def kept(quantiles) -> int:
        critics, _, each = quantiles.shape
        return critics * (each - dropped)

    columns = (*READ_BY_CRITICS, NEXT_NOISE)
    return LossOverModules(columns, CRITIC_STATS, compute, ("td_error",), compute_in_numpy)


def _actor(distribution, modules, minibatch, *, alpha):
    dist_inputs = modules["policy"](minibatch[OBS])[0]
    actions, log_prob = distribution.torch_draw(dist_inputs, minibatch[NOISE])
    values = modules["critics"](minibatch[OBS], actions).mean((0, 2))
    loss = (alpha * log_prob - values).mean()
    return loss, (loss, -log_prob.mean())


def _actor_in_numpy(distribution, modules, minibatch, *, alpha):
    observations, rows = minibatch[OBS], len(minibatch[OBS])
    drawn = distribution.draw(modules["policy"].forward(observations)[0], minibatch[NOISE])
    quantiles = modules["critics"].forward(observations, drawn.actions)
    gradient = np.full_like(quantiles, -1 / quantiles.size)
    d_actions = modules["critics"].input_gradient(gradient, "action")
    modules["policy"].backward((drawn.gradient(d_actions, alpha / rows), NO_VALUES))
    entropy = -drawn.log_prob.mean()
    return ((-alpha * entropy - quantiles.mean(), entropy),)


ACTOR_LOSS = LossOverModules((NOISE,), ("actor_loss", "entropy"), _actor, (), _actor_in_numpy)
