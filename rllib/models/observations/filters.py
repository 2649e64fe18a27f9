"""Observation filters: part of a policy, applied once when observations are collected, never during an update.

Each worker's filter normalises with the last statistics that it received (`Lane.filtered`), and counts new observations
in a delta. The driver merges the deltas (`Algorithm._take_in`), and the merged statistics go to the workers in the next
`Snapshot`. So nothing is counted twice, and all workers normalise alike within an iteration. Where goals are chosen
afterwards, fragments hold raw observations, which are filtered with their goals (postprocess/hindsight.py).
"""

from collections.abc import Mapping, Sequence

import numpy as np

CLIP = 10.0  # bound of normalised observations, in standard deviations (OpenAI baselines, VecNormalize)
# Added to the variance, as VecNormalize and gymnasium's NormalizeObservation do: numbers that hardly vary, by less than
# 1e-4, stay small. RLlib adds it to the standard deviation, which turns almost constant numbers into full-scale noise.
EPSILON = 1e-8
PENDING_ROWS = 256


class RunningMoments:
    """Count, mean and sum of squared deviations of vectors, float64 (Chan et al., 1979, the pairwise update).

    Attributes:
        count: number of vectors seen.
        mean: [size].
        m2: [size], sum of (x - mean)^2.
    """

    def __init__(self, size: int):
        self.count = 0.0
        self.mean = np.zeros(size)
        self.m2 = np.zeros(size)

    def add(self, rows: np.ndarray) -> None:
        """Counts rows [B, size].

        Raises:
            ValueError: if a number is not finite. The statistics stay as they were: they would be NaN for ever.
        """
        if len(rows):
            with np.errstate(over="ignore", invalid="ignore"):  # the error below says more than numpy's warnings
                mean = rows.mean(0, dtype=np.float64)
                m2 = np.square(rows - mean).sum(0)
            self._merge(len(rows), mean, m2)

    def merge(self, other: "RunningMoments") -> None:
        """Adds the rows that `other` counted. Raises a ValueError as `add` does."""
        self._merge(other.count, other.mean, other.m2)

    def _merge(self, count: float, mean: np.ndarray, m2: np.ndarray) -> None:
        if count == 0:
            return
        if not np.isfinite(m2).all():  # it is NaN or infinite wherever the mean is
            column = np.flatnonzero(~np.isfinite(m2))[0]
            raise ValueError(
                f"running statistics can only count finite numbers, but column {column} of {count:g} rows has NaN, "
                "infinite or too large ones. Scale or correct them; the rows are not counted."
            )
        total = self.count + count
        difference = mean - self.mean
        self.mean = self.mean + difference * (count / total)
        self.m2 = self.m2 + m2 + difference * difference * (self.count * count / total)
        self.count = total

    @property
    def variance(self) -> np.ndarray:
        """Population variance [size]; zeros before the first row."""
        return self.m2 / max(self.count, 1.0)

    def get_state(self) -> dict[str, np.ndarray]:
        """The statistics as arrays, for `set_state`."""
        return {"count": np.asarray(self.count), "mean": self.mean.copy(), "m2": self.m2.copy()}

    def set_state(self, state: dict[str, np.ndarray]) -> None:
        """Replaces the statistics.

        Raises:
            ValueError: if they are of another size.
        """
        if state["mean"].shape != self.mean.shape:
            raise ValueError(
                f"the filter's state is for observations of {state['mean'].size} numbers, "
                f"but these have {self.mean.size}"
            )
        self.count = float(state["count"])
        self.mean, self.m2 = np.array(state["mean"], np.float64), np.array(state["m2"], np.float64)


def rows_of(moments: Sequence[RunningMoments]) -> dict[str, np.ndarray]:
    """The states of several moments, one row each, for `merge_rows`."""
    states = [each.get_state() for each in moments]
    return {name: np.stack([state[name] for state in states]) for name in states[0]}


def merge_rows(moments: RunningMoments, rows: Mapping[str, np.ndarray]) -> None:
    """Adds the counts of others to `moments`: one state, or rows of states, merged in this order."""
    counts, means, m2 = np.atleast_1d(rows["count"]), np.atleast_2d(rows["mean"]), np.atleast_2d(rows["m2"])
    for state in zip(counts, means, m2, strict=True):
        other = RunningMoments(moments.mean.size)
        other.set_state(dict(zip(("count", "mean", "m2"), state)))
        moments.merge(other)


class NoFilter:
    """A filter that leaves observations unchanged; it counts nothing and has no state."""

    filters = False

    def __call__(self, observations: np.ndarray, out: np.ndarray | None = None, **counting) -> np.ndarray:
        """The observations themselves, or a copy of them in out."""
        if out is None:
            return observations
        out[:] = observations
        return out

    def undone(self, observations: np.ndarray) -> np.ndarray:
        return observations

    def pop_delta(self) -> None:
        return None

    def merge(self, delta: None) -> None: ...

    def get_state(self) -> dict[str, np.ndarray]:
        return {}

    def set_state(self, state: dict[str, np.ndarray]) -> None: ...


class MeanStdFilter:
    """A filter that brings each number of an observation to mean 0 and standard deviation 1, and clips it.

    The statistics change only by `merge` and `set_state`. Until they hold two observations, the unmerged
    observations seen so far are used, so that the first fragment is normalised as well.

    Args:
        shape: shape of an observation.
        clip: normalised observations stay within +- this, in standard deviations; None: unbounded.
        keep: columns (start, stop) of flat rows that stay as they are, such as an action mask.
    """

    filters = True

    def __init__(self, shape: tuple[int, ...], clip: float | None = CLIP, keep: tuple[tuple[int, int], ...] = ()):
        self.shape, self.clip, self.keep = shape, clip, keep
        self._size = int(np.prod(shape, dtype=int))
        self._merged = RunningMoments(self._size)
        self.keep_apart(1)

    def keep_apart(self, num_streams: int) -> None:
        """Makes the filter count the observations of each environment separately.

        Rounding depends on the order of a sum's terms. Deltas that are merged environment by environment give the same
        bits for any distribution of environments among workers. Before the first merge each environment is normalised
        by its own statistics.

        Args:
            num_streams: number of environments; 1 counts all rows together.
        """
        self._deltas = [RunningMoments(self._size) for _ in range(num_streams)]
        # Rows that are not in the deltas yet: summing many rows at once costs as much as the few of one step.
        self._pending = np.empty((num_streams, PENDING_ROWS, self._size))
        self._num_pending = np.zeros(num_streams, int)
        self._all = np.arange(num_streams)
        self._refresh()

    def __call__(
        self,
        observations: np.ndarray,
        out: np.ndarray | None = None,
        *,
        update: bool = False,
        environments: np.ndarray | None = None,
    ) -> np.ndarray:
        """Normalised observations [B, *shape] float32, in out where it is given.

        Args:
            observations: [B, *shape] of any numeric dtype, or nested lists of that shape.
            out: float32 of that shape.
            update: count the observations in the delta.
            environments: [B], the environment of each row; None: one row of each. It does not matter where all are
                counted together.

        Raises:
            ValueError: for observations of another shape, such as a single one, which RLlib's filters take.
        """
        observations = np.asarray(observations)
        rows = self._rows(observations)
        if out is None:
            out = np.empty(observations.shape, np.float32)
        if update and len(rows):
            self._note(rows, environments)
            if self._merged.count < 2:
                self._flush(self._all)
                self._refresh()
        mean, inverse_std = self._mean, self._inverse_std
        if mean.ndim == 2:
            if environments is None:
                environments = self._all if len(rows) == len(self._all) else 0
            mean, inverse_std = mean[environments], inverse_std[environments]
        # In float64: the mean may be large against the deviations.
        normal = rows - mean
        normal *= inverse_std
        if self.clip is not None:
            np.clip(normal, -self.clip, self.clip, out=normal)
        for start, stop in self.keep:
            normal[:, start:stop] = rows[:, start:stop]
        out[...] = normal.reshape(out.shape)
        return out

    def undone(self, observations: np.ndarray) -> np.ndarray:
        """What observations were before the present merged statistics normalised them, float32 [B, *shape].

        Numbers that were clipped stay at the bound. Observations are given, and refused, as when they are filtered.
        """
        observations = np.asarray(observations)
        mean, inverse_std = _normalisation(self._merged)
        rows = self._rows(observations)
        raw = rows / inverse_std + mean
        for start, stop in self.keep:
            raw[:, start:stop] = rows[:, start:stop]
        return raw.astype(np.float32).reshape(observations.shape)

    def _rows(self, observations: np.ndarray) -> np.ndarray:
        """The observations as vectors [B, size]."""
        is_single = observations.ndim == len(self.shape)
        if is_single or not observations.ndim or observations.size != len(observations) * self._size:
            what = "a single observation, of" if is_single else "the"
            raise ValueError(
                f"a filter takes batches [B, *{self.shape}], but got {what} shape {observations.shape}. For one "
                "observation use filter(observation[None], update=True)[0]; RLlib's filters count by default."
            )
        return observations.reshape(len(observations), self._size)

    def _note(self, rows: np.ndarray, environments: np.ndarray | None) -> None:
        if len(self._deltas) > 1:
            environments = self._all if environments is None else environments
            self._pending[environments, self._num_pending[environments]] = rows
            self._num_pending[environments] += 1
            if self._num_pending.max() == PENDING_ROWS:
                self._flush(np.flatnonzero(self._num_pending == PENDING_ROWS))
            return
        start = int(self._num_pending[0])
        if start + len(rows) > PENDING_ROWS:
            self._flush(self._all)
            start = 0
        if len(rows) > PENDING_ROWS:
            self._deltas[0].add(rows)
            return
        self._pending[0, start : start + len(rows)] = rows
        self._num_pending[0] = start + len(rows)

    def _flush(self, streams: np.ndarray) -> None:
        """Counts the pending rows in the deltas."""
        problem = None
        for stream in streams.tolist():
            count, self._num_pending[stream] = self._num_pending[stream], 0  # rows that are refused are not kept
            try:
                self._deltas[stream].add(self._pending[stream, :count])
            except ValueError as error:  # the rows of other streams count
                problem = problem or error
        if problem:
            raise problem

    def _refresh(self) -> None:
        """Computes the shift and the factor: [size], or before the first merge one row for each of several streams."""
        if self._merged.count >= 2 or len(self._deltas) == 1:
            shared = self._merged if self._merged.count >= 2 else self._deltas[0]
            self._mean, self._inverse_std = _normalisation(shared)
        else:
            own = [_normalisation(delta) for delta in self._deltas]
            self._mean, self._inverse_std = (np.stack(column) for column in zip(*own))

    @property
    def count(self) -> float:
        """Observations in the merged statistics."""
        return self._merged.count

    @property
    def mean(self) -> np.ndarray:
        """Merged mean [size], float64."""
        return self._merged.mean

    @property
    def variance(self) -> np.ndarray:
        """Merged population variance [size], float64."""
        return self._merged.variance

    def pop_delta(self) -> dict[str, np.ndarray]:
        """Returns the delta since the last call, one row per stream, for `merge` in the driver; begins a new one."""
        self._flush(self._all)
        delta = rows_of(self._deltas)
        self._deltas = [RunningMoments(self._size) for _ in self._deltas]
        return delta

    def merge(self, delta: dict[str, np.ndarray]) -> None:
        """Counts the observations of a delta: moments, or rows of moments."""
        merge_rows(self._merged, delta)
        self._refresh()

    def get_state(self) -> dict[str, np.ndarray]:
        """The merged statistics."""
        return self._merged.get_state()

    def set_state(self, state: dict[str, np.ndarray]) -> None:
        """Replaces the merged statistics; the delta stays."""
        self._merged.set_state(state)
        self._flush(self._all)
        self._refresh()


def _normalisation(moments: RunningMoments) -> tuple[np.ndarray, np.ndarray]:
    """Mean and inverse standard deviation, [size] each; for fewer than two rows 0 and 1, which change nothing."""
    if moments.count < 2:
        return np.zeros_like(moments.mean), np.ones_like(moments.mean)
    # A number that never varied is only shifted: it comes out as 0, not as NaN.
    return moments.mean, 1 / np.sqrt(moments.variance + EPSILON)


Filter = NoFilter | MeanStdFilter
