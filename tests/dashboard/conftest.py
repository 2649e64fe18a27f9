"""A directory for runs, and servers that show it."""

import threading
from pathlib import Path

import pytest
from dashboard_support import Client


@pytest.fixture
def results(tmp_path):
    """Directory for runs."""
    path = tmp_path / "results"
    path.mkdir()
    return path


@pytest.fixture
def serve():
    """Function that shows a directory, in a thread; gives a Client. All are stopped in the end."""
    server_module = pytest.importorskip("rllib.dashboard.server", reason="needs the extra dashboard")
    running = []

    def start(root: Path, **settings) -> Client:
        server = server_module.Server(root, **settings)
        thread = threading.Thread(target=server.run, daemon=True)
        thread.start()
        running.append((server, thread))
        return Client(server)

    def stop() -> None:
        while running:
            server, thread = running.pop()
            server.stop()
            thread.join(30)
            assert not thread.is_alive()

    start.stop = stop
    yield start
    stop()
