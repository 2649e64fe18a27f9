"""Settings of workers whose environments have several agents."""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any

from gymnasium import Space

# Slots of a policy in one environment, where the environment does not say which agents there are. They double when more
# agents appear.
FIRST_SLOTS = 4


@dataclass(frozen=True)
class AgentSettings:
    """Policies of agents, beside their networks.

    Attributes:
        policy_of: function of (agent, episode, worker) that returns the id of the agent's policy for the episode.
        spaces: policy id -> observation space and action space of its agents, as the environment has them.
        num_slots: policy id -> largest number of its agents in one environment at a time; where one is missing, the
            number is found while sampling.
        trained: ids of the policies whose steps become rows.
        hand_written: policy id -> object with `compute_actions`, which acts in place of a network, or a class or
            function that makes one.
        numbers: policy id -> number that keys the random streams of its slots; a policy that is added with the id of
            one that was removed has another.
        fixed: agent -> policy id, where these are the same in all episodes; None: the mapping has to be asked.
        counts_agent_steps: a fragment's length is in steps of agents instead of steps of environments.
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
        """Policy id -> its slots in one environment, at first."""
        return {policy_id: self.num_slots.get(policy_id, FIRST_SLOTS) for policy_id in self.spaces}

    def make_hand_written(self) -> dict[str, Any]:
        """Policy id -> the object that acts, of the policies that are written by hand."""
        return {
            policy_id: given() if isinstance(given, type) or not hasattr(given, "compute_actions") else given
            for policy_id, given in self.hand_written.items()
        }
