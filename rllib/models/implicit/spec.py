"""Implicit quantile networks (Dabney et al., arXiv:1806.06923): quantiles of the return at levels that are drawn anew.

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

from rllib.models.dense.layout import LayersLayout, Layout, weight_and_bias
from rllib.storage.json_dataclass import Described


@dataclass(frozen=True)
class ImplicitQuantiles(Described):
    """Sizes by which a network of action values becomes an implicit quantile network.

    Attributes:
        count: number of levels at a time.
        num_cosines: n, numbers by which a level is encoded.
        layers_behind: number of last hidden layers that stand behind the product.
    """

    kind: ClassVar[str] = "implicit_quantiles"
    count: int
    num_cosines: int
    layers_behind: int

    def layout(self, num_inputs: int, hiddens: tuple[int, ...], outputs: int, layer_norm: bool, torso, head_bias: bool):
        """The layout of a network with these hidden layers and outputs for each level."""
        before, behind = self.split(hiddens)
        width = (before or behind or (self.num_cosines,))[-1 if before else 0]
        return ImplicitLayout(
            LayersLayout(num_inputs, before, {"policy": width}, layer_norm=layer_norm, torso=torso),
            self.num_cosines,
            LayersLayout(width, behind, {"policy": outputs}, layer_norm=layer_norm, head_bias=head_bias),
        )

    def split(self, of_layers: tuple) -> tuple[tuple, tuple]:
        """Parts of `of_layers`, which has an item for each hidden layer: before the product, and behind it."""
        cut = len(of_layers) - self.layers_behind
        return of_layers[:cut], of_layers[cut:]


class ImplicitLayout(Layout):
    """Layout of the layers before the product, of the level's features, and of the layers behind the product.

    Args:
        before: with psi as its head.
        num_cosines: numbers by which a level is encoded.
        behind: reads the product.
    """

    def __init__(self, before: LayersLayout, num_cosines: int, behind: LayersLayout):
        super().__init__(
            {"before": (before.size,), "levels": (num_cosines + 1, behind.num_inputs), "behind": (behind.size,)}
        )
        self.before, self.num_cosines, self.behind, self.torso = before, num_cosines, behind, before.torso

    def parts(self, flat) -> tuple:
        """Views of `flat` [size]: of the first layers [...], of phi [num_cosines + 1, width], of the last layers."""
        blocks = self.blocks(flat)
        return blocks["before"], blocks["levels"], blocks["behind"]

    def named_parameters(self, flat) -> dict:
        """Parameter name -> view of `flat`, as in LayersLayout, with prefixes."""
        before, levels, behind = self.parts(flat)
        first = {f"features.{name}": part for name, part in self.before.named_parameters(before).items()}
        return first | weight_and_bias("levels", levels) | self.behind.named_parameters(behind)


def middles(count: int) -> np.ndarray:
    """The levels (j + 1/2) / count, float32."""
    return (np.arange(count, dtype=np.float32) + np.float32(0.5)) / np.float32(count)


def drawn_levels(rng: np.random.Generator, count: int) -> np.ndarray:
    """A level uniform in each of `count` strata, float32."""
    return (np.arange(count, dtype=np.float32) + rng.random(count, dtype=np.float32)) / np.float32(count)


def frequencies(num_cosines: int) -> np.ndarray:
    """pi i for i = 0 ... num_cosines - 1, float32."""
    return np.float32(np.pi) * np.arange(num_cosines, dtype=np.float32)
