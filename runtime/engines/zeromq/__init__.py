"""The engine of one machine: processes that talk over ZeroMQ and share memory (docs/project/architecture.md).

| folder     | content                                                                                             |
|------------|-----------------------------------------------------------------------------------------------------|
| transport/ | messages: their bytes, the sockets and threads that carry them, requests to the node                |
| values/    | Python values as bytes and shared memory, references, arguments of calls, streams of results        |
| client/    | the API functions, in drivers and workers: tasks, actor calls, cancelling                           |
| node/      | the process that schedules, supervises and accounts; its decisions are pure (state.py)              |
| worker/    | a worker process: its loop, the tasks that it runs, the actor that it serves                        |
| session/   | starting a session, joining one, the process that workers are forked from                           |
| system/    | signals, stacks, traces, spilled objects, open files                                                |
| cli.py     | the command `runtime`                                                                               |
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
