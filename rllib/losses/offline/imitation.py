"""Losses of imitation: behaviour cloning, and MARWIL (Wang et al., NeurIPS 2018, "Exponentially Weighted Imitation
Learning for Batched Historical Data").

    A = G - V(s),    c <- c + rate (mean A^2 - c),    w = exp(min(beta A / (1e-8 + sqrt(c)), limit))
    loss = mean(-w (log pi(a | s) + k mean_i log std_i)) + vf_coeff 1/2 mean(A^2)

G is the return to go, V the value that the network computes, k `bc_logstd_coeff`; w has no gradient, and neither has A
in it. With beta = 0 all weights are 1 and there is no value: that is behaviour cloning (Pomerleau 1991). The mean of
the logarithms of a Gaussian's standard deviations is its entropy over the number of action components, but for a
constant; for other distributions k has no effect.

Departures from RLlib: the exponent has a limit, so that a return far above the value does not outweigh the whole batch.
The logarithms of a Gaussian's standard deviations are bounded, since actions that a policy repeats exactly would let
them fall without end. Squashed actions count as at most 0.999 of their bounds, where the densities beyond would
outweigh all others.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from rllib.losses.loss import NO_VALUES, Loss, explained_variance, not_all_rows, torch_explained_variance
from rllib.models.distributions.base import ActionUnit
from rllib.models.distributions.bounded_mean import LOG_STD
from rllib.models.distributions.standard import DiagGaussian
from rllib.sample_batch import ACTIONS, VALUE_TARGETS

# Added to the norm of the advantages.
_LEAST_NORM = 1e-8
# Of recorded actions before tanh: atanh(0.999).
LARGEST_RECORDED = 3.8002


def with_bounded_std(distribution, inputs: np.ndarray) -> np.ndarray:
    """A Gaussian's inputs with its log standard deviations within LOG_STD; other distributions' as they are."""
    if not isinstance(distribution, DiagGaussian):
        return inputs
    size = distribution.size
    return np.concatenate([inputs[:, :size], np.clip(inputs[:, size:], *LOG_STD)], 1)


def without_bounded(gradient: np.ndarray, inputs: np.ndarray, bounded: np.ndarray) -> np.ndarray:
    """The gradient [B, inputs], 0 where `with_bounded_std` has changed an input."""
    return gradient if bounded is inputs else gradient * (bounded == inputs)


def torch_with_bounded_std(distribution, inputs):
    """`with_bounded_std` of tensors."""
    import torch

    if not isinstance(distribution, DiagGaussian):
        return inputs
    mean, log_std = inputs.chunk(2, dim=-1)
    return torch.cat([mean, log_std.clamp(*LOG_STD)], -1)


def recorded_actions(distribution, minibatch):
    """Recorded actions, array or tensor, whose likelihood is finite: squashed ones within 0.999 of their bounds."""
    actions = minibatch[ACTIONS]
    return actions.clip(-LARGEST_RECORDED, LARGEST_RECORDED) if distribution.unit is ActionUnit.BEFORE_TANH else actions


@dataclass(frozen=True)
class BehaviorCloning(Loss):
    """The negative log-likelihood of recorded actions, or for a Gaussian the squared distance of its mean to them.

    Args:
        std_weight: weight of a Gaussian's entropy, k over the number of action components; 0: none.
        is_squared: whether the loss is mean (mean - a)^2, over rows and components.
    """

    std_weight: float = 0.0
    is_squared: bool = False
    columns: ClassVar[tuple[str, ...]] = (ACTIONS,)
    stats: ClassVar[tuple[str, ...]] = ("total_loss", "policy_loss")

    def numpy(self, distribution, outputs, minibatch):
        """Statistics and gradients of the outputs; see Loss."""
        bounded = with_bounded_std(distribution, outputs[0])
        now, actions = distribution.at(bounded), recorded_actions(distribution, minibatch)
        if self.is_squared:
            gradient, differences = np.zeros_like(bounded), now.mean - actions.reshape(now.mean.shape)
            gradient[:, : differences.shape[1]] = differences * np.float32(2 / differences.size)
            loss = float((differences * differences).mean())
            return (loss, loss), (gradient, NO_VALUES)
        log_probs = now.log_prob(actions)
        rows = len(log_probs)
        loss = -float(log_probs.mean())
        if self.std_weight:
            loss -= self.std_weight * float(now.entropy().mean())
        weights = np.full(rows, -1 / rows, np.float32)
        gradient = now.gradient(weights, -self.std_weight / rows)
        return (loss, loss), (without_bounded(gradient, outputs[0], bounded), NO_VALUES)

    def torch(self, distribution, outputs, minibatch):
        """The loss with its graph, and statistics; see Loss."""
        now = distribution.torch_at(torch_with_bounded_std(distribution, outputs[0]))
        actions = recorded_actions(distribution, minibatch)
        if self.is_squared:
            loss = (now.mean - actions.reshape(now.mean.shape)).square().mean()
            return loss, (loss, loss)
        loss = -now.log_prob(actions).mean()
        if self.std_weight:
            loss = loss - self.std_weight * now.entropy().mean()
        return loss, (loss, loss)

    def identity_error(self, at, outputs, minibatch):
        """None: others have acted."""


@dataclass(frozen=True)
class ExponentiallyWeighted(Loss):
    """The loss of MARWIL; settings of an update are `norm`, c before it, and `vf_coeff`.

    Args:
        beta: weight of the advantage in the exponent, above 0.
        rate: rate at which c follows the mean of the squared advantages.
        limit: largest exponent.
        std_weight: as for BehaviorCloning.
    """

    beta: float
    rate: float
    limit: float
    std_weight: float = 0.0
    takes_across: ClassVar[bool] = True
    columns: ClassVar[tuple[str, ...]] = (ACTIONS, VALUE_TARGETS)
    stats: ClassVar[tuple[str, ...]] = (
        *("total_loss", "policy_loss", "vf_loss", "vf_explained_var"),
        *("moving_average_sqd_adv_norm", "mean_weight", "limited_weights"),
    )

    def numpy(self, distribution, outputs, minibatch, *, norm, vf_coeff, across=None):
        """Statistics and gradients of the outputs; see Loss."""
        dist_inputs, values = outputs
        returns = minibatch[VALUE_TARGETS]
        if values.shape != returns.shape:
            raise not_all_rows(values=values, value_targets=returns)
        rows, advantages = len(values), returns - values
        squares = float((advantages * advantages).mean())
        norm = norm + self.rate * ((across(squares) if across else squares) - norm)
        exponents = np.float32(self.beta / (_LEAST_NORM + np.sqrt(norm))) * advantages
        weights = np.exp(np.minimum(exponents, np.float32(self.limit)))
        bounded = with_bounded_std(distribution, dist_inputs)
        now = distribution.at(bounded)
        policy_loss = -float((weights * now.log_prob(recorded_actions(distribution, minibatch))).mean())
        d_dist_inputs = now.gradient(weights * np.float32(-1 / rows), 0.0)
        if self.std_weight:
            policy_loss -= self.std_weight * float((weights * now.entropy()).mean())
            d_dist_inputs = d_dist_inputs + _entropy_gradient(now, weights) * np.float32(-self.std_weight / rows)
        d_dist_inputs = without_bounded(d_dist_inputs, dist_inputs, bounded)
        vf_loss = 0.5 * squares
        both = np.stack([-advantages, returns])
        statistics = [
            policy_loss + vf_coeff * vf_loss,
            policy_loss,
            vf_loss,
            explained_variance(both, both.mean(1)),
            norm,
            float(weights.mean()),
            float((exponents > self.limit).mean()),
        ]
        return statistics, (d_dist_inputs, advantages * np.float32(-vf_coeff / rows))

    def torch(self, distribution, outputs, minibatch, *, norm, vf_coeff, across=None):
        """The loss with its graph, and statistics; see Loss."""
        dist_inputs, values = outputs
        returns = minibatch[VALUE_TARGETS]
        if values.shape != returns.shape:
            raise not_all_rows(values=values, value_targets=returns)
        advantages = returns - values
        squares = advantages.square().mean()
        fixed = advantages.detach()
        mean = squares.detach()
        norm = norm + self.rate * ((across(mean) if across else mean) - norm)
        exponents = self.beta / (_LEAST_NORM + norm**0.5) * fixed
        weights = exponents.clamp(max=self.limit).exp()
        now = distribution.torch_at(torch_with_bounded_std(distribution, dist_inputs))
        policy_loss = -(weights * now.log_prob(recorded_actions(distribution, minibatch))).mean()
        if self.std_weight:
            policy_loss = policy_loss - self.std_weight * (weights * now.entropy()).mean()
        vf_loss = 0.5 * squares
        statistics = (
            policy_loss + vf_coeff * vf_loss,
            policy_loss,
            vf_loss,
            torch_explained_variance(values, returns, lambda column: column.mean()),
            norm,
            weights.mean(),
            (exponents > self.limit).float().mean(),
        )
        return statistics[0], statistics

    def identity_error(self, at, outputs, minibatch):
        """None: others have acted."""


def _entropy_gradient(now, weights: np.ndarray) -> np.ndarray:
    """Gradient of sum(weights * entropy) with respect to the distribution's inputs, where it is that of the mean."""
    zeros = np.zeros_like(weights)
    return now.gradient(zeros, 1.0) * weights[:, None]
