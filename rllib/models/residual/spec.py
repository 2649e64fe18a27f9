"""Networks of residual blocks for actors and critics.

`simba` is SimBa's (Lee et al., arXiv:2410.09754, section 4): with features x of a width d,

    x = W o + b,    x <- x + W2 relu(W1 LN(x) + b1) + b2 in each block,    heads read LN(x)

`simbav2` is SimbaV2's (Lee et al., arXiv:2502.15280, section 4), whose features have length 1. With N(x) = x / |x|,
elementwise products * with learned scales s and learned rates a,

    x = N(s * W N([o, 3])),    x <- N(x + a * (N(W2 relu(s1 * W1 x)) - x)) in each block,    heads are W2 (s * W1 x) + b

The columns of its matrices (the weights of one unit) have length 1, and are brought back to it after each step.

`xqc` is XQC's (Palenicek et al., arXiv:2509.25174, section 4), layers without residual connections; `flashsac` is
FlashSAC's (arXiv:2604.04539), whose blocks are sums again. With B, batch normalisation with learned scales and shifts,

    x = B o,        x <- relu(B W x) in each block,                                 heads are W x + b      (xqc)
    x = W B o,      x <- x + relu(B W2 relu(B W1 x)) in each block,                 heads are W R x + b    (flashsac)

and R x = scale * x / sqrt(mean x^2 + 1e-6). The columns of all matrices have length 1. In flashsac the scales and
shifts of a normalisation together have the square root of their number, and so has the scale of R. All are brought back
to it after each step. Learning normalises by the rows of a batch, acting by the running statistics of batches.

In all but xqc W1 has 4 d outputs. In simba and simbav2 the observation part of o is normalised by running statistics of
all observations so far: (o - mean) / sqrt(variance + 1e-8). Running statistics of all four are not trained, and lie
behind the trained parameters in the flat vector, so that they go wherever weights go: to workers, devices, checkpoints
and exported policies.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from rllib.config.conflicts import Unfit
from rllib.models.dense.network_spec import Architecture, Found, NetworkSpec
from rllib.models.distributions.standard import DiagGaussian
from rllib.models.residual.in_numpy import ResidualNetwork
from rllib.models.residual.layout import Blocks, ResidualLayout


@dataclass(frozen=True)
class Residual(Blocks, Architecture):
    """An actor of residual blocks."""

    kind: ClassVar[str] = "residual"
    has_layers: ClassVar[bool] = False

    @classmethod
    def of_settings(cls, settings: Mapping[str, Any]) -> "Residual | None":
        if settings.network is None:
            return None
        return cls(settings.network, settings.fcnet_hiddens[0], len(settings.fcnet_hiddens))

    def problem(self, found: Found) -> Unfit | None:
        network, plain = f"model={{'network': {self.name!r}}}", {"model": {"network": None}}
        if found.has_value:
            return Unfit(
                f"{network} is for the actor and the critics of SAC, TQC, TD3 and DDPG.", "Leave it out.", plain
            )
        if found.has_images:
            return Unfit(
                f"{network} reads vectors, but {found.space} asks for convolutions.",
                "Leave it out, or set 'conv_filters': [] for images that are small enough to be read flat.",
                plain,
                {"model": {"conv_filters": []}},
            )
        if found.is_masked:
            return Unfit(
                f"{network} normalises all that it observes, and {found.space} has an action mask.",
                "Leave it out, or use .environment(action_mask_key=None) for a key that is none.",
                plain,
                {"action_mask_key": None},
            )
        if found.is_filtered:
            return Unfit(
                f"{network} normalises observations itself, by statistics that rows in the replay follow, too.",
                "Use .rollouts(observation_filter='NoFilter').",
                {"observation_filter": "NoFilter"},
                plain,
            )
        return None

    def layout(self, spec: NetworkSpec) -> ResidualLayout:
        size, count = spec.distribution.size, spec.distribution.num_inputs
        heads = (size, size) if isinstance(spec.distribution, DiagGaussian) else (count,)
        return ResidualLayout(self, spec.num_inputs, 0, heads, ("policy",))

    def initialize(
        self, spec: NetworkSpec, layout: ResidualLayout, weights: np.ndarray, rng: np.random.Generator
    ) -> None:
        layout.initialize(weights, rng)

    def network(self, spec: NetworkSpec, layout: ResidualLayout, weights: np.ndarray) -> ResidualNetwork:
        return ResidualNetwork(layout, weights)

    def torch(self, spec: NetworkSpec, layout: ResidualLayout, flat, acting):
        from rllib.models.residual.in_torch import ResidualPolicy

        return ResidualPolicy(layout, flat)
