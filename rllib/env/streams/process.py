"""One environment in a separate process, which can be given up when it hangs or dies."""

import contextlib
import faulthandler
import logging
import math
import os
import pickle
import random
import select
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from rllib.env.agents import INTERFACE_NAMES, STANDARD_WRAPPERS
from rllib.env.streams.legacy import call_reset
from rllib.errors import EnvironmentDiedError, EnvironmentHangsError

logger = logging.getLogger("rllib.env")

CLOSE_TIMEOUT_S = 5.0
STACK_TIMEOUT_S = 0.5
PACKET_BYTES = 32 * 1024  # larger values go through a file in memory
_IN_FILE = b"f"  # never the first byte of a pickle
_METHOD = "method"  # in place of a space: the environment has a method of this name


class EnvironmentProcess:
    """An environment that runs in a process forked from this one, with the methods of the environment.

    Attributes other than those below are asked for in its process; methods are called there. The process ends with
    this one, or, if it was started in another thread than the main one, when it next waits for a call.

    Args:
        make: makes the environment, in its process.
        place: for messages, such as "environment 1 of rollout worker 2".
        name: name of the environment, for messages until its class is known.
        timeout_s: longest time that a call of step() or reset() may take (seconds); None: unlimited.

    Attributes:
        observation_space, action_space: spaces of the environment. Access waits for its constructor, without a time
            limit, and raises its errors.
        class_name: name of the class of the environment below its wrappers.
        pid: id of the process; 0 after close().
    """

    def __init__(self, make: Callable[[], Any], place: str, name: str, timeout_s: float | None = None):
        self.class_name, self._place, self._timeout_s = name, place, timeout_s
        self._spaces: tuple | None = None
        self._call, self._begun = "__init__()", time.monotonic()  # the call that is not answered; "" if there is none
        self._awaited = ""  # "step" or "reset": begun, and its result not yet asked for
        self._replies: list = []  # its answer, if it was received before another call
        self._failure: Exception | None = None  # what has ended the process
        self._close_until = math.inf  # of time.monotonic(), once it is to close
        _linux()  # imported before the process is forked
        own, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        files = os.memfd_create("to environment"), os.memfd_create("from environment")
        stack_read, stack_write = os.pipe()
        for stream in (sys.stdout, sys.stderr):  # else the process inherits the content of their buffers
            with contextlib.suppress(Exception):
                stream.flush()
        parent, is_main = os.getpid(), threading.current_thread() is threading.main_thread()
        self.pid = os.fork()
        if self.pid == 0:
            _run(make, _Channel(other, files[1], files[0]), stack_write, parent if is_main else None, own)
        other.close()
        os.close(stack_write)
        self._channel, self._stack = _Channel(own, *files), stack_read
        self._pidfd = os.pidfd_open(self.pid)
        self._poll = select.poll()
        self._poll.register(own, select.POLLIN)
        self._poll.register(self._pidfd, select.POLLIN)

    @property
    def observation_space(self):
        return self._space("observation_space", self._made()[0])

    @property
    def action_space(self):
        return self._space("action_space", self._made()[1])

    def _space(self, name: str, space):
        """The space, or the method of this name that PettingZoo's environments have instead."""
        return partial(self._call_method, name) if space == _METHOD else space

    @property
    def unwrapped(self) -> "EnvironmentProcess":
        return self

    def begin(self, call: str, argument) -> None:
        """Sends a call, whose result the method of this name then waits for.

        Args:
            call: "step" or "reset".
            argument: the action, or the seed or None.

        The answer to an earlier call that was given up, by Ctrl-C or another environment's error, is dropped.
        """
        self._made()
        self._replies.clear()
        if self._call:
            with contextlib.suppress(Exception):  # the wait for the result raises what has ended the process
                self._receive(self._timeout_s)
        self._awaited = call
        self._send(call, argument, f"{call}()")

    def step(self, action) -> Any:
        """The result of the environment's step.

        Raises:
            EnvironmentHangsError: if it takes longer than timeout_s; the process is then given up.
            EnvironmentDiedError: if the process has ended.
            Exception: whatever the environment raises.
        """
        return self._result("step", action)

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> Any:
        """The result of the environment's reset; a seed is also given to the process's global generators.

        Raises:
            as `step`.
        """
        return self._result("reset", seed)

    def __getattr__(self, name: str):
        if name.startswith("_") or name == "env":
            raise AttributeError(name)
        is_method, value = self._ask("get", name, name)
        return partial(self._call_method, name) if is_method else value

    def _call_method(self, name: str, *args, **keywords):
        return self._ask("call", (name, args, keywords), f"{name}()")

    def begin_close(self) -> None:
        """Has the process close its environment and end; `close` waits for it."""
        if self.pid and self._failure is None and self._close_until == math.inf:
            self._close_until = time.monotonic() + CLOSE_TIMEOUT_S
            with contextlib.suppress(OSError):
                self._channel.send(("close", None))

    def close(self) -> None:
        """Closes the environment and ends its process, by force if it takes CLOSE_TIMEOUT_S since `begin_close`."""
        if not self.pid:
            return
        self.begin_close()
        left_s = max(self._close_until - time.monotonic(), 0)
        if self._failure is None and not _linux().readable(self._pidfd, left_s):
            logger.warning(
                "%s (%s) has not closed within %g s, and its process is killed",
                self._place,
                self.class_name,
                CLOSE_TIMEOUT_S,
            )
        self._end()
        for descriptor in (self._pidfd, self._stack):
            os.close(descriptor)
        self._channel.close()
        self.pid = 0

    def _made(self) -> tuple:
        if self._spaces is None:
            try:
                self.class_name, *self._spaces = _value_of(self._receive(timeout_s=None))
            except AttributeError as error:  # it would say that this object lacks an attribute, which callers try
                self._failure = RuntimeError(f"AttributeError: {error}")
                raise self._failure from error
            except Exception as error:
                self._failure = self._failure or error  # the answer came, and there is no other
                raise
        return self._spaces

    def _result(self, call: str, argument):
        """The result of a step or reset, which is begun here if it has not been."""
        if self._awaited != call:
            self.begin(call, argument)
        self._awaited = ""
        return _value_of(self._replies.pop() if self._replies else self._receive(self._timeout_s))

    def _ask(self, call: str, argument, shown: str):
        """Calls a method other than step and reset; keeps the answer of a pending step or reset."""
        self._made()
        if self._call:
            answer = self._receive(self._timeout_s)
            self._replies = [answer] if self._awaited else []
        self._send(call, argument, shown)
        return _value_of(self._receive(self._timeout_s))

    def _send(self, call: str, argument, shown: str) -> None:
        self._call, self._begun = shown, time.monotonic()
        with contextlib.suppress(OSError):  # it has died, as the wait for the answer will find
            self._channel.send((call, argument))

    def _receive(self, timeout_s: float | None) -> tuple[bool, Any]:
        """The process's next answer: whether the call succeeded, and its result or error.

        Raises:
            EnvironmentHangsError, EnvironmentDiedError: as `step`.
        """
        if self._failure is not None:
            raise self._failure
        left_ms = None if timeout_s is None else max(0, (self._begun + timeout_s - time.monotonic()) * 1000)
        ready = self._poll.poll(left_ms)
        if not ready:
            raise self._hangs(timeout_s)
        answer = None
        if any(descriptor != self._pidfd for descriptor, _ in ready):
            answer = self._channel.receive()
        if answer is None:
            raise self._died()
        self._call = ""
        return answer

    def _hangs(self, timeout_s: float) -> EnvironmentHangsError:
        stack = self._stack_of_process()
        self._end()
        self._failure = EnvironmentHangsError(
            f"{self._place} ({self.class_name}) has not returned from {self._call} within {timeout_s:g} s, and its "
            "process was ended. .rollouts(sub_environment_timeout_s=...) bounds a call; "
            ".fault_tolerance(restart_failed_sub_environments=True) replaces the environment and continues."
            + (f" It was at\n{stack}" if stack else "")
        )
        return self._failure

    def _died(self) -> EnvironmentDiedError:
        status = self._end()
        self._failure = EnvironmentDiedError(
            f"the process of {self._place} ({self.class_name}) has ended in {self._call or 'between two calls'} with "
            f"{_linux().describe_exit(status)}. .fault_tolerance(restart_failed_sub_environments=True) replaces such "
            "an environment and continues."
        )
        return self._failure

    def _end(self) -> int:
        """Kills the process and its descendants, if it still runs, and returns its wait status."""
        if self.pid < 0:
            return 0
        for kill in (os.killpg, os.kill):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                kill(self.pid, signal.SIGKILL)
        try:
            status = os.waitpid(self.pid, 0)[1]
        except ChildProcessError:  # another thread has reaped it
            status = 0
        self.pid = -1
        return status

    def _stack_of_process(self) -> str:
        """Python stack of the process, innermost call first, up to the call from here; "" if it does not answer."""
        found = b""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGUSR2)
        while _linux().readable(self._stack, STACK_TIMEOUT_S if not found else 0.05):
            if not (part := os.read(self._stack, 1 << 16)):
                break
            found += part
        of_environment = found.decode(errors="replace").partition(f'  File "{__file__}"')[0]
        return "\n".join(of_environment.splitlines()[1:])


def _value_of(answer: tuple[bool, Any]):
    """The result of a call; raises its error."""
    succeeded, value = answer
    if not succeeded:
        raise value
    return value


class _Channel:
    """One end of the connection of two processes. Each sends no further value before the other has answered.

    Args:
        connection: the end of a SOCK_SEQPACKET pair, whose packets are whole messages.
        outgoing, incoming: files in memory for values that are too large for a packet.
    """

    def __init__(self, connection: socket.socket, outgoing: int, incoming: int):
        self._connection, self._outgoing, self._incoming = connection, outgoing, incoming

    def send(self, value) -> None:
        """Sends a value. That the other end is closed is found by the next `receive`."""
        data = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
        if len(data) > PACKET_BYTES:
            done = 0
            while done < len(data):
                done += os.pwrite(self._outgoing, memoryview(data)[done:], done)
            data = _IN_FILE + str(len(data)).encode()
        with contextlib.suppress(ConnectionError):
            self._connection.send(data)

    def receive(self):
        """The next value; None if the other end is closed."""
        try:
            data = self._connection.recv(PACKET_BYTES)
        except ConnectionError:  # it was closed with a value that was not received
            data = b""
        if not data:
            return None
        if data[:1] == _IN_FILE:
            size, done = int(data[1:]), 0
            data = memoryview(bytearray(size))
            while done < size:
                done += os.preadv(self._incoming, [data[done:]], done)
        return pickle.loads(data)

    def close(self) -> None:
        self._connection.close()
        os.close(self._outgoing)
        os.close(self._incoming)


def _linux():
    """The runtime's functions for processes of Linux, not imported before there is such a process.

    Raises:
        PlatformError: on another system.
    """
    from runtime.host import machine

    machine.check_is_linux(
        "environments in processes of their own", 'Use .rollouts(gym_env_vectorize_mode="sync"), a loop over them'
    )
    from runtime.host import linux as process

    return process


# ---- in the process of the environment


def _run(make: Callable[[], Any], channel: _Channel, stack: int, parent: int | None, others_end: socket.socket) -> None:
    """Serves the environment and ends the process; never returns.

    Args:
        make: makes the environment.
        channel: to the parent.
        stack: pipe that receives the Python stack when the process gets SIGUSR2.
        parent: its pid, if the process can be tied to it.
        others_end: the parent's end of the connection, which is closed here.
    """
    code = 1
    try:
        os.setpgid(0, 0)  # Ctrl-C is the parent's affair, and what the environment starts can be killed with it
        if parent is not None:
            _linux().die_with_parent(parent)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        faulthandler.register(signal.SIGUSR2, stack, all_threads=False)
        others_end.close()
        if "torch" in sys.modules:  # its threads are the parent's: with them, the first large operation would hang
            sys.modules["torch"].set_num_threads(1)
        _serve(make, channel)
        code = 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        os._exit(code & 0xFF)


def _serve(make: Callable[[], Any], channel: _Channel) -> None:
    env = None

    def first():
        nonlocal env
        env = make()
        spaces = (_METHOD if callable(each) else each for each in (env.observation_space, env.action_space))
        return type(getattr(env, "unwrapped", env)).__name__, *spaces

    _reply(channel, first)
    while env is not None and (message := channel.receive()) is not None:
        call, argument = message
        if call == "close":
            getattr(env, "close", lambda: None)()
            return
        _reply(channel, _CALLS[call], env, argument)


def _reply(channel: _Channel, function: Callable, *args) -> None:
    try:
        channel.send((True, function(*args)))
    except Exception as error:
        channel.send((False, _sendable(error)))


def _sendable(error: Exception) -> Exception:
    """The error with the traceback of this process, or, if it cannot be pickled, one that says the same."""
    text = "".join(traceback.format_exception(error, chain=True)).rstrip()
    try:
        error = pickle.loads(pickle.dumps(error))
    except Exception:
        error = RuntimeError(f"{type(error).__name__}: {error}")
    error.add_note(f"in the environment's own process:\n{text}")
    return error


def _reset(env, seed: int | None):
    if seed is None:
        return env.reset()
    random.seed(seed)
    np.random.seed(seed % 2**32)
    return call_reset(env, seed)


def _get(env, name: str) -> tuple[bool, Any]:
    """(whether it is a method, else its value) of an attribute."""
    value = _attribute(env, name)
    return (True, None) if callable(value) else (False, value)


def _call(env, question: tuple):
    name, args, keywords = question
    return _attribute(env, name)(*args, **keywords)


def _attribute(env, name: str):
    """An attribute of the environment, or of the first one inside its wrappers that has it.

    The names of an interface to several agents are looked for in the wrappers that leave it as it is, and no further.
    """
    while not hasattr(env, name):
        if not hasattr(env, "env") or (name in INTERFACE_NAMES and type(env) not in STANDARD_WRAPPERS):
            raise AttributeError(f"the environment has no attribute {name!r}")
        env = env.env
    return getattr(env, name)


def _step(env, action):
    return env.step(action)


_CALLS: dict[str, Callable] = {"step": _step, "reset": _reset, "get": _get, "call": _call}
