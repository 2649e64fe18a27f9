"""What the policy-gradient algorithms share: settings, standardised advantages, the adaptive KL penalty."""

from collections.abc import Iterable
from typing import Annotated, Self

import numpy as np

from rllib.algorithms.algorithm_config import AlgorithmConfig
from rllib.algorithms.config_object import relation
from rllib.algorithms.sections import at_least, between, section
from rllib.losses.ppo import adapted_kl_coeff


class PolicyGradientConfig(AlgorithmConfig):
    """Settings of algorithms that follow the gradient of a policy's log-probabilities."""

    on_policy = True

    @section
    def rollouts(self, *, rollout_fragment_length="auto") -> Self: ...

    @section
    def training(
        self,
        *,
        entropy_coeff: Annotated[float | list, "coefficient of the entropy bonus, or a schedule", at_least(0)] = 0.0,
        entropy_coeff_schedule: Annotated[
            list | None, "schedule [[timestep, value], ...] that goes before entropy_coeff", at_least(0)
        ] = None,
    ) -> Self: ...


class ActorCriticConfig(PolicyGradientConfig):
    """Settings of those that learn a value function beside the policy."""

    @section
    def training(
        self,
        *,
        use_gae: Annotated[bool, "advantages by GAE; False: discounted returns minus the value"] = True,
        use_critic: Annotated[bool, "subtract a value baseline; GAE needs one"] = True,
        lambda_: Annotated[float, "GAE's lambda", between(0, 1)] = 1.0,
        vf_loss_coeff: Annotated[float, "coefficient of the value loss", at_least(0)] = 1.0,
    ) -> Self: ...

    @relation("use_gae", "use_critic")
    def _check_critic(self):
        if self.use_gae and not self.use_critic:
            return "use_gae=True needs a critic. Use .training(use_gae=False, use_critic=False) or use_critic=True."


class AdaptiveKL:
    """The coefficient of the penalty on KL(old || new), which follows the divergence (arXiv:1707.06347, section 4).

    Args:
        config: with the settings use_kl_loss, kl_coeff and kl_target.
        policies: ids of those that have one.

    Attributes:
        coefficients: policy id -> that of its next update.
    """

    def __init__(self, config: AlgorithmConfig, policies: Iterable[str]):
        self.coefficients = dict.fromkeys(policies, config.kl_coeff if config.use_kl_loss else 0.0)
        self._target = config.kl_target

    def adapt(self, policy_id: str, kl: float) -> None:
        """Takes in the KL (nats) of a policy's update with its coefficient."""
        self.coefficients[policy_id] = adapted_kl_coeff(self.coefficients[policy_id], kl, self._target)


def standardized(advantages: np.ndarray) -> np.ndarray:
    """Mean 0, standard deviation 1 over the batch; a batch of equal advantages becomes zeros, never NaN."""
    return (advantages - advantages.mean()) / max(1e-4, float(advantages.std()))
