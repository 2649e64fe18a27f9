"""The environment of a run whose clients are in other processes."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gymnasium import Space

from rllib.env.external.policy_server import PolicyServer, PolicyServerOfAgents
from rllib.env.external.policy_server_input import address_of_input
from rllib.env.external.server_settings import ServerSettings
from rllib.env.factories.registry import EnvContext, EnvFactory
from rllib.web.sockets import LARGEST_PORT


@dataclass(frozen=True)
class ServedFactory(EnvFactory):
    """Makes the policy server of a worker.

    Attributes:
        action_space, observation_space: of the policy, or dicts by agent.
        settings: of the server.
        has_several: whether episodes have several agents.
    """

    action_space: Space | Mapping[str, Space]
    observation_space: Space | Mapping[str, Space]
    settings: ServerSettings
    has_several: bool = False

    @property
    def name(self) -> str:
        settings = self.settings
        return f"the policy server on {settings.transport}://{settings.host}:{settings.port}"

    def make(self, context: EnvContext) -> PolicyServer:
        kind = PolicyServerOfAgents if self.has_several else PolicyServer
        return kind(self.action_space, self.observation_space, self.settings, context.worker_index)


def served_environment(config: Mapping[str, Any]) -> ServedFactory:
    """The factory of a config with the setting `listen`.

    Raises:
        ValueError, TypeError: if it is no address, or its function returns none; if an agent is no string, or a worker
            would listen on a port that there is not.
    """
    for name in ("observation_space", "action_space"):
        agents = config[name] if isinstance(config[name], dict) else ()
        if others := [agent for agent in agents if not isinstance(agent, str)]:
            raise ValueError(
                f"{name} has the agent {others[0]!r}, but the agents of clients are strings: name it {str(others[0])!r}"
            )
    names = (
        *("token_file", "tls_certificate", "tls_key", "episode_timeout_s", "max_clients", "max_episodes_per_client"),
        "inference",
    )
    address = address_of_input(config["listen"], config) if callable(config["listen"]) else config["listen"]
    settings = ServerSettings.of_address(address, **{name: config[name] for name in names})
    last_port = settings.port and settings.port + max(config["num_rollout_workers"] - 1, 0)
    if last_port > LARGEST_PORT:
        raise ValueError(
            f"num_rollout_workers={config['num_rollout_workers']}: worker i listens on port + i - 1, the last one on "
            f"{last_port:,}, but the largest port is {LARGEST_PORT:,}. Use a smaller port, "
            "or use fewer workers."
        )
    spaces = config["action_space"], config["observation_space"]
    return ServedFactory(*spaces, settings, has_several=config["policies"] is not None)
