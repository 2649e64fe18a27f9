"""How arrays get to the device that computes."""

from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor

from rllib import spans


class InPlace:
    """On the CPU: tensors are the arrays' own memory."""

    def stage(self, arrays: Iterable[np.ndarray]) -> None:
        """Nothing has to be sent."""

    def take(self, array: np.ndarray | Tensor) -> Tensor:
        """The array as a tensor; a copy where it is read-only, as in shared memory, which torch does not take."""
        if isinstance(array, Tensor):
            return array.cpu()  # itself, where it is there already
        return torch.from_numpy(np.require(array, requirements=("C", "W")))


class PinnedTransfers:
    """To a CUDA device through page-locked memory, on a separate stream beside the one that computes.

    A copy from page-locked memory neither blocks this process nor the kernels that run meanwhile. torch keeps the
    page-locked block from being used again until the device has read it.

    Args:
        device: of CUDA.
    """

    def __init__(self, device: torch.device):
        self._device = device
        self._stream = torch.cuda.Stream(device)
        # id of an array -> the array, which keeps the id its own, its tensor there, and when that is complete.
        self._staged: dict[int, tuple[np.ndarray, Tensor, torch.cuda.Event]] = {}

    def stage(self, arrays: Iterable[np.ndarray]) -> None:
        """Begins to send arrays; those staged before and not taken are forgotten."""
        self._staged = {id(array): (array, *self._send(array)) for array in arrays}

    def take(self, array: np.ndarray | Tensor) -> Tensor:
        """The array on the device, for the current stream: as it was staged, or sent now. A tensor there is itself."""
        if isinstance(array, Tensor):
            return array.to(self._device)
        _, tensor, complete = self._staged.pop(id(array), None) or (array, *self._send(array))
        computing = torch.cuda.current_stream(self._device)
        computing.wait_event(complete)
        # The memory belongs to the stream that allocated it; the other one has to be done with it, too.
        tensor.record_stream(computing)
        return tensor

    def _send(self, array: np.ndarray) -> tuple[Tensor, torch.cuda.Event]:
        dtype = torch.from_numpy(np.empty(0, array.dtype)).dtype
        with spans.span("to device"):
            pinned = torch.empty(array.shape, dtype=dtype, pin_memory=True)
            np.copyto(pinned.numpy(), array)
            with torch.cuda.stream(self._stream):
                tensor = pinned.to(self._device, non_blocking=True)
                complete = self._stream.record_event()
        return tensor, complete
