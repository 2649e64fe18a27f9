"""Choice of the process to end when the memory of the machine runs short.

The newest task that may be run again is ended: those before it, which have done more, continue. Without one it is the
actor with restarts left that has most private memory; without one of these, the task or actor that has most, unless a
driver has more: no driver is ended, and the end of others would not help for long. One process is ended at a time.
"""

from __future__ import annotations

import logging

from .entities import Kill, Process, ProcessKind
from .process_table import ProcessTable
from .shared_memory import SharedMemory

NAMED = 8  # processes in a message
ADVICE = (
    "Let fewer run at a time, by .options(memory=BYTES) or num_cpus, or use less memory in each. "
    "init(memory_usage_threshold=...) sets how much may be in use; 1 leaves it to the kernel to end processes"
)


class MemoryPressure:
    """Ends a process when memory is short.

    Args:
        table: the session's processes.
        shared_memory: of the session, for messages.
    """

    def __init__(self, table: ProcessTable, shared_memory: SharedMemory):
        self._table, self._processes, self._shared_memory = table, table.by_number, shared_memory
        self._noticed = False

    @property
    def is_relieved(self) -> bool:
        """Whether a process that was ended has not gone yet."""
        return any(process.starved is not None for process in self._processes.values())

    def short(self, name: str, used: int, size: int, reserve: int, private: dict[int, int]) -> None:
        """Memory is short: a process is ended, or a notice says why none is.

        Args:
            name: name of the memory.
            used, size: bytes of it in use, and in all.
            reserve: bytes that are to be free.
            private: process -> bytes that only it has.
        """
        worker = self._choose(private, reserve)
        report = f"{_bytes(used)} of {_bytes(size)} of {name} are in use. {self._holders(private)}"
        if worker is None:
            if not self._noticed:
                self._noticed = True
                text = f"memory is short, and no process of this session is ended for it: {report}"
                self._table.notice(text, logging.WARNING)
            return
        self._noticed = False
        worker.starved = private[worker.number]
        worker.killed = f"was ended because memory ran short: {report}. {ADVICE}"
        self._table.instruct(Kill(worker.number))

    def ended_by_kernel(self, process: int) -> None:
        """The kernel has killed a process that is about to be reported as ended."""
        worker = self._processes.get(process)
        if worker is not None and not worker.killed:
            worker.starved, worker.killed = 0, f"was killed by the kernel because memory ran out. {ADVICE}"

    def _choose(self, private, reserve):
        workers = [worker for number in private if (worker := self._processes.get(number)) and _can_be_ended(worker)]
        if sum(private[worker.number] for worker in workers) < reserve:
            return None  # others have the memory
        tasks = [worker for worker in workers if worker.task is not None and worker.task.may_be_retried]
        if tasks:
            return max(tasks, key=lambda worker: worker.started)

        def size(worker):
            return private[worker.number]

        actors = [worker for worker in workers if worker.actor is not None and worker.actor.may_restart]
        if actors:
            return max(actors, key=size)
        largest = max(workers, key=size)
        drivers = (p for p in self._processes.values() if p.kind == ProcessKind.DRIVER)
        return largest if all(size(largest) > private.get(driver.number, 0) for driver in drivers) else None

    def _holders(self, private):
        largest = sorted(private.items(), key=lambda entry: -entry[1])
        parts = [f"{self._name(process)} {_bytes(size)}" for process, size in largest[:NAMED]]
        if len(largest) > NAMED:
            parts.append(f"{len(largest) - NAMED} more {_bytes(sum(size for _, size in largest[NAMED:]))}")
        shared = f"; shared objects {_bytes(self._shared_memory.size_bytes)}" if self._shared_memory.size_bytes else ""
        return f"Private memory: {', '.join(parts)}{shared}"

    def _name(self, number):
        process = self._processes[number]
        if process.kind == ProcessKind.DRIVER:
            return f"driver {number:x}"
        if process.actor is not None:
            return f"actor {process.name} (process {number:x})"
        return f"task {process.name}() (process {number:x})" if process.task is not None else f"process {number:x}"


def _can_be_ended(worker: Process) -> bool:
    """Whether it runs something, and is not about to end."""
    if worker.actor is not None:
        runs = not worker.actor.ending
    else:
        runs = worker.task is not None and not worker.task.cancelled
    return runs and not worker.leaving and not worker.killed


def _bytes(size):
    return f"{size / 2**30:.1f} GB" if size >= 2**30 else f"{size / 2**20:.0f} MB"
