"""A policy's network of residual blocks in numpy, for acting; the torch network learns."""

import numpy as np

from rllib.models.arithmetic.layer_norm import EPSILON as NORM_EPSILON
from rllib.models.dense.in_numpy import check_weights
from rllib.models.residual.layout import (
    BATCH_EPSILON,
    EPSILON,
    FLASH_SAC,
    LEAST_LENGTH,
    RMS_EPSILON,
    SHIFT,
    ResidualLayout,
)

_SHIFT = np.float32(SHIFT)


class ResidualNetwork:
    """Computes distribution inputs of encoded observations [B, num_inputs + 1]; methods as in NumpyNetwork.

    Features are feature-major, [width, B].

    Args:
        layout: where the parameters lie, of one network.
        weights: flat float32 [layout.size]; the network reads this very memory.
    """

    # There is no `backward`, and no value.
    closed_form = False
    gives_values = False

    def __init__(self, layout: ResidualLayout, weights: np.ndarray):
        check_weights(layout, weights)
        self.layout = layout
        trained, mean, variance = layout.split(weights)
        self._mean, self._variance = mean[:, None], variance[:, None]
        self._running = {
            name: (row[0][:, None], layout.of_norms(variance)[name][0][:, None])
            for name, row in layout.of_norms(mean).items()
        }
        self._epsilon = BATCH_EPSILON.get(layout.residual.name, 0.0)
        blocks = {name: block[0] for name, block in layout.trained.blocks(trained).items()}
        # Matrices [outputs, inputs], vectors [width, 1].
        self._parts = {name: part.T if part.ndim == 2 else part[:, None] for name, part in blocks.items()}
        self._factors = {
            name: np.float32(layout.trained.scale_factor(name)) for name in blocks if name.endswith("scale")
        }

    def forward(self, inputs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Distribution inputs [B, K], and no values [0]."""
        return self.forward_policy(inputs), np.empty(0, np.float32)

    def forward_policy(self, inputs: np.ndarray, values: None = None) -> np.ndarray:
        """Distribution inputs [B, K]."""
        if self.layout.residual.is_by_batch:
            return np.concatenate(self._batch_normalized(inputs.T[:-1])).T
        x = (inputs.T[:-1] - self._mean) / np.sqrt(self._variance + np.float32(EPSILON))
        of_network = self._spherical if self.layout.residual.is_spherical else self._normalized
        return np.concatenate(of_network(x)).T

    def _normalized(self, x: np.ndarray) -> list[np.ndarray]:
        x = self._affine("embed", x)
        for index in range(self.layout.residual.num_blocks):
            block = f"block_{index}"
            hidden = self._affine(f"{block}.up", self._norm(f"{block}.norm", x))
            x = x + self._affine(f"{block}.down", np.maximum(hidden, 0, out=hidden))
        x = self._norm("norm", x)
        return [self._affine(f"head_{index}", x) for index in range(len(self.layout.heads))]

    def _spherical(self, x: np.ndarray) -> list[np.ndarray]:
        x = _of_length_1(np.concatenate([x, np.full((1, x.shape[1]), _SHIFT)]))
        x = _of_length_1(self._scaled("embed", self._product("embed", x)))
        for index in range(self.layout.residual.num_blocks):
            block = f"block_{index}"
            hidden = self._scaled(f"{block}.up", self._product(f"{block}.up", x))
            np.maximum(hidden, 0, out=hidden)
            hidden += np.float32(LEAST_LENGTH)
            following = _of_length_1(self._product(f"{block}.down", hidden))
            x = _of_length_1(x + self._scaled(f"{block}.rate", following - x))
        found = []
        for index in range(len(self.layout.heads)):
            hidden = self._scaled(f"head_{index}_hidden", self._product(f"head_{index}_hidden", x))
            found.append(self._affine(f"head_{index}", hidden))
        return found

    def _batch_normalized(self, x: np.ndarray) -> list[np.ndarray]:
        residual, norm = self.layout.residual, self._norm_of_batches
        x = norm("embed_norm", x)
        if residual.name == FLASH_SAC:
            x = self._product("embed", x)
            for index in range(residual.num_blocks):
                block = f"block_{index}"
                hidden = np.maximum(norm(f"{block}.up_norm", self._product(f"{block}.up", x)), 0)
                x = x + np.maximum(norm(f"{block}.down_norm", self._product(f"{block}.down", hidden)), 0)
            x = x / np.sqrt(np.square(x).mean(0) + np.float32(RMS_EPSILON)) * self._parts["norm.weight"]
        else:
            for index in range(residual.num_blocks):
                x = np.maximum(norm(f"layer_{index}_norm", self._product(f"layer_{index}", x)), 0)
        return [self._affine(f"head_{index}", x) for index in range(len(self.layout.heads))]

    def _norm_of_batches(self, name: str, x: np.ndarray) -> np.ndarray:
        """Normalisation by the running statistics of batches."""
        mean, variance = self._running[name]
        scale = self._parts[f"{name}.weight"] / np.sqrt(variance + np.float32(self._epsilon))
        return (x - mean) * scale + self._parts[f"{name}.bias"]

    def _product(self, name: str, x: np.ndarray) -> np.ndarray:
        return np.dot(self._parts[f"{name}.weight"], x)

    def _affine(self, name: str, x: np.ndarray) -> np.ndarray:
        found = self._product(name, x)
        found += self._parts[f"{name}.bias"]
        return found

    def _scaled(self, name: str, x: np.ndarray) -> np.ndarray:
        return x * (self._factors[f"{name}.scale"] * self._parts[f"{name}.scale"])

    def _norm(self, name: str, x: np.ndarray) -> np.ndarray:
        centered = x - x.mean(0)
        centered /= np.sqrt(np.square(centered).mean(0) + np.float32(NORM_EPSILON))
        return centered * self._parts[f"{name}.weight"] + self._parts[f"{name}.bias"]


def _of_length_1(x: np.ndarray) -> np.ndarray:
    return x / np.maximum(np.sqrt(np.square(x).sum(0)), np.float32(LEAST_LENGTH))
