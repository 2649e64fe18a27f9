"""BC: behaviour cloning (Pomerleau 1991), the likelihood of recorded actions made as large as possible.

It is MARWIL with beta=0: no rewards are read, and no value is learned. With `bc_loss="mse"` the mean of continuous
actions is fitted to the recorded ones, and the standard deviation stays what it was.
"""

from typing import Annotated, ClassVar, Literal, Self

from rllib.algorithms.offline.marwil import MARWIL, MARWILConfig
from rllib.config.config_object import relation
from rllib.config.sections import section
from rllib.losses.offline.imitation import BehaviorCloning
from rllib.models.distributions.standard import DiagGaussian


class BCConfig(MARWILConfig):
    """Settings of BC; the defaults are RLlib's, except those in departures.py."""

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

    @relation("beta")
    def _check_beta(self):
        if self.beta:
            return f"beta={self.beta} weights actions by their advantages, which is MARWIL. Use MARWILConfig()."
        return None

    @relation("bc_loss", "bc_logstd_coeff")
    def _check_deviation(self):
        if self.bc_loss == "mse" and self.bc_logstd_coeff:
            return (
                f"bc_logstd_coeff={self.bc_logstd_coeff:g} weights standard deviations, which bc_loss='mse' leaves as "
                "they are. Use bc_loss='logp', or leave bc_logstd_coeff out."
            )
        return None


class BC(MARWIL):
    """Behaviour cloning."""

    config_class = BCConfig
    reported_stats = ("total_loss", "policy_loss", "cur_lr")

    def make_loss(self, policy_id: str) -> BehaviorCloning:
        if self.config_of(policy_id).bc_loss == "logp":
            return super().make_loss(policy_id)
        if not isinstance(self.policies[policy_id].distribution, DiagGaussian):
            space = self.policies[policy_id].action_space
            raise ValueError(f"bc_loss='mse' is for continuous actions, but they are {space}. Use bc_loss='logp'.")
        return BehaviorCloning(is_squared=True)
