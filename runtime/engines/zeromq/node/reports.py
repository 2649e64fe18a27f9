"""Reports on a session for people: its processes, what waits, its objects and who holds them."""

from __future__ import annotations

from collections import Counter

from ...resources import quantities
from .entities import TASK, ProcessKind
from .refcounts import BLOCK
from .state import NodeState

HOLDERS_NAMED = 10  # in a report of the memory


def status(state: NodeState, pids: dict[int, int]) -> dict:
    """Resources, processes with what they run, and what waits.

    Args:
        state: of the node.
        pids: of the processes by their numbers.
    """
    return {
        "resources": quantities(state.resources.total),
        "available": quantities(state.resources.free),
        "memory": {"used": state.memory.size_bytes, "quota": state.memory.quota},
        "processes": [_process(state, process, pids) for process in state.processes.values()],
        "waiting": [
            {"what": what, "count": count, "needs": quantities(request)}
            for (what, request), count in Counter(state.waiting_for_resources()).items()
        ],
        "placement_groups": [{**group.describe(), "bundles": group.bundles} for group in state.group_table()],
    }


def _process(state, process, pids):
    runs = f"task {process.task.spec.name}()" if process.task is not None else ""
    held, gpus = (process.task.request, process.task.gpus) if process.task is not None else ((), ())
    if process.actor is not None:
        runs, held, gpus = f"actor {process.actor.spec.name}", process.actor.spec.held, process.actor.gpus
    return {
        "number": process.number,
        "pid": pids.get(process.number),
        "kind": process.kind.value,
        "runs": runs,
        "state": _state_of(process),
        "holds": quantities(held),
        "gpus": list(gpus),
        "driver": process.driver,
    }


def _state_of(process):
    if process.leaving:
        return "leaving"
    if not process.ready:
        return "starting"
    if process.waits is not None:
        return f"waits in {process.waits.name}"
    if process.blocked:
        return "waits"
    if process.actor is not None:
        return process.actor.state.value
    return "running" if process.task is not None else "idle" if process.kind.value == "task" else ""


def memory(state: NodeState, pids: dict[int, int]) -> dict:
    """Shared items, the segments they lie in, and the processes that have them; arguments as for `status`."""
    return {
        "objects": _objects(state),
        "segments": _segments(state),
        "processes": [_process(state, process, pids) for process in state.processes.values()],
    }


def _objects(state):
    """Shared items: id, kind, bytes, maker and holders. Blocks count their segment once.

    A holder is a process's number, or what a queued task, an actor or another object needs.
    """
    holders = state.refcounts.holders()
    listed = []
    for key, item in state.refcounts.items.items():
        if item.kind is None:
            continue
        listed.append(
            {
                "id": key.hex(),
                "kind": item.kind,
                "bytes": len(item.value) if item.value is not None else None,
                "segment": item.segment if item.kind == BLOCK else None,
                "creator": item.creator,
                "holders": [
                    h if isinstance(h, int) else _holder(state, h).removeprefix("the ") for h in holders.get(key, ())
                ],
            }
        )
    return listed


def _segments(state):
    """The segments of shared memory: number, bytes, process that made it, blocks that others know, readers."""
    return [
        {"segment": n, "bytes": s.size, "creator": s.creator, "blocks": s.live, "readers": sorted(s.readers)}
        for n, s in state.memory.segments()
    ]


def memory_report(state: NodeState) -> str:
    """Makers and holders of shared memory, for the error of a process that got none."""
    memory = state.memory
    lines = [f"{memory.size_bytes / 2**20:.1f} of {memory.quota / 2**20:.1f} MB of shared memory are taken"]
    if memory.disk_quota:
        lines[0] += f", and {memory.disk_bytes / 2**20:.1f} MB on the disk"
    if memory.refusal:
        lines.append(f"the disk takes no more: {memory.refusal}")
    for process, (count, in_memory, on_disk) in sorted(memory.made().items(), key=lambda made: -sum(made[1][1:])):
        place = f", {on_disk / 2**20:.1f} MB of them on the disk" if on_disk else ""
        size = (in_memory + on_disk) / 2**20
        lines.append(f"{_holder(state, process)} has made {size:.1f} MB in {count} segments{place}")
    for holder, count in state.refcounts.block_counts().most_common(HOLDERS_NAMED):
        lines.append(f"{_holder(state, holder)} holds {count} blocks that others know")
    return "; ".join(lines[: 2 + 2 * HOLDERS_NAMED])


def _holder(state, holder):
    """In words: a process, by its number, or what a task, an actor or another object needs, by its key."""
    if isinstance(holder, int):
        worker = state.processes.get(holder)
        if worker is None or worker.kind == ProcessKind.DRIVER:
            return "a process that has ended" if worker is None else f"driver {holder:x}"
        kind = "actor" if worker.actor is not None else "the worker of task"
        return f"{kind} {worker.name or 'that has not run any'} (process {holder:x})"
    if holder in state.actors:
        return f"the arguments of actor {state.actors[holder].spec.name}"
    if holder in state.refcounts.items:
        return f"the value of {holder.hex()}"
    if not holder.startswith(TASK):
        return "a function or class"
    task = state.task(holder.removeprefix(TASK))
    return "the arguments of a task" if task is None else f"the arguments of task {task.spec.name}()"
