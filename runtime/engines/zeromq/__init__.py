"""The engine of one machine: processes that talk over ZeroMQ and share memory. docs/architecture.md shows the whole.

wire, control     the bytes of messages                    store, serializer   shared memory, values to bytes
mailbox           sockets and the threads that read them   client              the verbs, in driver and workers, with
refs, holdings    values, and what is shared with others   tasks, actor_calls  submit; create_actor, call and kill
channels          the ways to actors                       arguments, definitions, requests   what calls need
driver, launch    starting and ending a session            worker              running tasks and actors
state             what the node decides, pure, with        node, boot, zygote, process   how it is done
records, ledger, holds, objects, shared_memory   its tables, and instructions   what it has done
"""

from __future__ import annotations

from ..base import EngineConfig
from .interrupts import Interrupts
from .launch import NodeProcess


class ZeroMQEngine:
    """Starts the node first, then imports what the driver needs while the node starts. Afterwards it is the driver."""

    name = "zeromq"

    def start(self, config: EngineConfig) -> None:
        """See base.Engine."""
        interrupts = Interrupts()
        try:
            node = NodeProcess(config)
            try:
                from .driver import Driver  # numpy and zmq: as long as the node takes

                self._driver = Driver(node, dict(config.resources), interrupts)
            except BaseException:
                node.wait_end(0)
                node.close()
                raise
        except BaseException:
            interrupts.close()
            raise

    def __getattr__(self, name):
        if name == "_driver":
            raise AttributeError("the session has not been started")
        value = getattr(self._driver, name)
        self.__dict__[name] = value  # a verb costs one lookup
        return value


def create_engine() -> ZeroMQEngine:
    """A new engine, not started."""
    return ZeroMQEngine()
