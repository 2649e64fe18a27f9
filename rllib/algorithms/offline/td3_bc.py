"""TD3+BC (Fujimoto and Gu, arXiv:2106.06860): TD3 whose actor stays close to recorded actions.

The actor climbs the first critic's value, which is scaled by its own size, and is drawn to the recorded action of each
row. `alpha` weighs the value against that; it may be a schedule over the rows trained on, for learning that continues
in the environment after the data. Observations are normalised by the data, as in the paper.
"""

from typing import Annotated, Any, ClassVar, Self

from rllib.algorithms.td3 import TD3, DDPGTrainee, TD3Config
from rllib.config.sections import at_least, section
from rllib.losses.deterministic import cloning_actor_loss
from rllib.losses.loss import LossOverModules
from rllib.replay.replay_settings import SequenceReplaySettings


class TD3BCConfig(TD3Config):
    """Settings of TD3+BC; the defaults are the paper's."""

    needs_data: ClassVar[bool] = True
    reads_images: ClassVar[bool] = False

    @section
    def offline_data(self, *, normalize_observations=True) -> Self: ...

    @section
    def training(
        self,
        *,
        lr=3e-4,
        train_batch_size=256,
        model={"fcnet_hiddens": [256, 256], "fcnet_activation": "relu"},  # noqa: B006
        alpha: Annotated[float | list, "weight of the critic's value, or a schedule of it", at_least(0)] = 2.5,
        num_steps_sampled_before_learning_starts=0,
        replay_buffer_config=SequenceReplaySettings.defaults(type="MultiAgentReplayBuffer"),
    ) -> Self: ...


class TD3BCTrainee(DDPGTrainee):
    """A policy that learns by TD3+BC."""

    def actor_loss(self) -> LossOverModules:
        return cloning_actor_loss(self.config.l2_reg)

    def actor_settings(self) -> dict[str, Any]:
        return self.scheduled("alpha")


class TD3BC(TD3):
    """TD3 with behaviour cloning."""

    config_class = TD3BCConfig
    trainee_class = TD3BCTrainee
    trains_several = False
    reported_stats = (*TD3.reported_stats, "bc_loss")
