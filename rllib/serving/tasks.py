"""Messages between the supervisor of a policy server and its processes: tasks one way, reports the other."""

import contextlib
import socket
from pathlib import Path

import msgspec

from rllib.serving.learning.settings import LearningSettings

# Time after SIGTERM in which requests that have arrived are answered.
GRACE_S = 10.0


class ServingSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a policy server.

    Attributes:
        source: a checkpoint, or the directory of a run, whose newest checkpoint is taken.
        policy_id: id of the policy, where a checkpoint holds several; None: all of them are served.
        load_user_code: as for load_policy.
        max_batch: largest number of observations in one forward pass.
        max_wait_us: microseconds that an observation waits for others; 0: a batch is whatever has arrived.
        max_queue: largest number of waiting observations; further requests are answered with 503 at once.
        token: that requests have to carry; None: requests need no token.
        watch: take up newer checkpoints of the run as they appear.
        learning: how it learns from rewards; None: it does not.
    """

    source: str
    policy_id: str | None = None
    load_user_code: bool = False
    max_batch: int = 64
    max_wait_us: int = 0
    max_queue: int = 4096
    token: str | None = None
    watch: bool = False
    learning: LearningSettings | None = None

    @property
    def path(self) -> Path:
        return Path(self.source)


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """Message of the supervisor to a process that it has started.

    Attributes:
        settings: settings of the server.
        index: index of the process, from 0; the learner has the last one.
        workers: number of processes.
        before: checkpoint that the process before it acted with; None for the first.
    """

    settings: ServingSettings
    index: int
    workers: int
    before: str | None = None


class Report(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Message of a process to the supervisor: the policy that it serves, or why it cannot serve one.

    The learner's are events, the first when it has begun.

    Attributes:
        checkpoint: that it acts with.
        version: version of the policy.
        of: algorithm and environment.
        error: why the process ends; empty if it serves.
        event: a sentence of the learner.
    """

    checkpoint: str = ""
    version: int = 0
    of: str = ""
    error: str = ""
    event: str = ""


def send_report(channel: socket.socket, report: Report) -> None:
    """Sends a report over the socket to the supervisor."""
    with contextlib.suppress(OSError):  # the supervisor has ended
        channel.sendall(msgspec.json.encode(report) + b"\n")
