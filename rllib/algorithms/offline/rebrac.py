"""ReBRAC (Tarasov et al., arXiv:2305.09836): TD3+BC with its own weight for the actor and for the critics.

The actor is drawn to the recorded action, and targets are lowered by the distance of the target action from the action
that was recorded next. The actor climbs the smaller of two critics, whose layers are normalised. The best weights of
data sets differ by factors of 10 to 100: the paper searches `actor_bc_weight` in 0.001 to 0.1 and `critic_bc_weight` in
0 to 0.5.

The last recorded step of an episode that was cut has no action after it; its own stands in for it.
"""

import dataclasses
from typing import Annotated, ClassVar, Self

import numpy as np

from rllib.algorithms.base.recorded.data import learned_rewards
from rllib.algorithms.base.recorded.settings import SAMPLER
from rllib.algorithms.td3 import TD3, DDPGTrainee, TD3Config
from rllib.config.config_object import relation
from rllib.config.conflicts import Mistake
from rllib.config.sections import at_least, section
from rllib.evaluation.offline.rows import transitions
from rllib.losses.deterministic import critic_loss, regularised_actor_loss
from rllib.losses.loss import LossOverModules
from rllib.offline.dataset import Dataset
from rllib.replay.replay_settings import SequenceReplaySettings
from rllib.sample_batch import ACTIONS, NEXT_ACTIONS, Column


class ReBRACConfig(TD3Config):
    """Settings of ReBRAC; layers, batch and rates are the paper's for tasks of locomotion."""

    needs_data: ClassVar[bool] = True
    reads_images: ClassVar[bool] = False

    @section
    def training(
        self,
        *,
        lr=1e-3,
        train_batch_size=1024,
        model={"fcnet_hiddens": [256, 256, 256], "fcnet_activation": "relu"},  # noqa: B006
        q_model_config={"layer_norm": True},  # noqa: B006
        actor_bc_weight: Annotated[
            float, "beta_1: weight of the actor's squared distance from recorded actions", at_least(0)
        ] = 0.01,
        critic_bc_weight: Annotated[
            float, "beta_2: what the squared distance from the next recorded action takes off a target", at_least(0)
        ] = 0.01,
        num_steps_sampled_before_learning_starts=0,
        replay_buffer_config=SequenceReplaySettings.defaults(type="MultiAgentReplayBuffer"),
    ) -> Self: ...

    @relation("input_")
    def _check_mixture(self):
        """`input_` has recorded steps alone."""
        if SAMPLER in self.shares():
            recorded = [source for source in self.shares() if source != SAMPLER]
            return Mistake(
                f"input_={self.input_!r}: ReBRAC learns from recorded steps alone, whose next actions its targets "
                "read.",
                ("input_",),
                ({"input_": dict.fromkeys(recorded, 1 / len(recorded))},) if recorded else (),
                'Leave "sampler" out, or use TD3BC.',
            )
        return None


class ReBRACTrainee(DDPGTrainee):
    """A policy that learns by ReBRAC."""

    def critic_loss(self) -> LossOverModules:
        config = self.config
        threshold = config.huber_threshold if config.use_huber else None
        return critic_loss(config.smooth_target_policy, config.l2_reg, threshold, config.critic_bc_weight)

    def actor_loss(self) -> LossOverModules:
        return regularised_actor_loss(self.config.actor_bc_weight, self.config.l2_reg)

    def replay_columns(self) -> tuple[Column, ...]:
        columns = super().replay_columns()
        (actions,) = (column for column in columns if column.name == ACTIONS)
        return (*columns, dataclasses.replace(actions, name=NEXT_ACTIONS))

    def recorded_columns(self, dataset: Dataset) -> dict[str, np.ndarray]:
        config = self.config
        rows = self.policy, config, learned_rewards(dataset, config), config.gamma, config.n_step
        return transitions(dataset, *rows, with_next_actions=True)


class ReBRAC(TD3):
    """TD3 whose actor and targets stay close to recorded actions."""

    config_class = ReBRACConfig
    trainee_class = ReBRACTrainee
    trains_several = False
    reported_stats = (*TD3.reported_stats, "bc_loss")
