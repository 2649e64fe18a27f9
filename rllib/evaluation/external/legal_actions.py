"""Legal actions of loops outside: what the action masks in their observations allow."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium.vector.utils import concatenate, create_empty_array

from rllib.env.multi_agent.agent_spaces import AgentID
from rllib.env.spaces.actions import action_mapper
from rllib.env.spaces.observations import observation_column
from rllib.evaluation.multi_agent.settings import AgentSettings
from rllib.models.observations.masks import no_choice, parts_of_mask
from rllib.policy import Policy


class MaskReader:
    """The masks in observations that a policy reads.

    Args:
        policy: with a mask in its observations.
        observation_space, action_space: of the agents that act by it.
    """

    def __init__(self, policy: Policy, observation_space, action_space):
        self._policy, self._space = policy, action_space
        self._column = observation_column(observation_space)
        self._parts = parts_of_mask(policy.distribution)
        self._mapper = action_mapper(action_space, policy.distribution, True, False)

    def problem(self, observation: Any, *logged: Any) -> str | None:
        """Problem of an observation without a legal action, or of an action logged for it; None without one."""
        row = self._column.row(observation)[None]
        mask = self._policy.spec.encoder.mask(row)[0]
        if self._policy.without_choice(row)[0]:
            return f"the observation has no legal action: {no_choice(mask)}"
        for action in logged:
            if not self._allows(mask, action):
                return f"action = {action!r:.80} is not legal: the action mask is {mask.astype(int).tolist()}"
        return None

    def _allows(self, mask: np.ndarray, action: Any) -> bool:
        batch = concatenate(self._space, [action], create_empty_array(self._space, 1))
        choices = np.ravel(self._mapper.to_policy(batch)[0]).astype(int)
        return all(mask[columns][choice] for (columns, _), choice in zip(self._parts, choices, strict=True))


class LegalActions:
    """The masks of all agents of an external environment.

    Args:
        policies: policy id -> policy.
        agents: which policies there are for which spaces.
        spaces: with `observation` and `action`, the spaces of an agent.
    """

    def __init__(self, policies: Mapping[str, Policy], agents: AgentSettings, spaces: Any):
        self._policies, self._agents, self._spaces = policies, agents, spaces
        # By the identities of both spaces; None: no policy reads a mask in them.
        self._readers: dict[tuple[int, int], MaskReader | None] = {}

    @property
    def reads_masks(self) -> bool:
        """Whether any policy does."""
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
        """Reads the masks if each policy for these spaces does: which of them an agent has, its episode decides."""
        for_these = [
            self._policies.get(policy_id)
            for policy_id, spaces in self._agents.spaces.items()
            if spaces == pair and policy_id not in self._agents.hand_written
        ]
        if not for_these or not all(policy is not None and policy.is_masked for policy in for_these):
            return None
        return MaskReader(for_these[0], *pair)
