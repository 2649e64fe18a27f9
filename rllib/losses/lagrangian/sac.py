"""The losses of SAC-Lagrangian: SAC's, with a critic of costs whose values the actor pays for.

    y_c = c + gamma_c^k Q_c'(s', a'),     a' ~ pi(. | s')
    J(Q_c) = 1/2 mean w (Q_c(s, a) - y_c)^2
    J(pi) = mean (alpha log p(a | s) - min_i Q_i(s, a) + lambda Q_c(s, a)) / (1 + lambda),     a ~ pi(. | s)

(the agents of Ray, Achiam and Amodei 2019, Benchmarking Safe Exploration in Deep Reinforcement Learning). Costs have
one critic: the least of several would underestimate them. Entropy has no cost, so y_c has no part of it. All else as in
losses/sac.py, for discrete actions as well.
"""

import numpy as np

from rllib.losses.loss import NO_VALUES, LossOverModules
from rllib.losses.sac import LARGEST_ENTROPY, NEXT_NOISE, NOISE, largest_entropy, largest_entropy_in_numpy
from rllib.losses.td import bootstrapped
from rllib.sample_batch import ACTIONS, COST_DISCOUNTS, NEXT_OBS, OBS, WEIGHTS

STATS = ("cost_critic_loss", "mean_cost_q")
ACTOR_STATS = ("actor_loss", "entropy", "mean_cost_of_policy")


def cost_critic_loss(costs: str, module: str, is_discrete: bool) -> LossOverModules:
    """The loss of the critic of costs.

    Args:
        costs: the column of costs.
        module: name of the critic; its target copy is "target_MODULE".
        is_discrete: whether it gives the costs of all actions.
    """

    def drawn_in_torch(distribution, modules, minibatch):
        import torch

        with torch.no_grad():
            dist_inputs = modules["policy"](minibatch[NEXT_OBS])[0]
            actions = distribution.torch_draw(dist_inputs, minibatch[NEXT_NOISE]).actions
            following = modules[f"target_{module}"](minibatch[NEXT_OBS], actions)
            taken = distribution.for_critics(minibatch[ACTIONS])
        return modules[module](minibatch[OBS], taken), following

    def summed_in_torch(distribution, modules, minibatch):
        import torch

        with torch.no_grad():
            policy = distribution.torch_at(modules["policy"](minibatch[NEXT_OBS])[0])
            following = (policy.probabilities * modules[f"target_{module}"](minibatch[NEXT_OBS])).sum(-1)
        return modules[module](minibatch[OBS]).gather(-1, minibatch[ACTIONS][:, None])[:, 0], following

    def in_torch(distribution, modules, minibatch):
        values, following = (summed_in_torch if is_discrete else drawn_in_torch)(distribution, modules, minibatch)
        errors = values - bootstrapped(minibatch[costs], minibatch[COST_DISCOUNTS], following)
        loss = 0.5 * (minibatch[WEIGHTS] * errors.square()).mean()
        return loss, (loss, values.detach().mean())

    def drawn_in_numpy(distribution, modules, minibatch):
        dist_inputs = modules["policy"].forward(minibatch[NEXT_OBS])[0]
        actions = distribution.draw(dist_inputs, minibatch[NEXT_NOISE]).actions
        following = modules[f"target_{module}"].forward(minibatch[NEXT_OBS], actions)
        return modules[module].forward(minibatch[OBS], distribution.for_critics(minibatch[ACTIONS])), following

    def summed_in_numpy(distribution, modules, minibatch):
        policy = distribution.at(modules["policy"].forward(minibatch[NEXT_OBS])[0])
        following = (policy.probabilities * modules[f"target_{module}"].forward(minibatch[NEXT_OBS])).sum(-1)
        return modules[module].forward(minibatch[OBS]), following

    def in_numpy(distribution, modules, minibatch):
        values, following = (summed_in_numpy if is_discrete else drawn_in_numpy)(distribution, modules, minibatch)
        targets = bootstrapped(minibatch[costs], minibatch[COST_DISCOUNTS], following)
        rows = np.arange(len(following))
        taken = values[rows, minibatch[ACTIONS]] if is_discrete else values
        errors = taken - targets
        slopes = minibatch[WEIGHTS] * errors * np.float32(1 / len(errors))
        loss, mean = 0.5 * (minibatch[WEIGHTS] * errors * errors).mean(), taken.mean()
        gradient = slopes
        if is_discrete:
            gradient = np.zeros_like(values)
            gradient[rows, minibatch[ACTIONS]] = slopes
        modules[module].backward(gradient)
        return ((loss, mean),)

    columns = ACTIONS, costs, COST_DISCOUNTS, NEXT_OBS, WEIGHTS
    return LossOverModules(columns if is_discrete else (*columns, NEXT_NOISE), STATS, in_torch, (), in_numpy)


def priced_actor_loss(module: str, is_discrete: bool) -> LossOverModules:
    """The loss of the actor, with settings alpha and multiplier; arguments as for `cost_critic_loss`."""

    def drawn_in_torch(distribution, modules, minibatch, *, alpha, multiplier):
        actions, log_prob = distribution.torch_draw(modules["policy"](minibatch[OBS])[0], minibatch[NOISE])
        values, costs = modules["critics"](minibatch[OBS], actions).amin(0), modules[module](minibatch[OBS], actions)
        loss = (alpha * log_prob - values + multiplier * costs).mean() / (1 + multiplier)
        return loss, (loss, -log_prob.mean(), costs.detach().mean())

    def drawn_in_numpy(distribution, modules, minibatch, *, alpha, multiplier):
        observations, rows, scale = minibatch[OBS], len(minibatch[OBS]), 1 / (1 + multiplier)
        drawn = distribution.draw(modules["policy"].forward(observations)[0], minibatch[NOISE])
        values = modules["critics"].forward(observations, drawn.actions)
        least = values.argmin(0)[None]
        gradient = np.zeros_like(values)
        np.put_along_axis(gradient, least, np.float32(-scale / rows), axis=0)
        value = np.take_along_axis(values, least, axis=0).mean()
        d_actions = modules["critics"].input_gradient(gradient, "action").copy()
        costs = modules[module].forward(observations, drawn.actions)
        price = np.full_like(costs, multiplier * scale / rows)
        cost = costs.mean()
        d_actions += modules[module].input_gradient(price, "action")
        modules["policy"].backward((drawn.gradient(d_actions, alpha * scale / rows), NO_VALUES))
        entropy = -drawn.log_prob.mean()
        return ((scale * (-alpha * entropy - value + multiplier * cost), entropy, cost),)

    def summed_in_torch(distribution, modules, minibatch, *, alpha, multiplier):
        import torch

        dist_inputs = modules["policy"](minibatch[OBS])[0]
        policy = distribution.torch_at(dist_inputs)
        with torch.no_grad():
            values, costs = modules["critics"](minibatch[OBS]).amin(0), modules[module](minibatch[OBS])
        entropy, cost = policy.entropy().mean(), (policy.probabilities * costs).sum(-1).mean()
        value = (policy.probabilities * values).sum(-1).mean()
        loss = (multiplier * cost - value - alpha * entropy) / (1 + multiplier)
        return loss, (loss, entropy, cost.detach(), largest_entropy(dist_inputs))

    def summed_in_numpy(distribution, modules, minibatch, *, alpha, multiplier):
        observations, rows, scale = minibatch[OBS], len(minibatch[OBS]), 1 / (1 + multiplier)
        values = modules["critics"].forward(observations).min(0)
        costs = modules[module].forward(observations)
        dist_inputs = modules["policy"].forward(observations)[0]
        policy, largest = distribution.at(dist_inputs), largest_entropy_in_numpy(dist_inputs)
        p, entropy, cost = policy.probabilities, policy.entropy().mean(), (policy.probabilities * costs).sum(-1).mean()
        worth = values - np.float32(multiplier) * costs
        mean = (p * worth).sum(-1, keepdims=True)
        gradient = policy.gradient(None, -alpha * scale / rows) - p * (worth - mean) * np.float32(scale / rows)
        modules["policy"].backward((gradient, NO_VALUES))
        return ((-scale * (mean.mean() + alpha * entropy), entropy, cost, largest),)

    if is_discrete:
        return LossOverModules((), (*ACTOR_STATS, LARGEST_ENTROPY), summed_in_torch, (), summed_in_numpy)
    return LossOverModules((NOISE,), ACTOR_STATS, drawn_in_torch, (), drawn_in_numpy)
