"""The interface of losses to learners, and the parts that losses of actor-critics share."""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from rllib.losses.returns import standardized
from rllib.sample_batch import ACTION_LOGP, ACTIONS, ADVANTAGES, VALUE_TARGETS, WAITED

# Numbers whose relative spread is below this differ by rounding alone: their variance counts as zero.
ROUNDING = 1e-6
# The gradient of the values of a network that has none.
NO_VALUES = np.empty(0, np.float32)


class Loss:
    """A loss of the policy's outputs, in two forms that agree to rounding: closed-form gradients, and autograd.

    `outputs` are the results of the network's forward pass; gradients are a tuple in the same order.
    `minibatch` maps the names in `columns` to arrays (or tensors) of B rows. `settings` are numbers that may change
    from one update to the next; a loss names those that it takes, which `*args: Any` makes type checkers accept. Both
    forms compute means over the rows. The torch form imports torch when it is called, so that a process which trains in
    numpy never loads it.

    The form in numpy and `identity_error` are optional.

    Attributes:
        columns: names of the columns of a batch that the loss reads.
        stats: names of the statistics, in the order in which both forms return them: means over the rows. One named
            min or max, or with a name that begins with min_ or max_ (min_q), is the least or largest number of a row;
            see `extremes`.
        row_stats: names of numbers for each row ([B]). A loss with row statistics returns them, a tuple of arrays, as
            the last result of both forms.
        takes_across: whether the loss has a setting `across`. That is None, or where several learners compute parts of
            a minibatch, a function that turns a mean over the part (a number, or a scalar tensor) into the mean over
            the minibatch. A loss in which rows depend on such means needs it; all learners must call it equally often.
        by_newest_weights: whether the batch has to be sampled by the weights of the first minibatch.
    """

    columns: tuple[str, ...]
    stats: tuple[str, ...]
    row_stats: tuple[str, ...] = ()
    takes_across: bool = False
    by_newest_weights: bool = False

    # (distribution, outputs, minibatch, **settings) -> statistics, gradients: a sequence of numbers, and the gradient
    # with respect to each output. None: there is no form in numpy.
    numpy: Callable[..., tuple] | None = None

    def torch(self, distribution, outputs: tuple, minibatch: Mapping, *args: Any, **settings: Any) -> tuple:
        """(loss, statistics): a scalar tensor with a graph, and a sequence of scalar tensors."""

    @property
    def extremes(self) -> list[tuple[int, str]]:
        """Index of each statistic that is no mean but the least or largest number of a row, and "min" or "max".

        Numbers of several parts or steps become one by the same function: the least of them, not their mean.
        """
        return extremes_of(self.stats)

    def identity_error(self, at, outputs: tuple, minibatch: Mapping):
        """Mean absolute difference of log-probabilities of learner and acting policy; None for off-policy losses.

        `at` evaluates the distribution, for arrays or tensors. Written with operations that these share; the learner
        checks it on the first minibatch.
        """

    def bind(self, module: Any) -> "Loss":
        """The loss that torch learners use, for the policy's torch module; this one does not call it."""
        return self

    def by_earlier_weights(self) -> "Loss":
        """The loss for batches that earlier weights may have sampled."""
        return replace(self, by_newest_weights=False) if self.by_newest_weights else self

    def pop_logged(self) -> list:
        """Values that functions of the user's have logged since the last time."""
        return []


def extremes_of(stats: Sequence[str]) -> list[tuple[int, str]]:
    """As `Loss.extremes`, by the names of the statistics alone, without a prefix."""
    first_words = [(index, name.split("_")[0]) for index, name in enumerate(stats)]
    return [(index, word) for index, word in first_words if word in ("min", "max")]


def checked_loss(loss: Any) -> Loss:
    """The loss.

    Raises:
        TypeError: if it is none.
    """
    if not isinstance(loss, Loss):
        raise TypeError(f"loss={loss!r:.80} must be of a class derived from rllib.losses.loss.Loss")
    return loss


@dataclass(frozen=True)
class LossOverModules(Loss):
    """A loss that calls several modules. It is written in torch, and may have a closed form in numpy.

    Attributes:
        columns: names of the columns of a batch that it reads in addition to obs; obs and new_obs are encoded.
        stats: names of its statistics.
        torch: (distribution, modules, minibatch, **settings) -> loss, statistics (and row statistics, where it has
            some), as Loss.torch gives them. `modules` maps names to functions of tensors: "policy" turns observations
            into distribution inputs and values, "target_NAME" is the target copy of a module.
        row_stats: as for Loss.
        numpy: the same arguments, for an objective that moves one module -> statistics (and row statistics), after the
            gradient was left in that module's `gradient`. Modules are networks in numpy: the policy's
            (models/dense/in_numpy.py) and NumpyLayers.
    """

    columns: tuple[str, ...]
    stats: tuple[str, ...]
    torch: Callable[..., tuple]
    row_stats: tuple[str, ...] = ()
    numpy: Callable[..., tuple] | None = None


@dataclass(frozen=True)
class LossAround(Loss):
    """Base of losses of the policy's outputs that change another one, whose properties they have.

    Attributes:
        loss: the other one.
    """

    loss: Loss

    @property
    def columns(self) -> tuple[str, ...]:
        return self.loss.columns

    @property
    def stats(self) -> tuple[str, ...]:
        return self.loss.stats

    @property
    def extremes(self) -> list[tuple[int, str]]:
        return self.loss.extremes

    @property
    def row_stats(self) -> tuple[str, ...]:
        return self.loss.row_stats

    @property
    def takes_across(self) -> bool:
        return self.loss.takes_across

    @property
    def by_newest_weights(self) -> bool:
        return self.loss.by_newest_weights

    def identity_error(self, at, outputs: tuple, minibatch: Mapping):
        return self.loss.identity_error(at, outputs, minibatch)

    def by_earlier_weights(self):
        """This loss around the other one for batches that earlier weights may have sampled."""
        return replace(self, loss=self.loss.by_earlier_weights())

    def bind(self, module):
        """This loss, where the other one calls the module."""
        return replace(self, loss=self.loss.bind(module))


@dataclass(frozen=True)
class ActorCriticLoss(Loss):
    """A Loss of a network's outputs for the action distribution and for the value.

    Attributes:
        columns: names of the columns of a batch that it reads.
        stats: names of its statistics.
        gradient: (distribution, dist_inputs, values, minibatch, **settings) -> statistics, d_dist_inputs, d_values.
        autograd: the same in torch, -> loss, statistics.
        by_newest_weights: whether the batch was sampled by the weights of the first minibatch; if not, the loss has to
            correct for the difference.
        marks_waiting: whether rows have the column `waited`: those of agents that acted before the fragment in which
            they have waited are no word on the weights, and are left out of the identity error.
    """

    columns: tuple[str, ...]
    stats: tuple[str, ...]
    gradient: Callable[..., tuple]
    autograd: Callable[..., tuple]
    by_newest_weights: bool = True
    marks_waiting: bool = False
    takes_across: ClassVar[bool] = True

    def numpy(self, distribution, outputs: tuple, minibatch: Mapping[str, np.ndarray], **settings) -> tuple:
        statistics, d_dist_inputs, d_values = self.gradient(distribution, *outputs, minibatch, **settings)
        return statistics, (d_dist_inputs, d_values)

    def torch(self, distribution, outputs: tuple, minibatch: Mapping, **settings) -> tuple:
        return self.autograd(distribution, *outputs, minibatch, **settings)

    def identity_error(self, at, outputs: tuple, minibatch: Mapping):
        """Mean of |log ratio|: 0 to rounding if the learner's weights acted; None if others may have."""
        if not self.by_newest_weights:
            return None
        errors = abs(at(outputs[0]).log_prob(minibatch[ACTIONS]) - minibatch[ACTION_LOGP])
        return (errors * ~minibatch[WAITED] if self.marks_waiting else errors).mean()


def not_all_rows(**columns) -> ValueError:
    """The error for arrays or tensors that are not all [B] and would broadcast to [B, B]."""
    shapes = ", ".join(f"{name} {tuple(column.shape)}" for name, column in columns.items())
    return ValueError(f"{shapes} must all be [B]")


def advantages_and_targets(values, minibatch: Mapping, standardize: bool, across: Callable | None = None) -> tuple:
    """The columns advantages and value_targets of a minibatch, for arrays or tensors.

    Args:
        values: [B] what the network computed.
        minibatch: has both columns, [B] each.
        standardize: give the advantages mean 0 and standard deviation 1 over the minibatch.
        across: as for `returns.standardized`.

    Raises:
        ValueError: if values, value_targets and advantages are not all [B].
    """
    advantages, targets = minibatch[ADVANTAGES], minibatch[VALUE_TARGETS]
    if values.shape != targets.shape or values.shape != advantages.shape:
        raise not_all_rows(values=values, targets=targets, advantages=advantages)
    return standardized(advantages, across=across) if standardize else advantages, targets


@functools.lru_cache(maxsize=64)
def mean_of(rows: int) -> np.ndarray:
    """The vector whose product with a column is its mean."""
    return np.full(rows, 1 / rows, np.float32)


def explained_variance(error_and_target, means):
    """1 - Var(targets - values) / Var(targets), at least -1, from two rows and their means; 0 for equal targets."""
    centred = error_and_target - means[:, None]
    centred *= centred
    unexplained, variance = (centred @ mean_of(centred.shape[1])).tolist()
    if variance <= (ROUNDING * float(means[1])) ** 2:
        return 0.0
    return max(1 - unexplained / variance, -1.0)


def torch_explained_variance(values, targets, mean):
    """1 - Var(targets - values) / Var(targets) in torch, at least -1; 0 for equal targets.

    Args:
        values, targets: tensors [B].
        mean: function of a tensor [B], its mean over the rows that count.
    """
    error = (values - targets).detach()
    target_mean = mean(targets)
    variance = mean((targets - target_mean).square())
    explained = (1 - mean((error - mean(error)).square()) / variance).clamp(min=-1)
    return explained.where(variance > (ROUNDING * target_mean) ** 2, 0.0)


# ---------------------------------------------------------------------- rows in sequences, of which some are no steps
# (loss_mask, which is no mask of actions)


def mean_over_steps(mask):
    """The function that takes the mean of a tensor [R] over the rows that are steps."""
    weight = mask.float() / mask.sum().clamp(min=1)
    return lambda column: (weight * column).sum()


def gradient_of_steps(new, d_log_prob, entropy_weight, kl_weight, steps, weight):
    """Gradient of sum(d_log_prob * log_prob) + weighted means of entropy and KL, zero in rows that are no steps."""
    scale = float(weight.max())
    gradient = new.gradient(d_log_prob, entropy_weight * scale, kl_weight * scale)
    gradient *= steps[:, None]
    return gradient


def value_loss_of_steps(values, targets, weight, vf_loss_coeff) -> tuple:
    """Half the weighted mean squared error, the gradient of vf_loss_coeff times it, and the explained variance.

    Args:
        values, targets: float32 [R].
        weight: float32 [R] of sum 1, zero in rows that are no steps.
        vf_loss_coeff: weight of the value loss.
    """
    error = values - targets
    loss = 0.5 * float(np.dot(weight, error * error))
    gradient = error * weight * np.float32(vf_loss_coeff)
    return loss, gradient, weighted_explained_variance(error, targets, weight)


def weighted_explained_variance(error, targets, weight):
    """1 - Var(error) / Var(targets) over rows [R] with weights [R] of sum 1, at least -1; 0 for equal targets."""
    mean = float(np.dot(weight, targets))
    variance = float(np.dot(weight, np.square(targets - np.float32(mean))))
    if variance <= (ROUNDING * mean) ** 2:
        return 0.0
    unexplained = float(np.dot(weight, np.square(error - np.dot(weight, error))))
    return max(1 - unexplained / variance, -1.0)
