"""Actions for observations as an environment gives them, outside of training."""

from collections.abc import Mapping

import numpy as np

from rllib.algorithms.algorithm_config import AlgorithmConfig
from rllib.env.actions import ActionMapper
from rllib.env.observations import observation_column
from rllib.env.spaces import mismatch
from rllib.policy import Policy


class Inference:
    """From observations to actions, both in the environment's own units.

    Args:
        policy: acts.
        observation_space, action_space: of the environment.
        config: how actions are mapped to the space.
        rng: draws the actions that are sampled.

    Attributes:
        rng: the same.
    """

    def __init__(
        self, policy: Policy, observation_space, action_space, config: AlgorithmConfig, rng: np.random.Generator
    ):
        self.rng = rng
        self._policy, self._space = policy, observation_space
        self._ignored = set(config.ignore_observation_keys)
        self._column = observation_column(observation_space)
        self._to_env = ActionMapper(action_space, config.normalize_actions, config.clip_actions).to_env

    def compute_actions(self, observations, explore: bool) -> np.ndarray:
        """One action each for a sequence of observations.

        Raises:
            ValueError: for an observation that is not in the space.
        """
        if self._ignored:
            observations = [self._without_ignored(observation) for observation in observations]
        for observation in observations:
            self._refuse_odd(observation)
        rows = np.stack([self._column.row(observation) for observation in observations])
        return self._to_env(self._policy.compute_actions(rows, explore, self.rng))

    def _without_ignored(self, observation):
        if not isinstance(observation, Mapping):
            return observation
        return {key: value for key, value in observation.items() if key not in self._ignored}

    def _refuse_odd(self, observation) -> None:
        problem = mismatch(self._space, observation)
        if problem is None:
            return
        if isinstance(observation, tuple) and len(observation) == 2 and isinstance(observation[1], dict):
            problem = "this is the pair (observation, info) that reset() returns; give its first part alone"
        raise ValueError(f"no action can be computed: {problem}")
