"""A loss of which some updates move the value alone, and leave the policy as it is."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from rllib.losses.loss import LossAround

# Name, among the settings of the loss, of the factor of the policy's gradient: 0 or 1.
ACTOR_FACTOR = "actor_factor"


@dataclass(frozen=True)
class ActorWarmupLoss(LossAround):
    """The loss of an actor-critic whose gradient with respect to the policy's outputs is multiplied by ACTOR_FACTOR.

    Args:
        loss: loss of outputs for the action distribution and for the value.
    """

    @property
    def numpy(self):
        """The closed form; None where the loss has none."""
        return self._gradients if self.loss.numpy is not None else None

    def _gradients(self, distribution, outputs, minibatch, **settings):
        factor = np.float32(settings.pop(ACTOR_FACTOR))
        statistics, gradients, *of_rows = self.loss.numpy(distribution, outputs, minibatch, **settings)
        return statistics, (gradients[0] * factor, *gradients[1:]), *of_rows

    def torch(self, distribution, outputs, minibatch: Mapping, **settings):
        """The loss with its graph, and statistics; see Loss."""
        factor, (dist_inputs, *others) = settings.pop(ACTOR_FACTOR), outputs
        # A sum, since recorded CUDA graphs have no branches.
        moved = factor * dist_inputs + (1 - factor) * dist_inputs.detach()
        return self.loss.torch(distribution, (moved, *others), minibatch, **settings)
