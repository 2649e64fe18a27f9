"""The learners of a run by the methods of RLlib's LearnerGroup: `algo.learner_group`."""

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np


class LearnerGroupNames:
    """Weights of the policies by the names of their parameters.

    Args:
        algorithm: the Algorithm whose learners these are.
    """

    _ELSEWHERE: Mapping[str, str] = {
        "foreach_learner": "the learners of this process are algo.learners, {policy id: Learner}",
        "update": "use algo.train(), or write a training_step (docs/project/extend.md): self.learn_on_batch(batch)",
        "save_to_path": "use algo.save_to_path(path)",
        "restore_from_path": "use algo.restore_from_path(path)",
    }

    def __init__(self, algorithm: Any):
        self._algorithm = algorithm

    def get_weights(self, module_ids: Collection[str] | None = None) -> dict[str, dict[str, np.ndarray]]:
        """Policy id -> copies of its parameters by name."""
        wanted = self._algorithm.policies if module_ids is None else module_ids
        return {policy_id: self._algorithm.get_policy(policy_id).get_weights() for policy_id in wanted}

    def set_weights(self, weights: Mapping[str, Mapping[str, np.ndarray]]) -> None:
        """Takes over what `get_weights` gave; workers get them with their next request."""
        self._algorithm.set_weights(weights)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        advice = self._ELSEWHERE.get(name, "it has get_weights() and set_weights(); algo.learners are the learners")
        raise AttributeError(f"algo.learner_group has no {name!r}: {advice}")
