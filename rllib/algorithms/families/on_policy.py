"""Settings of the policy-gradient algorithms, and their adaptive KL penalty."""

from typing import Annotated, Literal, Self

from rllib.algorithms.base.trainee import Trainee
from rllib.algorithms.families.taught import TaughtConfig
from rllib.config.conflicts import needs
from rllib.config.sections import OfPolicy, Range, at_least, between, only_with, section
from rllib.evaluation.quorum import quorum_of
from rllib.losses.ppo import adapted_kl_coeff
from rllib.schedules import Schedule

# Settings of the coefficient that AdaptiveKL begins with.
OF_KL = ("kl_coeff", "use_kl_loss")
# A minibatch may exceed `target_kl` by this factor before the epochs end, as in Spinning Up and Stable-Baselines3.
KL_MARGIN = 1.5


class PolicyGradientConfig(TaughtConfig):
    """Settings of algorithms that follow the gradient of a policy's log-probabilities."""

    on_policy = True

    @section
    def rollouts(
        self,
        *,
        rollout_fragment_length="auto",
        sample_quorum: Annotated[
            float,
            "share of the workers whose fragments a round waits for; those of the others join the next one",
            Range(0, 1, low_open=True),
            only_with("num_rollout_workers"),
        ] = 1.0,
    ) -> Self: ...

    @property
    def workers_per_round(self) -> int:
        return quorum_of(self.sample_quorum, max(self.num_rollout_workers, 1))

    @property
    def leaves_stragglers(self) -> bool:
        return self.sample_quorum < 1 and self.num_rollout_workers > 0

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
    """Settings of algorithms that learn a value function in addition to the policy."""

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
        trainee: trainee of the policy that is penalised; its config has use_kl_loss, kl_coeff, kl_target and target_kl.

    Attributes:
        coefficient: coefficient of the next update.
    """

    def __init__(self, trainee: Trainee):
        self._trainee, self._config = trainee, trainee.config
        config = self._config
        self._schedule = config.get_schedule("kl_coeff") if config.use_kl_loss else Schedule(0.0)
        self._adapts = config.use_kl_loss and isinstance(config.kl_coeff, float)
        self.begin_at(0)

    @property
    def stop_above(self) -> tuple[str, float] | None:
        """The KL that ends the epochs of an update, as `Learner.update` takes it."""
        return self._config.target_kl and ("kl", KL_MARGIN * self._config.target_kl)

    def adapt(self, kl: float, timestep: int) -> None:
        """Adapts the coefficient to the KL that an update led to.

        Args:
            kl: mean KL(old || new), nats.
            timestep: environment steps sampled so far.
        """
        if not self._adapts:
            self.begin_at(timestep)
        elif self._trainee.num_updates > self._config.get("actor_warmup_updates", 0):  # else the policy has not moved
            self.coefficient = adapted_kl_coeff(self.coefficient, kl, self._config.kl_target)

    def begin_at(self, timestep: int) -> None:
        """Takes the coefficient of the settings, at `timestep` environment steps."""
        self.coefficient: float = self._schedule(timestep)
