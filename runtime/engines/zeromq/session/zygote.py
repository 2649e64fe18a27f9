"""The process that workers are forked from: it has imported what they need, and does nothing else.

It has one thread, so that a fork is safe, and forks in milliseconds; its pages are shared with the workers until
they write to them. Python, libc and libraries read their environment variables when they start: a worker with other
variables than the session's is a new interpreter, which takes some tenths of a second. The zygote tells the node which
process got which pid, and how each has ended. When the node dies, it kills the workers and all that they have started.

Protocol, over a SOCK_SEQPACKET pair. From the node: `Settings` in msgpack, with the pipes for stdout and stderr. To
the node: (process, pid, -1) when it is born, (process, pid, wait status) when it has ended.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import select
import signal
import socket
import subprocess
import sys
import traceback

import msgspec

from ....host.linux import adopt_orphans, allow_many_files, die_with_parent, kill_children, outlive_parent
from ..transport import wire
from ..transport.structs import Settings
from ..worker import worker_process as worker
from . import boot

LARGEST_SETTINGS = 2**20


class Zygote:
    """Forks workers, and reports their births and ends.

    Args:
        channel: to the node.
        config: see `boot.start_zygote`: modules to import before the first fork (`preload`), the session's environment
            variables (`env_vars`) with the values that they replaced (`outer`), and the names of those that only the
            zygote needs (`defaults`).
    """

    def __init__(self, channel: socket.socket, config: dict):
        self._channel, self._preload = channel, list(config["preload"])
        self._env_vars, self._outer, self._defaults = config["env_vars"], config["outer"], config["defaults"]
        self._workers: dict[int, int] = {}  # pid -> process
        self._decode = msgspec.msgpack.Decoder(Settings).decode
        self._child_ended, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        self._wake = wake

    def run(self) -> Settings | None:
        """Serves until the node closes the channel or dies; returns settings in a process that is a worker now."""
        for name in self._preload:
            _import(name)
        gc.collect()
        gc.freeze()  # the collector must not write into pages that workers share
        outlive_parent()  # to clean up after it; while importing, which may take any time, there was nothing to clean
        with contextlib.suppress(ConnectionError):
            return self._serve()

    def _serve(self):
        poll = select.poll()
        poll.register(self._channel, select.POLLIN)
        poll.register(self._child_ended, select.POLLIN)
        while True:
            for descriptor, _ in poll.poll():
                if descriptor == self._child_ended:
                    self._reap()
                    continue
                data, pipes, _, _ = socket.recv_fds(self._channel, LARGEST_SETTINGS, 2)
                if not data:
                    return None
                settings = self._start(self._decode(data), pipes)
                if settings is not None:
                    return settings

    def _start(self, settings, pipes):
        has_threads = len(os.listdir("/proc/self/task")) > 1  # of a preloaded module; they do not survive a fork
        if has_threads or settings.env_vars != self._env_vars:
            pid = _spawn(settings, pipes, self._environment(settings))
        else:
            pid = os.fork()
            if pid == 0:
                self._become_worker(pipes)
                return settings
        for pipe in pipes:
            os.close(pipe)
        self._workers[pid] = settings.process
        self._channel.send(wire.REPORT.pack(settings.process, pid, wire.BORN))
        return None

    def _environment(self, settings):
        """The environment of a new interpreter: the driver's, with the worker's variables."""
        environment = {**os.environ, **self._outer, **dict.fromkeys(self._defaults), **settings.env_vars}
        # Before it imports numpy, whose BLAS takes all cores otherwise.
        threads = {"OMP_NUM_THREADS": worker.default_threads(settings)}
        return {**threads, **{name: value for name, value in environment.items() if value is not None}}

    def _become_worker(self, pipes):
        for name in self._defaults:
            del os.environ[name]
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._channel.close()
        os.close(self._child_ended)
        os.close(self._wake)
        for pipe, standard in zip(pipes, (1, 2)):
            os.dup2(pipe, standard)
            os.close(pipe)

    def _reap(self):
        os.read(self._child_ended, 4096)
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            process = self._workers.pop(pid, None)
            if process is not None:
                self._channel.send(wire.REPORT.pack(process, pid, status))


def _import(name):
    try:
        importlib.import_module(name)
    except Exception:  # the worker that needs it raises it again, in user code
        traceback.print_exc()
        print(f"runtime: the module {name!r} could not be preloaded", file=sys.stderr)


def _spawn(settings, pipes, environment):
    """Starts a new interpreter instead of a fork."""
    config = {"module": worker.__name__, "path": sys.path, "parent": os.getpid()}
    config["settings"] = msgspec.to_builtins(settings)
    process = subprocess.Popen(
        boot.command(config, settings.env_vars),
        stdin=subprocess.DEVNULL,
        stdout=pipes[0],
        stderr=pipes[1],
        env=environment,
    )
    process.returncode = 0  # reaped by waitpid above, not by this object
    return process.pid


def main(config: dict) -> None:
    """Entry point of the zygote; for the config see `boot.start_zygote`."""
    die_with_parent(config["parent"])
    allow_many_files()
    pid = os.getpid()
    settings = Zygote(socket.socket(fileno=config["channel"]), config).run()
    if settings is not None:
        worker.run(settings, pid)
    adopt_orphans()
    kill_children()
