"""Checks of legal actions for external loops: which actions the masks in their observations allow."""

from collections.abc import Mapping
from typing import Any

from rllib.acting.mask_reader import MaskReader
from rllib.env.multi_agent.agent_spaces import AgentID
from rllib.evaluation.multi_agent.settings import AgentSettings
from rllib.policy import Policy


class LegalActions:
    """The masks of all agents of an external environment.

    Args:
        policies: policy id -> policy.
        agents: the policies and their spaces.
        spaces: object whose methods `observation(agent)` and `action(agent)` return the spaces of an agent.
    """

    def __init__(self, policies: Mapping[str, Policy], agents: AgentSettings, spaces: Any):
        self._policies, self._agents, self._spaces = policies, agents, spaces
        # Identities of both spaces -> mask reader; None: not all policies with these spaces read a mask.
        self._readers: dict[tuple[int, int], MaskReader | None] = {}

    @property
    def reads_masks(self) -> bool:
        """Whether any policy reads action masks."""
        return any(policy.is_masked for policy in self._policies.values())

    def problem(self, agent: AgentID, observation: Any, *logged: Any) -> str | None:
        """As `MaskReader.problem`, for an agent."""
        pair = self._spaces.observation(agent), self._spaces.action(agent)
        key = id(pair[0]), id(pair[1])
        if key not in self._readers:
            self._readers[key] = self._reader(pair)
        reader = self._readers[key]
        return None if reader is None else reader.problem(observation, *logged)

    def _reader(self, pair: tuple) -> MaskReader | None:
        """Mask reader for these spaces; None unless every policy with them, hand-written ones aside, reads masks.

        An agent may have any of these policies, as its policy is chosen in each episode.
        """
        for_these = [
            self._policies.get(policy_id)
            for policy_id, spaces in self._agents.spaces.items()
            if spaces == pair and policy_id not in self._agents.hand_written
        ]
        if not for_these or not all(policy is not None and policy.is_masked for policy in for_these):
            return None
        return MaskReader(for_these[0], *pair)
