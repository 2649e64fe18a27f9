"""CQL: conservative Q-learning (Kumar et al., arXiv:2006.04779), on soft actor-critic.

SAC whose critics are kept from valuing actions that the data does not have (losses/offline/cql.py). For the first
`bc_iters` updates the actor imitates the data while the critics learn. With `lagrangian` the weight of the penalty is
adapted so that it stays near `lagrangian_thresh`.

Departures from RLlib: uniform actions are drawn in [-1, 1] for any bounds of the action space, in the units that the
critics read, and have the density of that box; the target copies move with every update.

For Discrete actions use DQN with `conservative_weight`.
"""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Self

import numpy as np

from rllib.algorithms.base.from_checkpoint import file_of
from rllib.algorithms.sac import SAC, SACConfig, Temperature
from rllib.config.sections import above, at_least, only_with, section
from rllib.losses.loss import LossOverModules
from rllib.losses.offline import cql
from rllib.replay.replay_settings import SequenceReplaySettings
from rllib.sample_batch import DEFAULT_POLICY, SampleBatch

MULTIPLIER_FILE = "multiplier.safetensors"
# Largest multiplier of the penalty.
MOST_MULTIPLIER = 1e6


class CQLConfig(SACConfig):
    """Settings of CQL; the defaults are RLlib's, except those in departures.py."""

    needs_data: ClassVar[bool] = True
    reads_images: ClassVar[bool] = False
    takes_choices: ClassVar[bool] = False
    for_other_actions: ClassVar[str] = "DQN with .training(conservative_weight=1.0) for Discrete actions"
    refuses: ClassVar[dict[str, str]] = {
        "num_atoms": "CQL's penalty is of expected returns; atoms are for SAC's critics",
        "target_critics_sampled": "CQL has targets of its own; SAC's take the least value",
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


class CQL(SAC):
    """Conservative Q-learning.

    Attributes:
        multipliers: id of a policy that learns -> the multiplier of its penalty, with `lagrangian`.
    """

    config_class = CQLConfig
    trains_several = False
    reported_stats = (*SAC.reported_stats, "cql_penalty", "mean_q_drawn", "penalty_multiplier")

    def setup(self) -> None:
        self.multipliers: dict[str, Temperature] = {}
        super().setup()

    def prepare_policy(self, policy_id: str) -> None:
        super().prepare_policy(policy_id)
        config = self.config_of(policy_id)
        if config.lagrangian:
            # It grows while the penalty is above the threshold, as a temperature does while entropy is below its own.
            self.multipliers[policy_id] = Temperature(1.0, 0.0, self._optimizer_settings(config))

    def end_training(self, policy_id: str) -> None:
        super().end_training(policy_id)
        self.multipliers.pop(policy_id, None)

    def critic_loss(self, policy_id: str) -> LossOverModules:
        config = self.config_of(policy_id)
        return cql.critic_loss(config.temperature, config.min_q_weight, config.deterministic_backup)

    def actor_loss(self, policy_id: str) -> LossOverModules:
        return cql.CONSERVATIVE_ACTOR_LOSS

    def add_noise(self, batch: SampleBatch, rows: int, policy_id: str) -> None:
        super().add_noise(batch, rows, policy_id)
        count, size = self.config_of(policy_id).num_actions, self.policies[policy_id].distribution.size
        rng = self.learner_rng(policy_id)
        batch[cql.UNIFORM] = rng.uniform(-1, 1, (rows, count, size)).astype(np.float32)
        for name in (cql.DRAWS, cql.NEXT_DRAWS):
            batch[name] = rng.standard_normal((rows, count, size), np.float32)

    def multiplier(self, policy_id: str) -> float:
        """Present multiplier of a policy's penalty."""
        own = self.multipliers.get(policy_id)
        return 1.0 if own is None else min(own.alpha, MOST_MULTIPLIER)

    def critic_settings(self, policy_id: str) -> dict[str, Any]:
        limit = self.config_of(policy_id).lagrangian_thresh if policy_id in self.multipliers else 0.0
        return {**super().critic_settings(policy_id), "multiplier": self.multiplier(policy_id), "limit": limit}

    def actor_settings(self, policy_id: str) -> dict[str, Any]:
        clones = self._critic_updates[policy_id] <= self.config_of(policy_id).bc_iters
        return {"alpha": self.temperatures[policy_id].alpha, "clones": clones}

    def learn_from(
        self, batch: SampleBatch, policy_id: str = DEFAULT_POLICY, *, rates: Mapping[str, float]
    ) -> dict[str, Any]:
        stats = super().learn_from(batch, policy_id, rates=rates)
        if (own := self.multipliers.get(policy_id)) is not None:
            # J(m) = -m (R - d), which is descended in log m.
            excess = stats["cql_penalty"] - self.config_of(policy_id).lagrangian_thresh
            own.update(-excess * self.multiplier(policy_id), rates["critic_lr"])
        return {**stats, "penalty_multiplier": self.multiplier(policy_id)}

    # ------------------------------------------------------------------ checkpoints

    def get_state(self) -> dict[str, Any]:
        own = {file_of(policy_id, MULTIPLIER_FILE): each.get_state() for policy_id, each in self.multipliers.items()}
        return super().get_state() | own

    def set_state(self, state: dict[str, Any]) -> None:
        super().set_state(state)
        for policy_id, multiplier in self.multipliers.items():
            multiplier.set_state(state[file_of(policy_id, MULTIPLIER_FILE)])
