"""AWAC: advantage-weighted actor-critic (Nair et al., arXiv:2006.09359).

The critics evaluate the policy's next actions, as SAC's do without entropy. The actor imitates recorded actions, with a
weight that grows with their advantage over one of its own actions. The algorithm is made to continue in the
environment: learn from the data first, then from a mixture, input_={"sampler": 0.5, PATH: 0.5}. Losses are in
losses/offline/awac.py.
"""

from typing import Annotated, Self

from rllib.algorithms.offline.weighted_cloning import CloningTrainee, WeightedCloning, WeightedCloningConfig
from rllib.config.sections import above, section
from rllib.losses.loss import LossOverModules
from rllib.losses.offline import awac
from rllib.losses.sac import NEXT_NOISE, NOISE
from rllib.sample_batch import SampleBatch


class AWACConfig(WeightedCloningConfig):
    """Settings of AWAC; the defaults are the paper's."""

    @section
    def training(
        self,
        *,
        train_batch_size=1024,
        temperature: Annotated[
            float, "lambda: advantages are divided by it; small values imitate the best alone", above(0, finite=True)
        ] = 1.0,
    ) -> Self: ...


class AWACTrainee(CloningTrainee):
    """A policy that learns by AWAC."""

    def critic_loss(self) -> LossOverModules:
        return awac.DISCRETE_CRITIC_LOSS if self.is_discrete else awac.CRITIC_LOSS

    def actor_loss(self) -> LossOverModules:
        make = awac.discrete_actor_loss if self.is_discrete else awac.actor_loss
        return make(self.config.temperature)

    def add_noise(self, batch: SampleBatch, rows: int) -> None:
        if not self.is_discrete:
            batch[NOISE], batch[NEXT_NOISE] = (self.normal_noise(rows) for _ in range(2))


class AWAC(WeightedCloning):
    """Advantage-weighted actor-critic."""

    config_class = AWACConfig
    trainee_class = AWACTrainee
    reported_stats = (*WeightedCloning.reported_stats, "mean_weight")
