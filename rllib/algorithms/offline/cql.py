"""CQL: conservative Q-learning (Kumar et al., arXiv:2006.04779), on soft actor-critic.

SAC whose critics are kept from valuing actions that the data does not have (losses/offline/cql.py). For the first
`bc_iters` updates the actor imitates the data while the critics learn. With `lagrangian` the weight of the penalty is
adapted so that it stays near `lagrangian_thresh`.

Departures from RLlib: uniform actions are drawn in [-1, 1] for any bounds of the action space, in the units that the
critics read, and have the density of that box; the target copies move with every update.

For Discrete actions use DQN with `conservative_weight`.
"""

from typing import Annotated, Any, ClassVar, Self

import numpy as np

from rllib.algorithms.sac import SAC, SACConfig, SACTrainee, Temperature
from rllib.config.sections import above, at_least, only_with, section
from rllib.losses.loss import LossOverModules
from rllib.losses.offline import cql
from rllib.replay.replay_settings import SequenceReplaySettings
from rllib.sample_batch import SampleBatch

# Largest multiplier of the penalty.
MOST_MULTIPLIER = 1e6


class CQLConfig(SACConfig):
    """Settings of CQL; the defaults are RLlib's, except those in default_differences.py."""

    needs_data: ClassVar[bool] = True
    reads_images: ClassVar[bool] = False
    takes_choices: ClassVar[bool] = False
    refuses: ClassVar[dict[str, str]] = {
        "num_atoms": "CQL's penalty is of expected returns; atoms are for SAC's critics",
        "target_critics_sampled": "CQL has its own targets; SAC's take the least value",
        "cost_limit": "CQL learns from recorded steps, so no episode of its policy has a cost",
    }

    @section
    def training(
        self,
        *,
        bc_iters: Annotated[int, "updates at first in which the actor imitates the data", at_least(0)] = 20_000,
        temperature: Annotated[float, "of the logsumexp over actions", above(0, finite=True)] = 1.0,
        num_actions: Annotated[int, "actions of each of the three kinds that are drawn for a row", at_least(1)] = 10,
        min_q_weight: Annotated[float, "weight of the penalty", at_least(0)] = 5.0,
        lagrangian: Annotated[bool, "adapt the weight, so that the penalty stays near lagrangian_thresh"] = False,
        lagrangian_thresh: Annotated[
            float, "where the penalty is to stay, with lagrangian", above(0), only_with("lagrangian")
        ] = 5.0,
        deterministic_backup: Annotated[bool, "targets without the entropy of the next action"] = True,
        num_steps_sampled_before_learning_starts=0,
        replay_buffer_config=SequenceReplaySettings.defaults(type="MultiAgentReplayBuffer"),
    ) -> Self: ...


class CQLTrainee(SACTrainee):
    """A policy that learns by CQL.

    Attributes:
        penalty_multiplier: of the penalty, learned with `lagrangian`; None: it is 1.
    """

    def __init__(self, algorithm: "CQL", policy_id: str):
        super().__init__(algorithm, policy_id)
        self.penalty_multiplier: Temperature | None = None
        if self.config.lagrangian:
            # It grows while the penalty is above the threshold, as a temperature does while entropy is below its own.
            self.penalty_multiplier = Temperature(1.0, 0.0, self.optimizer_settings())
            self.saved["multiplier.safetensors"] = self.penalty_multiplier

    def critic_loss(self) -> LossOverModules:
        config = self.config
        return cql.critic_loss(config.temperature, config.min_q_weight, config.deterministic_backup)

    def actor_loss(self) -> LossOverModules:
        return cql.CONSERVATIVE_ACTOR_LOSS

    def add_noise(self, batch: SampleBatch, rows: int) -> None:
        super().add_noise(batch, rows)
        count, size = self.config.num_actions, self.policy.distribution.size
        batch[cql.UNIFORM] = self.rng.uniform(-1, 1, (rows, count, size)).astype(np.float32)
        for name in (cql.DRAWS, cql.NEXT_DRAWS):
            batch[name] = self.rng.standard_normal((rows, count, size), np.float32)

    @property
    def multiplier(self) -> float:
        """Present multiplier of the penalty."""
        return 1.0 if self.penalty_multiplier is None else min(self.penalty_multiplier.alpha, MOST_MULTIPLIER)

    def critic_settings(self) -> dict[str, Any]:
        limit = 0.0 if self.penalty_multiplier is None else self.config.lagrangian_thresh
        return {**super().critic_settings(), "multiplier": self.multiplier, "limit": limit}

    def actor_settings(self) -> dict[str, Any]:
        return {"alpha": self.temperature.alpha, "clones": self.critic_updates <= self.config.bc_iters}

    def learn_from(self, batch: SampleBatch, **rates: float) -> dict[str, Any]:
        stats = super().learn_from(batch, **rates)
        if self.penalty_multiplier is not None:
            # J(m) = -m (R - d), which is descended in log m.
            excess = stats["cql_penalty"] - self.config.lagrangian_thresh
            self.penalty_multiplier.update(-excess * self.multiplier, rates["critic_lr"])
        return {**stats, "penalty_multiplier": self.multiplier}


class CQL(SAC):
    """Conservative Q-learning."""

    config_class = CQLConfig
    trainee_class = CQLTrainee
    trains_several = False
    reported_stats = (*SAC.reported_stats, "cql_penalty", "mean_q_drawn", "penalty_multiplier")
