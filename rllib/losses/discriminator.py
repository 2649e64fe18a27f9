"""Losses of a discriminator, which tells an expert's rows from a policy's, and the rewards that its logits give.

l is the logit of a row and D = sigmoid(l) the probability that the row is the expert's. (In the paper of GAIL, Ho and
Ermon, arXiv:1606.03476, D is 1 for the policy.) All functions take torch tensors, without importing torch.
"""

from collections.abc import Callable, Mapping
from typing import Any


def _softplus(x):
    """log(1 + e^x), -log(1 - D) of a logit x."""
    return x.logaddexp(x.new_zeros(()))


def _least_squares_reward(x):
    """max(0, 1 - (d - 1)^2 / 4) (AMP, Peng et al., arXiv:2104.02180, eq. 7)."""
    return (1 - 0.25 * (x - 1).square()).clamp(min=0)


LEAST_SQUARES = "lsgan"
# reward_form -> function of logits [B] that returns rewards [B].
REWARD_FORMS: Mapping[str, Callable[[Any], Any]] = {
    "gail": _softplus,  # -log(1 - D), above 0
    "airl": lambda x: x,  # log D - log(1 - D), of both signs
    "log_d": lambda x: -_softplus(-x),  # log D, below 0
    "fairl": lambda x: -x * x.exp(),  # of the forward KL (Ghasemipour et al., arXiv:1911.02256, eq. 12)
    LEAST_SQUARES: _least_squares_reward,
}


def cross_entropy(expert, policy, smoothing: float = 0.0):
    """mean(softplus(-l_E)) + mean(softplus(l_G)), a scalar.

    Args:
        expert, policy: [B] logits of rows of the expert, and of the policy.
        smoothing: weight of the other label.
    """

    def towards(logits):
        return ((1 - smoothing) * _softplus(-logits) + smoothing * _softplus(logits)).mean()

    return towards(expert) + towards(-policy)


def least_squares(expert, policy):
    """mean((d_E - 1)^2) + mean((d_G + 1)^2), a scalar (arXiv:2104.02180, eq. 6); arguments as for `cross_entropy`."""
    return (expert - 1).square().mean() + (policy + 1).square().mean()


def distance_from_unit_norm(gradients):
    """mean((|g| - 1)^2), of WGAN-GP (Gulrajani et al., arXiv:1704.00028), as DAC takes it (arXiv:1809.02925).

    Args:
        gradients: [B, inputs] of the logits with respect to interpolated rows.
    """
    return (gradients.norm(dim=1) - 1).square().mean()


def squared_norm(gradients):
    """mean(|g|^2), R1 (Mescheder et al., arXiv:1801.04406); `gradients` [B, inputs] at the expert's rows."""
    return gradients.square().sum(1).mean()


def entropy(logits):
    """Mean entropy of D (nats), a scalar: log 2 if D distinguishes nothing, 0 if it distinguishes everything."""
    probability = logits.sigmoid()
    return (probability * _softplus(-logits) + (1 - probability) * _softplus(logits)).mean()


def shaped(rewards, values, next_values, terminated, gamma: float):
    """AIRL's f = g(s, a) + gamma (1 - terminated) h(s') - h(s), [B] (Fu et al., arXiv:1710.11248, eq. 4).

    Args:
        rewards: [B] g.
        values, next_values: [B] h of the observations before and after.
        terminated: [B], 1 where the episode ended with the step, else 0.
        gamma: discount per step.
    """
    return rewards + gamma * (1 - terminated) * next_values - values


def absorbing_bonus(reward: float, gamma: float) -> float:
    """gamma r_a / (1 - gamma): what a terminated step's reward is raised by, so that its state has a value.

    The environment is left for a state that gives r_a for ever (DAC, arXiv:1809.02925, section 4.2), so that a
    terminated state is worth r_a / (1 - gamma) in place of 0. In r + gamma V(terminated) - V the sum below has the same
    effect with V(terminated) = 0.

    Args:
        reward: r_a, of a step in the absorbing state.
        gamma: discount per step, below 1.
    """
    return gamma * reward / (1 - gamma)
