"""Transfers of a learner between arrays and its device: no copies on the CPU, page-locked memory for a GPU."""

from collections.abc import Iterable, Sequence

import numpy as np
import torch
from torch import Tensor

from rllib import spans


class InPlace:
    """Transfers on the CPU: tensors share the arrays' memory."""

    new_rows = staticmethod(np.empty)

    def stage(self, arrays: Iterable[np.ndarray]) -> None:
        """Does nothing: no array has to be sent."""

    def take(self, array: np.ndarray | Tensor) -> Tensor:
        """The array as a tensor; a copy if it is read-only, as in shared memory, which torch does not accept."""
        if isinstance(array, Tensor):
            return array.cpu()  # the tensor itself, if it is on the CPU already
        return torch.from_numpy(np.require(array, requirements=("C", "W")))

    def take_all(self, arrays: Iterable[np.ndarray | Tensor]) -> list[Tensor]:
        """The arrays as tensors."""
        return [self.take(array) for array in arrays]

    def overwrite(self, pairs: Iterable[tuple[Tensor, Tensor]]) -> None:
        """Copies each first tensor over the second."""
        for host, tensor in pairs:
            tensor.copy_(host)

    def fetch(self, tensor: Tensor) -> np.ndarray:
        """The tensor as an array."""
        return tensor.cpu().numpy()


class PinnedTransfers:
    """Transfers to and from a CUDA device through page-locked memory; transfers to the device use a separate stream.

    A copy from page-locked memory blocks neither this process nor running kernels. torch does not reuse a page-locked
    block until the device has read it.

    Args:
        device: the CUDA device.
    """

    def __init__(self, device: torch.device):
        self._device = device
        self._stream = torch.cuda.Stream(device)
        # id of an array -> the array (a reference keeps the id unique), its tensor on the device, and the event of
        # the transfer's end.
        self._staged: dict[int, tuple[np.ndarray, Tensor, torch.cuda.Event]] = {}
        # Page-locked memory for weights that are overwritten, by the address of the tensor on the device.
        self._weights: dict[int, Tensor] = {}

    def new_rows(self, shape: tuple[int, ...], dtype) -> np.ndarray:
        """Page-locked memory, which is sent without a copy."""
        return _page_locked(shape, np.dtype(dtype)).numpy()

    def stage(self, arrays: Iterable[np.ndarray]) -> None:
        """Begins to send arrays. Arrays that were staged before and not taken are forgotten."""
        arrays = list(arrays)
        tensors, complete = self._send(arrays)
        self._staged = {id(array): (array, tensor, complete) for array, tensor in zip(arrays, tensors)}

    def take(self, array: np.ndarray | Tensor) -> Tensor:
        """The array as a tensor on the device, for the current stream; sent now if it was not staged."""
        return self.take_all([array])[0]

    def take_all(self, arrays: Sequence[np.ndarray | Tensor]) -> list[Tensor]:
        """The arrays as tensors on the device, for the current stream; those that were not staged are sent together."""
        staged = {id(array): self._staged.pop(id(array)) for array in arrays if id(array) in self._staged}
        unsent = [array for array in arrays if id(array) not in staged and not isinstance(array, Tensor)]
        sent, complete = self._send(unsent) if unsent else ([], None)
        computing = torch.cuda.current_stream(self._device)
        for event in {complete, *(event for _, _, event in staged.values())} - {None}:
            computing.wait_event(event)
        found = {id(array): tensor for array, tensor in zip(unsent, sent)}
        found |= {key: tensor for key, (_, tensor, _) in staged.items()}
        for tensor in found.values():
            # The memory belongs to the allocating stream, which must not reuse it before the computing stream is done.
            tensor.record_stream(computing)
        return [array.to(self._device) if isinstance(array, Tensor) else found[id(array)] for array in arrays]

    def overwrite(self, pairs: Iterable[tuple[Tensor, Tensor]]) -> None:
        """Copies each host tensor over the device tensor of its pair, in the order of the current stream."""
        for host, tensor in pairs:
            if tensor.data_ptr() not in self._weights:
                self._weights[tensor.data_ptr()] = torch.empty_like(host, pin_memory=True)
            pinned = self._weights[tensor.data_ptr()]
            # If the previous copy still runs, it reads some of the new weights; this copy then overwrites its result.
            pinned.copy_(host)
            tensor.copy_(pinned, non_blocking=True)

    def fetch(self, tensor: Tensor) -> np.ndarray:
        """Waits for the tensor, and returns it as an array."""
        pinned = torch.empty_like(tensor, device="cpu", pin_memory=True)
        pinned.copy_(tensor, non_blocking=True)
        torch.cuda.current_stream(self._device).synchronize()
        return pinned.numpy()

    def _send(self, arrays: Sequence[np.ndarray]) -> tuple[list[Tensor], torch.cuda.Event]:
        """The arrays as tensors of the separate stream, and the event of their arrival."""
        with spans.span("to device"):
            pinned = [_in_page_locked(array) for array in arrays]
            with torch.cuda.stream(self._stream):
                tensors = [each.to(self._device, non_blocking=True) for each in pinned]
                complete = self._stream.record_event()
        return tensors, complete


def _in_page_locked(array: np.ndarray) -> Tensor:
    """The array itself if it is page-locked, else a copy."""
    if array.flags.c_contiguous and array.flags.writeable:
        tensor = torch.from_numpy(array)
        if tensor.is_pinned():
            return tensor
    pinned = _page_locked(array.shape, array.dtype)
    np.copyto(pinned.numpy(), array)
    return pinned


def _page_locked(shape: tuple[int, ...], dtype: np.dtype) -> Tensor:
    return torch.empty(shape, dtype=torch.from_numpy(np.empty(0, dtype)).dtype, pin_memory=True)
