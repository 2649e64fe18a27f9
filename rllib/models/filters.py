"""Observation filters: part of a policy, applied once when observations are collected, never during an update.

Each worker's filter normalises with the statistics that it was last given, and notes what it has seen since in a delta.
The driver merges the deltas and hands the merged statistics out: nothing is counted twice, and every worker of an
iteration normalises alike.
"""

import numpy as np

CLIP = 10.0  # normalised observations stay within +-CLIP standard deviations (OpenAI baselines, VecNormalize)
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
        """Counts rows [B, size]."""
        if len(rows):
            mean = rows.mean(0, dtype=np.float64)
            self._merge(len(rows), mean, np.square(rows - mean).sum(0))

    def merge(self, other: "RunningMoments") -> None:
        """Counts everything that `other` has seen."""
        self._merge(other.count, other.mean, other.m2)

    def _merge(self, count: float, mean: np.ndarray, m2: np.ndarray) -> None:
        if count == 0:
            return
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
        """Arrays that `set_state` takes back."""
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


class NoFilter:
    """Leaves observations as they are."""

    filters = False

    def __call__(self, observations: np.ndarray, out: np.ndarray | None = None, *, update: bool = False) -> np.ndarray:
        """The observations themselves, or a copy of them in out."""
        if out is None:
            return observations
        out[:] = observations
        return out

    def pop_delta(self) -> None:
        """Nothing was noted."""
        return None

    def merge(self, delta: None) -> None:
        """Nothing to merge."""

    def get_state(self) -> dict[str, np.ndarray]:
        """There is no state."""
        return {}

    def set_state(self, state: dict[str, np.ndarray]) -> None:
        """There is no state."""


class MeanStdFilter:
    """Shifts and scales each number of an observation to mean 0 and standard deviation 1, and clips to +-CLIP.

    The statistics change only by `merge` and `set_state`. Until they hold two observations, those that came up to now
    (and are in no merge yet) are used, so that the very first fragment is normalised as well.

    Args:
        shape: of an observation.
    """

    filters = True

    def __init__(self, shape: tuple[int, ...]):
        self.shape = shape
        size = int(np.prod(shape, dtype=int))
        self._merged, self._delta = RunningMoments(size), RunningMoments(size)
        # Rows that are not in the delta yet: the sums over many rows at once cost as much as over one step's few.
        self._pending = np.empty((PENDING_ROWS, size))
        self._num_pending = 0
        self._refresh(self._merged)

    def __call__(self, observations: np.ndarray, out: np.ndarray | None = None, *, update: bool = False) -> np.ndarray:
        """Normalised observations [B, *shape] float32, in out where it is given.

        Args:
            observations: [B, *shape] of any numeric dtype.
            out: float32 of that shape.
            update: note the observations for the next `pop_delta`.
        """
        if out is None:
            out = np.empty(observations.shape, np.float32)
        rows = observations.reshape(len(observations), -1)
        if update:
            self._note(rows)
            if self._merged.count < 2:
                self._flush()
                self._refresh(self._delta)
        # In float64: the mean may be large against the deviations.
        normal = rows - self._mean
        normal *= self._inverse_std
        np.clip(normal, -CLIP, CLIP, out=normal)
        out[...] = normal.reshape(out.shape)
        return out

    def _note(self, rows: np.ndarray) -> None:
        if self._num_pending + len(rows) > PENDING_ROWS:
            self._flush()
        if len(rows) > PENDING_ROWS:
            self._delta.add(rows)
            return
        end = self._num_pending + len(rows)
        self._pending[self._num_pending : end] = rows
        self._num_pending = end

    def _flush(self) -> None:
        """Counts the pending rows in the delta."""
        self._delta.add(self._pending[: self._num_pending])
        self._num_pending = 0

    def _refresh(self, moments: RunningMoments) -> None:
        # A number that never varied is only shifted: it comes out as 0, not as NaN.
        variance = moments.variance if moments.count >= 2 else np.ones_like(moments.mean)
        self._mean = moments.mean if moments.count >= 2 else np.zeros_like(moments.mean)
        self._inverse_std = 1 / (np.sqrt(variance) + EPSILON)

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
        """What was noted since the last call, for `merge` in the driver; it is forgotten here."""
        self._flush()
        state = self._delta.get_state()
        self._delta = RunningMoments(len(self._delta.mean))
        return state

    def merge(self, delta: dict[str, np.ndarray]) -> None:
        """Counts the observations of a delta."""
        other = RunningMoments(len(self._merged.mean))
        other.set_state(delta)
        self._merged.merge(other)
        self._refresh(self._merged)

    def get_state(self) -> dict[str, np.ndarray]:
        """The merged statistics."""
        return self._merged.get_state()

    def set_state(self, state: dict[str, np.ndarray]) -> None:
        """Replaces the merged statistics; what was noted for the next delta stays."""
        self._merged.set_state(state)
        self._flush()
        if self._merged.count >= 2 or self._delta.count < 2:
            self._refresh(self._merged)


Filter = NoFilter | MeanStdFilter
