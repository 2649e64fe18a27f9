"""A fully connected network in numpy with batch renormalisation (batch_renorm.py) before layers and heads."""

import numpy as np

from rllib.models.dense.batch_renorm import RenormalizedProduct, renormalize_rows
from rllib.models.dense.in_numpy import NumpyNetwork, Passes, Share, Tower, TrainingBuffers, divided


class RenormalizedNetwork(NumpyNetwork):
    """Like NumpyNetwork. Calls normalise by the running statistics; with `by_batch` by the batch, which moves them."""

    def _training_buffers(self, rows: int) -> Passes:
        return divided(self, rows, _Training)

    def _tower(self, head: str) -> "_Tower":
        return _Tower(self, head)

    def forward(self, inputs: np.ndarray, by_batch: bool = False) -> tuple[np.ndarray, np.ndarray]:
        results = self._normalizing(len(inputs), by_batch).forward(inputs)
        self.blocks["passes"] += by_batch
        return results

    def all_outputs(self, inputs: np.ndarray, by_batch: bool = False) -> np.ndarray:
        results = self._normalizing(len(inputs), by_batch).outputs_of(inputs)
        self.blocks["passes"] += by_batch
        return results

    def _normalizing(self, rows: int, by_batch: bool) -> Passes:
        """Buffers of a pass by the statistics of the batch, or by the running ones."""
        passes = self._training[rows]
        for each in passes.undivided:
            each.by_batch = by_batch
        return passes


class _Tower(Tower):
    """Acts by the running statistics."""

    def __init__(self, network: RenormalizedNetwork, tower: str):
        super().__init__(network, tower)
        layout, blocks = network.layout, network.blocks
        stacked = 0 if layout.shared is not None else layout.towers.index(tower)
        self._statistics = [
            (blocks[f"renorm_{index}"][stacked], blocks[f"running_{index}"][stacked])
            for index in range(len(layout.hiddens) + 1)
        ]
        self._epsilon = np.float32(layout.batch_renorm.epsilon)

    def forward(self, inputs: np.ndarray, values: np.ndarray | None = None) -> np.ndarray:
        (steps, normal), head_out, result = self._buffers[len(inputs)]
        x = inputs.T[:-1]
        for (weights, _, _, apply, z, active, _), augmented, statistics in zip(steps, normal, self._statistics):
            renormalize_rows(x, *statistics, self._epsilon, augmented[:-1])
            np.dot(weights, augmented, out=z)
            apply(z, active)
            x = active
        renormalize_rows(x, *self._statistics[-1], self._epsilon, normal[-1][:-1])
        np.dot(self.head, normal[-1], out=head_out)
        if values is not None:
            np.dot(self.value_head, normal[-1], out=values)
        if self.log_std is not None:
            result[len(head_out) :] = self.log_std
        return result

    def features(self, rows: int) -> np.ndarray:
        (_, normal), _, _ = self._buffers[rows]
        return normal[-1][:-1]

    def _allocate(self, rows: int) -> tuple:
        steps, _, head_out, result = super()._allocate(rows)
        normal = [np.ones((parameters.shape[1] + 1, rows), np.float32) for parameters, _ in self._statistics]
        return (steps, normal), head_out, result


class _Training(TrainingBuffers):
    """Forward and backward passes of one batch size.

    Attributes:
        by_batch: whether the next pass normalises by the statistics of the batch, instead of by the running ones.
    """

    by_batch: bool

    def __init__(self, network: RenormalizedNetwork | Share, rows: int):
        super().__init__(network, rows)
        layout, blocks, gradients = network.layout, network.blocks, network.gradient_blocks
        pairs = [(blocks[f"hidden_{index}"], gradients[f"hidden_{index}"]) for index in range(len(self.layers))]
        if layout.num_towers == 1:
            (head,) = layout.head_blocks
            pairs.append((blocks[head][None], gradients[head][None]))
        else:
            pairs.append((layout.stacked_heads(network.weights), layout.stacked_heads(network.gradient)))
        largest = max(max(rows, weights.shape[2]) * weights[:, :-1, 0].size for weights, _ in pairs)
        scratch = np.empty(largest, np.float32)
        self._products = [
            RenormalizedProduct(layout.batch_renorm, index, *pair, blocks, gradients, rows, scratch)
            for index, pair in enumerate(pairs)
        ]
        self._results = self.outputs.reshape(layout.num_towers, -1, rows)
        self._input_gradient = np.empty((layout.num_towers, layout.num_inputs, rows), np.float32)

    def outputs_of(self, inputs: np.ndarray) -> np.ndarray:
        x = inputs.T[None]
        for layer, product in zip(self.layers, self._products):
            product.forward(x, self.by_batch, out=layer.z)
            layer.activation.apply(layer.y, layer.h)
            x = layer.augmented
        self._products[-1].forward(x, self.by_batch, out=self._results)
        return self.outputs

    def weight_gradient(self, d_outputs: np.ndarray, d_features: None = None) -> None:
        self._products[0].backward(self._descend(d_outputs, learns=True), learns=True, out=None)

    def input_gradient(self, d_outputs: np.ndarray, which: slice) -> np.ndarray:
        self._products[0].backward(self._descend(d_outputs, learns=False), learns=False, out=self._input_gradient)
        return np.add.reduce(self._input_gradient[:, which])

    def _descend(self, d_outputs: np.ndarray, learns: bool) -> np.ndarray:
        """Gradient with respect to the first product; writes the gradient of later weights if it `learns`."""
        if d_outputs is not self.output_gradient:
            np.copyto(self.output_gradient, d_outputs)
        gradient = self.output_gradient.reshape(self._results.shape)
        for layer, product in zip(reversed(self.layers), reversed(self._products)):
            product.backward(gradient, learns, out=layer.gradient)
            gradient = layer.gradient
            layer.activation.multiply_derivative(gradient, layer.h, layer.y, layer.scratch)
        return gradient
