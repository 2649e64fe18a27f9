"""The source of a run that learns from a reader without end."""

from collections.abc import Callable

from rllib.evaluation.offline.source import RecordedSource
from rllib.evaluation.rollout_worker import SampleReport
from rllib.offline.dataset import Dataset
from rllib.offline.stream import RecordedStream
from rllib.policy import Snapshots
from rllib.sample_batch import SampleBatch


class StreamedSource(RecordedSource):
    """Hands over the batches of a reader, in its order.

    Args:
        stream: of the reader.
        rows_of: the rows of a batch as the algorithm learns from them.
    """

    def __init__(self, stream: RecordedStream, rows_of: Callable[[Dataset], SampleBatch]):
        super().__init__(0, None, 0)
        self._stream, self._rows_of = stream, rows_of

    def sample(self, snapshots: Snapshots) -> list[tuple[SampleBatch, SampleReport]]:
        """The rows of the next batch; a checkpoint does not hold the reader's place."""
        dataset = self._stream.next()
        batch = self._rows_of(dataset)
        batch.policy_version = min(snapshot.version for snapshot in snapshots.values())
        return [(batch, SampleReport(env_steps=len(dataset), rows=len(batch)))]
