"""Listening sockets of the policy server and of the dashboard."""

import ipaddress
import socket

# Connections that may wait to be accepted.
BACKLOG = 4096
LARGEST_PORT = 65_535


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


def host_and_port(address: str) -> tuple[str, int]:
    """Reads "HOST:PORT", where an IPv6 address stands in brackets: "[::1]:9900".

    Raises:
        ValueError: for another form.
    """
    host, _, port = address.rpartition(":")
    is_bracketed = host.startswith("[") and host.endswith("]")
    name = host[1:-1] if is_bracketed else host
    is_port = port.isascii() and port.isdecimal() and len(port) < 6 and int(port) <= LARGEST_PORT
    if not name or not is_port or (":" in name) != is_bracketed:
        raise ValueError(f'an address is "HOST:PORT", "127.0.0.1:9900" or "[::1]:9900", but got {address!r:.80}')
    return name, int(port)


def is_loopback(host: str) -> bool:
    """Whether only programs on the same machine reach this address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def url_of(host: str, port: int, scheme: str = "http") -> str:
    """URL of a server, without a path."""
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
