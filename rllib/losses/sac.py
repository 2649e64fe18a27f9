"""The losses of soft actor-critic (Haarnoja et al., arXiv:1812.05905), for continuous and for discrete actions.

    y = r + gamma^k (min_i Q'_i(s', a') - alpha log p(a' | s')),     a' ~ pi(. | s')                (equation 3)
    J(Q_i) = 1/2 mean w (Q_i(s, a) - y)^2                                                           (equation 5)
    J(pi) = mean (alpha log p(a | s) - min_i Q_i(s, a)),     a ~ pi(. | s), differentiable in pi    (equation 7)

Q' are the target copies of the critics, w the importance weights of the replay. Continuous actions are stored before
tanh (models/distributions/squashed.py), critics read tanh(u), and probabilities are densities of tanh(u) in [-1, 1].

With discrete actions (Christodoulou, arXiv:1910.07207) a critic gives the values of all actions, and the means over
a and a' are sums over the policy's probabilities instead of draws.

With `sampled` critics (RLPD, arXiv:2302.02948; REDQ, arXiv:2101.05982) the minimum over i in y is over those that a row
has drawn: the column LEFT_OUT is infinite for the others.

Learning rates and the temperature alpha are settings: algorithms/sac.py learns alpha.
"""

from collections.abc import Callable

import numpy as np

from rllib.losses.loss import NO_VALUES, LossOverModules
from rllib.losses.td import bootstrapped
from rllib.models.observations.masks import LOWEST
from rllib.sample_batch import ACTIONS, DISCOUNTS, NEXT_OBS, OBS, REWARDS, WEIGHTS

# Columns of standard normal numbers [B, action size], for the actions that the losses draw.
NOISE, NEXT_NOISE = "noise", "next_noise"
# A column [B, critics], float32: 0 for the target critics that a row's target takes the least of, infinite for others.
LEFT_OUT = "left_out_critics"
CRITIC_STATS = ("critic_loss", "mean_q", "min_q", "max_q")
# Statistic of actors of discrete actions: nats, mean over the rows of the largest entropy that their masks allow.
LARGEST_ENTROPY = "largest_entropy"


def half_square(errors):
    """The loss of a TD error."""
    return 0.5 * errors.square()


def fit(values, targets, minibatch, of_error=half_square, penalty=0.0) -> tuple:
    """The loss of values [critics, B] that are fitted to targets [B], its statistics, and the rows' TD errors [B].

    Args:
        values, targets: tensors.
        minibatch: with the column of importance weights.
        of_error: the loss of each TD error.
        penalty: added to the sum of the critics' losses.
    """
    import torch

    errors = values - targets
    loss = (minibatch[WEIGHTS] * of_error(errors)).mean(-1).sum() + penalty
    with torch.no_grad():
        statistics = loss, values.mean(), values.min(), values.max()
        td_errors = errors.abs().mean(0)
    return loss, statistics, (td_errors,)


def half_square_in_numpy(errors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The losses of TD errors, and their derivatives."""
    return np.float32(0.5) * errors * errors, errors


def fit_in_numpy(values, targets, minibatch, of_error: Callable = half_square_in_numpy) -> tuple:
    """As `fit`, for arrays: statistics and row statistics, and the gradient [critics, B] with respect to the values."""
    errors = values - targets
    weights, rows = minibatch[WEIGHTS], len(targets)
    losses, slopes = of_error(errors)
    loss = (weights * losses).sum() / rows
    statistics = loss, values.mean(), values.min(), values.max()
    return statistics, (np.abs(errors).mean(0),), slopes * (weights / np.float32(rows))


def _critic(distribution, modules, minibatch, *, alpha):
    import torch

    with torch.no_grad():
        dist_inputs = modules["policy"](minibatch[NEXT_OBS])[0]
        actions, log_prob = distribution.torch_draw(dist_inputs, minibatch[NEXT_NOISE])
        following = modules["target_critics"](minibatch[NEXT_OBS], actions)
        if LEFT_OUT in minibatch:
            following = following + minibatch[LEFT_OUT].T
        following = following.amin(0)
        targets = bootstrapped(minibatch[REWARDS], minibatch[DISCOUNTS], following - alpha * log_prob)
        taken = distribution.for_critics(minibatch[ACTIONS])
    return fit(modules["critics"](minibatch[OBS], taken), targets, minibatch)


def _critic_in_numpy(distribution, modules, minibatch, *, alpha):
    following = minibatch[NEXT_OBS]
    drawn = distribution.draw(modules["policy"].forward(following)[0], minibatch[NEXT_NOISE])
    judged = modules["target_critics"].forward(following, drawn.actions)
    if LEFT_OUT in minibatch:
        judged = judged + minibatch[LEFT_OUT].T
    soft = judged.min(0) - np.float32(alpha) * drawn.log_prob
    targets = bootstrapped(minibatch[REWARDS], minibatch[DISCOUNTS], soft)
    values = modules["critics"].forward(minibatch[OBS], distribution.for_critics(minibatch[ACTIONS]))
    statistics, of_rows, gradient = fit_in_numpy(values, targets, minibatch)
    modules["critics"].backward(gradient)
    return statistics, of_rows


def _actor(distribution, modules, minibatch, *, alpha):
    dist_inputs = modules["policy"](minibatch[OBS])[0]
    actions, log_prob = distribution.torch_draw(dist_inputs, minibatch[NOISE])
    loss = (alpha * log_prob - modules["critics"](minibatch[OBS], actions).amin(0)).mean()
    return loss, (loss, -log_prob.mean())


def _actor_in_numpy(distribution, modules, minibatch, *, alpha):
    observations, rows = minibatch[OBS], len(minibatch[OBS])
    drawn = distribution.draw(modules["policy"].forward(observations)[0], minibatch[NOISE])
    values = modules["critics"].forward(observations, drawn.actions)
    least = values.argmin(0)[None]
    gradient = np.zeros_like(values)
    np.put_along_axis(gradient, least, np.float32(-1 / rows), axis=0)
    d_actions = modules["critics"].input_gradient(gradient, "action")
    modules["policy"].backward((drawn.gradient(d_actions, alpha / rows), NO_VALUES))
    entropy = -drawn.log_prob.mean()
    loss = -alpha * entropy - np.take_along_axis(values, least, axis=0).mean()
    return ((loss, entropy),)


def _discrete_critic(distribution, modules, minibatch, *, alpha):
    import torch

    with torch.no_grad():
        policy = distribution.torch_at(modules["policy"](minibatch[NEXT_OBS])[0])
        following = modules["target_critics"](minibatch[NEXT_OBS]).amin(0)
        soft = (policy.probabilities * following).sum(-1) + alpha * policy.entropy()
        targets = bootstrapped(minibatch[REWARDS], minibatch[DISCOUNTS], soft)
    values = modules["critics"](minibatch[OBS])
    actions = minibatch[ACTIONS].expand(len(values), -1)[..., None]
    return fit(values.gather(-1, actions)[..., 0], targets, minibatch)


def _discrete_critic_in_numpy(distribution, modules, minibatch, *, alpha):
    following = minibatch[NEXT_OBS]
    policy = distribution.at(modules["policy"].forward(following)[0])
    least = modules["target_critics"].forward(following).min(0)
    soft = (policy.probabilities * least).sum(-1) + np.float32(alpha) * policy.entropy()
    targets = bootstrapped(minibatch[REWARDS], minibatch[DISCOUNTS], soft)
    values = modules["critics"].forward(minibatch[OBS])
    taken = minibatch[ACTIONS][None, :, None]
    of_taken = np.take_along_axis(values, taken, axis=2)[..., 0]
    statistics, of_rows, of_values = fit_in_numpy(of_taken, targets, minibatch)
    gradient = np.zeros_like(values)
    np.put_along_axis(gradient, np.broadcast_to(taken, (len(values), *taken.shape[1:])), of_values[..., None], axis=2)
    modules["critics"].backward(gradient)
    return statistics, of_rows


def _discrete_actor(distribution, modules, minibatch, *, alpha):
    import torch

    dist_inputs = modules["policy"](minibatch[OBS])[0]
    policy = distribution.torch_at(dist_inputs)
    with torch.no_grad():
        values = modules["critics"](minibatch[OBS]).amin(0)
    entropy = policy.entropy()
    loss = -((policy.probabilities * values).sum(-1) + alpha * entropy).mean()
    return loss, (loss, entropy.mean(), largest_entropy(dist_inputs))


def _discrete_actor_in_numpy(distribution, modules, minibatch, *, alpha):
    observations, rows = minibatch[OBS], len(minibatch[OBS])
    values = modules["critics"].forward(observations).min(0)
    dist_inputs = modules["policy"].forward(observations)[0]
    policy, largest = distribution.at(dist_inputs), largest_entropy_in_numpy(dist_inputs)
    p, entropy = policy.probabilities, policy.entropy()
    mean = (p * values).sum(-1, keepdims=True)
    gradient = policy.gradient(None, -alpha / rows) - p * (values - mean) * np.float32(1 / rows)
    modules["policy"].backward((gradient, NO_VALUES))
    return ((-(mean.mean() + alpha * entropy.mean()), entropy.mean(), largest),)


def largest_entropy(dist_inputs):
    """Mean of log(number of legal actions) over rows of masked distribution inputs, a tensor [B, n]."""
    return (dist_inputs > LOWEST).sum(-1).log().mean()


def largest_entropy_in_numpy(dist_inputs: np.ndarray) -> np.ndarray:
    """As `largest_entropy`, of an array."""
    return np.log((dist_inputs > LOWEST).sum(-1)).mean()


READ_BY_CRITICS = (ACTIONS, REWARDS, DISCOUNTS, NEXT_OBS, WEIGHTS)
CRITIC_LOSS = LossOverModules((*READ_BY_CRITICS, NEXT_NOISE), CRITIC_STATS, _critic, ("td_error",), _critic_in_numpy)
SAMPLED_CRITIC_LOSS = LossOverModules(
    (*READ_BY_CRITICS, NEXT_NOISE, LEFT_OUT), CRITIC_STATS, _critic, ("td_error",), _critic_in_numpy
)
ACTOR_LOSS = LossOverModules((NOISE,), ("actor_loss", "entropy"), _actor, (), _actor_in_numpy)
DISCRETE_CRITIC_LOSS = LossOverModules(
    READ_BY_CRITICS, CRITIC_STATS, _discrete_critic, ("td_error",), _discrete_critic_in_numpy
)
DISCRETE_ACTOR_LOSS = LossOverModules(
    (), ("actor_loss", "entropy", LARGEST_ENTROPY), _discrete_actor, (), _discrete_actor_in_numpy
)
