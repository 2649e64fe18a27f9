"""Implicit quantile networks (Dabney et al., arXiv:1806.06923): quantiles of the return at random levels.

Features psi of the observation are multiplied by features phi of a level tau, number by number, and what stands behind
the product computes a quantile for each action:

    phi(tau) = relu(b + sum over i = 0 ... n - 1 of  w_i cos(pi i tau)),    Z_tau = f(psi(x) * phi(tau))

psi are the hidden layers before the product and a linear layer behind them; f are the hidden layers behind it and the
head. A network keeps `count` levels, which all rows of a pass share, one in each of as many strata of 0 ... 1: the mean
over them is that over independent ones, with less variance. Without noise they are the middles of the strata.

The network's outputs are those of QValues with as many atoms, and then the levels.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from rllib.models.dense.in_numpy import NumpyNetwork
from rllib.models.dense.layout import LayersLayout
from rllib.models.dense.network_spec import Architecture, NetworkSpec
from rllib.models.dense.torso_in_numpy import ConvolutionalNetwork
from rllib.models.implicit.in_numpy import ImplicitNetwork
from rllib.models.implicit.layout import ImplicitLayout


@dataclass(frozen=True)
class ImplicitQuantiles(Architecture):
    """Sizes by which a network of action values becomes an implicit quantile network.

    Attributes:
        count: number of levels at a time.
        num_cosines: n, numbers by which a level is encoded.
        layers_behind: number of last hidden layers that stand behind the product.
    """

    kind: ClassVar[str] = "implicit_quantiles"
    has_noise: ClassVar[bool] = True

    count: int
    num_cosines: int
    layers_behind: int

    def split(self, of_layers: tuple) -> tuple[tuple, tuple]:
        """Parts of `of_layers`, which has an item for each hidden layer: before the product, and behind it."""
        cut = len(of_layers) - self.layers_behind
        return of_layers[:cut], of_layers[cut:]

    def layout(self, spec: NetworkSpec) -> ImplicitLayout:
        before, behind = self.split(spec.hiddens)
        width = (before or behind or (self.num_cosines,))[-1 if before else 0]
        # The levels are outputs, too.
        outputs = spec.heads["policy"] // self.count - 1
        return ImplicitLayout(
            LayersLayout(spec.num_features, before, {"policy": width}, layer_norm=spec.layer_norm, torso=spec.torso),
            self.num_cosines,
            LayersLayout(width, behind, {"policy": outputs}, layer_norm=spec.layer_norm, head_bias=spec.head_bias),
        )

    def noisy_part(self, layout: ImplicitLayout) -> LayersLayout:
        return layout.behind

    def network(self, spec: NetworkSpec, layout: ImplicitLayout, weights: np.ndarray) -> ImplicitNetwork:
        before, behind = self.split(spec.activations)
        kind = ConvolutionalNetwork if layout.torso else NumpyNetwork
        return ImplicitNetwork(
            layout,
            lambda part, gradient: kind(layout.before, before, part, *(() if layout.torso else (gradient,))),
            lambda part, gradient: NumpyNetwork(layout.behind, behind, part, gradient),
            weights,
            self.count,
        )

    def torch(self, spec: NetworkSpec, layout: ImplicitLayout, flat, acting):
        from rllib.models.implicit.in_torch import ImplicitTorchNetwork

        return ImplicitTorchNetwork(layout, self.split(spec.activations), flat, acting, self.count)
