"""The steps of an update, in numpy or torch: epochs, minibatches, microbatches, and the parts of several learners."""

import functools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rllib.learners.updates.adaptive_rate import AdaptiveRate
from rllib.learners.updates.backend import Backend
from rllib.learners.updates.collective import Collective
from rllib.learners.updates.objective import Objective
from rllib.losses.loss import Loss


@dataclass(frozen=True)
class Update:
    """A batch, with its epochs, minibatches, learning rates and settings.

    Attributes:
        columns: name -> array [rows, ...].
        inputs: encoded observations [rows, size + 1].
        orders: permutations, one for each epoch, of the rows, or of the sequences [S] if rows form sequences; None
            keeps the order of the batch.
        minibatch_size: number of rows of a step, at least this number if rows form sequences; the last step of an epoch
            takes the remaining rows.
        microbatch_size: number of rows that a step's gradient is computed from at a time.
        lrs: learning rate of each objective; an AdaptiveRate has the index of the KL (`AdaptiveRate.reading`).
        settings: settings of each objective's loss; None leaves the objective out.
        stop_above: index of a statistic of the first objective and a limit: the first minibatch that exceeds it is the
            last, without a step of any objective. On a GPU the last minibatch of each epoch is compared.
    """

    columns: Mapping[str, Any]
    inputs: Any
    orders: Sequence
    minibatch_size: int
    microbatch_size: int
    lrs: Sequence[float | AdaptiveRate]
    settings: Sequence[Mapping | None]
    stop_above: tuple[int, float] | None = None


class Descent:
    """Gradient steps of one objective on the modules that it trains; its arrays are of numpy or torch.

    Args:
        objective: the objective.
        loss: its loss, which may know the module.

    Attributes:
        gradients: flat gradients, one for each trained module: buffers that every computation overwrites.
        steps: the loss's statistics and the gradient's norm for each step since `begin`.
        row_statistics: the loss's row statistics, a tuple for each microbatch; each epoch empties it.
    """

    gradients: Sequence

    def __init__(self, objective: Objective, loss: Loss):
        self._loss, self._is_over_modules = loss, objective.is_over_modules
        self._row_stats, self._takes_across = objective.row_stats, loss.takes_across
        self._extremes = loss.extremes
        self._clip = objective.grad_clip, objective.grad_clip_by
        self.steps, self.row_statistics = [], []
        self._adaptive: AdaptiveRate | None = None

    def begin(self, lr: float | AdaptiveRate, resumes: bool = False) -> None:
        """Prepares an update, or the rest of one."""
        if not resumes:
            self.steps, self.row_statistics = [], []
        self._adaptive = lr if isinstance(lr, AdaptiveRate) else None
        self._set_rate(lr if self._adaptive is None else lr.after(self.steps))

    def take_step(
        self,
        epoch,
        rows: slice,
        microbatch_size: int,
        settings: Mapping,
        collective: Collective | None,
        limit: tuple[int, float] | None = None,
    ) -> bool:
        """Takes a step against the gradient of these rows.

        Args:
            epoch: has the rows.
            rows: the minibatch.
            microbatch_size: rows that the gradient is computed from at a time.
            settings: settings of the loss.
            collective: connects the learners that compute parts of the gradient; None: this learner computes it alone.
            limit: index of a statistic and its limit; None: there is no limit.

        Returns:
            False, without a step, if the statistic exceeds its limit.
        """
        self.compute(epoch, rows, microbatch_size, settings, collective)
        if limit is not None and self.steps[-1][limit[0]] > limit[1]:
            return False
        self.step(self.steps[-1][-1])
        return True

    def compute(
        self, epoch, rows: slice, microbatch_size: int, settings: Mapping, collective: Collective | None
    ) -> None:
        """Writes the rows' gradient into `gradients`, and appends their statistics and the gradient's norm to `steps`.

        Arguments as for `take_step`.
        """
        own, weight = (rows, 1.0) if collective is None else epoch.cuts.part_of(rows, collective.rank, collective.size)
        if collective is not None and self._takes_across and microbatch_size >= rows.stop - rows.start:
            settings = {**settings, "across": functools.partial(self._mean_across, collective, weight)}
        num_before = len(self.row_statistics)
        statistics = self._accumulate(epoch, own, microbatch_size, settings)
        if collective is not None:
            found = self.row_statistics[num_before:]
            del self.row_statistics[num_before:]
            of_rows = self._zeros(len(self._row_stats), rows.stop - rows.start)
            start = own.start - rows.start
            for part in found if weight else ():
                for column, values in zip(of_rows, part):
                    column[start : start + len(values)] = values
                start += len(part[0])
            for gradient in self.gradients:
                gradient *= weight
            # Extremes of all learners: each writes its row, the others add zeros to it.
            of_learners = self._zeros(collective.size, len(self._extremes))
            for column, (index, _) in enumerate(self._extremes):
                of_learners[collective.rank, column] = statistics[index]
            statistics = self._weighted(statistics, weight)
            optional = [array for array, is_used in ((of_rows, found), (of_learners, self._extremes)) if is_used]
            collective.sum([*self.gradients, statistics, *optional])
            for column, (index, kind) in enumerate(self._extremes):
                statistics[index] = getattr(of_learners[:, column], kind)()
            self.row_statistics += [tuple(of_rows)] if found else []
        self._finish(epoch, rows, statistics)
        if self._adaptive is not None and len(self.steps) > 1:
            self._adapt(statistics)

    def _accumulate(self, epoch, rows: slice, microbatch_size: int, settings: Mapping):
        """Writes the gradient of the rows into `gradients`, and returns the loss's statistics of all rows."""
        parts = epoch.cuts.parts(rows.start, rows.stop, microbatch_size)
        statistics = self._compute_part(epoch, parts[0], settings, not self.steps)
        if len(parts) == 1:
            return statistics
        # Means over parts of different sizes become the mean over all of the rows.
        share = epoch.cuts.share(parts[0], rows)
        of_parts = [self._vector_of(statistics)]
        totals, statistics = [gradient * share for gradient in self.gradients], of_parts[0] * share
        for part in parts[1:]:
            share = epoch.cuts.share(part, rows)
            of_parts.append(self._vector_of(self._compute_part(epoch, part, settings, False)))
            statistics += of_parts[-1] * share
            for total, gradient in zip(totals, self.gradients):
                total += gradient * share
        for gradient, total in zip(self.gradients, totals):
            gradient[:] = total
        for index, kind in self._extremes:
            of_all = self._zeros(len(of_parts))  # on the device, without waiting for it
            for place, of_part in enumerate(of_parts):
                of_all[place] = of_part[index]
            statistics[index] = getattr(of_all, kind)()
        return statistics

    def exceeds_after_epoch(self, index: int, limit: float) -> bool:
        """Whether the newest step exceeds the limit of `take_step`, which the steps of an epoch did not wait for."""
        return False

    # ------------------------------------------------------------------ in numpy or torch

    def step(self, norm) -> None:
        """Clips the gradient, which has this norm, and takes a step against it."""
        raise NotImplementedError

    def get_state(self) -> dict[str, np.ndarray]:
        """The optimizer's arrays, under the names that both kinds share."""
        raise NotImplementedError

    def set_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Copies arrays of the same names and shapes over the optimizer's."""
        raise NotImplementedError

    def get_progress(self) -> tuple[Sequence, Sequence[tuple[np.ndarray, ...]]]:
        """`steps` and `row_statistics` in numpy, for a Descent of either kind."""
        raise NotImplementedError

    def set_progress(self, steps: Sequence, row_statistics: Sequence[tuple[np.ndarray, ...]]) -> None:
        """Restores `get_progress`."""
        raise NotImplementedError

    def _set_rate(self, lr: float) -> None:
        """Sets the learning rate of the steps to come."""
        raise NotImplementedError

    def _adapt(self, statistics) -> None:
        """Adapts the learning rate to the KL of the minibatch whose step comes next."""
        raise NotImplementedError

    def _compute_part(self, epoch, rows: slice, settings: Mapping, is_first: bool):
        """Writes the gradient of the rows into `gradients`, and appends their row statistics.

        Args:
            is_first: whether no weight has changed since `begin`, so that the rows' probabilities can be checked.

        Returns:
            the loss's statistics.
        """
        raise NotImplementedError

    def _finish(self, epoch, rows: slice, statistics) -> None:
        """Appends the statistics, and the norm of the gradient, to `steps`; raises if it is not finite."""
        raise NotImplementedError

    def _vector_of(self, statistics):
        """Statistics as a vector that can be multiplied by a number."""
        return statistics

    def _weighted(self, statistics, weight: float):
        """Statistics as a float32 vector, multiplied by the weight of this learner's rows."""
        return statistics * weight

    def _zeros(self, *shape: int):
        raise NotImplementedError

    def _mean_across(self, collective: Collective, weight: float, mean):
        """The mean over all learners' rows, from the mean over this learner's rows and their share of all rows."""
        raise NotImplementedError


class LocalBackend(Backend):
    """Computes updates in this process, in numpy or torch.

    Attributes:
        collective: connects the learners that share each minibatch; None: this is the only one.
        num_done: number of steps of the last `train`, over all objectives; infinity if `stop_above` has ended it.
    """

    _descents: Sequence[Descent]

    def __init__(self):
        self.collective: Collective | None = None
        self.num_done = 0.0

    def _epochs(self, update: Update, refresh: Callable[[], Mapping[str, np.ndarray]] | None) -> Iterator:
        """Yields the rows in the order of each epoch; between two epochs `refresh` returns new columns."""
        raise NotImplementedError

    def _active(self, update: Update) -> list[tuple[Descent, float | AdaptiveRate, Mapping]]:
        """The objectives that are not left out, with rate and settings."""
        every = zip(self._descents, update.lrs, update.settings, strict=True)
        return [(descent, lr, given) for descent, lr, given in every if given is not None]

    def _walk(
        self, update: Update, refresh: Callable[[], Mapping[str, np.ndarray]] | None, resumes: bool
    ) -> list[Descent]:
        """Takes the steps of an update that are not done yet, and returns the objectives that took part."""
        active, first = self._active(update), self._descents[0]
        if not resumes:
            self.num_done = 0
        for descent, lr, _ in active:
            descent.begin(lr, resumes)
        descents = [descent for descent, *_ in active]
        limit = update.stop_above if first in descents else None
        num_walked, collective = 0, self.collective
        for epoch in self._epochs(update, refresh):
            if num_walked >= self.num_done:
                for descent in descents:
                    descent.row_statistics = []
            for rows in epoch.cuts.parts(0, len(update.inputs), update.minibatch_size):
                for descent, _, given in active:
                    num_walked += 1
                    if num_walked <= self.num_done:
                        continue
                    its_limit = limit if descent is first else None
                    if not descent.take_step(epoch, rows, update.microbatch_size, given, collective, its_limit):
                        self.num_done = math.inf
                        return descents
                    self.num_done = num_walked
            if limit is not None and first.exceeds_after_epoch(*limit):
                self.num_done = math.inf
                return descents
        return descents

    @property
    def states(self) -> list[dict[str, np.ndarray]]:
        """Arrays of each objective's optimizer, in numpy the memory itself; names are the same in numpy and torch."""
        return [descent.get_state() for descent in self._descents]

    template = states  # arrays of the same names and shapes

    def load_states(self, states: Iterable[Mapping[str, np.ndarray]]) -> None:
        """Copies arrays of the same names and shapes over the optimizers'."""
        for descent, state in zip(self._descents, states, strict=True):
            descent.set_state(state)

    def get_progress(self) -> list:
        """Progress of an unfinished `train`, without the weights and `states`, for another backend's `set_progress`."""
        return [self.num_done, *(descent.get_progress() for descent in self._descents)]

    def set_progress(self, progress: list) -> None:
        """Restores progress of `get_progress`; `train(..., resumes=True)` continues from there."""
        self.num_done, *of_descents = progress
        for descent, its_progress in zip(self._descents, of_descents, strict=True):
            descent.set_progress(*its_progress)
