"""The section `external` of a run: an address where clients ask for actions, and the spaces of their worlds."""

import contextlib
import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any

from rllib.env.policy_server.first_client import spaces_of_first_client
from rllib.env.policy_server.server_settings import TOKEN_VARIABLE, ServerSettings
from rllib.env.spaces.notation import spaces_from_text
from rllib.web.sockets import listen, url_of

SPACES = ("observation_space", "action_space")
# People start their clients by hand, and simulators pause: such a run waits longer than others for a step (seconds).
PATIENCE_S = 3600.0


def open_to_clients(
    config, section: Mapping[str, Any], given_settings: Collection[str], note: Callable[[str], None]
) -> None:
    """Gives a config the address and the spaces of its clients; without spaces it waits for a client that sends them.

    Args:
        config: AlgorithmConfig, with all other settings.
        given_settings: names of the settings that the user has given, defaults or not.
        section: "listen", optionally both spaces as texts, and further settings of `.external()`.
        note: shows a text.

    Raises:
        ValueError: if the address or the spaces cannot be used.
        OSError: if the port cannot be opened.
    """
    given = {name: spaces_from_text(section[name]) for name in SPACES if section.get(name) is not None}
    if len(given) == 1:
        raise ValueError("give both --observation-space and --action-space, or neither: the first client sends both")
    settings = {name: value for name, value in section.items() if name not in SPACES}
    if not settings.get("listen"):
        raise ValueError('external needs the address, as in --external 127.0.0.1:9900 or external: {listen: "..."}')
    of_server = {name: settings.get(name) for name in ("token_file", "tls_certificate", "tls_key")}
    server = ServerSettings.of_address(settings["listen"], **of_server)
    server.token()  # refuses an address that anyone reaches without one
    server = _with_port(server)
    config.external(**{**settings, "listen": server.address(server.port)})
    if "num_rollout_workers" not in given_settings:
        config.rollouts(num_rollout_workers=0)  # one server for all: each of several would need its own clients
    if "sample_timeout_s" not in given_settings:
        config.rollouts(sample_timeout_s=PATIENCE_S)
    note(_invitation(config, server, needs_spaces=not given))
    if not given:
        given = dict(zip(SPACES, spaces_of_first_client(server)))
        note("a client has given the spaces: " + ", ".join(map(str, given.values())))
    config.environment(**given)


def _with_port(server: ServerSettings) -> ServerSettings:
    """The settings with a port that is free now."""
    with contextlib.closing(listen(server.host, server.port)) as listening:
        return replace(server, port=listening.getsockname()[1])


def _invitation(config, server: ServerSettings, needs_spaces: bool) -> str:
    ports = server.ports(config.num_rollout_workers)
    scheme = "http" if server.tls_certificate is None else "https"
    urls = [server.address(port) if server.transport == "tcp" else url_of(server.host, port, scheme) for port in ports]
    waits = ", and waits for a client that gives its spaces" if needs_spaces else ""
    token = ""
    if server.token_file or os.environ.get(TOKEN_VARIABLE):
        token = f" (with the token in the variable {TOKEN_VARIABLE})"
    return (
        f"policy server on {', '.join(urls)}{waits}. A client{token}:\n"
        f"  rllib client-example --address {urls[0]} > client.py && python client.py"
    )
