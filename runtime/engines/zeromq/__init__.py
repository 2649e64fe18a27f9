"""The engine of one machine: processes that talk over ZeroMQ and share memory. docs/architecture.md shows the whole.

wire, structs          the bytes of messages                  store, serializer   shared memory, values to bytes
mailbox                sockets and the threads that read them client              the verbs, in driver and workers, with
refs, local_refs       references, and what is shared         tasks, actor_calls  submit; create_actor, call and kill
actor_channels         the ways to actors                     node_requests       what a process asks the node
arguments, definitions what calls carry                       driver, launch      starting and ending a session
worker                 runs tasks, or is one actor            state               what the node decides, pure, with
entities, resources, refcounts, object_directory, shared_memory   its tables, and
instructions           what is to be done                     node, boot, zygote, process   how it is done
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
