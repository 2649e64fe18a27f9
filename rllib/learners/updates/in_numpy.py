"""The update in numpy: closed-form gradients of the loss, backward by hand, one flat optimizer step."""

import contextlib
import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from rllib.errors import LearnerError, NotFiniteError
from rllib.learners.updates.adaptive_rate import AdaptiveRate
from rllib.learners.updates.backend import Backend
from rllib.learners.updates.collective import Collective
from rllib.learners.updates.core_choice import FreeCores
from rllib.learners.updates.minibatches import Cuts
from rllib.learners.updates.objective import POLICY, ModuleVector, Objective
from rllib.learners.updates.optimizers import clip_gradient, global_norm
from rllib.learners.updates.target_copy import TargetCopy
from rllib.models.arithmetic import kernels
from rllib.sample_batch import LOSS_MASK, OBS, PER_SEQUENCE, SEQ_LENS, STATE_IN, rows_of_sequences


class NumpyBackend(Backend):
    """Trains the policy's network and further modules in numpy, on their own memory.

    Args:
        vector: the modules, whose weights are trained in place.
        objectives: minimised one after the other on each minibatch; each moves one module, in closed form.
        targets: copies of modules; losses over modules find them as "target_MODULE".
        cores: largest number of cores that `train` uses; small updates use fewer. FreeCores choose it for each
            update. The bits are the same on any number.

    Attributes:
        collective: connects the learners that share each minibatch; None: this is the only one.
        core_choice: the given FreeCores; None: the number is fixed.
        num_done: number of steps of the last `train`, over all objectives; infinity if `stop_above` has ended it.
    """

    def __init__(
        self,
        vector: ModuleVector,
        objectives: Sequence[Objective],
        targets: Iterable[TargetCopy] = (),
        cores: int | FreeCores = 1,
    ):
        modules = {POLICY: vector.policy.network}
        if any(each.is_over_modules for each in objectives):
            modules |= {name: vector.modules[name].numpy(vector.layouts[name], vector[name]) for name in vector.modules}
            for target in targets:
                modules[f"target_{target.module}"] = _on_weights(vector, target.module, target.weights)
        self._descents = [_Descent(each, modules, vector) for each in objectives]
        self.core_choice = cores if isinstance(cores, FreeCores) else None
        self._cores = self._most = 1 if isinstance(cores, FreeCores) else cores
        self._size = len(vector.flat)
        self.collective: Collective | None = None
        self.num_done = 0.0

    def on_cores(self) -> contextlib.AbstractContextManager:
        """Context of arithmetic on the cores of the last update."""
        return kernels.on_cores(self._cores)

    def _begin(self, rows: int) -> contextlib.AbstractContextManager:
        """Context of an update in steps of this number of rows, on the cores that it is worth."""
        worth = kernels.num_parts(rows, self._size)
        self._cores = min(self._most, worth) if self.core_choice is None else self.core_choice.begin(worth)
        return self.on_cores()

    @property
    def states(self) -> list[dict[str, np.ndarray]]:
        """The arrays of each objective's optimizer, the memory itself."""
        return [descent.optimizer.state for descent in self._descents]

    template = states  # arrays of the same names and shapes

    def load_states(self, states: Iterable[Mapping[str, np.ndarray]]) -> None:
        """Copies arrays of the same names and shapes over the optimizers'."""
        for descent, state in zip(self._descents, states, strict=True):
            for name, array in descent.optimizer.state.items():
                array[...] = state[name]

    def train(
        self,
        columns: Mapping,
        inputs: np.ndarray,
        orders,
        minibatch_size: int,
        microbatch_size: int,
        lrs: Sequence[float | AdaptiveRate],
        settings: Sequence[Mapping | None],
        meanwhile: Callable[[], None] | None = None,
        stop_above: tuple[int, float] | None = None,
        refresh: Callable[[], Mapping[str, np.ndarray]] | None = None,
        resumes: bool = False,
    ) -> list[tuple[np.ndarray, list[tuple]]]:
        """Walks over the batch once for each order.

        Args:
            columns: name -> array [rows, ...].
            inputs: encoded observations [rows, size + 1].
            orders: iterable of permutations [rows], one an epoch, of the sequences [S] where rows stand in sequences;
                None leaves the rows as they stand.
            minibatch_size: rows of a step, at least that number where they stand in sequences; the last step of an
                epoch takes the remaining rows.
            microbatch_size: rows that a step's gradient is computed from at a time.
            lrs: learning rate of each objective; an AdaptiveRate has been told where the KL is.
            settings: of each objective's loss; None leaves the objective out.
            meanwhile: called after the last step.
            refresh: called before each epoch but the first; its columns take the place of the batch's.
            stop_above: index of a statistic of the first objective and a limit: the first minibatch that exceeds it is
                the last, without a step of any objective.
            resumes: continue the previous call, which had the same arguments and ended early, or a call of another
                learner (`set_progress`).

        Returns:
            for each objective that is not left out: float64 [steps, number of the loss's statistics + 1], one row for
            each step, the gradient's norm last; and for each microbatch of the last epoch, in their order, a tuple of
            the loss's row statistics.
        """
        every = zip(self._descents, lrs, settings, strict=True)
        active = [(descent, lr, given) for descent, lr, given in every if given is not None]
        if not resumes:
            self.num_done = 0
        for descent, lr, _ in active:
            descent.begin(lr, resumes)
        num_walked, collective, first = 0, self.collective, self._descents[0]
        epoch = epoch_of(columns, inputs)
        num_rows = min(minibatch_size, microbatch_size, len(inputs))
        # Overflows are reported by parameter name, not by numpy's warnings.
        with np.errstate(over="ignore", invalid="ignore"), self._begin(num_rows):
            for number, order in enumerate(orders):
                if refresh is not None and number:
                    epoch.replace(refresh())
                epoch.reorder(order)
                if num_walked >= self.num_done:
                    for descent, _, _ in active:
                        descent.row_statistics = []
                for rows in epoch.cuts.parts(0, len(inputs), minibatch_size):
                    for descent, _, given in active:
                        num_walked += 1
                        if num_walked <= self.num_done:
                            continue
                        row = descent.compute(epoch, rows, microbatch_size, given, collective)
                        if stop_above is not None and descent is first and row[stop_above[0]] > stop_above[1]:
                            self.num_done = math.inf
                            break
                        descent.step(row[-1])
                        self.num_done = num_walked
                    else:
                        continue
                    break
                else:
                    continue
                break
        if self.core_choice is not None:
            self.core_choice.end(num_rows * sum(len(descent.steps) for descent, _, _ in active))
        if meanwhile is not None:
            meanwhile()
        return [(np.array(descent.steps, np.float64), descent.row_statistics) for descent, _, _ in active]

    def get_progress(self) -> list[tuple]:
        """Progress of an unfinished `train`, without the weights and `states`, for another backend's `set_progress`."""
        return [self.num_done, *((descent.steps, descent.row_statistics) for descent in self._descents)]

    def set_progress(self, progress: list[tuple]) -> None:
        """Restores progress of `get_progress`; `train(..., resumes=True)` continues from there."""
        self.num_done, *of_descents = progress
        for descent, (steps, row_statistics) in zip(self._descents, of_descents, strict=True):
            descent.steps, descent.row_statistics = list(steps), list(row_statistics)

    def stage(self, arrays: Iterable[np.ndarray]) -> None:
        """Does nothing: arrays are used where they lie."""

    def compute_gradient(
        self, columns: Mapping, inputs: np.ndarray, microbatch_size: int, settings: Mapping
    ) -> tuple[np.ndarray, np.ndarray]:
        """Computes the gradient of the whole batch without a step; arguments as for `train`.

        Returns:
            flat float32 gradient, unclipped, in a buffer that the next call overwrites; statistics as a row of `train`.
        """
        (descent,) = self._descents
        epoch = epoch_of(columns, inputs)
        epoch.reorder(None)
        descent.begin(0.0)
        with np.errstate(over="ignore", invalid="ignore"):
            row = descent.compute(epoch, slice(0, len(inputs)), microbatch_size, settings, self.collective)
        return descent.gradient, np.array(row, np.float64)

    def apply_gradient(self, gradient: np.ndarray, lr: float) -> float:
        """Clips a copy of a flat gradient and takes a step against it.

        Returns:
            the gradient's length before clipping.
        """
        (descent,) = self._descents
        np.copyto(descent.gradient, gradient)
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


class _Descent:
    """Gradient steps of one objective on the module that it trains.

    Attributes:
        gradient: the module's flat gradient, a buffer that every computation overwrites.
        optimizer: the optimizer in numpy.
        steps: the loss's statistics and the gradient's norm for each step since `begin`.
        row_statistics: the loss's row statistics, a tuple for each microbatch; each epoch empties it.
        lr: learning rate of the next step.
    """

    def __init__(self, objective: Objective, modules: Mapping, vector: ModuleVector):
        (self._name,) = objective.moves
        self._vector, self._modules, self._loss = vector, modules, objective.loss
        self._network, self._distribution = vector.policy.network, vector.policy.distribution
        self._is_over_modules = objective.is_over_modules
        self._row_stats, self._takes_across = objective.row_stats, objective.loss.takes_across
        self.gradient = modules[self._name].gradient
        self.optimizer = objective.optimizer.make(len(self.gradient))
        self._clip = objective.grad_clip, objective.grad_clip_by
        self._gradient_parts = list(vector.named_parameters(self._name, self.gradient).values())
        self.steps, self.row_statistics = [], []
        self.lr, self._adaptive = 0.0, None

    def begin(self, lr: float | AdaptiveRate, resumes: bool = False) -> None:
        """Prepares an update, or the rest of one."""
        if not resumes:
            self.steps = []
        self._adaptive = lr if isinstance(lr, AdaptiveRate) else None
        self.lr = lr if self._adaptive is None else lr.after(self.steps)

    def compute(
        self, epoch: "Epoch", rows: slice, microbatch_size: int, settings: Mapping, collective: Collective | None
    ) -> list[float]:
        """Writes the rows' gradient into `gradient`. Returns the loss's statistics and the gradient's norm.

        Args:
            epoch: has the rows.
            microbatch_size: rows that the gradient is computed from at a time.
            settings: settings of the loss.
            collective: connects the learners that compute parts of the gradient; None: this one computes all of it.
        """
        own, whole = (rows, 1.0) if collective is None else epoch.cuts.part_of(rows, collective.rank, collective.size)
        parts, first = epoch.cuts.parts(own.start, own.stop, microbatch_size), not self.steps
        if collective is not None and self._takes_across and microbatch_size >= rows.stop - rows.start:
            settings = {**settings, "across": functools.partial(_mean_across, collective, whole)}
        gradient, num_before = self.gradient, len(self.row_statistics)
        statistics = self._compute_part(epoch, parts[0], settings, first)
        if len(parts) > 1:
            # Means over parts of different sizes become the mean over all of the rows.
            share = epoch.cuts.share(parts[0], own)
            total, statistics = gradient * np.float32(share), share * np.array(statistics)
            for part in parts[1:]:
                share = epoch.cuts.share(part, own)
                statistics += share * np.array(self._compute_part(epoch, part, settings, False))
                total += gradient * np.float32(share)
            np.copyto(gradient, total)
        if collective is not None:
            gradient *= np.float32(whole)
            statistics = np.array(statistics, np.float32) * np.float32(whole)
            of_rows = np.zeros((len(self._row_stats), rows.stop - rows.start), np.float32)
            found = self.row_statistics[num_before:]
            del self.row_statistics[num_before:]
            if whole:
                for column, its_parts in zip(of_rows, zip(*found)):
                    column[own.start - rows.start : own.stop - rows.start] = np.concatenate(its_parts)
            collective.sum([gradient, statistics, of_rows] if found else [gradient, statistics])
            self.row_statistics += [tuple(of_rows)] if found else []
        norm = global_norm(gradient)
        if not math.isfinite(norm):
            self.raise_not_finite({**epoch.minibatch(rows), OBS: epoch.inputs[rows]})
        self.steps.append([*statistics, norm])
        if self._adaptive is not None and len(self.steps) > 1:
            self.lr = self._adaptive.adapted(self.lr, float(statistics[self._adaptive.index]))
        return self.steps[-1]

    def _compute_part(self, epoch: "Epoch", rows: slice, settings: Mapping, first: bool):
        loss, distribution = self._loss, self._distribution
        minibatch = epoch.minibatch(rows)
        if self._is_over_modules:
            minibatch[OBS] = epoch.inputs[rows]
            statistics, *of_rows = loss.numpy(distribution, self._modules, minibatch, **settings)
        else:
            network = self._network
            outputs = network.forward(*epoch.reads(rows))
            if first:
                check_identity(loss.identity_error(distribution.at, outputs, minibatch))
            statistics, gradients, *of_rows = loss.numpy(distribution, outputs, minibatch, **settings)
            network.backward(gradients)
        self.row_statistics += of_rows
        return statistics

    def step(self, norm: float) -> None:
        """Clips the gradient and takes a step against it."""
        clip_gradient(self.gradient, self._gradient_parts, norm, *self._clip)
        self.optimizer.step(self._vector[self._name], self.gradient, self.lr)

    def raise_not_finite(self, columns: Mapping[str, np.ndarray]) -> None:
        """Raises the error of a gradient that is not finite."""
        whole = np.zeros_like(self._vector.flat)
        whole[self._vector.slices[self._name]] = self.gradient
        raise_not_finite(self._vector, whole, columns)


def _mean_across(collective: Collective, share: float, mean: float) -> float:
    """The mean over all learners' rows, from the mean over this learner's rows and their share of all rows."""
    number = np.array([share * mean], np.float32)
    collective.sum([number])
    return float(number[0])


class Epoch:
    """The batch in the order of one epoch, in memory that is reused for every epoch.

    Matrices other than the network's input are stored feature-major, faster for the losses; `minibatch` gives rows.

    Attributes:
        cuts: where the rows may be parted, from `reorder` on.
    """

    def __init__(self, columns: Mapping[str, np.ndarray], inputs: np.ndarray):
        self._inputs = inputs
        self._sources: dict[str, np.ndarray] = {}
        self.replace(columns)
        self._shuffled = {name: np.empty_like(source) for name, source in self._sources.items()}
        self.inputs = np.empty_like(inputs)
        self.cuts = Cuts()

    def replace(self, columns: Mapping[str, np.ndarray]) -> None:
        """Takes these columns [rows, ...] from the next `reorder` on."""
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
    """A batch whose rows stand in sequences, which stay whole; an order is a permutation of the sequences [S]."""

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
