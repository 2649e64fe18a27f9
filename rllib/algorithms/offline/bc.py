"""BC: behaviour cloning (Pomerleau 1991), the likelihood of recorded actions made as large as possible.

It is MARWIL with beta=0: no rewards are read, and no value is learned. With `bc_loss="mse"` the mean of continuous
actions is fitted to the recorded ones, and the standard deviation stays what it was.
"""

from typing import Annotated, ClassVar, Literal, Self

from rllib.algorithms.base.space_rules import NewPolicy, of_network
from rllib.algorithms.offline.marwil import MARWIL, MARWILConfig, MARWILTrainee
from rllib.config.conflicts import Mistake, conflict
from rllib.config.sections import section
from rllib.losses.offline.imitation import BehaviorCloning, ExponentiallyWeighted
from rllib.models.distributions.standard import DiagGaussian


class BCConfig(MARWILConfig):
    """Settings of BC; the defaults are RLlib's, except those in default_differences.py."""

    # Of MARWIL's advantages, which there are none of.
    unused: ClassVar[dict[str, str]] = dict.fromkeys(
        (
            *("gamma", "use_gae", "vf_coeff", "max_weight_exponent", "reward_scale", "reward_shift"),
            *("moving_average_sqd_adv_norm_update_rate", "moving_average_sqd_adv_norm_start"),
        ),
        "actions are imitated, whatever their rewards; MARWIL weighs them",
    )

    @section
    def training(
        self,
        *,
        beta=0.0,
        bc_loss: Annotated[
            Literal["logp", "mse"], "the likelihood of recorded actions, or the squared distance of the mean to them"
        ] = "logp",
    ) -> Self: ...

    def why_without_effect(self, name: str) -> str | None:
        estimates = name == "gamma" and self.off_policy_estimation_methods  # they discount what would be earned
        return None if estimates else super().why_without_effect(name)

    refuses: ClassVar[dict[str, str]] = {"beta": "it weights actions by their advantages, which is MARWIL"}
    conflicts = (
        conflict(
            "bc_logstd_coeff",
            "bc_loss",
            when=lambda config: config.bc_logstd_coeff and config.bc_loss == "mse",
            why="the first weights standard deviations, which the second leaves as they are",
            remedies=[{"bc_loss": "logp"}, {"bc_logstd_coeff": 0.0}],
        ),
    )

    @of_network("bc_loss")
    def _check_means(self, policy: NewPolicy):
        """`bc_loss='mse'` is for continuous actions."""
        if self.bc_loss == "logp" or isinstance(policy.spec.distribution, DiagGaussian):
            return None
        return Mistake(
            f"bc_loss='mse' is for continuous actions, but they are {policy.action_space}.",
            ("bc_loss",),
            ({"bc_loss": "logp"},),
        )


class BCTrainee(MARWILTrainee):
    """A policy that learns by behaviour cloning."""

    def make_loss(self) -> BehaviorCloning | ExponentiallyWeighted:
        return super().make_loss() if self.config.bc_loss == "logp" else BehaviorCloning(is_squared=True)


class BC(MARWIL):
    """Behaviour cloning."""

    config_class = BCConfig
    trainee_class = BCTrainee
    reported_stats = ("total_loss", "policy_loss", "cur_lr")
