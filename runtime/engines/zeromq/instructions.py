"""What the node's state has done by the node: the instructions that `NodeState.take` hands over."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Send:
    """A frame for a process."""

    process: int
    frame: bytes


@dataclass(slots=True)
class Spawn:
    """A worker process is to be started."""

    process: int
    name: str
    held: dict[str, float] = field(default_factory=dict)
    gpu_ids: tuple[str, ...] = ()
    env_vars: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Kill:
    """A process and its group are to be killed."""

    process: int


@dataclass(slots=True)
class Grow:
    """A segment is to be made and granted (request `serial` of `process`)."""

    process: int
    serial: int
    segment: int
    size: int


@dataclass(slots=True)
class Close:
    """A segment is to be closed."""

    segment: int
