"""Prometheus counters in memory shared by the server's processes, so each of them can report all."""

import bisect
import mmap
import os
from collections.abc import Iterator

STATUSES = (200, 400, 401, 403, 404, 405, 409, 413, 415, 421, 422, 500, 503)
LATENCIES_S = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0)
BATCH_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
_COUNTERS = {
    "actions": "Actions computed.",
    "dropped": "Requests whose client had gone before their turn.",
    "batches": "Forward passes.",
    "reloads": "Checkpoints taken up.",
    "reload_errors": "Checkpoints that could not be taken up.",
    "restarts": "Processes that were replaced after they had ended.",
    "decisions": "Actions whose rewards the learner takes.",
    "decisions_unrecorded": "Actions that the learner did not hear of, since it did not run or was busy.",
}
_GAUGES = {"queue_length": "Observations that wait.", "learner_running": "Whether a learner runs."}
_OTHERS = ("reload_requests", "policy_version", "learner_starts")
_NAMES = (
    *(f"requests_{status}" for status in STATUSES),
    *_COUNTERS,
    *_GAUGES,
    *_OTHERS,
    *(f"latency_{index}" for index in range(len(LATENCIES_S) + 1)),
    "latency_sum",
    *(f"batch_{index}" for index in range(len(BATCH_SIZES) + 1)),
)
_INDEX = {name: index for index, name in enumerate(_NAMES)}
_REQUESTS = {status: _INDEX[f"requests_{status}"] for status in STATUSES}
_LATENCY, _LATENCY_SUM, _BATCH = _INDEX["latency_0"], _INDEX["latency_sum"], _INDEX["batch_0"]


class Counts:
    """Counters of several processes, a row each; a process that replaces another continues its row.

    Args:
        descriptor: file descriptor of the shared memory.
        rows: number of processes.
        row: index of this process's row.
    """

    def __init__(self, descriptor: int, rows: int, row: int):
        self.descriptor, self._rows = descriptor, rows
        self._all = memoryview(mmap.mmap(descriptor, rows * len(_NAMES) * 8)).cast("d")
        self._own = self._all[row * len(_NAMES) : (row + 1) * len(_NAMES)]

    @classmethod
    def new(cls, rows: int) -> "Counts":
        """Makes counters that are zero; this process writes the last row."""
        descriptor = os.memfd_create("rllib-serve-counts")
        os.ftruncate(descriptor, rows * len(_NAMES) * 8)
        return cls(descriptor, rows, rows - 1)

    def add(self, name: str, number: float = 1) -> None:
        """Adds to a counter of this process."""
        self._own[_INDEX[name]] += number

    def set(self, name: str, number: float) -> None:
        """Sets a gauge of this process."""
        self._own[_INDEX[name]] = number

    def answered(self, status: int, seconds: float) -> None:
        """Counts a request that was answered `seconds` after its arrival."""
        own = self._own
        own[_REQUESTS[status]] += 1
        own[_LATENCY + bisect.bisect_left(LATENCIES_S, seconds)] += 1
        own[_LATENCY_SUM] += seconds

    def computed(self, rows: int) -> None:
        """Counts a forward pass for this number of observations."""
        self.add("batches")
        self.add("actions", rows)
        self._own[_BATCH + bisect.bisect_left(BATCH_SIZES, rows)] += 1

    def of_all(self, name: str) -> float:
        """The sum over all processes."""
        return sum(self._all[_INDEX[name] :: len(_NAMES)].tolist())

    def text(self) -> str:
        """All counters in the text format of Prometheus."""
        return "\n".join(self._lines()) + "\n"

    def _lines(self) -> Iterator[str]:
        yield from _head("requests_total", "counter", "Requests answered, by status of HTTP.")
        for status in STATUSES:
            yield f'rllib_serve_requests_total{{code="{status}"}} {self.of_all(f"requests_{status}"):.0f}'
        for name, meaning in _COUNTERS.items():
            yield from _head(f"{name}_total", "counter", meaning)
            yield f"rllib_serve_{name}_total {self.of_all(name):.0f}"
        for name, meaning in _GAUGES.items():
            yield from _head(name, "gauge", meaning)
            yield f"rllib_serve_{name} {self.of_all(name):.0f}"
        yield from _head("policy_version", "gauge", "Number of updates of the policy that each process acts with.")
        for worker in range(self._rows - 1):
            version = self._all[worker * len(_NAMES) + _INDEX["policy_version"]]
            yield f'rllib_serve_policy_version{{worker="{worker}"}} {version:.0f}'
        yield from self._histogram("latency_seconds", "From a request's arrival to its answer.", "latency", LATENCIES_S)
        yield from self._histogram("batch_size", "Observations of a forward pass.", "batch", BATCH_SIZES)

    def _histogram(self, name: str, meaning: str, counter: str, bounds: tuple) -> Iterator[str]:
        yield from _head(name, "histogram", meaning)
        total = 0.0
        for index, bound in enumerate((*bounds, "+Inf")):
            total += self.of_all(f"{counter}_{index}")
            yield f'rllib_serve_{name}_bucket{{le="{bound}"}} {total:.0f}'
        yield f"rllib_serve_{name}_sum {self.of_all('latency_sum' if counter == 'latency' else 'actions'):.9f}"
        yield f"rllib_serve_{name}_count {total:.0f}"


def _head(name: str, kind: str, meaning: str) -> Iterator[str]:
    yield f"# HELP rllib_serve_{name} {meaning}"
    yield f"# TYPE rllib_serve_{name} {kind}"
