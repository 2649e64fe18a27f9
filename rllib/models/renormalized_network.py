"""A fully connected network in numpy with batch renormalisation (batch_renorm.py) of what layers and heads read."""

import numpy as np

from rllib.models import kernels
from rllib.models.batch_renorm import RenormalizedRows, renormalize_rows
from rllib.models.numpy_network import NumpyNetwork, Tower, TrainingBuffers


class RenormalizedNetwork(NumpyNetwork):
    """As NumpyNetwork. Running statistics normalise, except where a call says `by_batch`, which moves them."""

    def _training_buffers(self, rows: int) -> "_Training":
        return _Training(self, rows)

    def _tower(self, head: str) -> "_Tower":
        return _Tower(self, head)

    def forward(self, inputs: np.ndarray, by_batch: bool = False) -> tuple[np.ndarray, np.ndarray]:
        return self._training[len(inputs)].normalizing(by_batch).forward(inputs)

    def all_outputs(self, inputs: np.ndarray, by_batch: bool = False) -> np.ndarray:
        return self._training[len(inputs)].normalizing(by_batch).outputs_of(inputs)


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
        for (weights, _, apply, z, active, _), augmented, statistics in zip(steps, normal, self._statistics):
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
    """Forward and backward of one batch size. The gradient of a layer is kept where its result is normalised."""

    def __init__(self, network: RenormalizedNetwork, rows: int):
        super().__init__(network, rows)
        layout, blocks = network.layout, network.blocks
        scratch = np.empty(layout.num_towers * max(layout.num_inputs, *layout.hiddens, 0) * rows, np.float32)
        self._renorms = [
            RenormalizedRows(layout.batch_renorm, blocks, network.gradient_blocks, index, rows, scratch)
            for index in range(len(self.layers) + 1)
        ]
        self._passes, self._by_batch = blocks["passes"], False

    def normalizing(self, by_batch: bool) -> "_Training":
        """Itself, about to normalise by the batch or by the running statistics."""
        self._by_batch = by_batch
        return self

    def _forward_hidden(self, inputs: np.ndarray) -> None:
        x = inputs.T[None, :-1]
        for layer, renorm in zip(self.layers, self._renorms):
            renorm.forward(x, self._by_batch)
            kernels.matmul(layer.weights_t, renorm.augmented, out=layer.z)
            layer.activation.apply(layer.y, layer.h)
            x = layer.h
        self._renorms[-1].forward(x, self._by_batch)
        self._passes += self._by_batch

    def _features(self):
        return self._renorms[-1].augmented

    def weight_gradient(self, d_outputs: np.ndarray, d_features: None = None) -> None:
        self._descend(d_outputs, learns=True)

    def input_gradient(self, d_outputs: np.ndarray, which: slice) -> np.ndarray:
        return np.add.reduce(self._descend(d_outputs, learns=False)[:, which])

    def _descend(self, d_outputs: np.ndarray, learns: bool) -> np.ndarray:
        """The gradient with respect to the inputs, of each tower; with that of the weights where it `learns`."""
        if d_outputs is not self.output_gradient:
            np.copyto(self.output_gradient, d_outputs)
        behind = self._renorms[-1]
        for tower, (weights, gradient, _, d_results) in enumerate(self.heads):
            if learns:
                kernels.matmul(behind.augmented[tower], d_results.T, out=gradient)
            kernels.matmul(weights[:-1], d_results, out=behind.gradient[tower])
        for index in reversed(range(len(self.layers))):
            layer, behind, before = self.layers[index], self._renorms[index + 1], self._renorms[index]
            gradient = behind.backward(learns)
            layer.activation.multiply_derivative(gradient, layer.h, layer.y, layer.scratch)
            if learns:
                kernels.matmul(before.augmented, gradient.swapaxes(-1, -2), out=self.gradients[f"hidden_{index}"])
            kernels.matmul(layer.weights_without_bias, gradient, out=before.gradient)
        return self._renorms[0].backward(learns)
