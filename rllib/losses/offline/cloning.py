"""Behaviour cloning added to the loss of an algorithm: minus the log-likelihood of demonstrated actions, weighted.

The demonstrated steps are columns of the batch, as many rows as it has, and the network is called a second time on
them. A Gaussian's mean is fitted and its deviation left alone, as with `bc_loss="mse"`: actions that an expert repeats
exactly would else take from it what the algorithm explores by.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from rllib.losses.loss import LossAround
from rllib.losses.offline.imitation import BehaviorCloning
from rllib.models.distributions.base import Distribution
from rllib.models.distributions.standard import DiagGaussian
from rllib.sample_batch import ACTIONS, DEMONSTRATED_ACTIONS, DEMONSTRATED_OBS

# Name of the term's weight among the settings of a loss, and of its value among the statistics.
WEIGHT, STAT = "bc_coeff", "bc_loss"


def cloning(distribution: Distribution) -> BehaviorCloning:
    """The loss of demonstrated actions: the squared distance of a Gaussian's mean, else the likelihood."""
    return BehaviorCloning(is_squared=isinstance(distribution, DiagGaussian))


@dataclass(frozen=True)
class ClonesToo(LossAround):
    """The loss of an algorithm, plus the weighted loss of demonstrated actions; in torch alone.

    Attributes:
        loss: loss of the policy's outputs.
        module: of the policy, (encoded observations) -> outputs; None: `bind` gives it.
    """

    module: Callable | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        return *self.loss.columns, DEMONSTRATED_OBS, DEMONSTRATED_ACTIONS

    @property
    def stats(self) -> tuple[str, ...]:
        return *self.loss.stats, STAT

    def bind(self, module) -> "ClonesToo":
        """The loss of this module."""
        return ClonesToo(self.loss.bind(module), module)

    def torch(self, distribution, outputs: tuple, minibatch: Mapping, **settings) -> tuple:
        """The loss with its graph, and statistics; see Loss."""
        weight = settings.pop(WEIGHT)
        loss, statistics, *of_rows = self.loss.torch(distribution, outputs, minibatch, **settings)
        demonstrated = {ACTIONS: minibatch[DEMONSTRATED_ACTIONS]}
        term, _ = cloning(distribution).torch(distribution, self.module(minibatch[DEMONSTRATED_OBS]), demonstrated)
        loss = loss + weight * term
        statistics = [*statistics, term.detach()]
        statistics[self.stats.index("total_loss")] = loss.detach()
        return loss, tuple(statistics), *of_rows
