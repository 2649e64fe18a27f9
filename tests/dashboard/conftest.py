"""A directory for runs, and servers that show it."""

from contextlib import ExitStack

import pytest
from dashboard_support import served


@pytest.fixture
def results(tmp_path):
    """Directory for runs."""
    path = tmp_path / "results"
    path.mkdir()
    return path


@pytest.fixture
def serve():
    """Function that shows a directory; gives a Client. `serve.stop()` stops all, and so does the end of the test."""
    with ExitStack() as running:

        def start(root, **settings):
            return running.enter_context(served(root, **settings))

        start.stop = running.close
        yield start
