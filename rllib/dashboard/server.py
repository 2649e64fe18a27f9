"""Server of `rllib dashboard`: a listening socket, and uvicorn that answers on it."""

import secrets
import socket
from collections.abc import Callable
from pathlib import Path

import uvicorn

from rllib.dashboard.app import make_app
from rllib.dashboard.index import Index
from rllib.serving.guard import server_config
from rllib.serving.sockets import is_loopback, listen, url_of


class Server:
    """Shows the runs below a directory until it is stopped. The constructor opens the port.

    Args:
        root: the directory.
        host: name or number of the interface.
        port: of the page; 0 takes a free one.
        token: that the browser must give; None: one is made if other machines can connect.

    Attributes:
        port: of the page.
        token: that the browser must give; None if it needs none.

    Raises:
        OSError: if the port cannot be taken.
    """

    def __init__(self, root: Path, host: str = "127.0.0.1", port: int = 0, token: str | None = None):
        self._socket = listen(host, port)
        address, self.port = self._socket.getsockname()[:2]
        self._host, self.token = host, token or (None if is_loopback(address) else secrets.token_urlsafe(24))
        app = make_app(Index(root), self.token, [host], lambda: self._server.should_exit)
        self._server = uvicorn.Server(server_config(app, timeout_graceful_shutdown=3))

    @property
    def url(self) -> str:
        """Address of the page, with the token."""
        host = socket.gethostname() if self._host in ("0.0.0.0", "::") else self._host
        return f"{url_of(host, self.port)}/" + (f"?token={self.token}" if self.token else "")

    def run(self, on_ready: Callable[[], None] = lambda: None) -> None:
        """Answers until `stop`, or an interrupt, which is raised again."""
        on_ready()  # the socket listens already: a browser that comes now waits
        self._server.run(sockets=[self._socket])

    def stop(self) -> None:
        """Ends `run`; from any thread."""
        self._server.should_exit = True
