"""A process that answers requests: python -m rllib.serving.worker, started by the supervisor.

It inherits the listening socket, a socket to the supervisor, the memory of the counters, and a socket to the learner
where there is one. Over the second it gets a `Task` and sends `Report`s, a line of JSON each. When that socket is
closed, the supervisor has ended, and the process ends as well.
"""

import asyncio
import contextlib
import gc
import logging
import os
import resource
import socket
import sys
import threading
from functools import partial
from pathlib import Path

import msgspec
import uvicorn

from rllib.serving.app import App, not_taken_up
from rllib.serving.counts import Counts
from rllib.serving.learner_channel import LearnerChannel
from rllib.serving.model import Model
from rllib.serving.tasks import GRACE_S, Report, ServingSettings, Task, send_report
from rllib.storage.checkpoint import CheckpointError
from rllib.web.guard import server_config
from rllib.web.sockets import BACKLOG

logger = logging.getLogger("rllib.serving")
# Interval between looks for newer checkpoints, and for requests to reload that other processes got.
WATCH_S = 0.5


def main(listening: int, control: int, counts: int, learner: int | None = None) -> int:
    """Serves until SIGTERM, or until the supervisor has ended.

    Args:
        listening, control, counts: descriptors of the two sockets and of the counters' memory.
        learner: descriptor of the socket to the learner.

    Returns:
        the exit status.
    """
    logging.basicConfig(level=logging.WARNING, format="rllib serve: %(message)s")
    _allow_many_connections()
    channel = socket.socket(fileno=control)
    task = msgspec.json.decode(channel.makefile("rb").readline(), type=Task)
    own = Counts(counts, task.workers + 1, task.index)
    own.set("queue_length", 0)
    asked = own.of_all("reload_requests")  # later requests concern later checkpoints
    try:
        model = Model(task.settings, own, None if task.before is None else Path(task.before))
    except ValueError as error:  # a CheckpointError, or settings of a network that cannot be made
        send_report(channel, Report(error=str(error)))
        return 1
    except Exception as error:
        send_report(channel, Report(error=f"{type(error).__name__}: {error}"))
        raise
    gc.collect()
    gc.freeze()  # permanent objects are not examined again
    config = http_config()
    with asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:
        to_learner = None if learner is None else socket.socket(fileno=learner)
        sockets = socket.socket(fileno=listening), channel, to_learner
        runner.run(_serve(config, sockets, model, own, task.settings, asked))
    return 0


async def _serve(config, sockets, model: Model, counts: Counts, settings: ServingSettings, asked: float) -> None:
    listening, channel, to_learner = sockets
    learner = None if to_learner is None else LearnerChannel(to_learner, counts)
    app = config.app = App(model, counts, settings, partial(_say_version, channel, model), learner)
    server = uvicorn.Server(config)
    loop = asyncio.get_running_loop()

    def end():
        server.should_exit = True

    # In a thread, since the loop may be busy for longer.
    threading.Thread(target=_await_end, args=(channel, loop, end), daemon=True).start()
    _say_version(channel, model)
    watching = asyncio.create_task(_watch(app, counts, settings.watch, asked))
    try:
        await server.serve(sockets=[listening])
    finally:
        watching.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watching


def _await_end(channel: socket.socket, loop, end) -> None:
    """Ends the server when the supervisor has ended, and the process if that takes too long."""
    with contextlib.suppress(OSError):
        while channel.recv(1024):
            pass
    with contextlib.suppress(RuntimeError):  # the loop has been closed
        loop.call_soon_threadsafe(end)
    threading.Event().wait(GRACE_S + 1)
    os._exit(1)


async def _watch(app: App, counts: Counts, always: bool, asked: float) -> None:
    """Takes up newer checkpoints: as they appear, or when another process got a request to reload."""
    while True:
        await asyncio.sleep(WATCH_S)
        before, asked = asked, counts.of_all("reload_requests")
        if always or asked != before:
            try:
                await app.take_up_newer()
            except CheckpointError as error:
                logger.warning("%s", not_taken_up(error))
        await app.take_up_candidate()


def _say_version(channel: socket.socket, model: Model) -> None:
    policy = model.policy
    send_report(channel, Report(checkpoint=str(policy.checkpoint), version=policy.policy_version, of=policy.of))


def http_config(app=None) -> uvicorn.Config:
    """Configures uvicorn without features that cost time in each request or that a policy server does not use.

    Args:
        app: the ASGI application; None if it is made when the event loop runs.
    """
    return server_config(app or _not_yet, date_header=False, backlog=BACKLOG, timeout_keep_alive=75,
                         timeout_graceful_shutdown=int(GRACE_S))  # fmt: skip


async def _not_yet(scope, receive, send):
    raise RuntimeError("replaced before the server starts")


def _allow_many_connections() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
