"""Processes of the peers, one of each for all tests."""

import pytest

from tests.peers.peer import Peer

# Seconds, which end what hangs and not what waits for a core: a peer's first call imports for some seconds of a core.
LIMIT_S, LEARNING_LIMIT_S = 3600, 12 * 3600


def pytest_collection_modifyitems(items):
    for item in items:
        if "peers" in item.path.parts[-2:]:
            item.add_marker("peers")
            limit_s = LEARNING_LIMIT_S if item.get_closest_marker("learning") else LIMIT_S
            item.add_marker(pytest.mark.timeout(limit_s))


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
