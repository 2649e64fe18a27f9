"""Recorded steps of updates: a CUDA graph launches all kernels of a step with one call.

A small network's step is a hundred kernels of microseconds each; Python launches them more slowly than a GPU runs them.
"""

import time
import warnings
from collections.abc import Callable, Hashable, Mapping, Sequence

import torch
from torch import Tensor

# Number of eager steps of a key before it is recorded; the last of them are timed. A recording takes about as long.
EAGER_STEPS = 8
TIMED_STEPS = 4
# Recordings that are kept. Each holds the memory of a step's intermediate results.
MAX_RECORDINGS = 4
# Keys whose eager steps are counted.
MAX_KEYS = 64

# From a minibatch by column, and numbers by name: floats, or scalar tensors.
Step = Callable[[Mapping[str, Tensor], Mapping[str, float | Tensor]], Sequence[Tensor]]


class CudaGraphs:
    """Records the kernels that a function launches on a device.

    Args:
        device: the CUDA device of all tensors; it need not be the current one.
    """

    def __init__(self, device: torch.device):
        self._device = device
        self._stream = torch.cuda.Stream(device)  # torch's own stream may belong to another device

    def record(self, function: Callable[[], Sequence[Tensor]]) -> tuple[Callable[[], None], Sequence[Tensor]]:
        """Records a function without computing its kernels.

        Returns:
            repeat, results: `repeat()` runs the recorded kernels, which write into the tensors `results`.

        Raises:
            RuntimeError: if the function does something that cannot be recorded, such as waiting for the device.
        """
        graph = torch.cuda.CUDAGraph()
        with (
            warnings.catch_warnings(),
            torch.cuda.device(self._device),
            # Restores the current stream after a failure as well: torch.cuda.graph does not if its end raises.
            torch.cuda.stream(torch.cuda.current_stream(self._device)),
            torch.cuda.graph(graph, stream=self._stream),
        ):
            # A step that raises before its first kernel leaves the graph empty; the error says why.
            warnings.filterwarnings("ignore", "The CUDA Graph is empty")
            results = function()
        return graph.replay, results

    def now(self) -> float:
        """Waits for the device and returns the time (seconds)."""
        torch.cuda.synchronize(self._device)
        return time.perf_counter()


class RecordedSteps:
    """Takes steps: the first ones eagerly, later ones from a recording if that is measured to be faster.

    Steps of one key do the same operations on tensors of the same shapes. The contents may differ: of the minibatch, of
    the numbers, and of other tensors that the function reads, at the same addresses (weights, an optimizer's memory).
    A step that needs its numbers in Python, to decide something, is recorded for each of their values. If no step can
    be recorded, all steps are eager.

    Args:
        graphs: records steps and reads a clock.

    Attributes:
        is_on: whether recordings are used or still tried.
        num_repeated: number of steps taken from a recording.
        why_off: reason for the end of recording; None while it is on.
    """

    def __init__(self, graphs: CudaGraphs):
        self._graphs = graphs
        self.is_on, self.num_repeated, self.why_off = True, 0, None
        self._num_eager: dict[Hashable, int] = {}
        self._recordings: dict[Hashable, _Recording] = {}
        self._numbers_may_change = True
        # Seconds of each timed step, on the first key that is recorded: without the recording, and with it.
        self._eager_s: list[float] = []
        self._repeated_s: list[float] = []

    def take(
        self, key: Hashable, minibatch: Mapping[str, Tensor], numbers: Mapping[str, float], step: Step
    ) -> Sequence[Tensor]:
        """Returns the results of `step(minibatch, numbers)`, in tensors that later steps do not change.

        Args:
            key: equal for steps that differ only in numbers and in the contents of tensors; it need not include shapes.
            minibatch: name of a column -> tensor.
            numbers: name -> number.
            step: takes the step eagerly.
        """
        if not self.is_on:
            return step(minibatch, numbers)
        values = () if self._numbers_may_change else tuple(numbers.values())
        key = key, values, tuple((name, column.shape, column.dtype) for name, column in minibatch.items())
        recording = self._recordings.get(key)
        if recording is None and self._num_eager.get(key, 0) >= EAGER_STEPS:
            recording = self._record(key, minibatch, numbers, step)
        if recording is None:
            return self._eagerly(key, lambda: step(minibatch, numbers))
        return self._repeated(lambda: recording(minibatch, numbers))

    def _eagerly(self, key: Hashable, step: Callable[[], Sequence[Tensor]]) -> Sequence[Tensor]:
        if len(self._num_eager) == MAX_KEYS and key not in self._num_eager:
            self._num_eager.clear()
        number = self._num_eager[key] = self._num_eager.get(key, 0) + 1
        if number <= EAGER_STEPS - TIMED_STEPS or len(self._eager_s) == TIMED_STEPS:
            return step()
        return self._timed(self._eager_s, step)

    def _timed(self, seconds: list[float], function: Callable[[], Sequence[Tensor]]) -> Sequence[Tensor]:
        started = self._graphs.now()
        results = function()
        seconds.append(self._graphs.now() - started)
        return results

    def _record(
        self, key: Hashable, minibatch: Mapping[str, Tensor], numbers: Mapping[str, float], step: Step
    ) -> "_Recording | None":
        inputs = {name: column.clone() for name, column in minibatch.items()}
        like = next(iter(inputs.values()))
        scalars = {name: torch.tensor(value, device=like.device) for name, value in numbers.items()}
        given = scalars if self._numbers_may_change else numbers
        try:
            repeat, results = self._graphs.record(lambda: step(inputs, given))
        except RuntimeError as error:
            if self._numbers_may_change and numbers:
                self._numbers_may_change = False
            else:
                self._end(f"a step of this learner cannot be recorded: {error}")
            return None
        while len(self._recordings) >= MAX_RECORDINGS:
            del self._recordings[next(iter(self._recordings))]
        self._recordings[key] = _Recording(inputs, scalars, repeat, results)
        return self._recordings[key]

    def _repeated(self, step: Callable[[], Sequence[Tensor]]) -> Sequence[Tensor]:
        self.num_repeated += 1
        if len(self._repeated_s) == TIMED_STEPS:
            return step()
        results = self._timed(self._repeated_s, step)
        if len(self._repeated_s) == TIMED_STEPS and sum(self._repeated_s) > sum(self._eager_s):
            took = f"{sum(self._repeated_s):.2g} s, and {sum(self._eager_s):.2g} s without a recording"
            self._end(f"{TIMED_STEPS} recorded steps took {took}")
        return results

    def _end(self, why: str) -> None:
        self.is_on, self.why_off = False, why
        self._recordings, self._num_eager = {}, {}


class _Recording:
    """A recorded step.

    Args:
        inputs: name of a column -> tensor of the minibatch that the recording reads.
        scalars: name -> number that the recording reads.
        repeat: function that takes the recorded step.
        results: tensors that the recording writes.
    """

    def __init__(
        self,
        inputs: dict[str, Tensor],
        scalars: dict[str, Tensor],
        repeat: Callable[[], None],
        results: Sequence[Tensor],
    ):
        self._inputs, self._scalars, self._repeat, self._results = inputs, scalars, repeat, results

    def __call__(self, minibatch: Mapping[str, Tensor], numbers: Mapping[str, float]) -> Sequence[Tensor]:
        for name, column in minibatch.items():
            self._inputs[name].copy_(column)
        for name, scalar in self._scalars.items():
            scalar.fill_(numbers[name])
        self._repeat()
        return [result.clone() for result in self._results]
