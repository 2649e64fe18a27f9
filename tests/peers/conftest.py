"""Processes of the peers, one of each for all tests."""

import pytest

from tests.peers.peer import Peer


def pytest_collection_modifyitems(items):
    for item in items:
        if "peers" in item.path.parts[-2:]:
            item.add_marker("peers")


def _of(name):
    @pytest.fixture(scope="session", name=name)
    def process():
        try:
            peer = Peer(name)
        except FileNotFoundError as error:
            pytest.skip(str(error))
        yield peer
        peer.close()

    return process


sb3, d3rlpy, ray, rlax = map(_of, ("sb3", "d3rlpy", "ray", "rlax"))
