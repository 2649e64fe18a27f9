"""Implicit quantile networks in numpy, with closed-form gradients where there are no convolutions."""

from collections.abc import Callable

import numpy as np

from rllib.models.arithmetic.buffers import BuffersByRows
from rllib.models.implicit.layout import ImplicitLayout, drawn_levels, frequencies, middles

_NO_VALUES = np.empty(0, np.float32)


class ImplicitNetwork:
    """A network of action values at several levels; methods as in NumpyNetwork.

    Args:
        layout: where the parameters lie.
        make_before, make_behind: (weights, gradient) -> the network before the product, and that behind it.
        weights: flat float32 [layout.size]; the network reads this very memory.
        count: number of levels.

    Attributes:
        noise: the levels, float32 [count]: the middles of their strata until `resample`.
        closed_form: whether there is a `backward`.
    """

    gives_values = False

    def __init__(
        self, layout: ImplicitLayout, make_before: Callable, make_behind: Callable, weights: np.ndarray, count: int
    ):
        self.layout, self.noise = layout, middles(count)
        self.gradient = np.zeros(layout.size, np.float32)
        (before, self._levels, behind), gradients = layout.parts(weights), layout.parts(self.gradient)
        self._levels_gradient = gradients[1]
        self._before, self._behind = make_before(before, gradients[0]), make_behind(behind, gradients[2])
        self.closed_form = self._before.closed_form
        self._frequencies = frequencies(layout.num_cosines)
        width, outputs = layout.behind.num_inputs, layout.behind.heads["policy"]
        self._products = BuffersByRows(lambda rows: np.ones((rows, width + 1), np.float32))
        self._results = BuffersByRows(lambda rows: np.empty(((outputs + 1) * count, rows), np.float32))
        self._remembered: tuple = ()

    def resample(self, rng: np.random.Generator) -> None:
        """Draws new levels, the same for all rows until the next call."""
        self.noise[:] = drawn_levels(rng, len(self.noise))

    def silence(self) -> None:
        """Takes the middles of the strata as levels."""
        self.noise[:] = middles(len(self.noise))

    def forward(self, inputs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return self._computed(self._before.forward(inputs)[0], lambda product: self._behind.forward(product)[0])

    def forward_policy(self, inputs: np.ndarray, values: np.ndarray | None = None) -> np.ndarray:
        return self._computed(self._before.forward_policy(inputs), self._behind.forward_policy)[0]

    def _computed(self, psi: np.ndarray, behind: Callable) -> tuple[np.ndarray, np.ndarray]:
        """Outputs [B, K] from the features [B, width]; remembers what backward needs."""
        rows, count = len(psi), len(self.noise)
        cosines = np.ones((count, len(self._frequencies) + 1), np.float32)
        np.cos(np.multiply.outer(self.noise, self._frequencies), out=cosines[:, :-1])
        phi = np.maximum(cosines @ self._levels, np.float32(0))
        product = self._products[count * rows]
        np.multiply(phi[:, None], psi, out=product.reshape(count, rows, -1)[..., :-1])
        self._remembered = psi, cosines, phi
        results = self._results[rows]
        results[:-count] = behind(product).T.reshape(-1, rows)
        results[-count:] = self.noise[:, None]
        return results.T, _NO_VALUES

    def backward(self, gradients: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
        """The gradient with respect to the weights; the levels must not have changed since `forward`."""
        (psi, cosines, phi), count = self._remembered, len(self.noise)
        rows, width = psi.shape
        d_outputs = gradients[0].T[:-count].reshape(-1, count * rows)
        self._behind.backward((d_outputs.T, _NO_VALUES))
        d_product = self._behind.input_gradient(d_outputs, slice(0, width)).reshape(width, count, rows)
        d_phi = np.einsum("wnb,bw->nw", d_product, psi, optimize=True)
        np.matmul(cosines.T, d_phi * (phi > 0), out=self._levels_gradient)
        d_psi = np.einsum("wnb,nw->wb", d_product, phi, optimize=True)
        self._before.backward((d_psi.T, _NO_VALUES))
        return self.gradient
