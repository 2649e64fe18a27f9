"""The losses of deterministic policy gradients: DDPG (arXiv:1509.02971) and TD3 (Fujimoto et al., arXiv:1802.09477).

    a' = clip(pi'(s') + clip(noise, -c, c), -1, 1),    y = r + gamma^k min_i Q'_i(s', a')
    J(Q_i) = mean w l(Q_i(s, a) - y),                  J(pi) = -mean Q_1(s, pi(s))

pi' and Q' are target copies, l half the square or the Huber loss, w the importance weights of the replay. Noise and its
bound c are in the policy's units, in which actions are within [-1, 1]. With one critic and no noise this is DDPG.
"""

import functools

import numpy as np

from rllib.losses.loss import NO_VALUES, LossOverModules
from rllib.losses.sac import CRITIC_STATS, READ_BY_CRITICS, fit, fit_in_numpy, half_square, half_square_in_numpy
from rllib.losses.td import bootstrapped
from rllib.sample_batch import ACTIONS, DISCOUNTS, NEXT_ACTIONS, NEXT_OBS, OBS, REWARDS

# A column of noise [B, action size] for the target actions, clipped already.
TARGET_NOISE = "target_noise"
# Of the mean of the absolute values that TD3+BC and ReBRAC divide by.
_LEAST_VALUE = 1e-8


def critic_loss(
    smooths_target: bool, l2: float, huber: float | None, next_action_weight: float = 0.0
) -> LossOverModules:
    """The critics' loss.

    Args:
        smooths_target: whether the target actions have noise, the column TARGET_NOISE.
        l2: weight of half the sum of the critics' squared weights.
        huber: size from which an error counts linearly; None: never.
        next_action_weight: beta_2 of ReBRAC (arXiv:2305.09836, equation 6): beta_2 |a' - NEXT_ACTIONS|^2 is taken off
            the value of the target action. 0: that column is not read.
    """
    is_drawn = next_action_weight > 0

    def compute(distribution, modules, minibatch):
        import torch

        with torch.no_grad():
            noise = minibatch[TARGET_NOISE] if smooths_target else None
            actions = distribution.torch_draw(modules["target_policy"](minibatch[NEXT_OBS])[0], noise).actions
            following = modules["target_critics"](minibatch[NEXT_OBS], actions).amin(0)
            if is_drawn:
                away = (actions - distribution.for_critics(minibatch[NEXT_ACTIONS])).square().sum(-1)
                following = following - next_action_weight * away
            targets = bootstrapped(minibatch[REWARDS], minibatch[DISCOUNTS], following)
        values = modules["critics"](minibatch[OBS], distribution.for_critics(minibatch[ACTIONS]))
        return fit(values, targets, minibatch, of_error, _penalty(modules["critics"], l2))

    def compute_in_numpy(distribution, modules, minibatch):
        following = minibatch[NEXT_OBS]
        noise = minibatch[TARGET_NOISE] if smooths_target else None
        actions = distribution.draw(modules["target_policy"].forward(following)[0], noise).actions
        least = modules["target_critics"].forward(following, actions).min(0)
        if is_drawn:
            away = np.square(actions - distribution.for_critics(minibatch[NEXT_ACTIONS])).sum(-1)
            least = least - np.float32(next_action_weight) * away
        targets = bootstrapped(minibatch[REWARDS], minibatch[DISCOUNTS], least)
        critics = modules["critics"]
        values = critics.forward(minibatch[OBS], distribution.for_critics(minibatch[ACTIONS]))
        (loss, *others), of_rows, gradient = fit_in_numpy(values, targets, minibatch, in_numpy)
        critics.backward(gradient)
        return (loss + _penalise(critics.gradient, critics.weights, l2), *others), of_rows

    in_numpy = half_square_in_numpy if huber is None else functools.partial(_huber_in_numpy, threshold=huber)
    of_error = half_square if huber is None else functools.partial(_huber, threshold=huber)
    columns = READ_BY_CRITICS + (TARGET_NOISE,) * smooths_target + (NEXT_ACTIONS,) * is_drawn
    return LossOverModules(columns, CRITIC_STATS, compute, ("td_error",), compute_in_numpy)


def cloning_actor_loss(l2: float) -> LossOverModules:
    """TD3+BC's loss of the actor (Fujimoto and Gu, arXiv:2106.06860, equations 4 and 5).

        J(pi) = -lambda mean Q_1(s, pi(s)) + mean (pi(s) - a)^2,    lambda = alpha / mean |Q_1(s, pi(s))|

    The second mean is over rows and components; lambda has no gradient. `alpha` is a setting of an update.

    Args:
        l2: as for `actor_loss`.
    """

    def compute(distribution, modules, minibatch, *, alpha):
        actions = distribution.torch_draw(modules["policy"](minibatch[OBS])[0]).actions
        values = modules["critics"](minibatch[OBS], actions)[0]
        scale = alpha / values.detach().abs().mean().clamp(min=_LEAST_VALUE)
        cloning = (actions - distribution.for_critics(minibatch[ACTIONS])).square().mean()
        loss = cloning - scale * values.mean() + _penalty(modules["policy"], l2)
        return loss, (loss, cloning)

    def compute_in_numpy(distribution, modules, minibatch, *, alpha):
        policy, observations, rows = modules["policy"], minibatch[OBS], len(minibatch[OBS])
        drawn = distribution.draw(policy.forward(observations)[0])
        values = modules["critics"].forward(observations, drawn.actions)
        scale = np.float32(alpha) / max(np.abs(values[0]).mean(), np.float32(_LEAST_VALUE))
        gradient = np.zeros_like(values)
        gradient[0] = -scale / rows
        differences = drawn.actions - distribution.for_critics(minibatch[ACTIONS])
        d_actions = modules["critics"].input_gradient(gradient, "action")
        d_actions = d_actions + np.float32(2 / differences.size) * differences
        policy.backward((drawn.gradient(d_actions), NO_VALUES))
        cloning = (differences * differences).mean()
        return ((_penalise(policy.gradient, policy.weights, l2) + cloning - scale * values[0].mean(), cloning),)

    return LossOverModules((ACTIONS,), ("actor_loss", "bc_loss"), compute, (), compute_in_numpy)


def regularised_actor_loss(weight: float, l2: float) -> LossOverModules:
    """ReBRAC's loss of the actor (Tarasov et al., arXiv:2305.09836, equation 5).

        J(pi) = mean (beta_1 |pi(s) - a|^2 - lambda min_i Q_i(s, pi(s))),    lambda = 1 / mean |min_i Q_i(s, pi(s))|

    The squared distance is a sum over components, and lambda has no gradient.

    Args:
        weight: beta_1.
        l2: as for `actor_loss`.
    """

    def compute(distribution, modules, minibatch):
        actions = distribution.torch_draw(modules["policy"](minibatch[OBS])[0]).actions
        values = modules["critics"](minibatch[OBS], actions).amin(0)
        scale = 1 / values.detach().abs().mean().clamp(min=_LEAST_VALUE)
        cloning = (actions - distribution.for_critics(minibatch[ACTIONS])).square().sum(-1).mean()
        loss = weight * cloning - scale * values.mean() + _penalty(modules["policy"], l2)
        return loss, (loss, cloning)

    def compute_in_numpy(distribution, modules, minibatch):
        policy, observations, rows = modules["policy"], minibatch[OBS], len(minibatch[OBS])
        drawn = distribution.draw(policy.forward(observations)[0])
        values = modules["critics"].forward(observations, drawn.actions)
        least = values.min(0)
        scale = np.float32(1) / max(np.abs(least).mean(), np.float32(_LEAST_VALUE))
        gradient = np.zeros_like(values)
        gradient[values.argmin(0), np.arange(rows)] = -scale / rows
        differences = drawn.actions - distribution.for_critics(minibatch[ACTIONS])
        d_actions = modules["critics"].input_gradient(gradient, "action")
        d_actions = d_actions + np.float32(2 * weight / rows) * differences
        policy.backward((drawn.gradient(d_actions), NO_VALUES))
        cloning = (differences * differences).sum(-1).mean()
        return ((_penalise(policy.gradient, policy.weights, l2) + weight * cloning - scale * least.mean(), cloning),)

    return LossOverModules((ACTIONS,), ("actor_loss", "bc_loss"), compute, (), compute_in_numpy)


def actor_loss(l2: float) -> LossOverModules:
    """The actor's loss; `l2` as for the critics'."""

    def compute(distribution, modules, minibatch):
        actions = distribution.torch_draw(modules["policy"](minibatch[OBS])[0]).actions
        loss = -modules["critics"](minibatch[OBS], actions)[0].mean() + _penalty(modules["policy"], l2)
        return loss, (loss,)

    def compute_in_numpy(distribution, modules, minibatch):
        policy, observations, rows = modules["policy"], minibatch[OBS], len(minibatch[OBS])
        drawn = distribution.draw(policy.forward(observations)[0])
        values = modules["critics"].forward(observations, drawn.actions)
        gradient = np.zeros_like(values)
        gradient[0] = np.float32(-1 / rows)
        d_actions = modules["critics"].input_gradient(gradient, "action")
        policy.backward((drawn.gradient(d_actions), NO_VALUES))
        return ((_penalise(policy.gradient, policy.weights, l2) - values[0].mean(),),)

    return LossOverModules((), ("actor_loss",), compute, (), compute_in_numpy)


def _huber(errors, threshold: float):
    import torch
    from torch.nn import functional

    return functional.huber_loss(errors, torch.zeros_like(errors), reduction="none", delta=threshold)


def _huber_in_numpy(errors: np.ndarray, threshold: float) -> tuple[np.ndarray, np.ndarray]:
    slopes = np.clip(errors, -np.float32(threshold), np.float32(threshold))
    return slopes * (errors - np.float32(0.5) * slopes), slopes


def _penalise(gradient: np.ndarray, weights: np.ndarray, l2: float) -> float:
    """Adds the penalty's gradient to `gradient`, and returns the penalty."""
    if not l2:
        return 0.0
    gradient += np.float32(l2) * weights
    return 0.5 * l2 * float(weights @ weights)


def _penalty(module, l2: float):
    return 0.5 * l2 * sum(leaf.square().sum() for leaf in module.leaves) if l2 else 0.0
