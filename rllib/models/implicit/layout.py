"""Layout of the parameters of implicit quantile networks (spec.py), and the levels of quantiles."""

import numpy as np

from rllib.models.dense.layout import LayersLayout, Layout, weight_and_bias


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
