"""Advantages of costs in addition to those of rewards, which workers compute for algorithms with a limit on costs."""

from dataclasses import dataclass

import numpy as np

from rllib import sample_batch as sb
from rllib.evaluation.postprocess.advantages import AdvantageEstimator, bootstrap_values
from rllib.evaluation.postprocess.fragment import Fragment
from rllib.learners.updates.objective import widths_of
from rllib.losses.returns import gae
from rllib.models.modules import FullyConnected
from rllib.policy import CHUNK, Policy
from rllib.sample_batch import Column


@dataclass(frozen=True)
class CostAdvantages(AdvantageEstimator):
    """GAE of rewards and of costs over one fragment, in one pass over its steps.

    The value of costs is a network in addition to the policy, whose weights come with the policy's snapshot
    (Snapshot.modules).

    Args:
        cost_column: the info column of costs.
        critic_name: of the network among the snapshot's modules.
        critic: describes the network, which reads an observation.
        cost_gamma: discount of costs per step.
        cost_lambda: GAE's lambda of costs.
    """

    cost_column: str = ""
    critic_name: str = ""
    critic: FullyConnected | None = None
    cost_gamma: float = 1.0
    cost_lambda: float = 1.0

    columns = (*AdvantageEstimator.columns, Column(sb.COST_ADVANTAGES), Column(sb.COST_TARGETS))

    def __call__(self, fragment: Fragment, policy: Policy) -> None:
        """Fills the columns above."""
        ends = fragment[sb.TERMINATEDS], fragment[sb.TRUNCATEDS]
        of_rewards = fragment[sb.REWARDS], *bootstrap_values(fragment, policy.values), *ends
        cost_values = bootstrap_values(fragment, self._cost_values(policy), from_acting=False)
        of_costs = fragment[self.cost_column], *cost_values, *ends
        num_envs = fragment.num_envs
        # Rewards and costs side by side, as if they were of twice the number of environments.
        advantages, targets = gae(
            *(np.concatenate(pair, axis=1) for pair in zip(of_rewards, of_costs, strict=True)),
            np.repeat([self.gamma, self.cost_gamma], num_envs),
            np.repeat([self.lambda_ if self.use_gae else 1.0, self.cost_lambda], num_envs),
        )
        fragment[sb.VF_PREDS][:] = of_rewards[1]
        fragment[sb.ADVANTAGES][:], fragment[sb.COST_ADVANTAGES][:] = np.hsplit(advantages, 2)
        fragment[sb.VALUE_TARGETS][:], fragment[sb.COST_TARGETS][:] = np.hsplit(targets, 2)

    def _cost_values(self, policy: Policy):
        """The function that computes values of costs [B] of observations [B, *shape] as stored."""
        critic = self.critic.numpy(self.critic.layout(widths_of(policy)), policy.modules[self.critic_name])

        def values_of(observations: np.ndarray) -> np.ndarray:
            values = np.empty(len(observations), np.float32)
            for start in range(0, len(observations), CHUNK):
                values[start : start + CHUNK] = critic.forward(policy.encode(observations[start : start + CHUNK]))
            return values

        return values_of
