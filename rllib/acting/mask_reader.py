"""Action masks in the observations of one policy: whether they leave a choice, and allow an action."""

from typing import Any

import numpy as np

from rllib.env.spaces.actions import action_mapper
from rllib.env.spaces.batches import batch_of
from rllib.env.spaces.observations import observation_column
from rllib.models.observations.masks import choice_problem, parts_of_mask
from rllib.policy import Policy


class MaskReader:
    """The masks in observations that a policy reads.

    Args:
        policy: with a mask in its observations.
        observation_space, action_space: spaces of the agents that act by it.
    """

    def __init__(self, policy: Policy, observation_space, action_space):
        self._mask, self._distribution, self._space = policy.spec.encoder.mask, policy.distribution, action_space
        self._column = observation_column(observation_space)
        self._parts = parts_of_mask(policy.distribution)
        self._mapper = action_mapper(action_space, policy.distribution, True, False)

    def problem(self, observation: Any, *logged: Any) -> str | None:
        """Problem of an observation without a legal action, or of an action logged for it; None without one."""
        row = self._column.row(observation)[None]
        mask = self._mask(row)[0]
        if problem := choice_problem(mask[None], self._distribution, lambda row: "the observation has no legal action"):
            return problem
        for action in logged:
            if not self._allows(mask, action):
                return f"action = {action!r:.80} is not legal: the action mask is {mask.astype(int).tolist()}"
        return None

    def _allows(self, mask: np.ndarray, action: Any) -> bool:
        choices = np.ravel(self._mapper.to_policy(batch_of(self._space, [action]))[0]).astype(int)
        return all(mask[columns][choice] for (columns, _), choice in zip(self._parts, choices, strict=True))
