"""Settings of a policy server: where it listens, and what it allows."""

import errno
import os
from dataclasses import dataclass

from rllib.web.sockets import LARGEST_PORT, host_and_port, is_loopback

TOKEN_VARIABLE = "RLLIB_TOKEN"
# Before the addresses of ZeroMQ.
ZEROMQ = "tcp://"


@dataclass(frozen=True)
class ServerSettings:
    """Settings of a policy server.

    Attributes:
        host, port: where it listens; port 0 takes a free one. Worker i listens on port + i - 1.
        transport: "http" or "tcp", ZeroMQ.
        token_file: file with the token that requests must carry; None: that of the variable RLLIB_TOKEN, if it is set.
        episode_timeout_s: an episode whose client is silent for so long is given up (seconds).
        max_clients: most clients whose requests have numbers.
        max_episodes_per_client: most episodes that a client may have under way. All requests without a client count as
            those of one client.
        inference: where clients may compute actions: "local", by copies of the policy, "remote", here, or "both".
        tls_certificate, tls_key: files in PEM of the server's certificate (with those that have signed it) and of its
            private key, for HTTPS; the key may be in the file of the certificate. None: requests are not encrypted.

    Raises:
        ValueError: for a key without a certificate, and for both with ZeroMQ.
        FileNotFoundError: if a file is not there.
    """

    host: str
    port: int
    transport: str = "http"
    token_file: str | None = None
    episode_timeout_s: float = 300.0
    max_clients: int = 1024
    max_episodes_per_client: int = 1000
    inference: str = "both"
    tls_certificate: str | None = None
    tls_key: str | None = None

    def __post_init__(self):
        if self.tls_certificate is None and self.tls_key is None:
            return
        if self.tls_certificate is None:
            raise ValueError(f"tls_key={self.tls_key!r} is of no use without the tls_certificate that it belongs to")
        if self.transport != "http":
            raise ValueError(
                "tls_certificate is for HTTPS, and ZeroMQ is not encrypted here. Leave it out, or listen on "
                f'"{self.host}:{self.port}"'
            )
        for path in filter(None, (self.tls_certificate, self.tls_key)):
            if not os.path.isfile(path):
                raise FileNotFoundError(errno.ENOENT, "the file of tls_certificate or tls_key is not there", path)

    @classmethod
    def of_address(cls, address: str, **more) -> "ServerSettings":
        """Reads "HOST:PORT", for HTTP, or "tcp://HOST:PORT", for ZeroMQ.

        Raises:
            ValueError: for another form.
        """
        place = address.removeprefix(ZEROMQ)
        return cls(*host_and_port(place), "http" if place == address else "tcp", **more)

    def ports(self, num_workers: int) -> range:
        """Ports of the servers of this number of workers, 0 for a single server; (0,) where the system chooses them.

        Raises:
            ValueError: for a port that there is not.
        """
        ports = range(self.port, self.port + (max(num_workers, 1) if self.port else 1))
        if ports[-1] > LARGEST_PORT:
            raise ValueError(
                f"num_rollout_workers={num_workers}: worker i listens on port + i - 1, the last one on {ports[-1]:,}, "
                f"but the largest port is {LARGEST_PORT:,}. Use a smaller port, or use fewer workers."
            )
        return ports

    def address(self, port: int) -> str:
        """The text of which `of_address` makes host, transport and this port."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{ZEROMQ if self.transport == 'tcp' else ''}{host}:{port}"

    def token(self) -> str | None:
        """The token that requests must carry; None: they need none.

        Raises:
            ValueError: if the file is empty, or there is no token and other machines reach the address.
        """
        if self.token_file is not None:
            with open(self.token_file) as file:
                token = file.read().strip()
            if not token:
                raise ValueError(f"the token file {self.token_file} is empty: write a token into it")
            return token
        token = os.environ.get(TOKEN_VARIABLE, "").strip() or None
        if token is None and not is_loopback(self.host):
            raise ValueError(
                f"a server that listens on {self.host} without a token lets anyone on the network steer this run. "
                f"Put a token into the variable {TOKEN_VARIABLE} or into token_file, or listen on 127.0.0.1."
            )
        return token
