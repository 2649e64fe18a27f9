"""Losses of imitation: behaviour cloning, and MARWIL (Wang et al., NeurIPS 2018, "Exponentially Weighted Imitation
Learning for Batched Historical Data").

    A = G - V(s),    c <- c + rate (mean A^2 - c),    w = exp(min(beta A / (1e-8 + sqrt(c)), limit))
    loss = mean(-w (log pi(a | s) + k mean_i log std_i)) + vf_coeff 1/2 mean(A^2)

G is the return to go, V the value that the network computes, k `bc_logstd_coeff`; w has no gradient, and neither has A
in it. With beta = 0 all weights are 1 and there is no value: that is behaviour cloning (Pomerleau 1991). The mean of
the logarithms of a Gaussian's standard deviations is its entropy over the number of action components, but for a
constant; for other distributions k has no effect.

Departure from RLlib: the exponent has a limit, so that a return far above the value does not outweigh the whole batch.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from rllib.losses.loss import NO_VALUES, explained_variance, not_all_rows, torch_explained_variance
from rllib.sample_batch import ACTIONS, VALUE_TARGETS

# Added to the norm of the advantages.
_LEAST_NORM = 1e-8


@dataclass(frozen=True)
class BehaviorCloning:
    """The negative log-likelihood of recorded actions.

    Args:
        std_weight: weight of a Gaussian's entropy, k over the number of action components; 0: none.
    """

    std_weight: float = 0.0
    columns: ClassVar[tuple[str, ...]] = (ACTIONS,)
    stats: ClassVar[tuple[str, ...]] = ("total_loss", "policy_loss")

    def numpy(self, distribution, outputs, minibatch):
        """Statistics and gradients of the outputs; see Loss."""
        now = distribution.at(outputs[0])
        log_probs = now.log_prob(minibatch[ACTIONS])
        rows = len(log_probs)
        loss = -float(log_probs.mean())
        if self.std_weight:
            loss -= self.std_weight * float(now.entropy().mean())
        weights = np.full(rows, -1 / rows, np.float32)
        return (loss, loss), (now.gradient(weights, -self.std_weight / rows), NO_VALUES)

    def torch(self, distribution, outputs, minibatch):
        """The loss with its graph, and statistics; see Loss."""
        now = distribution.torch_at(outputs[0])
        loss = -now.log_prob(minibatch[ACTIONS]).mean()
        if self.std_weight:
            loss = loss - self.std_weight * now.entropy().mean()
        return loss, (loss, loss)

    def identity_error(self, at, outputs, minibatch):
        """None: others have acted."""


@dataclass(frozen=True)
class ExponentiallyWeighted:
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
        now = distribution.at(dist_inputs)
        policy_loss = -float((weights * now.log_prob(minibatch[ACTIONS])).mean())
        d_dist_inputs = now.gradient(weights * np.float32(-1 / rows), 0.0)
        if self.std_weight:
            policy_loss -= self.std_weight * float((weights * now.entropy()).mean())
            d_dist_inputs = d_dist_inputs + _entropy_gradient(now, weights) * np.float32(-self.std_weight / rows)
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
        now = distribution.torch_at(dist_inputs)
        policy_loss = -(weights * now.log_prob(minibatch[ACTIONS])).mean()
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
