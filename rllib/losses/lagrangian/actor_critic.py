"""Parts of Lagrangian policy gradients: advantages with the price of costs, and the loss of the costs' value.

    A = (A_r - lambda A_c) / (1 + lambda)

(Ray, Achiam and Amodei 2019, Benchmarking Safe Exploration in Deep Reinforcement Learning; their code divides by
1 + lambda as well, so that the step's length does not grow with the multiplier.)
"""

import numpy as np

from rllib.losses.loss import LossOverModules, explained_variance, mean_of, torch_explained_variance
from rllib.sample_batch import COST_TARGETS, OBS

STATS = ("cost_vf_loss", "cost_vf_explained_var")


def priced_advantages(advantages, cost_advantages, multiplier: float):
    """(A_r - lambda A_c) / (1 + lambda), of arrays [B], float32.

    Args:
        advantages: of rewards.
        cost_advantages: of costs.
        multiplier: lambda, rewards for a unit of cost.
    """
    return (advantages - np.float32(multiplier) * cost_advantages) / np.float32(1 + multiplier)


def cost_value_loss(module: str) -> LossOverModules:
    """The loss mean((V_c - target)^2), without a factor 1/2, as our PPO has it for the value of rewards.

    Args:
        module: name of the network that computes V_c from observations.
    """

    def in_torch(distribution, modules, minibatch):
        values, targets = modules[module](minibatch[OBS]), minibatch[COST_TARGETS]
        loss = (values - targets).square().mean()
        return loss, (loss, torch_explained_variance(values, targets, lambda column: column.mean()))

    def in_numpy(distribution, modules, minibatch):
        targets = minibatch[COST_TARGETS]
        error = modules[module].forward(minibatch[OBS]) - targets
        modules[module].backward(error * np.float32(2 / len(error)))
        error_and_target = np.stack([error, targets])
        explained = explained_variance(error_and_target, error_and_target @ mean_of(len(error)))
        return ((float(np.square(error).mean()), explained),)

    return LossOverModules((COST_TARGETS,), STATS, in_torch, (), in_numpy)
