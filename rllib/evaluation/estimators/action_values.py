"""The action values of a policy that has some, as the model of an estimate."""

import numpy as np

from rllib.evaluation.estimators.q_model import QModel
from rllib.models.distributions.q_values import QValues
from rllib.policy import Policy


class ActionValues(QModel):
    """The network of a policy that chooses by action values (DQN, Rainbow, PQN) as the model.

    Nothing is fitted. What such a policy learned is the value of its greedy actions, mostly too high.

    Args:
        policy, gamma, epsilon_greedy: as for QModel.

    Raises:
        ValueError: for a policy without action values.
    """

    def __init__(self, policy: Policy, gamma: float, epsilon_greedy: float = 0.0):
        super().__init__(policy, gamma, epsilon_greedy)
        if not isinstance(policy.distribution, QValues):
            raise ValueError(
                "q_model_config: ActionValues is for policies of action values, such as DQN's, but this one draws "
                f"from a {type(policy.distribution).__name__}. Use {{'type': 'FQETorchModel'}}."
            )

    def values(self, observations: np.ndarray) -> np.ndarray:
        inputs = self.target.dist_inputs(observations)
        # Q of an illegal action is far below all others, with probability 0.
        return np.einsum("na,na->n", self.target.probabilities(inputs), self._scores(inputs))

    def action_values(self, observations: np.ndarray, actions: np.ndarray) -> np.ndarray:
        return self._scores(self.target.dist_inputs(observations))[np.arange(len(actions)), actions]

    def _scores(self, inputs: np.ndarray) -> np.ndarray:
        return self.policy.distribution.at(inputs.astype(np.float64)).q_values()
