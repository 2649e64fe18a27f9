"""Addresses in words."""

import pytest

from rllib.algorithms.ppo import PPOConfig
from rllib.env.policy_server.policy_server import ServerSettings
from rllib.web.sockets import host_and_port


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("127.0.0.1:9900", ("127.0.0.1", 9900)),
        ("localhost:0", ("localhost", 0)),
        ("[::1]:65535", ("::1", 65535)),
    ],
)
def test_an_address_is_read(address, expected):
    assert host_and_port(address) == expected
    settings = ServerSettings.of_address(address)
    assert (settings.host, settings.port) == expected


@pytest.mark.parametrize(
    "address",
    ["9900", ":9900", "host:", "host:65536", "host:-1", "host:+1", "host:\u0663", "::1:9900", "[]:1", "host:1 "],
)
def test_other_words_are_refused_alike(address):
    with pytest.raises(ValueError, match='an address is "HOST:PORT"'):
        host_and_port(address)
    with pytest.raises(ValueError, match='"HOST:PORT"'):
        PPOConfig().external(listen=address).build()
