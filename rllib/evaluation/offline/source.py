"""The source of a run that learns from recorded data: rows in a random order, each once in an epoch."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

import numpy as np

from rllib.evaluation import seeding
from rllib.evaluation.asked_workers import AskedWorkers
from rllib.evaluation.sampling_worker import SampleReport
from rllib.evaluation.settings import RolloutSettings
from rllib.offline.dataset import Dataset
from rllib.offline.stream import RecordedStream
from rllib.policy import Snapshots
from rllib.sample_batch import SampleBatch

# Batches of a reader in a row that may have no row to learn from.
_MOST_EMPTY = 100


class RecordedRows(Protocol):
    """Recorded steps as an algorithm learns from them, in units that are drawn together: rows, or sequences."""

    def __len__(self) -> int:
        """Number of units."""

    @property
    def rows_at_once(self) -> int:
        """Rows of a batch: its last unit completes them."""

    def lengths(self, units: np.ndarray) -> np.ndarray:
        """Rows of each of these units, int64, at least 1."""

    def batch(self, units: np.ndarray) -> SampleBatch:
        """The rows of these units; what depends on weights is computed by the present ones."""


class RecordedSource(AskedWorkers):
    """Hands over recorded rows; a Source (algorithms/base/sources.py).

    Args:
        seed: seed of the run; it decides the order of the rows.
        rows: what is handed over; None: the algorithm's replay has the rows already, and a round only moves the clock.
        rows_at_once: steps by which a round moves the clock, where there are no `rows`.

    Attributes:
        rows: what is handed over; they may be replaced by the same rows in another form.
    """

    num_healthy_workers = num_restarts = num_in_flight = 0

    def __init__(self, seed: int, rows: RecordedRows | None, rows_at_once: int):
        self._seed, self.rows, self._rows_at_once = seed, rows, rows_at_once
        self._epoch, self._place = 0, 0
        # Units in the order of the present epoch; None: it was not drawn yet.
        self._order: np.ndarray | None = None

    def sample(self, snapshots: Snapshots) -> list[tuple[SampleBatch, SampleReport]]:
        """The next rows; the last batch of an epoch is completed with the first rows of the next."""
        if self.rows is None:
            return [(SampleBatch({}), SampleReport(env_steps=self._rows_at_once, rows=self._rows_at_once))]
        units = np.concatenate(list(self._next_units()))
        batch = self.rows.batch(units)
        batch.policy_version = min(snapshot.version for snapshot in snapshots.values())
        count = len(batch)
        return [(batch, SampleReport(env_steps=count, rows=count))]

    def _next_units(self) -> Iterator[np.ndarray]:
        wanted = self.rows.rows_at_once
        while wanted > 0:
            if self._place == len(self.rows):
                self._epoch, self._place, self._order = self._epoch + 1, 0, None
            if self._order is None:
                rng = seeding.generator(self._seed, seeding.RECORDED_ROWS, self._epoch)
                self._order = rng.permutation(len(self.rows))
            some = self._order[self._place : self._place + wanted]
            counts = np.cumsum(self.rows.lengths(some))
            some = some[: np.searchsorted(counts, wanted) + 1]
            self._place += len(some)
            wanted -= int(counts[len(some) - 1])
            yield some

    def begin_sampling(self, snapshots: Snapshots) -> Callable[[], list[tuple[SampleBatch, SampleReport]]]:
        """A function that returns the next rows."""
        return lambda: self.sample(snapshots)

    def foreach_worker(self, function: Callable, *args, local_worker: bool = True, remote_worker_ids=()) -> list:
        """Nothing, for no worker."""
        return []

    def local_worker(self) -> None:
        """None, as there is no worker."""

    def remote_workers(self) -> list:
        """No handle, as there is no worker."""
        return []

    def pop_replaced(self) -> list[int]:
        """No index, as there is no worker."""
        return []

    def change_settings(self, settings: RolloutSettings) -> None:
        """Does nothing: rows are recorded already."""

    def get_state(self) -> list[Mapping[str, Any]]:
        """The place in the order of the rows."""
        return [{"epoch": self._epoch, "place": self._place}]

    def set_state(self, state: list, restores: int) -> None:
        """Continues behind the rows that were handed over; at the beginning, if the state is of another source."""
        self._epoch = self._place = 0
        self._order = None
        if self.rows is None or not (len(state) == 1 and isinstance(state[0], Mapping) and "place" in state[0]):
            return
        self._epoch, self._place = int(state[0]["epoch"]), min(int(state[0]["place"]), len(self.rows))

    def stop(self) -> None:
        """Does nothing: no process was started."""


class StreamedSource(RecordedSource):
    """Hands over the batches of a reader, in its order.

    Args:
        stream: of the reader.
        rows_of: the rows of a batch as the algorithm learns from them.
    """

    def __init__(self, stream: RecordedStream, rows_of: Callable[[Dataset], SampleBatch]):
        super().__init__(0, None, 0)
        self._stream, self._rows_of = stream, rows_of
        self._num_empty = 0  # newest batches without a row to learn from

    def sample(self, snapshots: Snapshots) -> list[tuple[SampleBatch, SampleReport]]:
        """The rows of the next batch; a checkpoint does not hold the reader's place.

        Raises:
            ValueError: if many batches in a row have none.
        """
        dataset = self._stream.next()
        batch = self._rows_of(dataset)
        self._num_empty = 0 if len(batch) else self._num_empty + 1
        if self._num_empty == _MOST_EMPTY:
            raise ValueError(
                f"of no step of the {_MOST_EMPTY} newest batches of the reader it is known what followed, so that "
                "there is nothing to learn from. Give new_obs, or flags of terminations, or several steps an episode."
            )
        batch.policy_version = min(snapshot.version for snapshot in snapshots.values())
        return [(batch, SampleReport(env_steps=len(dataset), rows=len(batch)))]
