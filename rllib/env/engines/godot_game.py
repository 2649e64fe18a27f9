"""The connection to a game made with Godot and its plug-in Godot RL Agents.

This side listens on 127.0.0.1, and the game connects. A message is its length in bytes (uint32, little-endian) and a
JSON object in UTF-8. This side asks, and the game answers each message but the first and the last:

| asked                                  | answer                                                                    |
|----------------------------------------|---------------------------------------------------------------------------|
| handshake, major_version, minor_version |                                                                          |
| env_info                               | n_agents, action_space, observation_space, agent_policy_names             |
| reset                                  | obs: [object by name, for each agent]                                     |
| action, action: [object for each agent] | obs, reward and done, lists by agent                                     |
| close                                  |                                                                           |
"""

import contextlib
import json
import socket
import struct
import subprocess
import tempfile
import time
from collections.abc import Sequence
from typing import Any

DEFAULT_PORT = 11008  # of the plug-in
PROTOCOL = {"major_version": "0", "minor_version": "7"}
_LENGTH = struct.Struct("<I")
_MOST_BYTES = 256 << 20
# A launched game that has not connected is looked after this often (seconds).
_LOOKED_AFTER_S = 0.2
_QUITS_S = 5.0
_OUTPUT_SHOWN = 500


class GodotGame:
    """A running game, which answers one message at a time.

    Args:
        port: where the game connects; 0: a free one, which a launched game gets as an argument.
        command: program and arguments of the game to launch, without its port; empty: it runs already, as in Godot's
            editor.
        timeout_s: limit of the connection, and of each answer (seconds).

    Attributes:
        info: its answer to env_info.

    Raises:
        OSError: if the port is in use, or the program cannot be started.
        TimeoutError: if no game connects in time.
        ConnectionError: if the game ends, or answers with anything else.
    """

    def __init__(self, port: int = DEFAULT_PORT, command: Sequence[str] = (), timeout_s: float = 60.0):
        self._timeout_s, self._process, self._output = timeout_s, None, None
        self._connection: socket.socket | None = None
        try:
            listening = socket.create_server(("127.0.0.1", port), backlog=1)
        except OSError as error:
            raise OSError(
                error.errno,
                f"a game cannot connect to port {port} of this machine ({error.strerror}): another environment, or "
                "another program, has it",
            ) from None
        with listening:
            self.port = listening.getsockname()[1]
            if command:
                self._output = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the game
                self._process = subprocess.Popen(
                    [*command, f"--port={self.port}"], stdout=self._output, stderr=subprocess.STDOUT,
                    stdin=subprocess.DEVNULL, start_new_session=True,
                )  # fmt: skip
            try:
                self._connection = self._accept(listening)
                self.send({"type": "handshake", **PROTOCOL})
                self.info = self.ask({"type": "env_info"}, "env_info")
            except BaseException:
                self.close()
                raise

    @property
    def was_launched(self) -> bool:
        """Whether the game's process is a child of this one."""
        return self._process is not None

    def is_connected(self) -> bool:
        """Whether the game has not hung up."""
        self._connection.settimeout(0.0)
        try:
            return self._connection.recv(1, socket.MSG_PEEK) != b""
        except BlockingIOError:
            return True
        except OSError:
            return False

    def ask(self, message: dict[str, Any], kind: str | None = None) -> dict[str, Any]:
        """Sends a message, and waits for the answer.

        Args:
            message: object with "type".
            kind: type that the answer must have; None: any.

        Raises:
            TimeoutError: if there is no answer in time.
            ConnectionError: if the game has hung up, or its answer is no such message.
        """
        self.send(message)
        deadline = time.monotonic() + self._timeout_s
        (length,) = _LENGTH.unpack(self._receive(_LENGTH.size, deadline, message["type"]))
        if length > _MOST_BYTES:
            raise ConnectionError(f"the game announces a message of {length:,} bytes; it may have {_MOST_BYTES:,}")
        data = self._receive(length, deadline, message["type"])
        try:
            answer = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise ConnectionError(f"the game's answer to {message['type']!r} is not JSON: {error}") from None
        if not isinstance(answer, dict) or (kind is not None and answer.get("type") != kind):
            raise ConnectionError(f"the game has answered {message['type']!r} with {answer!r:.200}")
        return answer

    def send(self, message: dict[str, Any]) -> None:
        """Sends a message that is not answered; errors as for `ask`."""
        data = json.dumps(message).encode()
        self._connection.settimeout(self._timeout_s)
        try:
            self._connection.sendall(_LENGTH.pack(len(data)) + data)
        except TimeoutError:
            raise TimeoutError(self._silence(message["type"])) from None
        except OSError as error:
            raise ConnectionError(f"the game on port {self.port} has hung up ({error}){self._last_words()}") from None

    def close(self) -> None:
        """Tells the game to quit, and ends its process if it was launched here."""
        if self._connection is not None:
            with contextlib.suppress(OSError):  # it has gone already
                self.send({"type": "close"})
            self._connection.close()
        if self._process is not None:
            try:
                if self._connection is None:
                    self._process.terminate()
                self._process.wait(_QUITS_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._output.close()

    def _accept(self, listening: socket.socket) -> socket.socket:
        deadline = time.monotonic() + self._timeout_s
        listening.settimeout(min(_LOOKED_AFTER_S, self._timeout_s))
        while True:
            try:
                connection, _ = listening.accept()
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                return connection
            except TimeoutError:
                pass
            if self._process is not None and self._process.poll() is not None:
                raise ConnectionError(f"the game has ended before it connected{self._last_words()}")
            if time.monotonic() > deadline:
                what = "the game has not connected" if self._process else "no game has connected"
                todo = "" if self._process else ". Press Play in Godot's editor, with a Sync node in the scene"
                raise TimeoutError(f"{what} to port {self.port} of this machine for {self._timeout_s:g} s{todo}")

    def _receive(self, count: int, deadline: float, asked: str) -> bytes:
        data = bytearray()
        while len(data) < count:
            self._connection.settimeout(max(deadline - time.monotonic(), 0.001))
            try:
                part = self._connection.recv(min(count - len(data), 1 << 20))
            except TimeoutError:
                raise TimeoutError(self._silence(asked)) from None
            except OSError as error:
                raise ConnectionError(f"the game on port {self.port} has hung up ({error})") from None
            if not part:
                raise ConnectionError(f"the game on port {self.port} has hung up{self._last_words()}")
            data += part
        return bytes(data)

    def _silence(self, asked: str) -> str:
        return f"the game on port {self.port} has not answered {asked!r} for {self._timeout_s:g} s. Is it paused?"

    def _last_words(self) -> str:
        """Exit code and end of the output of a launched game that has ended, for a message."""
        if self._process is None:
            return ""
        try:
            code = self._process.wait(1.0)
        except subprocess.TimeoutExpired:
            return ""
        self._output.seek(0)
        said = self._output.read().decode(errors="replace").strip()[-_OUTPUT_SHOWN:]
        return f", exit code {code}" + (f"; its last output: {said}" if said else "")
