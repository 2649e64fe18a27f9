"""Intrinsic rewards: what is new to a network, the losses that make it old, and the advantages that it brings.

The first three take torch tensors, and import nothing for it.
"""

import numpy as np

from rllib.losses.returns import accumulated

# Of the variance of returns that rewards are divided by.
EPSILON = 1e-8


def distillation_errors(predicted, target):
    """RND's reward and loss by row: the mean squared error of the embedding (arXiv:1810.12894, section 2.2), [B].

    Args:
        predicted: [B, E] by the network that is trained.
        target: [B, E] by the fixed random network; no gradient flows into it.
    """
    return (predicted - target.detach()).square().mean(1)


def forward_errors(predicted, features):
    """ICM's reward, and its forward loss by row: 1/2 |predicted - features|^2 (arXiv:1705.05363, eq. 5), [B].

    Args:
        predicted: [B, F] of the next features, from the features and the action.
        features: [B, F] of the next observation. As in the paper's code, the gradient flows into them, too.
    """
    return 0.5 * (predicted - features).square().sum(1)


def curiosity_loss(forward, inverse, beta):
    """ICM's loss without the policy's part (eq. 7): (1 - beta) mean(inverse) + beta mean(forward).

    Args:
        forward: [B] `forward_errors`.
        inverse: [B] negative log-probabilities of the actions, told from the features before and after.
        beta: 0 ... 1.

    Returns:
        the loss, mean(forward), mean(inverse).
    """
    forward, inverse = forward.mean(), inverse.mean()
    return (1 - beta) * inverse + beta * forward, forward, inverse


def discounted_sums(rewards: np.ndarray, goes_on: np.ndarray, gamma: float) -> np.ndarray:
    """G_t = gamma G_{t-1} + r_t, along the rows, [S]; from 0 where a row does not follow the one before.

    Args:
        rewards: [S] float32.
        goes_on: [S] bool, whether the next row follows this one.
        gamma: discount per step.
    """
    follows = np.zeros(len(goes_on), bool)
    follows[1:] = goes_on[:-1]
    return accumulated(rewards[::-1], np.where(follows, gamma, 0.0)[::-1])[::-1]


def advantages_of_rows(
    rewards: np.ndarray,
    values: np.ndarray,
    next_values: np.ndarray,
    goes_on: np.ndarray,
    gamma: float,
    lambda_: float,
) -> tuple[np.ndarray, np.ndarray]:
    """GAE (arXiv:1506.02438) of rows one after the other, not of columns side by side.

    Args:
        rewards, values: [S] float32.
        next_values: [S] of what follows, 0 where nothing does.
        goes_on: [S] bool, whether the next row follows this one; elsewhere the sum is cut.
        gamma: discount per step.
        lambda_: GAE's lambda.

    Returns:
        advantages, value targets: [S] float32.
    """
    deltas = rewards + np.float32(gamma) * next_values - values
    advantages = accumulated(deltas, np.where(goes_on, np.float32(gamma * lambda_), np.float32(0)))
    return advantages, advantages + values
