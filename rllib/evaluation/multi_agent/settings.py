"""Settings of workers whose environments have several agents."""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any

from gymnasium import Space

# Slots of a policy in one environment that does not list its possible agents. They double when more agents appear.
FIRST_SLOTS = 4


@dataclass(frozen=True)
class AgentSettings:
    """Policies of agents, except for their networks.

    Attributes:
        policy_of: function of (agent, episode, worker) that returns the id of the agent's policy for the episode.
        spaces: policy id -> observation space and action space of its agents in the environment.
        num_slots: policy id -> largest number of its agents in one environment at a time; for a policy that is missing
            here, this number is found while sampling.
        trained: ids of the policies whose steps become rows.
        hand_written: policy id -> object with `compute_actions`, which acts in place of a network, or a class or
            function that makes one.
        numbers: policy id -> number that keys the random streams of its slots; a policy that is added with the id of
            a removed policy has another number.
        fixed: agent -> policy id, where agents have the same policies in all episodes; None: `policy_of` is called in
            each episode.
        counts_agent_steps: whether a fragment's length is in agent steps instead of environment steps.
        only: the agent of an environment with one agent, whose id may be left out; None where there are several.
    """

    policy_of: Callable[..., str]
    spaces: Mapping[str, tuple[Space, Space]]
    num_slots: Mapping[str, int] = field(default_factory=dict)
    trained: frozenset[str] = frozenset()
    hand_written: Mapping[str, Any] = field(default_factory=dict)
    numbers: Mapping[str, int] = field(default_factory=dict)
    fixed: Mapping[Hashable, str] | None = None
    counts_agent_steps: bool = False
    only: Hashable = None

    def first_slots(self) -> dict[str, int]:
        """Policy id -> initial number of its slots in one environment."""
        return {policy_id: self.num_slots.get(policy_id, FIRST_SLOTS) for policy_id in self.spaces}

    def make_hand_written(self) -> dict[str, Any]:
        """Policy id -> the object that acts, for the hand-written policies."""
        return {
            policy_id: given() if isinstance(given, type) or not hasattr(given, "compute_actions") else given
            for policy_id, given in self.hand_written.items()
        }
