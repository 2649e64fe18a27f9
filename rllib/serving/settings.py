"""What a policy server is asked to do."""

import ipaddress
from pathlib import Path

import msgspec

# After SIGTERM, requests that have arrived have this long to be answered.
GRACE_S = 10.0
# Connections that wait to be accepted.
BACKLOG = 4096


class ServingSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a policy server, as its processes are given them.

    Attributes:
        source: a checkpoint, or the directory of a run, whose newest checkpoint is taken.
        policy_id: of the policy, where a checkpoint holds several; None: the default one.
        load_user_code: as for load_policy.
        max_batch: observations that one forward pass takes at most.
        max_wait_us: microseconds that an observation waits for others; 0: those that have arrived are taken together.
        max_queue: observations that may wait; further requests are answered with 503 at once.
        token: that requests have to carry; None: none.
        watch: take up newer checkpoints of the run as they appear.
    """

    source: str
    policy_id: str | None = None
    load_user_code: bool = False
    max_batch: int = 64
    max_wait_us: int = 0
    max_queue: int = 4096
    token: str | None = None
    watch: bool = False

    @property
    def path(self) -> Path:
        """The source."""
        return Path(self.source)


def is_loopback(host: str) -> bool:
    """Whether only programs on the same machine reach this address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """What the supervisor tells a process.

    Attributes:
        settings: of the server.
        index, workers: which of how many processes it is.
        before: checkpoint that the process before it acted with; None for the first.
    """

    settings: ServingSettings
    index: int
    workers: int
    before: str | None = None


class Report(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a process tells the supervisor: what it serves, or why it cannot.

    Attributes:
        checkpoint: that it acts with.
        version: of the policy.
        of: algorithm and environment.
        error: why it ends; empty if it serves.
    """

    checkpoint: str = ""
    version: int = 0
    of: str = ""
    error: str = ""
