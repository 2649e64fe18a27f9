"""The losses of conservative Q-learning on soft actor-critic, CQL(H) (Kumar et al., arXiv:2006.04779, equation 4).

    y = r + gamma^k (min_i Q'_i(s', a') [- alpha log p(a' | s')]),     a' ~ pi(. | s')
    c_j = [Q_j(s, u_n) - log 0.5^K,  Q_j(s, a'_n) - log p(a'_n | s'),  Q_j(s, a_n) - log p(a_n | s)],   n = 1 ... N each
    R_j = w (T mean logsumexp(c_j / T) - mean Q_j(s, a))
    J(Q) = sum_j mean (Q_j(s, a) - y)^2 + R_j

u are uniform in [-1, 1]^K, a_n and a'_n are drawn from the policy in s and in s', and all are judged in s: together
they are an importance sample of the integral of exp Q over actions. R lowers values of actions that the data does not
have. The bracket is left out by default (`deterministic_backup`), as in RLlib. With a multiplier m and a limit d of R,
m (R_j - d) replaces R_j. The square has no factor 1/2 here, so that w weighs what it does in the
authors' code.

The actor's loss is SAC's; in its first updates log p of the recorded action replaces the critics' value.
"""

import numpy as np

from rllib.losses.loss import NO_VALUES, LossOverModules
from rllib.losses.offline.imitation import recorded_actions
from rllib.losses.sac import ACTOR_LOSS, CRITIC_STATS, NEXT_NOISE, NOISE, READ_BY_CRITICS
from rllib.losses.td import bootstrapped
from rllib.sample_batch import ACTIONS, DISCOUNTS, NEXT_OBS, OBS, REWARDS, WEIGHTS

# Columns of random numbers [B, N, K]: uniform in [-1, 1], and standard normal for actions in s and in s'.
UNIFORM, DRAWS, NEXT_DRAWS = "uniform_actions", "draws", "next_draws"
# Log-density of a uniform number in [-1, 1].
_LOG_UNIFORM = -float(np.log(2.0))


def critic_loss(temperature: float, weight: float, deterministic_backup: bool) -> LossOverModules:
    """The critics' loss; settings of an update are alpha, and `multiplier` and `limit` of the penalty.

    Args:
        temperature: T.
        weight: w.
        deterministic_backup: whether targets are without the entropy of the next action.
    """

    def compute(distribution, modules, minibatch, *, alpha, multiplier, limit):
        import torch

        with torch.no_grad():
            there = modules["policy"](minibatch[NEXT_OBS])[0]
            entropy_price = 0.0 if deterministic_backup else alpha
            targets = _torch_targets(distribution, modules, minibatch, there, entropy_price)
            judged, offsets = _torch_judged(distribution, modules, minibatch, there)
        repeated = minibatch[OBS].repeat_interleave(judged.shape[1], 0)
        values = modules["critics"](repeated, judged.flatten(0, 1)).reshape(-1, *judged.shape[:2])
        of_data, of_drawn = values[..., 0], values[..., 1:]
        errors = of_data - targets
        spread = temperature * torch.logsumexp((of_drawn - offsets) / temperature, -1)
        penalties = weight * (spread.mean(-1) - of_data.mean(-1))
        bellman = (minibatch[WEIGHTS] * errors.square()).mean(-1).sum()
        loss = bellman + (multiplier * (penalties - limit)).sum()
        with torch.no_grad():
            shown = of_data.mean(), of_data.min(), of_data.max(), penalties.mean(), of_drawn.mean()
        return loss, (loss, *shown), (errors.detach().abs().mean(0),)

    def compute_in_numpy(distribution, modules, minibatch, *, alpha, multiplier, limit):
        there = np.array(modules["policy"].forward(minibatch[NEXT_OBS])[0])  # the next call overwrites it
        entropy_price = 0.0 if deterministic_backup else alpha
        targets = _targets(distribution, modules, minibatch, there, entropy_price)
        judged, offsets = _judged(distribution, modules, minibatch, there)
        critics, (rows, each, size) = modules["critics"], judged.shape
        values = critics.forward(np.repeat(minibatch[OBS], each, 0), judged.reshape(-1, size)).reshape(-1, rows, each)
        of_data, of_drawn = values[..., 0], values[..., 1:]
        errors = of_data - targets
        spread, shares = _logsumexp((of_drawn - offsets) * np.float32(1 / temperature))
        penalties = weight * (temperature * spread.mean(-1) - of_data.mean(-1))
        weighted = minibatch[WEIGHTS] * errors
        loss = (weighted * errors).sum() / rows + (multiplier * (penalties - limit)).sum()
        statistics = loss, of_data.mean(), of_data.min(), of_data.max(), penalties.mean(), of_drawn.mean()
        factor = np.float32(multiplier * weight / rows)
        gradient = np.empty_like(values)
        gradient[..., 0] = weighted * np.float32(2 / rows) - factor
        np.multiply(shares, factor, out=gradient[..., 1:])
        of_rows = (np.abs(errors).mean(0),)
        critics.backward(gradient.reshape(len(values), -1))
        return statistics, of_rows

    columns = (*READ_BY_CRITICS, NEXT_NOISE, UNIFORM, DRAWS, NEXT_DRAWS)
    stats = (*CRITIC_STATS, "cql_penalty", "mean_q_drawn")
    return LossOverModules(columns, stats, compute, ("td_error",), compute_in_numpy)


def _targets(distribution, modules, minibatch, there: np.ndarray, entropy_price: float) -> np.ndarray:
    """y [B]; `there` are the policy's outputs in s'."""
    drawn = distribution.draw(there, minibatch[NEXT_NOISE])
    least = modules["target_critics"].forward(minibatch[NEXT_OBS], drawn.actions).min(0)
    soft = least - np.float32(entropy_price) * drawn.log_prob
    return bootstrapped(minibatch[REWARDS], minibatch[DISCOUNTS], soft)


def _judged(distribution, modules, minibatch, there: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The recorded action and those that are drawn, [B, 1 + 3 N, K], and log-densities of the drawn ones, [B, 3 N]."""
    rows, count, size = minibatch[UNIFORM].shape
    judged = np.empty((rows, 1 + 3 * count, size), np.float32)
    judged[:, 0] = distribution.for_critics(minibatch[ACTIONS])
    judged[:, 1 : 1 + count] = minibatch[UNIFORM]
    densities = np.full((rows, 3 * count), size * _LOG_UNIFORM, np.float32)
    here = modules["policy"].forward(minibatch[OBS])[0]
    for place, (inputs, noise) in enumerate(((there, NEXT_DRAWS), (here, DRAWS)), 1):
        drawn = distribution.draw(np.repeat(inputs, count, 0), minibatch[noise].reshape(-1, size))
        first = place * count
        judged[:, 1 + first : 1 + first + count] = drawn.actions.reshape(rows, count, size)
        densities[:, first : first + count] = drawn.log_prob.reshape(rows, count)
    return judged, densities


def _logsumexp(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """log sum exp over the last axis, and its gradient."""
    largest = values.max(-1, keepdims=True)
    shares = np.exp(values - largest)
    total = shares.sum(-1, keepdims=True)
    shares /= total
    return (largest + np.log(total))[..., 0], shares


def _torch_targets(distribution, modules, minibatch, there, entropy_price: float):
    actions, log_prob = distribution.torch_draw(there, minibatch[NEXT_NOISE])
    least = modules["target_critics"](minibatch[NEXT_OBS], actions).amin(0)
    return bootstrapped(minibatch[REWARDS], minibatch[DISCOUNTS], least - entropy_price * log_prob)


def _torch_judged(distribution, modules, minibatch, there) -> tuple:
    import torch

    rows, count, size = minibatch[UNIFORM].shape
    drawn, densities = [minibatch[UNIFORM]], [minibatch[UNIFORM].new_full((rows, count), size * _LOG_UNIFORM)]
    for inputs, noise in ((there, NEXT_DRAWS), (modules["policy"](minibatch[OBS])[0], DRAWS)):
        repeated = inputs.repeat_interleave(count, 0)
        actions, log_prob = distribution.torch_draw(repeated, minibatch[noise].reshape(-1, size))
        drawn.append(actions.reshape(rows, count, size))
        densities.append(log_prob.reshape(rows, count))
    taken = distribution.for_critics(minibatch[ACTIONS])[:, None]
    return torch.cat([taken, *drawn], 1), torch.cat(densities, 1)


def _actor(distribution, modules, minibatch, *, alpha, clones):
    if not clones:
        return ACTOR_LOSS.torch(distribution, modules, minibatch, alpha=alpha)
    inputs = modules["policy"](minibatch[OBS])[0]
    log_prob = distribution.torch_draw(inputs, minibatch[NOISE]).log_prob
    of_recorded = distribution.torch_at(inputs).log_prob(recorded_actions(distribution, minibatch))
    loss = (alpha * log_prob - of_recorded).mean()
    return loss, (loss, -log_prob.mean())


def _actor_in_numpy(distribution, modules, minibatch, *, alpha, clones):
    if not clones:
        return ACTOR_LOSS.numpy(distribution, modules, minibatch, alpha=alpha)
    policy, rows = modules["policy"], len(minibatch[OBS])
    inputs = policy.forward(minibatch[OBS])[0]
    drawn = distribution.draw(inputs, minibatch[NOISE])
    likelihood = distribution.at(inputs)
    of_recorded = likelihood.log_prob(recorded_actions(distribution, minibatch)).mean()
    gradient = likelihood.gradient(np.full(rows, -1 / rows, np.float32))
    gradient = gradient + drawn.gradient(np.zeros_like(drawn.actions), alpha / rows)
    policy.backward((gradient, NO_VALUES))
    entropy = -drawn.log_prob.mean()
    return ((-alpha * entropy - of_recorded, entropy),)


# Settings of an update are alpha, and whether it `clones` recorded actions instead of asking the critics.
CONSERVATIVE_ACTOR_LOSS = LossOverModules((ACTIONS, NOISE), ACTOR_LOSS.stats, _actor, (), _actor_in_numpy)
