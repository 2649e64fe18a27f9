"""The update in numpy: closed-form gradients of the loss, backward by hand, one flat optimizer step."""

import math
from collections.abc import Mapping

import numpy as np

from rllib.errors import LearnerError
from rllib.learners.optimizers import Adam, clip_gradient, global_norm
from rllib.losses.loss import Loss
from rllib.policy import Policy


class NumpyBackend:
    """Works on the policy's own memory and network.

    Args:
        policy: whose weights are trained, in place.
        loss: what is minimised.
        optimizer: steps the flat vector.
        grad_clip, grad_clip_by: see optimizers.clip_gradient.
    """

    def __init__(self, policy: Policy, loss: Loss, optimizer: Adam, grad_clip: float | None, grad_clip_by: str):
        self.policy = policy
        self.loss = loss
        self.optimizer = optimizer
        self._clip = grad_clip, grad_clip_by
        self._gradient_parts = list(policy.layout.named_parameters(policy.network.gradient).values())

    @property
    def state(self) -> dict[str, np.ndarray]:
        """The optimizer's arrays themselves."""
        return self.optimizer.state

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Copies arrays of the same names and shapes over the optimizer's."""
        for name, array in self.optimizer.state.items():
            array[...] = state[name]

    def train(self, columns: Mapping, inputs: np.ndarray, orders, minibatch_size: int, lr: float, settings: Mapping):
        """Walks over the batch once for each order.

        Args:
            columns: name -> array [rows, ...].
            inputs: encoded observations [rows, size + 1].
            orders: iterable of permutations [rows], one an epoch; None leaves the rows as they stand.
            minibatch_size: rows of a step; the last step of an epoch takes what is left.
            lr: learning rate.
            settings: of the loss.

        Returns:
            float64 [steps, number of the loss's statistics + 1], one row a step, the gradient's norm last; and a tuple
            of the loss's row statistics a step, in the order in which the rows were walked.
        """
        epoch = _Epoch(columns, inputs)
        statistics, row_statistics = [], []
        # What overflows is reported by name, not by numpy's warnings.
        with np.errstate(over="ignore", invalid="ignore"):
            for order in orders:
                epoch.reorder(order)
                for start in range(0, len(inputs), minibatch_size):
                    rows = slice(start, start + minibatch_size)
                    numbers, of_rows = self._step(epoch, rows, lr, settings, not statistics)
                    statistics.append(numbers)
                    row_statistics.append(of_rows)
        return np.array(statistics, np.float64), row_statistics

    def _step(self, epoch: "_Epoch", rows: slice, lr: float, settings: Mapping, first: bool) -> tuple[list, tuple]:
        policy, loss = self.policy, self.loss
        network, distribution = policy.network, policy.distribution
        minibatch = epoch.minibatch(rows)
        outputs = network.forward(epoch.inputs[rows])
        if first:
            check_identity(loss.identity_error(distribution, outputs, minibatch))
        statistics, gradients, *row_statistics = loss.numpy(distribution, outputs, minibatch, **settings)
        gradient = network.backward(gradients)
        norm = global_norm(gradient)
        if not math.isfinite(norm):
            raise_not_finite(policy, gradient, {**minibatch, "obs": epoch.inputs[rows]})
        clip_gradient(gradient, self._gradient_parts, norm, *self._clip)
        self.optimizer.step(policy.weights, gradient, lr)
        return [*statistics, norm], row_statistics[0] if row_statistics else ()


class _Epoch:
    """The batch in the order of one epoch, in memory that every epoch uses again.

    Matrices other than the network's input are stored feature-major, as the losses like them; `minibatch` gives rows.
    """

    def __init__(self, columns: Mapping[str, np.ndarray], inputs: np.ndarray):
        self._inputs = inputs
        self._sources = {name: np.ascontiguousarray(_feature_major(column)) for name, column in columns.items()}
        self._shuffled = {name: np.empty_like(source) for name, source in self._sources.items()}
        self.inputs = np.empty_like(inputs)

    def reorder(self, order: np.ndarray | None) -> None:
        """Fills the columns for the next epoch; mode "clip" lets `take` write straight into its output."""
        if order is None:
            self.inputs, self._shuffled = self._inputs, self._sources
            return
        np.take(self._inputs, order, axis=0, out=self.inputs, mode="clip")
        for name, source in self._sources.items():
            np.take(source, order, axis=-1 if source.ndim == 2 else 0, out=self._shuffled[name], mode="clip")

    def minibatch(self, rows: slice) -> dict[str, np.ndarray]:
        """Views [B, ...] of the rows."""
        return {
            name: column[:, rows].T if column.ndim == 2 else column[rows] for name, column in self._shuffled.items()
        }


def _feature_major(column: np.ndarray) -> np.ndarray:
    return column.T if column.ndim == 2 else column


IDENTITY_TOLERANCE = 1e-3


def check_identity(error: float | None) -> None:
    """Makes sure that the first minibatch sees the very policy that acted.

    The tolerance leaves room for rounding where a continuous action's standard deviation is thousands of times smaller
    than its mean; a mix-up shows as an error orders of magnitude larger.

    An error that is not finite is left to `raise_not_finite`, which names its cause.

    Raises:
        LearnerError: if it does not.
    """
    if error is not None and error > IDENTITY_TOLERANCE:
        raise LearnerError(
            f"before the first gradient step, the policy's log-probabilities differ from the stored ones by "
            f"{error:.3g} on average (allowed: {IDENTITY_TOLERANCE:g}). The batch was not sampled by these weights, or "
            "its rows changed on the way: weights older than the batch's policy_version claims, observations filtered "
            "twice or with other statistics, clipped or normalised actions stored in place of those that the policy "
            "drew, or columns shuffled apart."
        )


def raise_not_finite(policy: Policy, gradient: np.ndarray, columns: Mapping[str, np.ndarray]) -> None:
    """Explains a gradient that is not finite.

    Raises:
        LearnerError: always; it names the parameters and the columns that hold NaN or infinity.
    """
    bad_weights = policy.layout.names_where(~np.isfinite(policy.weights))
    bad_gradients = policy.layout.names_where(~np.isfinite(gradient))
    bad_columns = [name for name, column in columns.items() if not np.isfinite(column).all()]
    if bad_gradients:
        what = f"the gradient is not finite in {', '.join(bad_gradients)}"
    else:
        largest = policy.layout.names_where(abs(gradient) == abs(gradient).max())[0]
        what = f"the gradient is too large for float32: that of {largest} reaches {abs(gradient).max():.3g}"
    raise LearnerError(
        f"{what}. "
        f"Weights with NaN or infinity: {', '.join(bad_weights) or 'none'}. "
        f"Columns with NaN or infinity: {', '.join(bad_columns) or 'none'}. "
        + (
            "The environment or a reward function returned these values."
            if bad_columns
            else "Lower the learning rate, set grad_clip, or check the scale of rewards and observations."
        )
    )
