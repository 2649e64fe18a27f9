"""Distance of a policy from recorded actions, on episodes that it did not learn from."""

import numpy as np

from rllib.evaluation.estimators.target_policy import TargetPolicy, action_rows
from rllib.evaluation.offline import rows
from rllib.offline.dataset import Dataset
from rllib.policy import Policy


def imitation_error(dataset: Dataset, policy: Policy, conversions: rows.Conversions) -> dict[str, float]:
    """Compares a policy with recorded actions.

    Args:
        dataset: recorded steps; rewards are not read.
        policy: that is evaluated; a memory begins empty with each episode.
        conversions: between its actions and the environment's.

    Returns:
        means over the steps:

        - loss: -log pi(a | s); of a policy without probabilities the error of its only action: mse, or 1 - accuracy;
        - mse: of the most probable actions of numbers, in the policy's units, mean over their components; or
          accuracy: share of the steps in which the most probable choice is the recorded one;
        - num_steps, num_episodes.
    """
    target, distribution = TargetPolicy(policy), policy.distribution
    observations, actions = rows.observations(dataset, policy), rows.actions(dataset, policy, conversions)
    best = distribution.mode(target.dist_inputs(observations, dataset.starts))
    if policy.action_dtype.kind == "i":
        is_same = (best == actions).reshape(len(actions), -1).all(1)
        found = {"accuracy": float(is_same.mean())}
        loss = 1 - found["accuracy"]
    else:
        error = action_rows(distribution, best).astype(np.float64) - action_rows(distribution, actions)
        loss = float(np.square(error).mean())
        found = {"mse": loss}
    if target.has_probabilities:
        loss = float(-target.log_prob(observations, actions, dataset.starts).mean())
    return {"loss": loss, **found, "num_steps": len(dataset), "num_episodes": dataset.num_episodes}
