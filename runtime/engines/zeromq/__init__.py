"""The engine of one machine: processes that talk over ZeroMQ and share memory. docs/architecture.md shows the whole.

wire, structs      the bytes of messages                    store, serializer   shared memory, values to bytes
mailbox            sockets, and the threads that read them  client              the verbs, in driver and workers, with
refs, local_refs   references, and what is shared           tasks, actor_calls  submit; create_actor, call and kill
joining            joining a session that runs          session_key         the key in every frame
actor_channels     the ways to actors                       arguments           what calls carry
packed             many calls in flight in one message
node_requests, named_actors   what it asks the node         driver, launch      starting and ending a session
streams            results of generators                    cancellation        cancelling, and cancelled work
worker             the loop of a worker process, with task_runner, served_actor (concurrent_calls, held_replies),
                   received_calls, results and running
state              what the node decides, pure, with scheduler, actor_table, process_table, shared_items
                   (refcounts), shared_memory, file_budget, entities and ..resources
node, worker_output, spilling, boot, zygote, process   how it is done
"""

from __future__ import annotations

import contextlib

from ..base import Engine, EngineConfig
from .session.joining import RunningSession
from .session.launch import NodeProcess
from .system.interrupts import Interrupts


def start(config: EngineConfig) -> Engine:
    """Starts a session; what the driver needs is imported while the node starts. See base.Engine."""
    interrupts = Interrupts()
    with contextlib.ExitStack() as failed:
        failed.callback(interrupts.close)
        if config.address is not None:
            session = RunningSession(config.address)
            failed.callback(session.close)
            from .client.driver import Guest

            guest = Guest(session, interrupts, config)
            failed.pop_all()
            return guest
        node = NodeProcess(config)
        failed.callback(node.close)
        failed.callback(node.wait_end, 0)
        from .client.driver import Driver  # numpy and zmq: as long as the node takes

        driver = Driver(node, dict(config.resources), config.namespace, interrupts)
        failed.pop_all()
        return driver
