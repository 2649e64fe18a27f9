"""MARWIL: monotonic advantage re-weighted imitation learning (Wang et al., NeurIPS 2018).

The policy imitates recorded actions, the more an action's return exceeds the value of its observation; the value is
learned in addition to it. With beta=0 all actions count alike, and there is no value: behaviour cloning (bc.py). The
loss, and how it departs from RLlib's, is in losses/offline/imitation.py.

Returns to go are those of the recorded episodes; where an episode was truncated, the present value of what followed is
added (use_gae=True, RLlib's name), or nothing (False). A memory is filled for it as for the episode's last sequence.

`moving_average_sqd_adv_norm_start` is large against most advantages, and follows them slowly: advantages of -150 make
weights of e^-15 then, so that nothing is imitated until the value fits. The rate is the first thing to raise, to 1e-2.
"""

import logging
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Self

import numpy as np

from rllib.algorithms.base.algorithm import Algorithm
from rllib.algorithms.base.config import AlgorithmConfig
from rllib.algorithms.base.recorded.data import learned_rewards
from rllib.algorithms.base.trainee import Trainee
from rllib.config.sections import above, at_least, between, only_with, section
from rllib.evaluation.offline.imitated import ImitatedRows, ImitatedSequences, ReturnsToGo
from rllib.losses.offline.imitation import BehaviorCloning, ExponentiallyWeighted
from rllib.models.dense.network_spec import NetworkSpec
from rllib.models.distributions.standard import DiagGaussian
from rllib.notices import log_once
from rllib.offline.dataset import Dataset
from rllib.sample_batch import SampleBatch

# Values of tens or hundreds would move shared layers, and the policy with them.
_MODEL = {"vf_share_layers": False}


class MARWILConfig(AlgorithmConfig):
    """Settings of MARWIL; the defaults are RLlib's, except those in default_differences.py."""

    learns_from_data: ClassVar[bool] = True
    needs_data: ClassVar[bool] = True
    own_aliases: ClassVar[dict] = {"burnin_len": ("burn_in", lambda steps: steps)}  # of RLlib from 2.10 on

    @property
    def learns_values(self) -> bool:
        """Whether a value is learned in addition to the policy, for advantages."""
        return self.beta > 0

    @property
    def has_memory(self) -> bool:
        """Whether the network may have a memory; one of the user's tells when it is made."""
        return any(self.model.get(each) for each in ("use_lstm", "use_gru", "use_attention", "custom_model"))

    @section
    def training(
        self,
        *,
        lr=1e-4,
        train_batch_size=2000,
        model=_MODEL,
        beta: Annotated[float, "weight of the advantage in the exponent; 0: behaviour cloning", between(0, 1)] = 1.0,
        bc_logstd_coeff: Annotated[
            float, "weight of the mean logarithm of a Gaussian's standard deviations, added to log pi", at_least(0)
        ] = 0.0,
        moving_average_sqd_adv_norm_update_rate: Annotated[
            float, "rate at which the norm follows the mean of the squared advantages", between(0, 1)
        ] = 1e-8,
        moving_average_sqd_adv_norm_start: Annotated[
            float, "mean of the squared advantages that is assumed at first", above(0, finite=True)
        ] = 100.0,
        max_weight_exponent: Annotated[float, "largest exponent of a weight", above(0, finite=True)] = 20.0,
        use_gae: Annotated[bool, "add the value of what followed a truncated episode to its returns"] = True,
        vf_coeff: Annotated[float, "weight of the value loss", at_least(0)] = 1.0,
        burn_in: Annotated[
            int,
            "steps before a sequence that bring a memory up to date, without being learned from",
            at_least(0),
            only_with("has_memory", otherwise="the model has no memory"),
        ] = 0,
    ) -> Self: ...


class MARWILTrainee(Trainee):
    """A policy that learns by MARWIL.

    Attributes:
        norm: c, the mean of the squared advantages so far.
    """

    first_values = ("moving_average_sqd_adv_norm_start",)

    def __init__(self, algorithm: "MARWIL", policy_id: str):
        super().__init__(algorithm, policy_id)
        self.norm: float = self.config.moving_average_sqd_adv_norm_start

    def make_loss(self) -> BehaviorCloning | ExponentiallyWeighted:
        config, distribution = self.config, self.policy.distribution
        std_weight = config.bc_logstd_coeff / distribution.size if isinstance(distribution, DiagGaussian) else 0.0
        if config.bc_logstd_coeff and not std_weight:
            line = (
                f"bc_logstd_coeff={config.bc_logstd_coeff:g} has no effect here: actions are not drawn from a Gaussian."
            )
            log_once(line, line, logging.WARNING)
        if not config.learns_values:
            return BehaviorCloning(std_weight)
        rate, limit = config.moving_average_sqd_adv_norm_update_rate, config.max_weight_exponent
        return ExponentiallyWeighted(config.beta, rate, limit, std_weight)

    def update(self, batch: SampleBatch, now: int) -> dict[str, Any]:
        """One gradient step on recorded rows; schedules are read at `now`. Returns statistics."""
        settings = self.scheduled("lr", at=now)
        if not self.config.learns_values:
            return self.learn_on_batch(batch, shuffle=False, **settings)
        weights = {"norm": self.norm, "vf_coeff": self.config.vf_coeff}
        stats = self.learn_on_batch(batch, shuffle=False, **settings, **weights)
        self.norm = stats["moving_average_sqd_adv_norm"]
        return stats

    def numbers(self) -> dict[str, Any]:
        return {**super().numbers(), "advantage_norms": self.norm}

    def set_numbers(self, numbers: Mapping[str, Any]) -> None:
        super().set_numbers(numbers)
        self.norm = numbers.get("advantage_norms", self.norm)

    def begin_again(self, changed: Mapping[str, Any]) -> None:
        super().begin_again(changed)
        self.norm = self.config.moving_average_sqd_adv_norm_start


class MARWIL(Algorithm):
    """Imitation of recorded actions, weighted by their advantages."""

    config_class = MARWILConfig
    trainee_class = MARWILTrainee
    reported_stats = ("total_loss", "policy_loss", "vf_loss", "vf_explained_var", "cur_lr")

    def make_policy_spec(self, observation_space, action_space, config: MARWILConfig) -> NetworkSpec:
        spec = super().make_policy_spec(observation_space, action_space, config)
        return spec if config.learns_values else spec.without_value()

    def recorded_rows(self) -> ImitatedRows:
        return self._imitated(self.recorded.only)

    def streamed_rows(self, dataset: Dataset) -> SampleBatch:
        rows = self._imitated(dataset)
        return rows.batch(np.arange(len(rows)))

    def _imitated(self, dataset: Dataset) -> ImitatedRows:
        config, returns = self.config, None
        if config.learns_values:
            bootstrap = self.policy if config.use_gae else None
            returns = ReturnsToGo(dataset, learned_rewards(dataset, config), config.gamma, bootstrap)
        given = dataset, self.policy, config, config.train_batch_size, returns
        if self.policy.state_size:
            return ImitatedSequences(*given, length=config.model.get("max_seq_len", 20), burn_in=config.burn_in)
        return ImitatedRows(*given)

    def training_step(self) -> dict[str, Any]:
        trainee, now = self.trainee, self.timesteps
        ((_, batch),) = self.train_batches()
        return trainee.update(batch, now)
