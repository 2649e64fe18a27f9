"""Listening sockets of the policy server and of the dashboard."""

import ipaddress
import socket

# Connections that may wait to be accepted.
BACKLOG = 4096


def listen(host: str, port: int) -> socket.socket:
    """Opens a listening socket; port 0 takes a free one.

    Raises:
        OSError: if the address is in use, or does not belong to this machine.
    """
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    listening = socket.create_server(address[:2], family=family, backlog=BACKLOG)
    # Connections inherit it. Without it the second part of an answer waits for the client's acknowledgement, 40 ms.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


def is_loopback(host: str) -> bool:
    """Whether only programs on the same machine reach this address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def url_of(host: str, port: int) -> str:
    """URL of a server, without a path."""
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
