"""The form in which learners ask for a loss (losses/loss.py), around the functions of an actor-critic's loss."""

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from rllib.sample_batch import ACTION_LOGP, ACTIONS


@dataclass(frozen=True)
class ActorCriticLoss:
    """A loss over what a network computes for the action distribution and for the value.

    Attributes:
        columns: which columns of a batch it reads.
        stats: names of its statistics.
        gradient: (distribution, dist_inputs, values, minibatch, **settings) -> statistics, d_dist_inputs, d_values.
        autograd: "module:function" of the same for autograd, -> loss, statistics; torch is loaded when it is used.
        by_newest_weights: whether the batch was sampled by the very weights that the first minibatch sees. Where it
            was not, the loss corrects for that.
    """

    columns: tuple[str, ...]
    stats: tuple[str, ...]
    gradient: Callable[..., tuple]
    autograd: str
    by_newest_weights: bool = True

    def numpy(self, distribution, outputs: tuple, minibatch: Mapping[str, np.ndarray], **settings) -> tuple:
        """See Loss.numpy."""
        statistics, d_dist_inputs, d_values = self.gradient(distribution, *outputs, minibatch, **settings)
        return statistics, (d_dist_inputs, d_values)

    def torch(self, distribution, outputs: tuple, minibatch: Mapping, **settings) -> tuple:
        """See Loss.torch."""
        module, _, function = self.autograd.partition(":")
        return getattr(importlib.import_module(module), function)(distribution, *outputs, minibatch, **settings)

    def identity_error(self, distribution, outputs: tuple, minibatch: Mapping):
        """Mean of |log ratio|: 0 but for rounding while the weights are those that acted; None if they need not be."""
        if not self.by_newest_weights:
            return None
        log_prob = distribution.at(outputs[0]).log_prob(minibatch[ACTIONS])
        return abs(log_prob - minibatch[ACTION_LOGP]).mean()
