"""Settings of the policy-gradient algorithms, and their adaptive KL penalty."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from rllib.algorithms.base.config import AlgorithmConfig
from rllib.config.conflicts import needs
from rllib.config.sections import OfPolicy, at_least, between, section
from rllib.losses.ppo import adapted_kl_coeff
from rllib.schedules import Schedule

# A minibatch may exceed `target_kl` by this factor before the epochs end, as in Spinning Up and Stable-Baselines3.
KL_MARGIN = 1.5


class PolicyGradientConfig(AlgorithmConfig):
    """Settings of algorithms that follow the gradient of a policy's log-probabilities."""

    on_policy = True

    @section
    def rollouts(self, *, rollout_fragment_length="auto") -> Self: ...

    @section
    def training(
        self,
        *,
        entropy_coeff: Annotated[
            float | list, "coefficient of the entropy bonus, or a schedule", at_least(0), OfPolicy
        ] = 0.0,
        entropy_coeff_schedule: Annotated[
            list | None, "schedule [[timestep, value], ...] that goes before entropy_coeff", at_least(0), OfPolicy
        ] = None,
        standardize_advantages: Annotated[
            bool | Literal["batch", "minibatch"],
            "advantages with mean 0, deviation 1 over each train batch (True is the same) or each minibatch of it",
            OfPolicy,
        ] = False,
    ) -> Self: ...


class ActorCriticConfig(PolicyGradientConfig):
    """Settings of algorithms that learn a value function beside the policy."""

    @section
    def training(
        self,
        *,
        use_gae: Annotated[bool, "advantages by GAE; False: discounted returns minus the value", OfPolicy] = True,
        use_critic: Annotated[bool, "subtract a value baseline; GAE needs one", OfPolicy] = True,
        lambda_: Annotated[float, "GAE's lambda", between(0, 1), OfPolicy] = 1.0,
        vf_loss_coeff: Annotated[
            float | list, "coefficient of the value loss, or a schedule", at_least(0), OfPolicy
        ] = 1.0,
    ) -> Self: ...

    def get_schedule(self, name: str) -> Schedule | None:
        # Without a critic there is no value to be fitted.
        return Schedule(0.0) if name == "vf_loss_coeff" and not self.use_critic else super().get_schedule(name)

    conflicts = (
        needs(
            "use_gae",
            "use_critic",
            why="GAE sums up differences of values",
            remedies=[{"use_gae": False}, {"use_critic": True}],
        ),
    )


class AdaptiveKL:
    """The coefficient of the penalty on KL(old || new), which follows the divergence (arXiv:1707.06347, section 4).

    A kl_coeff that is a schedule is followed instead.

    Args:
        configs: id of a policy that is penalised -> its use_kl_loss, kl_coeff, kl_target and target_kl.

    Attributes:
        coefficients: policy id -> coefficient of its next update.
    """

    def __init__(self, configs: Mapping[str, AlgorithmConfig]):
        self._configs = configs
        self._schedules = {
            policy_id: config.get_schedule("kl_coeff") if config.use_kl_loss else Schedule(0.0)
            for policy_id, config in configs.items()
        }
        self.coefficients = {policy_id: schedule(0) for policy_id, schedule in self._schedules.items()}

    def add(self, policy_id: str, config: AlgorithmConfig) -> None:
        """Begins with a further policy."""
        fresh = AdaptiveKL({policy_id: config})
        self._configs = {**self._configs, policy_id: config}
        self._schedules |= fresh._schedules
        self.coefficients |= fresh.coefficients

    def restore(self, coefficients: Mapping[str, float]) -> None:
        """Takes over the coefficients of a checkpoint, for the policies that there are."""
        self.coefficients |= {each: saved for each, saved in coefficients.items() if each in self._configs}

    def remove(self, policy_id: str) -> None:
        """Forgets a policy."""
        self._configs = {each: config for each, config in self._configs.items() if each != policy_id}
        for of_policies in (self._schedules, self.coefficients):
            of_policies.pop(policy_id, None)

    def settings(self, policy_id: str) -> dict[str, Any]:
        """Settings of the policy's next update: its coefficient, and the KL that ends the epochs."""
        target_kl = self._configs[policy_id].target_kl
        stop_above = target_kl and ("kl", KL_MARGIN * target_kl)
        return {"kl_coeff": self.coefficients[policy_id], "stop_above": stop_above}

    def adapt(self, policy_id: str, kl: float, timestep: int) -> None:
        """Adapts the coefficient of a policy to the KL that its update led to.

        Args:
            policy_id: of the policy.
            kl: mean KL(old || new), nats.
            timestep: environment steps sampled so far.
        """
        config = self._configs[policy_id]
        if isinstance(config.kl_coeff, float):
            self.coefficients[policy_id] = adapted_kl_coeff(self.coefficients[policy_id], kl, config.kl_target)
        else:
            self.coefficients[policy_id] = self._schedules[policy_id](timestep)
