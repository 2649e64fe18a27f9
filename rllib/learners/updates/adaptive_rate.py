"""A learning rate that follows the KL divergence of the policy, step by step.

The rule is the default of robotics' PPOs (Rudin et al., arXiv:2109.11978, and their library rsl_rl): before each
gradient step, KL(old || new) of its minibatch is compared with the desired one, where "old" sampled the batch:

    rate <- max(rate / 1.5, min_lr)    if KL > 2 desired_kl
            min(rate * 1.5, max_lr)    if KL < desired_kl / 2

skrl adapts the rate once an epoch by the mean over its minibatches, with a min_lr of 1e-6. Here the first minibatch of
an update does not adapt the rate, since the weights have not changed yet.
"""

import dataclasses
import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

FACTOR, MARGIN = 1.5, 2.0


@dataclass(frozen=True)
class AdaptiveRate:
    """The initial rate, its bounds, and the KL divergence that it aims at.

    Attributes:
        initial: rate of the first step.
        desired_kl: mean KL(old || new) of a minibatch (nats) that the rate aims at.
        min_lr, max_lr: bounds of the rate.
        index: index of the KL among the statistics of a step; `reading` sets it.
    """

    initial: float
    desired_kl: float
    min_lr: float = 1e-5
    max_lr: float = 1e-2
    index: int = -1

    @classmethod
    def from_setting(cls, value: Any) -> Self | None:
        """The rate of a setting {"type": "kl_adaptive", ...} (schedules.py); None for other values."""
        if not isinstance(value, Mapping) or value.get("type") != "kl_adaptive":
            return None
        return cls(**{name: float(number) for name, number in value.items() if name != "type"})

    def reading(self, stats: Sequence[str]) -> Self:
        """A copy for steps with statistics of these names, which finds the KL among them.

        Raises:
            ValueError: if "kl" is not among the names.
        """
        if "kl" not in stats:
            raise ValueError(f"a learning rate that follows the KL needs a loss with the statistic kl, not {stats}")
        return dataclasses.replace(self, index=stats.index("kl"))

    def at(self, rate: float) -> Self:
        """A copy with another initial rate."""
        return dataclasses.replace(self, initial=rate)

    def adapted(self, rate: float, kl: float) -> float:
        """The rate for a minibatch with this KL, if the previous step had `rate`."""
        if kl > MARGIN * self.desired_kl:
            return max(rate / FACTOR, self.min_lr)
        if kl < self.desired_kl / MARGIN:
            return min(rate * FACTOR, self.max_lr)
        return rate

    def adapted_on_device(self, rate, kl):
        """`adapted` of tensors with one number each, without waiting for the device."""
        smaller = (rate / FACTOR).clamp(min=self.min_lr)
        larger = (rate * FACTOR).clamp(max=self.max_lr)
        return smaller.where(kl > MARGIN * self.desired_kl, larger.where(kl < self.desired_kl / MARGIN, rate))

    def after(self, steps: Iterable[Sequence[float] | np.ndarray]) -> float:
        """The rate after the steps of an update, from the statistics of each."""
        _, *later = [float(step[self.index]) for step in steps] or [0.0]
        return functools.reduce(self.adapted, later, self.initial)
