"""Networks whose last layers have noise in their weights (Fortunato et al., arXiv:1706.10295).

A noisy layer computes with mu + sigma * noise; mu and sigma are learned. The noise is factorised (their section 3,
equations 10 and 11): f(x) f(y) with f(z) = sign(z) sqrt|z| and one normal number for each input and each output of the
layer, so that few have to be drawn; the bias has the noise of the outputs alone.

`NoisyNetwork` wraps any network on a flat vector: it computes the sum, calls the network on it, and applies the chain
rule to the gradients, d sigma = noise * d mu.
"""

import math

import numpy as np

from rllib.models.dense.layout import LayersLayout, Layout


class NoisyLayout(Layout):
    """Layout of the plain network's parameters (mu), then the sigmas of its last ones.

    Args:
        plain: layout of the network that computes; it has a single tower, or ends with layers that have one.
        layers: the last part of `plain`, or all of it: holds the noisy layers.
        num_noisy: number of the last of these that are noisy, head included.

    Attributes:
        start: index in the plain vector at which the noisy layers begin.
    """

    def __init__(self, plain: Layout, layers: LayersLayout, num_noisy: int):
        self.plain, self._layers = plain, layers
        matrices = [name for name in layers.shapes if name == "head" or name.startswith("hidden_")]
        self._noisy = matrices[-num_noisy:]
        self.start = plain.size - layers.size + layers.slices[self._noisy[0]].start
        super().__init__({"mu": (plain.size,), "sigma": (plain.size - self.start,)})

    def named_parameters(self, flat) -> dict:
        """Parameters of the plain layout, and "policy.head.weight_sigma", ... of the noisy layers."""
        mu = self.plain.named_parameters(flat[: self.plain.size])
        # The sigmas close the vector, so in its last part as long as the plain vector each is at its layer's place.
        sigma = self.plain.named_parameters(flat[len(flat) - self.plain.size :])
        layers = ["policy.head" if block == "head" else f"shared.{block}" for block in self._noisy]
        names = [f"{layer}.{kind}" for layer in layers for kind in ("weight", "bias")]
        return mu | {f"{name}_sigma": sigma[name] for name in names}

    def noisy_blocks(self, flat_noise) -> list:
        """Views [inputs + 1, outputs] of noise [plain.size - start], one for each noisy layer."""
        views, layers = [], self._layers
        first = layers.slices[self._noisy[0]].start
        for name in self._noisy:
            part, shape = layers.slices[name], layers.shapes[name][-2:]
            views.append(flat_noise[part.start - first : part.stop - first].reshape(shape))
        return views


class NoisyNetwork:
    """A policy's network on mu + sigma * noise, which wraps another network; without noise until `resample`.

    Args:
        layout: where the parameters lie.
        make: builds the network that computes on a flat vector of plain weights.
        weights: flat float32 [layout.size]; read again at every pass.

    Attributes:
        noise: float32: that of the noisy layers, then the wrapped network's own, if it has any.
        weight_noise: that of the noisy layers alone, [plain.size - start].
        gives_values: False: `forward_policy` writes no values, since acting draws new noise at every step.
    """

    gives_values = False

    def __init__(self, layout: NoisyLayout, make, weights: np.ndarray):
        self._weights = weights
        self._size, self._start = layout.plain.size, layout.start
        self._summed = np.empty(self._size, np.float32)
        self.network = make(self._summed)
        self._inner = self.network if hasattr(self.network, "resample") else None
        inner = np.zeros(0, np.float32) if self._inner is None else self._inner.noise
        self.noise = np.concatenate([np.zeros(self._size - self._start, np.float32), inner])
        self.weight_noise = self.noise[: self._size - self._start]
        if self._inner is not None:
            self._inner.noise = self.noise[len(self.weight_noise) :]
        self._blocks = layout.noisy_blocks(self.weight_noise)
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
        if self._inner is not None:
            self._inner.resample(rng)

    def silence(self) -> None:
        """Sets the noise in the weights to zero, and silences the wrapped network's own."""
        self.weight_noise[:] = 0
        if self._inner is not None:
            self._inner.silence()

    def summed(self) -> np.ndarray:
        """Writes mu + sigma * noise [plain.size] into the buffer that the network reads, and returns it."""
        summed, start = self._summed, self._start
        np.multiply(self._weights[self._size :], self.weight_noise, out=summed[start:])
        summed[start:] += self._weights[start : self._size]
        summed[:start] = self._weights[:start]
        return summed

    def forward(self, inputs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        self.summed()
        return self.network.forward(inputs)

    def backward(self, gradients: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
        """Gradient with respect to mu and sigma, float32 [layout.size], in a buffer that the next call overwrites.

        The noise must not have changed since the forward pass.
        """
        self.gradient[: self._size] = self.network.backward(gradients)
        np.multiply(self.gradient[self._start : self._size], self.weight_noise, out=self.gradient[self._size :])
        return self.gradient

    def forward_policy(self, inputs: np.ndarray, values: np.ndarray | None = None) -> np.ndarray:
        self.summed()
        return self.network.forward_policy(inputs, values)

    def forward_value(self, inputs: np.ndarray) -> np.ndarray:
        self.summed()
        return self.network.forward_value(inputs)


def initialize_sigmas(layout: NoisyLayout, weights: np.ndarray, sigma0: float) -> None:
    """Sets each sigma to sigma0 / sqrt(inputs of the layer), biases too (section 3.2 of the paper)."""
    for block in layout.noisy_blocks(weights[layout.plain.size :]):
        block[:] = sigma0 / math.sqrt(len(block) - 1)
