"""The process of `rllib dashboard`: a socket, and uvicorn that answers on it."""

import ipaddress
import secrets
import socket
from collections.abc import Callable
from pathlib import Path

import uvicorn

from rllib.dashboard.app import make_app
from rllib.dashboard.index import Index
from rllib.serving.guard import server_config


class Server:
    """Shows the runs below a directory until it is stopped. The port is taken when it is made.

    Args:
        root: the directory.
        host: name or number of the interface.
        port: 0 takes a free one.
        token: that the browser must give; None: one is made if others than this machine can connect.

    Attributes:
        port: that it has.
        token: None if none is needed.

    Raises:
        OSError: if the port cannot be taken.
    """

    def __init__(self, root: Path, host: str = "127.0.0.1", port: int = 0, token: str | None = None):
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        self._socket = socket.create_server(address[:2], family=family)
        self._host, self.port = host, self._socket.getsockname()[1]
        is_open = not ipaddress.ip_address(address[0].partition("%")[0]).is_loopback
        self.token = token or (secrets.token_urlsafe(24) if is_open else None)
        app = make_app(Index(root), self.token, [host], lambda: self._server.should_exit)
        self._server = uvicorn.Server(server_config(app, timeout_graceful_shutdown=3))

    @property
    def url(self) -> str:
        """Address of the page, with the token."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        if self._host in ("0.0.0.0", "::"):
            host = socket.gethostname()
        return f"http://{host}:{self.port}/" + (f"?token={self.token}" if self.token else "")

    def run(self, on_ready: Callable[[], None] = lambda: None) -> None:
        """Answers until `stop`, or an interrupt, which is raised again."""
        on_ready()  # the socket listens already: a browser that comes now waits
        self._server.run(sockets=[self._socket])

    def stop(self) -> None:
        """Ends `run`; from any thread."""
        self._server.should_exit = True
