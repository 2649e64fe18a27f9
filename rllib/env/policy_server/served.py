"""The environment of a run whose clients are in other processes."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gymnasium import Space
from gymnasium.spaces import Dict

from rllib.env.factories.registry import EnvContext, EnvFactory
from rllib.env.policy_server.policy_server import PolicyServer, PolicyServerOfAgents
from rllib.env.policy_server.policy_server_input import address_of_input
from rllib.env.policy_server.server_settings import ServerSettings
from rllib.models.observations.flat_spaces import parts


@dataclass(frozen=True)
class ServedFactory(EnvFactory):
    """Makes the policy server of a worker.

    Attributes:
        action_space, observation_space: spaces of the policy, or dicts by agent.
        settings: settings of the server.
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


def _key_beside_texts(space: Space) -> Any:
    """A key of a Dict within a space that is no string; None without one."""
    found = [key for key, _ in parts(space) or () if isinstance(space, Dict) and not isinstance(key, str)]
    inner = (_key_beside_texts(part) for _, part in parts(space) or ())
    return next((key for key in (*found, *inner) if key is not None), None)


def served_environment(config: Mapping[str, Any]) -> ServedFactory:
    """The factory of a config with the setting `listen`.

    Raises:
        ValueError, TypeError: if it is no address, or its function returns none; if an agent, or a key of a Dict, is no
            string, or a worker would listen on a port that there is not.
    """
    for name in ("observation_space", "action_space"):
        agents = config[name] if isinstance(config[name], dict) else ()
        if others := [agent for agent in agents if not isinstance(agent, str)]:
            raise ValueError(
                f"{name} has the agent {others[0]!r}, but the agents of clients are strings: name it {str(others[0])!r}"
            )
        for space in config[name].values() if isinstance(config[name], dict) else (config[name],):
            if (key := _key_beside_texts(space)) is not None:
                raise ValueError(
                    f"{name}={space!s:.200} has the key {key!r}, but clients send keys as strings: name it {str(key)!r}"
                )
    names = (
        *("token_file", "tls_certificate", "tls_key", "episode_timeout_s", "max_clients", "max_episodes_per_client"),
        "inference",
    )
    address = address_of_input(config["listen"], config) if callable(config["listen"]) else config["listen"]
    settings = ServerSettings.of_address(address, **{name: config[name] for name in names})
    settings.ports(config["num_rollout_workers"])
    spaces = config["action_space"], config["observation_space"]
    return ServedFactory(*spaces, settings, has_several=config["policies"] is not None)
