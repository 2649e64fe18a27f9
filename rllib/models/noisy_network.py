"""Networks whose last layers have noise in their weights (Fortunato et al., arXiv:1706.10295).

A noisy layer computes with mu + sigma * noise; mu and sigma are learned. The noise is factorised (their section 3,
equations 10 and 11): f(x) f(y) with f(z) = sign(z) sqrt|z| and one normal number for each input and each output of the
layer, so that few have to be drawn; the bias has the noise of the outputs alone.

`NoisyNetwork` wraps any network on a flat vector: it computes the sum, calls the network on it, and applies the chain
rule to the gradients, d sigma = noise * d mu.
"""

import math
from dataclasses import dataclass

import numpy as np

from rllib.models.layout import ParameterLayout


@dataclass(frozen=True)
class NoisyLayout:
    """The parameters of the plain network (mu), and behind them the sigmas of the last of them.

    Attributes:
        plain: layout of the network that computes; it has a single tower.
        num_noisy: number of its last layers that are noisy, head included.
    """

    plain: ParameterLayout
    num_noisy: int

    @property
    def num_inputs(self) -> int:
        """Size of an encoded observation."""
        return self.plain.num_inputs

    @property
    def start(self) -> int:
        """Where in the plain vector the noisy layers begin."""
        return self._offsets[self._noisy_blocks[0]]

    @property
    def size(self) -> int:
        """Length of the flat vector."""
        return 2 * self.plain.size - self.start

    @property
    def _noisy_blocks(self) -> list[str]:
        matrices = [name for name in self.plain.block_shapes() if name == "head" or name.startswith("hidden_")]
        return matrices[-self.num_noisy :]

    @property
    def _offsets(self) -> dict[str, int]:
        offsets, offset = {}, 0
        for name, shape in self.plain.block_shapes().items():
            offsets[name] = offset
            offset += math.prod(shape)
        return offsets

    def named_parameters(self, flat) -> dict:
        """Those of the plain layout, and "policy.head.weight_sigma", ... for the noisy ones."""
        mu = self.plain.named_parameters(flat[: self.plain.size])
        sigma = self.plain.named_parameters(self.sigmas(flat))
        return mu | {f"{name}_sigma": sigma[name] for name in self._noisy_names()}

    def _noisy_names(self) -> list[str]:
        layers = ["policy.head" if block == "head" else f"shared.{block}" for block in self._noisy_blocks]
        return [f"{layer}.{kind}" for layer in layers for kind in ("weight", "bias")]

    def sigmas(self, flat):
        """A vector as long as the plain one, of which only the noisy layers' part is meaningful."""
        # The sigmas close the vector, so the plain vector's length counted from the end has each at its layer's place.
        return flat[len(flat) - self.plain.size :]

    def noisy_blocks(self, flat_noise) -> list:
        """Views [inputs + 1, outputs] of the noise [plain.size - start], one for each noisy layer."""
        shapes, views = self.plain.block_shapes(), []
        for name in self._noisy_blocks:
            first = self._offsets[name] - self.start
            shape = shapes[name][-2:]
            views.append(flat_noise[first : first + math.prod(shape)].reshape(shape))
        return views

    def names_where(self, bad) -> list[str]:
        """Names of the parameters in which `bad` [size] is true somewhere."""
        return [name for name, part in self.named_parameters(bad).items() if bool(part.any())]


class NoisyNetwork:
    """A policy's network on mu + sigma * noise; without noise until `resample`.

    Args:
        layout: where the parameters lie.
        make: builds the network that computes on a flat vector of plain weights.
        weights: flat float32 [layout.size]; read again at every pass.

    Attributes:
        noise: float32 [plain.size - start], of the noisy layers.
        gives_values: False: `forward_policy` writes no values, since acting draws new noise at every step.
    """

    gives_values = False

    def __init__(self, layout: NoisyLayout, make, weights: np.ndarray):
        self._weights = weights
        self._size, self._start = layout.plain.size, layout.start
        self._summed = np.empty(self._size, np.float32)
        self.noise = np.zeros(self._size - self._start, np.float32)
        self._blocks = layout.noisy_blocks(self.noise)
        self.network = make(self._summed)
        self.gradient = np.zeros(layout.size, np.float32)

    @property
    def closed_form(self) -> bool:
        """Whether there is a `backward`."""
        return self.network.closed_form

    def resample(self, rng: np.random.Generator) -> None:
        """Draws new noise, the same for all rows until the next call."""
        for block in self._blocks:
            inputs, outputs = block.shape
            drawn = rng.standard_normal(inputs - 1 + outputs, dtype=np.float32)
            factors = np.sign(drawn) * np.sqrt(abs(drawn))
            np.multiply.outer(factors[: inputs - 1], factors[inputs - 1 :], out=block[:-1])
            block[-1] = factors[inputs - 1 :]

    def silence(self) -> None:
        """Sets the noise to zero."""
        self.noise[:] = 0

    def summed(self) -> np.ndarray:
        """mu + sigma * noise [plain.size], in a buffer that the network computes on."""
        summed, start = self._summed, self._start
        np.multiply(self._weights[self._size :], self.noise, out=summed[start:])
        summed[start:] += self._weights[start : self._size]
        summed[:start] = self._weights[:start]
        return summed

    def forward(self, inputs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """As in the wrapped network."""
        self.summed()
        return self.network.forward(inputs)

    def backward(self, gradients: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
        """The gradient with respect to mu and sigma, float32 [layout.size], in a buffer that the next call overwrites.

        The noise has to be that of the forward pass.
        """
        self.gradient[: self._size] = self.network.backward(gradients)
        np.multiply(self.gradient[self._start : self._size], self.noise, out=self.gradient[self._size :])
        return self.gradient

    def forward_policy(self, inputs: np.ndarray, values: np.ndarray | None = None) -> np.ndarray:
        """As in the wrapped network."""
        self.summed()
        return self.network.forward_policy(inputs, values)

    def forward_value(self, inputs: np.ndarray) -> np.ndarray:
        """As in the wrapped network."""
        self.summed()
        return self.network.forward_value(inputs)


def initialize_sigmas(layout: NoisyLayout, weights: np.ndarray, sigma0: float) -> None:
    """sigma0 / sqrt(inputs of the layer), biases too (section 3.2 of the paper)."""
    for block in layout.noisy_blocks(weights[layout.plain.size :]):
        block[:] = sigma0 / math.sqrt(len(block) - 1)
