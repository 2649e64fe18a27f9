"""Models of a policy's action values, as the direct method reads them."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rllib import sample_batch as sb
from rllib.evaluation.estimators.target_policy import TargetPolicy
from rllib.policy import Policy


class QModel(ABC):
    """A model of Q(s, a), the discounted return of a policy after an action.

    Args:
        policy: whose values they are.
        gamma: discount per step.
        epsilon_greedy: as for OffPolicyEstimator.

    Raises:
        ValueError: for a policy with a memory, whose values do not follow from an observation.
    """

    def __init__(self, policy: Policy, gamma: float, epsilon_greedy: float = 0.0):
        if policy.state_size:
            raise ValueError(
                "a policy with a memory has values that do not follow from one observation, so the direct method and "
                "doubly robust estimates cannot be used. Use importance sampling ('is', 'wis')."
            )
        self.policy, self.gamma = policy, gamma
        self.target = TargetPolicy(policy, epsilon_greedy)

    @abstractmethod
    def values(self, observations: np.ndarray) -> np.ndarray:
        """V(s) = sum_a pi(a | s) Q(s, a) of observations [N, *shape] as stored, float64 [N]."""

    @abstractmethod
    def action_values(self, observations: np.ndarray, actions: np.ndarray) -> np.ndarray:
        """Q(s, a) of observations [N, *shape] as stored and actions in the policy's units, float64 [N]."""

    def train(self, batch: Any) -> Sequence[float]:
        """Fits the model to recorded steps; returns the loss of each pass, or nothing if there is none."""
        return []

    def estimate_v(self, batch: Mapping[str, np.ndarray]) -> np.ndarray:
        """RLlib's name of `values`, of a batch's obs."""
        return self.values(batch[sb.OBS])

    def estimate_q(self, batch: Mapping[str, np.ndarray]) -> np.ndarray:
        """RLlib's name of `action_values`, of a batch's obs and actions."""
        return self.action_values(batch[sb.OBS], batch[sb.ACTIONS])
