"""The losses of implicit Q-learning (Kostrikov et al., arXiv:2110.06169).

    x = min_j Q'_j(s, a) - V(s)
    J(V)   = mean |tau - 1(x < 0)| x^2                                                              (equation 5)
    J(pi)  = -mean min(exp(beta x), 100) log pi(a | s)                                              (equation 7)
    J(Q_j) = 1/2 mean w (Q_j(s, a) - (r + gamma^k V(s')))^2                                         (equation 6)

a is the recorded action: no other is judged, and no maximum is taken over actions. Q' are target copies of the critics;
the actor sees the value after its step. With discrete actions a critic gives the values of all, and that of a is taken.
"""

import numpy as np

from rllib.losses.loss import NO_VALUES, LossOverModules
from rllib.losses.sac import CRITIC_STATS, fit, fit_in_numpy
from rllib.losses.td import bootstrapped
from rllib.sample_batch import ACTIONS, DISCOUNTS, NEXT_OBS, OBS, REWARDS, WEIGHTS

# Largest weight of a recorded action, as in the authors' code.
MOST_WEIGHT = 100.0


def value_loss(expectile: float, is_discrete: bool) -> LossOverModules:
    """The value's loss, over "value" and "target_critics".

    Args:
        expectile: tau; 0.5 fits the mean, towards 1 the largest value of the recorded actions.
        is_discrete: whether a critic gives the values of all actions.
    """

    def compute(distribution, modules, minibatch):
        import torch

        with torch.no_grad():
            judged = _torch_values(distribution, modules["target_critics"], minibatch, is_discrete).amin(0)
        values = modules["value"](minibatch[OBS])
        errors = judged - values
        loss = (torch.where(errors < 0, 1 - expectile, expectile) * errors.square()).mean()
        return loss, (loss, values.mean())

    def compute_in_numpy(distribution, modules, minibatch):
        judged = _values(distribution, modules["target_critics"], minibatch, is_discrete).min(0)
        values = modules["value"].forward(minibatch[OBS])
        errors = judged - values
        weighted = np.where(errors < 0, np.float32(1 - expectile), np.float32(expectile)) * errors
        modules["value"].backward(weighted * np.float32(-2 / len(errors)))
        return (((weighted * errors).mean(), values.mean()),)

    return LossOverModules((ACTIONS,), ("value_loss", "mean_value"), compute, (), compute_in_numpy)


def critic_loss(is_discrete: bool) -> LossOverModules:
    """The critics' loss, over "critics" and "value"; `is_discrete` as for `value_loss`."""

    def compute(distribution, modules, minibatch):
        import torch

        with torch.no_grad():
            targets = bootstrapped(minibatch[REWARDS], minibatch[DISCOUNTS], modules["value"](minibatch[NEXT_OBS]))
        return fit(_torch_values(distribution, modules["critics"], minibatch, is_discrete), targets, minibatch)

    def compute_in_numpy(distribution, modules, minibatch):
        targets = bootstrapped(minibatch[REWARDS], minibatch[DISCOUNTS], modules["value"].forward(minibatch[NEXT_OBS]))
        critics = modules["critics"]
        all_values = critics.forward(minibatch[OBS], *_given(distribution, minibatch, is_discrete))
        values = _taken(all_values, minibatch[ACTIONS]) if is_discrete else all_values
        statistics, of_rows, gradient = fit_in_numpy(values, targets, minibatch)
        if is_discrete:
            of_taken, gradient = gradient, np.zeros_like(all_values)
            taken = np.broadcast_to(minibatch[ACTIONS][None, :, None], (*of_taken.shape, 1))
            np.put_along_axis(gradient, taken, of_taken[..., None], axis=2)
        critics.backward(gradient)
        return statistics, of_rows

    columns = ACTIONS, REWARDS, DISCOUNTS, NEXT_OBS, WEIGHTS
    return LossOverModules(columns, CRITIC_STATS, compute, ("td_error",), compute_in_numpy)


def actor_loss(beta: float, is_discrete: bool) -> LossOverModules:
    """The actor's loss, over "policy", "value" and "target_critics".

    Args:
        beta: inverse temperature: 0 clones all actions alike, large values the best of them.
        is_discrete: as for `value_loss`.
    """

    def compute(distribution, modules, minibatch):
        import torch

        with torch.no_grad():
            judged = _torch_values(distribution, modules["target_critics"], minibatch, is_discrete).amin(0)
            weights = (beta * (judged - modules["value"](minibatch[OBS]))).exp().clamp(max=MOST_WEIGHT)
        return torch_weighted_cloning(distribution, modules, minibatch, weights)

    def compute_in_numpy(distribution, modules, minibatch):
        judged = _values(distribution, modules["target_critics"], minibatch, is_discrete).min(0)
        weights = limited_exp(np.float32(beta) * (judged - modules["value"].forward(minibatch[OBS])))
        return (weighted_cloning(distribution, modules["policy"], minibatch, weights),)

    return LossOverModules((ACTIONS,), ACTOR_STATS, compute, (), compute_in_numpy)


# ---------------------------------------------------------------------- shared with awac.py

ACTOR_STATS = ("actor_loss", "mean_weight")


def limited_exp(exponents: np.ndarray) -> np.ndarray:
    """exp, at most MOST_WEIGHT; nothing overflows."""
    return np.exp(np.minimum(exponents, np.float32(np.log(MOST_WEIGHT))))


def weighted_cloning(distribution, policy, minibatch, weights: np.ndarray) -> tuple:
    """Statistics of -mean(w log pi(a | s)), w [B] being constants; leaves its gradient in the policy's network."""
    now = distribution.at(policy.forward(minibatch[OBS])[0])
    loss = -(weights * now.log_prob(minibatch[ACTIONS])).mean()
    policy.backward((now.gradient(weights * np.float32(-1 / len(weights))), NO_VALUES))
    return loss, weights.mean()


def torch_weighted_cloning(distribution, modules, minibatch, weights) -> tuple:
    """The same for autograd: the loss with its graph, and statistics."""
    now = distribution.torch_at(modules["policy"](minibatch[OBS])[0])
    loss = -(weights * now.log_prob(minibatch[ACTIONS])).mean()
    return loss, (loss, weights.mean())


def _given(distribution, minibatch, is_discrete: bool) -> tuple:
    """Inputs of a critic in addition to the observation."""
    return () if is_discrete else (distribution.for_critics(minibatch[ACTIONS]),)


def _taken(values: np.ndarray, actions: np.ndarray) -> np.ndarray:
    """Values [critics, B] of the actions that were taken, from those of all actions [critics, B, n]."""
    return np.take_along_axis(values, actions[None, :, None], axis=2)[..., 0]


def _values(distribution, critics, minibatch, is_discrete: bool) -> np.ndarray:
    """Values [critics, B] of the recorded actions."""
    values = critics.forward(minibatch[OBS], *_given(distribution, minibatch, is_discrete))
    return _taken(values, minibatch[ACTIONS]) if is_discrete else values


def _torch_values(distribution, critics, minibatch, is_discrete: bool):
    values = critics(minibatch[OBS], *_given(distribution, minibatch, is_discrete))
    if not is_discrete:
        return values
    return values.gather(-1, minibatch[ACTIONS].expand(len(values), -1)[..., None])[..., 0]
