"""Intrinsic rewards: novelty, the losses of its predictors, and its advantages.

The first three functions take torch tensors, without importing torch.
"""

import numpy as np

from rllib.losses.returns import accumulated

# Added to the variance of returns, by whose root rewards are divided.
EPSILON = 1e-8


def distillation_errors(predicted, target):
    """RND's reward and loss of each row: the mean squared error of the embedding (arXiv:1810.12894, section 2.2), [B].

    Args:
        predicted: [B, E], outputs of the trained network.
        target: [B, E], outputs of the fixed random network; no gradient flows into it.
    """
    return (predicted - target.detach()).square().mean(1)


def forward_errors(predicted, features):
    """ICM's reward and forward loss of each row: 1/2 |predicted - features|^2 (arXiv:1705.05363, eq. 5), [B].

    Args:
        predicted: [B, F] next features, predicted from the features and the action.
        features: [B, F] of the next observation. As in the paper's code, the gradient flows into them as well.
    """
    return 0.5 * (predicted - features).square().sum(1)


def curiosity_loss(forward, inverse, beta):
    """ICM's loss without the policy's part (eq. 7): (1 - beta) mean(inverse) + beta mean(forward).

    Args:
        forward: [B] `forward_errors`.
        inverse: [B] negative log-probabilities of the actions, predicted from the features before and after.
        beta: 0 ... 1.

    Returns:
        the loss, mean(forward), mean(inverse).
    """
    forward, inverse = forward.mean(), inverse.mean()
    return (1 - beta) * inverse + beta * forward, forward, inverse


def discounted_sums(rewards: np.ndarray, goes_on: np.ndarray, gamma: float) -> np.ndarray:
    """G_t = gamma G_{t-1} + r_t along the rows, [S]; a row that does not follow the one before starts from 0.

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
    """GAE (arXiv:1506.02438) of rows in sequence, instead of columns side by side.

    Args:
        rewards, values: [S] float32.
        next_values: [S] value of the observation that follows; 0 where none does.
        goes_on: [S] bool, whether the next row follows this one; else the sum is cut.
        gamma: discount per step.
        lambda_: GAE's lambda.

    Returns:
        advantages, value targets: [S] float32.
    """
    deltas = rewards + np.float32(gamma) * next_values - values
    advantages = accumulated(deltas, np.where(goes_on, np.float32(gamma * lambda_), np.float32(0)))
    return advantages, advantages + values
