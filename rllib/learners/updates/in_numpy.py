"""The update in numpy: closed-form gradients of the loss, backward by hand, one flat optimizer step."""

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np

from rllib.errors import LearnerError, NotFiniteError
from rllib.learners.updates.collective import Collective
from rllib.learners.updates.core_choice import FreeCores
from rllib.learners.updates.descent import Descent, LocalBackend, Update
from rllib.learners.updates.minibatches import Cuts
from rllib.learners.updates.objective import POLICY, ModuleVector, Objective
from rllib.learners.updates.optimizers import clip_gradient, global_norm
from rllib.learners.updates.target_copy import TargetCopy
from rllib.models.arithmetic import kernels
from rllib.sample_batch import LOSS_MASK, OBS, PER_SEQUENCE, SEQ_LENS, STATE_IN, rows_of_sequences


class NumpyBackend(LocalBackend):
    """Trains the policy's network and further modules in numpy, on their own memory.

    Args:
        vector: the modules, whose weights are trained in place.
        objectives: minimised one after the other on each minibatch; each moves one module, in closed form.
        targets: copies of modules; losses over modules find them as "target_MODULE".
        cores: largest number of cores that `train` uses; small updates use fewer. FreeCores choose it for each
            update. The bits are the same on any number.

    Attributes:
        core_choice: the given FreeCores; None: the number is fixed.
    """

    def __init__(
        self,
        vector: ModuleVector,
        objectives: Sequence[Objective],
        targets: Iterable[TargetCopy] = (),
        cores: int | FreeCores = 1,
    ):
        super().__init__()
        modules = {POLICY: vector.policy.network}
        if any(each.is_over_modules for each in objectives):
            modules |= {name: vector.modules[name].numpy(vector.layouts[name], vector[name]) for name in vector.modules}
            for target in targets:
                modules[f"target_{target.module}"] = _on_weights(vector, target.module, target.weights)
        self._descents = [NumpyDescent(each, modules, vector) for each in objectives]
        self.core_choice = cores if isinstance(cores, FreeCores) else None
        self._cores = self._most = 1 if isinstance(cores, FreeCores) else cores
        self._size = len(vector.flat)

    def on_cores(self) -> contextlib.AbstractContextManager:
        """Context of arithmetic on the cores of the last update."""
        return kernels.on_cores(self._cores)

    def _begin(self, rows: int) -> contextlib.AbstractContextManager:
        """Context of an update in steps of this number of rows, on as many cores as these are worth."""
        worth = kernels.num_parts(rows, self._size)
        self._cores = min(self._most, worth) if self.core_choice is None else self.core_choice.begin(worth)
        return self.on_cores()

    def train(
        self,
        update: Update,
        meanwhile: Callable[[], None] | None = None,
        refresh: Callable[[], Mapping[str, np.ndarray]] | None = None,
        resumes: bool = False,
    ) -> list[tuple[np.ndarray, list[tuple]]]:
        """Takes the steps of an update.

        Args:
            update: the batch, with epochs, minibatches, rates and settings.
            meanwhile: called after the last step.
            refresh: called before each epoch except the first; the columns that it returns replace the batch's.
            resumes: continue the previous call, which had the same update and ended early, or a call of another learner
                (`set_progress`).

        Returns:
            for each objective that is not left out: float64 [steps, number of the loss's statistics + 1], one row for
            each step, the gradient's norm last; and for each microbatch of the last epoch, in their order, a tuple of
            the loss's row statistics.
        """
        num_rows = min(update.minibatch_size, update.microbatch_size, len(update.inputs))
        # Overflows are reported by parameter name, not by numpy's warnings.
        with np.errstate(over="ignore", invalid="ignore"), self._begin(num_rows):
            descents = self._walk(update, refresh, resumes)
        if self.core_choice is not None:
            self.core_choice.end(num_rows * sum(len(descent.steps) for descent in descents))
        if meanwhile is not None:
            meanwhile()
        return [(np.array(descent.steps, np.float64), descent.row_statistics) for descent in descents]

    def _epochs(
        self, update: Update, refresh: Callable[[], Mapping[str, np.ndarray]] | None = None
    ) -> Iterator["Epoch"]:
        epoch = epoch_of(update.columns, update.inputs)
        for number, order in enumerate(update.orders):
            if refresh is not None and number:
                epoch.replace(refresh())
            epoch.reorder(order)
            yield epoch

    def stage(self, arrays: Iterable[np.ndarray]) -> None:
        """Does nothing: arrays are used in place."""

    def compute_gradient(self, update: Update) -> tuple[np.ndarray, np.ndarray]:
        """Computes the gradient of the whole batch, of the only objective, without a step.

        Returns:
            flat float32 gradient, unclipped, in a buffer that the next call overwrites; statistics as a row of `train`.
        """
        ((descent, lr, settings),) = self._active(update)
        (epoch,) = self._epochs(update)
        descent.begin(lr)
        rows = slice(0, len(update.inputs))
        with np.errstate(over="ignore", invalid="ignore"):
            descent.compute(epoch, rows, update.microbatch_size, settings, self.collective)
        return descent.gradients[0], np.array(descent.steps[0], np.float64)

    def apply_gradient(self, gradient: np.ndarray, lr: float) -> float:
        """Clips a copy of a flat gradient and takes a step against it.

        Returns:
            the gradient's length before clipping.
        """
        (descent,) = self._descents
        np.copyto(descent.gradients[0], gradient)
        norm = global_norm(gradient)
        if not math.isfinite(norm):
            descent.raise_not_finite({})
        descent.begin(lr)
        descent.step(norm)
        return norm


def _on_weights(vector: ModuleVector, name: str, weights: np.ndarray):
    """The module on these weights instead of its slice of the vector."""
    if name != POLICY:
        return vector.modules[name].numpy(vector.layouts[name], weights)
    return vector.policy.spec.masked_network(vector.policy.layout, weights)


class NumpyDescent(Descent):
    """Gradient steps in closed form, of an objective that moves one module.

    Attributes:
        optimizer: the optimizer in numpy.
        lr: learning rate of the next step.
    """

    def __init__(self, objective: Objective, modules: Mapping, vector: ModuleVector):
        super().__init__(objective, objective.loss)
        (self._name,) = objective.moves
        self._vector, self._modules = vector, modules
        self._network, self._distribution = vector.policy.network, vector.policy.distribution
        gradient, self._moved = modules[self._name].gradient, vector.moved[self._name]
        self.gradients = [gradient]
        self.optimizer = objective.optimizer.make(len(gradient))
        self._gradient_parts = list(vector.named_parameters(self._name, gradient).values())
        self.lr = 0.0

    def get_state(self) -> dict[str, np.ndarray]:
        return self.optimizer.state

    def set_state(self, state: Mapping[str, np.ndarray]) -> None:
        for name, array in self.optimizer.state.items():
            array[...] = state[name]

    def get_progress(self) -> tuple[list, list[tuple[np.ndarray, ...]]]:
        return self.steps, self.row_statistics

    def set_progress(self, steps: Sequence, row_statistics: Sequence[tuple[np.ndarray, ...]]) -> None:
        self.steps, self.row_statistics = list(steps), list(row_statistics)

    def step(self, norm: float) -> None:
        (gradient,) = self.gradients
        clip_gradient(gradient, self._gradient_parts, norm, *self._clip)
        self.optimizer.step(self._vector.flat[self._moved], gradient, self.lr)

    def _set_rate(self, lr: float) -> None:
        self.lr = lr

    def _adapt(self, statistics: Sequence[float]) -> None:
        self.lr = self._adaptive.adapted(self.lr, float(statistics[self._adaptive.index]))

    def _compute_part(self, epoch: "Epoch", rows: slice, settings: Mapping, is_first: bool) -> Sequence[float]:
        loss, distribution = self._loss, self._distribution
        minibatch = epoch.minibatch(rows)
        if self._is_over_modules:
            minibatch[OBS] = epoch.inputs[rows]
            statistics, *of_rows = loss.numpy(distribution, self._modules, minibatch, **settings)
        else:
            network = self._network
            outputs = network.forward(*epoch.reads(rows))
            if is_first:
                check_identity(loss.identity_error(distribution.at, outputs, minibatch))
            statistics, gradients, *of_rows = loss.numpy(distribution, outputs, minibatch, **settings)
            network.backward(gradients)
        self.row_statistics += of_rows
        return statistics

    def _finish(self, epoch: "Epoch", rows: slice, statistics: Sequence[float]) -> None:
        norm = global_norm(self.gradients[0])
        if not math.isfinite(norm):
            self.raise_not_finite({**epoch.minibatch(rows), OBS: epoch.inputs[rows]})
        self.steps.append([*statistics, norm])

    def raise_not_finite(self, columns: Mapping[str, np.ndarray]) -> None:
        """Raises the error of a gradient that is not finite."""
        whole = np.zeros_like(self._vector.flat)
        whole[self._moved] = self.gradients[0]
        raise_not_finite(self._vector, whole, columns)

    def _vector_of(self, statistics: Sequence[float]) -> np.ndarray:
        return np.array(statistics)

    def _weighted(self, statistics: Sequence[float], weight: float) -> np.ndarray:
        return np.array(statistics, np.float32) * np.float32(weight)

    def _zeros(self, *shape: int) -> np.ndarray:
        return np.zeros(shape, np.float32)

    def _mean_across(self, collective: Collective, weight: float, mean: float) -> float:
        number = np.array([weight * mean], np.float32)
        collective.sum([number])
        return float(number[0])


class Epoch:
    """The batch in the order of one epoch, in memory that is reused for every epoch.

    Matrices other than the network's input are stored feature-major, faster for the losses; `minibatch` gives rows.

    Attributes:
        cuts: positions at which the rows may be divided; set by `reorder`.
    """

    def __init__(self, columns: Mapping[str, np.ndarray], inputs: np.ndarray):
        self._inputs = inputs
        self._sources: dict[str, np.ndarray] = {}
        self.replace(columns)
        self._shuffled = {name: np.empty_like(source) for name, source in self._sources.items()}
        self.inputs = np.empty_like(inputs)
        self.cuts = Cuts()

    def replace(self, columns: Mapping[str, np.ndarray]) -> None:
        """Replaces columns [rows, ...], from the next `reorder` on."""
        self._sources |= {
            name: np.ascontiguousarray(column.T if column.ndim == 2 else column) for name, column in columns.items()
        }

    def reorder(self, order: np.ndarray | None) -> None:
        """Fills the columns for the next epoch; mode "clip" lets `take` write straight into its output."""
        if order is None:
            self.inputs, self._shuffled = self._inputs, self._sources
        else:
            np.take(self._inputs, order, axis=0, out=self.inputs, mode="clip")
            for name, source in self._sources.items():
                np.take(source, order, axis=-1 if source.ndim == 2 else 0, out=self._shuffled[name], mode="clip")
        if LOSS_MASK in self._shuffled:
            self.cuts = Cuts(None, self._shuffled[LOSS_MASK])

    def reads(self, rows: slice) -> tuple[np.ndarray, ...]:
        """Arguments of the network's forward pass for these rows."""
        return (self.inputs[rows],)

    def minibatch(self, rows: slice) -> dict[str, np.ndarray]:
        """Views [B, ...] of the rows."""
        return {
            name: column[:, rows].T if column.ndim == 2 else column[rows] for name, column in self._shuffled.items()
        }


class EpochOfSequences(Epoch):
    """A batch whose rows form sequences, which stay whole; an order is a permutation of the sequences [S]."""

    def __init__(self, columns: Mapping[str, np.ndarray], inputs: np.ndarray):
        super().__init__({name: column for name, column in columns.items() if name not in PER_SEQUENCE}, inputs)
        self._given = columns[SEQ_LENS], columns[STATE_IN]

    def reorder(self, order: np.ndarray | None) -> None:
        self._seq_lens, self._states = self._given
        super().reorder(None if order is None else rows_of_sequences(self._seq_lens, order))
        if order is not None:
            self._seq_lens, self._states = self._seq_lens[order], self._states[order]
        self.cuts = Cuts(self._seq_lens, self._shuffled.get(LOSS_MASK))

    def reads(self, rows: slice) -> tuple[np.ndarray, ...]:
        first, last = np.searchsorted(self.cuts.ends, (rows.start, rows.stop - 1), side="right")
        return self.inputs[rows], self._seq_lens[first : last + 1], self._states[first : last + 1]


def epoch_of(columns: Mapping[str, np.ndarray], inputs: np.ndarray) -> Epoch:
    """The batch before its first order: an EpochOfSequences if it has lengths of sequences."""
    return (EpochOfSequences if SEQ_LENS in columns else Epoch)(columns, inputs)


IDENTITY_TOLERANCE = 1e-3


def check_identity(error: float | None) -> None:
    """Checks that the first minibatch is evaluated by the policy that acted.

    The tolerance leaves room for rounding where a continuous action's standard deviation is thousands of times smaller
    than its mean; a mix-up shows as an error orders of magnitude larger.

    An error that is not finite is left to `raise_not_finite`, which names its cause.

    Raises:
        LearnerError: if the error exceeds the tolerance.
    """
    if error is not None and error > IDENTITY_TOLERANCE:
        raise LearnerError(
            f"before the first gradient step, the policy's log-probabilities differ from the stored ones by "
            f"{error:.3g} on average (allowed: {IDENTITY_TOLERANCE:g}). The batch was not sampled by these weights, or "
            "its rows changed on the way: weights older than the batch's policy_version claims, observations filtered "
            "twice or with other statistics, clipped or normalised actions stored in place of the ones that the policy "
            "drew, or columns shuffled apart."
        )


def raise_not_finite(vector: ModuleVector, gradient: np.ndarray, columns: Mapping[str, np.ndarray]) -> None:
    """Raises the error of a gradient that is not finite; the gradient has the size of the vector.

    Raises:
        NotFiniteError: always. It names the module, the parameters, and the columns that hold NaN or infinity.
    """
    bad_weights = vector.names_where(~np.isfinite(vector.flat))
    bad_gradients = vector.names_where(~np.isfinite(gradient))
    moved = [name for name, part in vector.moved.items() if not (gradient[part] == 0).all()]
    bad_columns = [name for name, column in columns.items() if not np.isfinite(column).all()]
    if bad_gradients:
        what = f"the gradient of {', '.join(moved)} is not finite in {', '.join(bad_gradients)}"
    else:
        largest = vector.names_where(abs(gradient) == abs(gradient).max())[0]
        size = f"the gradient of {largest} reaches {abs(gradient).max():.3g}"
        what = f"the gradient of {', '.join(moved)} is too large for float32: {size}"
    raise NotFiniteError(
        f"{what}. "
        f"Weights with NaN or infinity: {', '.join(bad_weights) or 'none'}. "
        f"Columns with NaN or infinity: {', '.join(bad_columns) or 'none'}. "
        + (
            "The environment or a reward function returned these values."
            if bad_columns
            else "Lower the learning rate, set grad_clip, or check the scale of rewards and observations."
        )
    )
