"""Sums over processes: each of K learners computes a part of a gradient and needs the whole."""

import contextlib
import mmap
import os
import secrets
import time
from collections.abc import Sequence
from typing import Protocol, Self

import numpy as np

from rllib import spans

LINE = 64  # bytes of a cache line: memory that a process writes often shares no cache line with another process
TOKEN_BYTES = 16
# Reads of the other counters, 30 ns each, before the core is offered to another process, and before sleeping.
LOOKS = 10_000
YIELDS = 200
NAP_S = 0.0002


class Unfinished(Exception):
    """Not all processes have joined a sum: one has ended or hangs, or the sum was interrupted."""


class Collective(Protocol):
    """Processes that call `sum` equally often, with arrays of the same sizes.

    Attributes:
        rank: this process's number.
        size: number of the processes.
    """

    rank: int
    size: int

    def sum(self, arrays: Sequence) -> None:
        """Replaces the arrays (or tensors), float32 and contiguous each, by their sums over all processes.

        All processes get the same bits.

        Raises:
            Unfinished: if another process does not join.
        """

    def close(self) -> None:
        """Leaves the group; the others' next sum is unfinished."""


class SharedBlock:
    """Memory shared by the processes of one machine: a counter and two slots for each process, and a stop mark.

    It has no name and is freed with the last process that maps it.

    Args:
        size: number of processes.
        capacity: float32 numbers in a slot; larger sums take several rounds.
        file: open file, which is closed here; None: new memory.

    Attributes:
        token: random bytes in the block, by which a process recognises it.
        counters: int64 view, `LINE / 8` apart; the last one is the stop mark.
        slots: float32 [2, size, capacity].
    """

    def __init__(self, size: int, capacity: int, file: int | None = None):
        self.size, self.capacity = size, capacity
        stride = -(-4 * capacity // LINE) * LINE
        head = LINE * (size + 2)
        self.fd = os.memfd_create("learners") if file is None else file
        try:
            if file is None:
                os.ftruncate(self.fd, head + 2 * size * stride)
            self._map = mmap.mmap(self.fd, head + 2 * size * stride)
        except BaseException:
            os.close(self.fd)
            raise
        if file is None:
            self._map[head - LINE : head - LINE + TOKEN_BYTES] = secrets.token_bytes(TOKEN_BYTES)
        self.token = self._map[head - LINE : head - LINE + TOKEN_BYTES]
        self.counters = memoryview(self._map)[: head - LINE].cast("q")
        slots = np.frombuffer(self._map, np.float32, 2 * size * stride // 4, head)
        self.slots = slots.reshape(2, size, stride // 4)[:, :, :capacity]

    @property
    def place(self) -> tuple[int, int, int, int, bytes]:
        """Arguments of `find` for other processes, valid as long as this process lives."""
        return os.getpid(), self.fd, self.size, self.capacity, self.token

    @classmethod
    def find(cls, pid: int, fd: int, size: int, capacity: int, token: bytes) -> Self | None:
        """The block of another process of this machine; None if it cannot be reached from here."""
        try:
            block = cls(size, capacity, os.open(f"/proc/{pid}/fd/{fd}", os.O_RDWR | os.O_CLOEXEC))
        except (OSError, ValueError):  # no such process or file here, or a file that is too small
            return None
        os.close(block.fd)
        return block if block.token == token else None

    def interrupt(self) -> None:
        """Makes the running sums, and all later ones, raise Unfinished."""
        self.counters[self.size * LINE // 8] = 1

    def close(self) -> None:
        """Closes the file, so that no other process can find the block; processes that have mapped it keep it."""
        with contextlib.suppress(OSError):
            os.close(self.fd)


class SharedSums:
    """Sums through a SharedBlock, without a system call as long as the other processes are not far behind.

    Each process writes its numbers into its slot, raises its counter, waits for the other counters and adds up all
    slots in the order of the ranks. Two slots take turns: when all counters show round n, all processes have read
    the slots of round n - 1. It relies on stores becoming visible in their order, as on x86-64 (`is_available`).

    Args:
        block: the block, as this process has found it.
        rank: number of this process.
        timeout_s: longest wait for the other processes (seconds).
        patient: whether each process has a core, so that polling takes no core from the other processes.
    """

    def __init__(self, block: SharedBlock, rank: int, timeout_s: float, patient: bool = True):
        self.rank, self.size = rank, block.size
        self._block, self._timeout_s, self._round = block, timeout_s, 0
        self._looks = LOOKS if patient else 0
        self._others = [LINE // 8 * other for other in range(block.size) if other != rank]

    @staticmethod
    def is_available() -> bool:
        """Whether this machine's processors keep the order of stores."""
        return os.uname().machine in ("x86_64", "AMD64")

    def sum(self, arrays: Sequence) -> None:
        """As Collective.sum; arrays may be tensors on the CPU."""
        capacity, filled, parts = self._block.capacity, 0, []
        for array in arrays:
            flat = np.asarray(array).reshape(-1)
            while len(flat):
                part, flat = flat[: capacity - filled], flat[capacity - filled :]
                parts.append((slice(filled, filled + len(part)), part))
                filled += len(part)
                if filled == capacity:
                    self._sum_round(parts)
                    filled, parts = 0, []
        if parts:
            self._sum_round(parts)

    def _sum_round(self, parts: list[tuple[slice, np.ndarray]]) -> None:
        self._round += 1
        slots = self._block.slots[self._round % 2]
        mine = slots[self.rank]
        for place, part in parts:
            mine[place] = part
        self._block.counters[LINE // 8 * self.rank] = self._round
        with spans.span(spans.WAIT):
            self._wait()
        first, second, *others = slots if self.size > 1 else (mine, np.zeros_like(mine))
        for place, part in parts:
            np.add(first[place], second[place], out=part)
            for other in others:
                part += other[place]

    def _wait(self) -> None:
        counters, round_, looks = self._block.counters, self._round, 0
        deadline = None
        for other in self._others:
            while counters[other] < round_:
                looks += 1
                if looks <= self._looks:
                    continue
                if deadline is None:
                    deadline = time.monotonic() + self._timeout_s
                stopped = counters[self.size * LINE // 8]
                # Processes that came in time have finished the sum, whatever has happened since.
                if (stopped or time.monotonic() > deadline) and counters[other] < round_:
                    missing = [i for i in range(self.size) if counters[LINE // 8 * i] < round_]
                    why = "was interrupted" if stopped else f"has waited for {self._timeout_s:g} s"
                    raise Unfinished(f"the sum {why}; missing were learners {missing}")
                if looks <= self._looks + YIELDS:
                    os.sched_yield()
                else:
                    time.sleep(NAP_S)

    def close(self) -> None:
        self._block.interrupt()
