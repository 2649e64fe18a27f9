"""A server without spaces, which waits for the client that gives them."""

import threading
from typing import Any

from gymnasium.spaces import Discrete

from rllib.env.policy_server.forms import AgentSpaces, Spaces
from rllib.env.policy_server.policy_server import PolicyServer, Route
from rllib.env.policy_server.server_settings import ServerSettings
from rllib.env.spaces.notation import EXAMPLES, spaces_from_text
from rllib.web.bodies import BadRequest

# How often a signal of this process is looked for (seconds).
_LOOKED_FOR_S = 0.5
_NO_SPACE = Discrete(1)


def spaces_of_first_client(settings: ServerSettings) -> tuple[AgentSpaces, AgentSpaces]:
    """Waits for a client that sends its spaces, for any time; the port is free afterwards.

    Clients without spaces are told to give them. Others are asked to come again, until the run serves them.

    Returns:
        its observation space and its action space, or dicts of them by agent.

    Raises:
        OSError: if the port cannot be opened.
        ValueError: if others can reach it without a token.
    """
    server = _SpacesServer(settings)
    server.open()
    thread = threading.Thread(target=server.run, daemon=True, name="rllib-first-client")
    thread.start()
    try:
        while not server.has_spaces.wait(_LOOKED_FOR_S):  # a wait without a limit cannot be interrupted
            if not thread.is_alive():
                raise RuntimeError(f"the server at {server.url} has ended; the log says why")
    finally:
        server.close()
        thread.join()
    return server.given


class _SpacesServer(PolicyServer):
    """A policy server that answers nothing but POST /v1/spaces."""

    given: tuple[AgentSpaces, AgentSpaces]

    def __init__(self, settings: ServerSettings):
        super().__init__(_NO_SPACE, _NO_SPACE, settings)
        self.has_spaces = threading.Event()

    def route(self, path: str, method: str | None = None) -> Route:
        """Finds what takes the spaces; errors for all that has to wait for them."""
        if path not in self.open_paths:
            if self.has_spaces.is_set():
                raise BadRequest(503, "the run is starting; ask again")
            if path != "/v1/spaces":
                raise BadRequest(
                    409,
                    "this run has no spaces yet. Give them to the client, PolicyClient(address, observation_space=..., "
                    "action_space=...), as spaces or texts, or to the run, rllib train --observation-space ... "
                    f"--action-space ...: {EXAMPLES}.",
                )
        return super().route(path, method)

    def _compare_spaces(self, request: Spaces) -> dict[str, Any]:
        try:
            self.given = spaces_from_text(request.observation_space), spaces_from_text(request.action_space)
        except ValueError as error:
            raise BadRequest(422, str(error)) from None
        self.has_spaces.set()
        return {}
