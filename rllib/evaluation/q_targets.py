"""What a worker adds to a fragment for PQN: the targets of the action values."""

from dataclasses import dataclass

import numpy as np

from rllib import sample_batch as sb
from rllib.evaluation.advantages import bootstrap_values
from rllib.evaluation.fragment import Fragment
from rllib.losses.q_lambda import q_lambda_targets
from rllib.policy import Policy
from rllib.sample_batch import Column


@dataclass(frozen=True)
class QLambda:
    """Fills the column td_targets by the values of the weights that acted; there is no target network.

    The values of the observations themselves, vf_preds, are those that acting has given, where it could.

    Args:
        gamma: discount per step.
        lambda_: how far a target looks before it bootstraps.
    """

    gamma: float
    lambda_: float

    columns = (Column(sb.VF_PREDS, (), "float32"), Column(sb.TD_TARGETS, (), "float32"))

    def __call__(self, fragment: Fragment, policy: Policy) -> None:
        """Fills them."""

        def greedy_values(observations: np.ndarray) -> np.ndarray:
            return policy.distribution.best(policy.dist_inputs(observations))

        fragment[sb.VF_PREDS][:], next_values = bootstrap_values(fragment, greedy_values)
        fragment[sb.TD_TARGETS][:] = q_lambda_targets(
            fragment[sb.REWARDS],
            next_values,
            fragment[sb.TERMINATEDS],
            fragment[sb.TRUNCATEDS],
            self.gamma,
            self.lambda_,
        )
