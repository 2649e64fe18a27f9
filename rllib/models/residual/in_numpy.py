"""Networks of residual blocks in numpy: a policy's acts, and simba's learn as well; of the others the torch ones do."""

import functools

import numpy as np

from rllib.models.arithmetic.buffers import BuffersByRows
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
from rllib.models.residual.passes import Passes

_SHIFT = np.float32(SHIFT)


class ResidualNetwork:
    """Computes distribution inputs of encoded observations [B, num_inputs + 1]; methods as in NumpyNetwork.

    Features are feature-major, [width, B]. There is no value.

    Args:
        layout: where the parameters lie; of one network, where it acts.
        weights: flat float32 [layout.size]; the network reads this very memory.

    Attributes:
        weights: the trained part of these.
        closed_form: whether there are gradients.
    """

    gives_values = False

    def __init__(self, layout: ResidualLayout, weights: np.ndarray):
        check_weights(layout, weights)
        self.layout, self.closed_form = layout, layout.residual.has_closed_form
        # Acting between the passes of an update must not overwrite what these keep.
        self._training, self._acting = (
            BuffersByRows(lambda rows: Passes(layout, weights, self.gradient, rows)) for _ in range(2)
        )
        self.weights, mean, variance = layout.split(weights)
        self._mean, self._variance = mean[:, None], variance[:, None]
        self._running = {
            name: (row[0][:, None], layout.of_norms(variance)[name][0][:, None])
            for name, row in layout.of_norms(mean).items()
        }
        self._epsilon = BATCH_EPSILON.get(layout.residual.name, 0.0)
        blocks = {name: block[0] for name, block in layout.trained.blocks(self.weights).items()}
        # Matrices [outputs, inputs], vectors [width, 1].
        self._parts = {name: part.T if part.ndim == 2 else part[:, None] for name, part in blocks.items()}
        self._factors = {
            name: np.float32(layout.trained.scale_factor(name)) for name in blocks if name.endswith("scale")
        }

    # Made when it is needed, as in NumpyNetwork.
    @functools.cached_property
    def gradient(self) -> np.ndarray:
        """The newest gradient with respect to `weights`."""
        return np.zeros(len(self.weights), np.float32)

    def forward(self, inputs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Distribution inputs [B, K], and no values [0]; remembers what `backward` needs."""
        dist_inputs = self.all_outputs(inputs).T if self.closed_form else self.forward_policy(inputs)
        return dist_inputs, np.empty(0, np.float32)

    def backward(self, gradients: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
        return self.weight_gradient(gradients[0].T)

    def all_outputs(self, inputs: np.ndarray) -> np.ndarray:
        return self._training[len(inputs)].outputs_of(inputs)

    def weight_gradient(self, d_outputs: np.ndarray) -> np.ndarray:
        self._training[d_outputs.shape[1]].weight_gradient(d_outputs)
        return self.gradient

    def input_gradient(self, d_outputs: np.ndarray, which: slice) -> np.ndarray:
        return self._training[d_outputs.shape[1]].input_gradient(d_outputs, which)

    def forward_policy(self, inputs: np.ndarray, values: None = None) -> np.ndarray:
        """Distribution inputs [B, K]."""
        if self.closed_form:
            return self._acting[len(inputs)].outputs_of(inputs).T
        of_network = self._batch_normalized if self.layout.residual.is_by_batch else self._spherical
        return np.concatenate(of_network(inputs.T[:-1])).T

    def _spherical(self, x: np.ndarray) -> list[np.ndarray]:
        x = (x - self._mean) / np.sqrt(self._variance + np.float32(EPSILON))
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


def _of_length_1(x: np.ndarray) -> np.ndarray:
    return x / np.maximum(np.sqrt(np.square(x).sum(0)), np.float32(LEAST_LENGTH))
