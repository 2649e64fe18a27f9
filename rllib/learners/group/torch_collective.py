"""Sums over processes by torch.distributed: over several machines (gloo), and between GPUs (NCCL)."""

import contextlib
import datetime
import os
from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor

from rllib import spans
from rllib.learners.updates.collective import Unfinished


def open_store(host: str, timeout_s: float) -> dist.TCPStore:
    """A store through which the processes connect; it listens at a free port of `host`, its attribute `port`."""
    return dist.TCPStore(host, 0, is_master=True, wait_for_workers=False, timeout=datetime.timedelta(seconds=timeout_s))


class TorchSums:
    """A process group of torch.distributed, separate from the default group, which is the user's.

    Args:
        kind: "gloo" or "nccl".
        address: host and port of the store.
        rank: this process's number.
        size: number of processes; the constructor returns when all have joined.
        timeout_s: longest wait for the other processes (seconds).
        store: the store, in the process that has opened it; else None.
        host: address at which gloo's other processes reach this one. Without it gloo takes the address of
            this machine's name, often 127.0.0.1. GLOO_SOCKET_IFNAME in the environment names a network instead.
    """

    def __init__(
        self,
        kind: str,
        address: tuple[str, int],
        rank: int,
        size: int,
        timeout_s: float,
        store: dist.TCPStore | None = None,
        host: str = "127.0.0.1",
    ):
        self.rank, self.size = rank, size
        limit = datetime.timedelta(seconds=timeout_s)
        try:
            self._store = store or dist.TCPStore(*address, is_master=False, timeout=limit)
            prefixed = dist.PrefixStore("learners", self._store)
            if kind == "nccl":
                options = dist.ProcessGroupNCCL.Options()
                options._timeout = limit
                self._group = dist.ProcessGroupNCCL(prefixed, rank, size, options)
            elif os.environ.get("GLOO_SOCKET_IFNAME"):
                self._group = dist.ProcessGroupGloo(prefixed, rank, size, limit)
            else:
                options = dist.ProcessGroupGloo._Options()
                options._timeout = limit
                options._devices = [dist.ProcessGroupGloo.create_device(hostname=host)]
                self._group = dist.ProcessGroupGloo(prefixed, rank, size, options)
        except RuntimeError as error:
            raise Unfinished(str(error)) from error

    def sum(self, arrays: Sequence) -> None:
        """As Collective.sum, in one operation."""
        tensors = [torch.as_tensor(array) for array in arrays]
        whole = tensors[0] if len(tensors) == 1 else torch.cat([tensor.reshape(-1) for tensor in tensors])
        try:
            with spans.span(spans.WAIT):  # includes the sum, for nccl only its launch
                self._group.allreduce([whole]).wait()
        except RuntimeError as error:  # another process has ended, or is too late
            raise Unfinished(str(error)) from error
        if len(tensors) > 1:
            self._scatter(whole, tensors)

    @staticmethod
    def _scatter(whole: Tensor, tensors: Sequence[Tensor]) -> None:
        for tensor, part in zip(tensors, whole.split([tensor.numel() for tensor in tensors])):
            tensor.copy_(part.view_as(tensor))

    def close(self) -> None:
        with contextlib.suppress(RuntimeError, AttributeError):
            self._group.shutdown()
