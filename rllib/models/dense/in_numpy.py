"""A fully connected actor-critic network in numpy: forward and backward by hand, on views of one flat vector.

The trick: activations are feature-major, [towers, width + 1, B], with a last row of ones. A layer of both towers is
then one stacked matrix product, which includes the biases (forward and backward), and elementwise functions and the
reductions over actions run along contiguous memory. All buffers belong to a batch size and are made once. Large batches
are computed in parts, which several cores share (arithmetic/kernels.py): tower by tower, or a single tower's rows.
"""

import dataclasses
import functools
import itertools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from rllib.models.arithmetic import kernels
from rllib.models.arithmetic.activations import ACTIVATIONS, Activation
from rllib.models.arithmetic.buffers import BuffersByRows
from rllib.models.arithmetic.layer_norm import LayerNorm
from rllib.models.dense.layout import LayersLayout

# Share of the rows with a gradient up to which the others are left out: to gather rows costs a tenth of a layer.
MANY_LEFT = 0.75


def check_weights(layout: LayersLayout, weights: np.ndarray) -> None:
    """Raises a ValueError if the weights have another size or dtype than the layout."""
    if weights.shape != (layout.size,) or weights.dtype != np.float32:
        raise ValueError(
            f"the network needs {layout.size} float32 weights, but got {weights.dtype} of shape {weights.shape}"
        )


class NumpyNetwork:
    """Computes distribution inputs and values of encoded observations [B, num_inputs + 1], whose last column is 1.

    Results are views of buffers that the next call with the same number of rows overwrites. A network without a value
    head has no values: they, and their gradients, are empty.

    Args:
        layout: where the parameters lie.
        activations: activation function of each hidden layer, names in ACTIVATIONS.
        weights: flat float32 [layout.size]; the network reads this very memory.
        gradient: float32 [layout.size], where `backward` writes; by default new memory.

    Attributes:
        gives_values: whether policy and value share their layers, so that `forward_policy` can write values as well.
    """

    # There is a `backward`.
    closed_form = True

    def __init__(
        self,
        layout: LayersLayout,
        activations: tuple[str, ...],
        weights: np.ndarray,
        gradient: np.ndarray | None = None,
    ):
        check_weights(layout, weights)
        self.layout, self.weights = layout, weights
        self.activations = [ACTIVATIONS[name] for name in activations]
        self.blocks = layout.blocks(weights)
        if gradient is not None:
            self.gradient = gradient
        self._training = BuffersByRows(self._training_buffers)
        self._towers = {head: self._tower(head) for head in layout.heads}
        self.gives_values = "policy" in self._towers and self._towers["policy"].gives_values

    # Made when it is needed: a network that only acts, as hundreds of frozen policies do, takes half the memory.
    @functools.cached_property
    def gradient(self) -> np.ndarray:
        """The newest gradient, float32 [layout.size]."""
        return np.zeros(self.layout.size, np.float32)

    @functools.cached_property
    def gradient_blocks(self) -> dict[str, np.ndarray]:
        """Views of the gradient by the names of parameters."""
        return self.layout.blocks(self.gradient)

    def _training_buffers(self, rows: int) -> "Passes":
        return divided(self, rows, TrainingBuffers)

    def _tower(self, head: str) -> "Tower":
        return Tower(self, head)

    def forward(self, inputs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Distribution inputs [B, outputs] (feature-major memory) and values [B]; remembers what backward needs."""
        return self._training[len(inputs)].forward(inputs)

    def backward(self, gradients: tuple[np.ndarray, np.ndarray], d_features: np.ndarray | None = None) -> np.ndarray:
        """The gradient with respect to the weights, float32 [layout.size], in a buffer that the next call overwrites.

        Args:
            gradients: gradients of the loss with respect to the two results of the last forward with this number of
                rows.
            d_features: with respect to the `policy_features` [width, B] of these results.
        """
        self._training[len(gradients[0])].backward(*gradients, d_features)
        return self.gradient

    def all_outputs(self, inputs: np.ndarray) -> np.ndarray:
        """Results [all outputs, B] of all heads, one below the other; remembers what gradients need."""
        return self._training[len(inputs)].outputs_of(inputs)

    def weight_gradient(self, d_outputs: np.ndarray) -> np.ndarray:
        """Like `backward`, from the gradient with respect to `all_outputs`, [all outputs, B]."""
        self._training[d_outputs.shape[1]].weight_gradient(d_outputs)
        return self.gradient

    def input_gradient(self, d_outputs: np.ndarray, which: slice) -> np.ndarray:
        """Gradient with respect to some of the last inputs, [inputs, B]; the weights' gradient is not computed."""
        return self._training[d_outputs.shape[1]].input_gradient(d_outputs, which)

    def forward_policy(self, inputs: np.ndarray, values: np.ndarray | None = None) -> np.ndarray:
        """Distribution inputs [B, outputs] alone, for acting.

        Args:
            inputs: [B, num_inputs + 1].
            values: float32 [B], contiguous, receives the values; only where `gives_values`.
        """
        return self._towers["policy"].forward(inputs, values).T

    def forward_value(self, inputs: np.ndarray) -> np.ndarray:
        """Values [B] alone."""
        return self._towers["value"].forward(inputs)[0]

    def policy_features(self, rows: int) -> np.ndarray:
        """Inputs [width, B] of the policy's head in the last `forward` with this number of rows; needs layers."""
        return self._training[rows].policy_features()

    def acting_features(self, rows: int) -> np.ndarray:
        """Inputs [width, B] of the policy's head in the last `forward_policy` with this number of rows."""
        return self._towers["policy"].features(rows)


class Tower:
    """Fully connected layers that lead to one head, for acting; nothing is kept for a backward pass.

    Args:
        network: has layout, blocks and activations.
        tower: "policy" or "value".

    Attributes:
        gives_values: whether it leads to the value's head as well as to the policy's.
    """

    def __init__(self, network, tower: str):
        layout, blocks = network.layout, network.blocks
        stacked = 0 if layout.shared is not None else layout.towers.index(tower)
        self.layers = [
            (layout.layer(blocks, index, stacked).T, layout.norm(blocks, index, stacked), activation.apply)
            for index, activation in zip(range(len(layout.hiddens)), network.activations, strict=True)
        ]
        self.head = layout.head(blocks, tower).T
        # Without a bias the head leaves the closing 1 out; 0: it reads everything.
        self._num_read = 0 if layout.head_bias else self.head.shape[1]
        self.gives_values = tower == "policy" and layout.shared is not None and "value" in layout.heads
        self.value_head = layout.head(blocks, "value")[:, 0] if self.gives_values else None
        self.log_std = blocks["log_std"][:, None] if tower == "policy" and layout.num_log_std else None
        self._buffers = BuffersByRows(self._allocate)

    def forward(self, inputs: np.ndarray, values: np.ndarray | None = None) -> np.ndarray:
        """Outputs [outputs, B].

        Args:
            inputs: [B, num_inputs + 1], closing with a 1.
            values: float32 [B], contiguous, receives the values; only where `gives_values`.
        """
        steps, num_read, head_out, result = self._buffers[len(inputs)]
        h = inputs.T
        for weights, multiply, norm, apply, z, active, augmented in steps:
            if multiply is None:
                np.dot(weights, h, out=z)
            else:
                multiply()
            if norm is not None:
                norm.forward(z, z, active)
            apply(z, active)
            h = augmented
        if num_read:
            h = h[:num_read]
        np.dot(self.head, h, out=head_out)
        if values is not None:
            np.dot(self.value_head, h, out=values)
        if self.log_std is not None:
            result[len(head_out) :] = self.log_std
        return result

    def features(self, rows: int) -> np.ndarray:
        """Inputs [width, B] of the head in the last `forward` with this number of rows."""
        steps, *_ = self._buffers[rows]
        return steps[-1][-2]

    def _allocate(self, rows: int) -> tuple:
        steps, augmented = [], None
        for weights, norm, apply in self.layers:
            width, before = len(weights), augmented
            z, augmented = np.empty((width, rows), np.float32), np.ones((width + 1, rows), np.float32)
            multiply = None if before is None else kernels.product(weights, before, z)
            norm = None if norm is None else LayerNorm(norm, rows)
            steps.append((weights, multiply, norm, apply, z, augmented[:-1], augmented))
        num_log_std = 0 if self.log_std is None else len(self.log_std)
        result = np.empty((len(self.head) + num_log_std, rows), np.float32)
        return steps, self._num_read, result[: len(self.head)], result


class Passes:
    """Forward and backward passes of one batch size; all views of weights and buffers are made once.

    Args:
        network: a NumpyNetwork, or a Share of one.
        rows: the batch size.

    Attributes:
        undivided: the buffers that compute: these, or those of the parts.
    """

    undivided: list["TrainingBuffers"]

    def __init__(self, network: "NumpyNetwork | Share", rows: int):
        layout = network.layout
        self.gradients = network.gradient_blocks
        # The results of all heads share memory, so that one product writes them if the heads share layers.
        self.outputs = np.empty((sum(layout.heads.values()), rows), np.float32)
        self.output_gradient = np.empty_like(self.outputs)
        self.num_outputs = num_outputs = layout.heads.get("policy", 0)
        self.dist_inputs = self.outputs[:num_outputs]
        self.values = self.outputs[num_outputs:].reshape(-1)
        self.value_gradient = self.output_gradient[num_outputs:].reshape(-1)
        self.log_std = None
        if layout.num_log_std:
            self.log_std = network.blocks["log_std"][:, None]
            self.dist_inputs = np.empty((num_outputs + layout.num_log_std, rows), np.float32)
        self.ones = np.ones(rows, np.float32)

    def outputs_of(self, inputs: np.ndarray) -> np.ndarray:
        """Results [all outputs, B] of all heads."""
        raise NotImplementedError

    def policy_features(self) -> np.ndarray:
        """Inputs [width, B] of the policy's head."""
        raise NotImplementedError

    def weight_gradient(self, d_outputs: np.ndarray, d_features: np.ndarray | None = None) -> None:
        """Writes the gradient with respect to the weights."""
        raise NotImplementedError

    def forward(self, inputs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        self.outputs_of(inputs)
        if self.log_std is not None:
            self.dist_inputs[: self.num_outputs] = self.outputs[: self.num_outputs]
            self.dist_inputs[self.num_outputs :] = self.log_std
        return self.dist_inputs.T, self.values

    def backward(self, d_dist_inputs: np.ndarray, d_values: np.ndarray, d_features: np.ndarray | None) -> None:
        d_inputs_t = d_dist_inputs.T
        self.output_gradient[: self.num_outputs] = d_inputs_t[: self.num_outputs]
        self.value_gradient[:] = d_values
        if self.log_std is not None:
            np.dot(d_inputs_t[self.num_outputs :], self.ones, out=self.gradients["log_std"])
        self.weight_gradient(self.output_gradient, d_features)


class TrainingBuffers(Passes):
    """Passes that compute all rows at once."""

    def __init__(self, network: "NumpyNetwork | Share", rows: int):
        super().__init__(network, rows)
        layout, blocks = network.layout, network.blocks
        self.undivided = [self]
        self.first_weights, self.inputs = blocks.get("hidden_0"), None
        scratch = np.empty(layout.num_towers * max(layout.hiddens, default=0) * rows, np.float32)
        self.layers: list[_Layer] = []
        for index in range(len(layout.hiddens)):
            self.layers.append(_Layer(network, index, rows, scratch, self.layers[-1] if index else None))
        self._rows = rows
        self.head_bias = layout.head_bias
        # A critic of several: where another one is least, its inputs have no gradient.
        self._leaves_rows_out = (
            bool(self.layers) and layout.num_towers == 1 and kernels.num_parts(rows, layout.size) > 1
            and not any(layer.norm or layer.activation.keeps_input for layer in self.layers)
        )  # fmt: skip
        # For each tower: the weights of its heads, their gradient, and the rows of their results.
        self.heads, start = [], 0
        for name in layout.head_blocks:
            weights = blocks[name]
            results = slice(start, start + weights.shape[1])
            self.heads.append((weights, self.gradients[name], self.outputs[results], self.output_gradient[results]))
            start = results.stop
        # The products of heads that read a layer: forward, for the gradient of the weights, and of the layer.
        self._multiply_heads, self._multiply_gradients, self._enter_heads = [], [], []
        if self.layers:
            of_features = self.layers[-1].gradient
            for features, d_features, head in zip(self._features(), of_features, self.heads):
                weights, gradient, results, d_results = head
                self._multiply_heads.append(kernels.product(weights.T, features, results))
                self._multiply_gradients.append(kernels.product(features, d_results.T, gradient))
                self._enter_heads.append(kernels.product(weights[: len(d_features)], d_results, d_features))

    # Made when it is needed: batch renormalisation reads otherwise.
    @functools.cached_property
    def _reading(self) -> "_Reading":
        return _Reading(self.layers[0], self.gradients["hidden_0"], self._rows)

    def outputs_of(self, inputs: np.ndarray) -> np.ndarray:
        self.inputs = inputs
        self._forward_hidden(inputs)
        for multiply in self._multiply_heads:
            multiply()
        if not self.layers:
            for features, (weights, _, results, _) in zip(self._features(), self.heads):
                kernels.matmul(weights.T, features, out=results)
        return self.outputs

    def policy_features(self) -> np.ndarray:
        return self.layers[-1].h[0]

    def _forward_hidden(self, inputs: np.ndarray) -> None:
        for layer in self.layers:
            if layer.multiply is None:
                self._reading.forward(inputs)
            else:
                layer.multiply()
            if layer.norm is not None:
                layer.norm.forward(layer.z, layer.y, layer.y)
            layer.activation.apply(layer.y, layer.h)

    def _features(self):
        """Inputs of the heads of each tower, [width + 1, B] each; without a bias [width, B]."""
        if self.layers:
            return self.layers[-1].augmented if self.head_bias else self.layers[-1].h
        return [self.inputs.T if self.head_bias else self.inputs.T[:-1]] * len(self.heads)

    def weight_gradient(self, d_outputs: np.ndarray, d_features: np.ndarray | None = None) -> None:
        self._enter_backward(d_outputs)
        if d_features is not None:
            self.layers[-1].gradient[0] += d_features
        for multiply in self._multiply_gradients:
            multiply()
        if not self.layers:
            for features, (_, gradient, _, d_results) in zip(self._features(), self.heads):
                kernels.matmul(features, d_results.T, out=gradient)
        for index in reversed(range(len(self.layers))):
            layer = self._through_activation(index)
            if index:
                layer.multiply_weight_gradient()
                layer.multiply_gradient()
            else:
                self._reading.backward(self.inputs)

    def input_gradient(self, d_outputs: np.ndarray, which: slice) -> np.ndarray:
        if self._leaves_rows_out:
            rows = np.flatnonzero(d_outputs.any(axis=0))
            if len(rows) <= MANY_LEFT * d_outputs.shape[1]:
                return self._input_gradient_of(rows, d_outputs, which)
        self._enter_backward(d_outputs)
        if not self.layers:
            return sum(np.dot(weights[which], d_results) for weights, _, _, d_results in self.heads)
        for index in reversed(range(len(self.layers))):
            layer = self._through_activation(index)
            if index:
                layer.multiply_gradient()
        return np.dot(self.first_weights[which], layer.gradient_flat)

    def _input_gradient_of(self, rows: np.ndarray, d_outputs: np.ndarray, which: slice) -> np.ndarray:
        """As `input_gradient`, for these rows; all others have no gradient, as where another critic is least."""
        result = np.zeros((which.stop - which.start, d_outputs.shape[1]), np.float32)
        ((weights, _, _, _),) = self.heads
        gradient = np.dot(weights[: len(self.layers[-1].h[0])], d_outputs[:, rows])
        for index in reversed(range(len(self.layers))):
            layer = self.layers[index]
            scratch = layer.scratch.reshape(-1)[: gradient.size].reshape(gradient.shape)
            h = np.take(layer.h[0], rows, axis=1)
            layer.activation.multiply_derivative(gradient, h, gradient, scratch)
            if index:
                gradient = np.dot(layer.weights_without_bias[0], gradient)
        result[:, rows] = np.dot(self.first_weights[which], gradient)
        return result

    def _enter_backward(self, d_outputs: np.ndarray) -> None:
        """Computes the gradient with respect to the inputs of the heads from the gradient of all outputs."""
        if d_outputs is not self.output_gradient:
            np.copyto(self.output_gradient, d_outputs)
        for enter in self._enter_heads:
            enter()

    def _through_activation(self, index: int) -> "_Layer":
        """Turns a layer's gradient into that with respect to its affine map."""
        layer = self.layers[index]
        layer.activation.multiply_derivative(layer.gradient, layer.h, layer.y, layer.scratch)
        if layer.norm is not None:
            layer.norm.backward(layer.gradient, layer.z, self.gradients[f"norm_{index}"], layer.scratch)
        return layer


class Share(NamedTuple):
    """Parts of a network that the passes of a tower, or of some rows, read."""

    layout: LayersLayout
    activations: list[Activation]
    blocks: dict[str, np.ndarray]
    gradient_blocks: dict[str, np.ndarray]


class _Divided(Passes):
    """Passes of which `kernels` computes parts on the cores that it has."""

    _own: list[slice]

    def _each(self, compute: Callable[[TrainingBuffers, slice], object]) -> None:
        """Calls a function of each part's buffers and of its own slice."""
        kernels.together([functools.partial(compute, *each) for each in zip(self.undivided, self._own)])


class _ByTower(_Divided):
    """Passes that compute each tower by itself.

    Args:
        network, rows: as for Passes.
        make: makes the buffers of a Share.
    """

    def __init__(self, network: NumpyNetwork, rows: int, make: Callable[[Share, int], TrainingBuffers]):
        super().__init__(network, rows)
        layout, stop = network.layout, 0
        self.undivided, self._own = [], []
        for index, (name, outputs) in enumerate(layout.heads.items()):
            own = dataclasses.replace(layout, heads={name: outputs}, num_log_std=0)
            views = (_of_tower(layout, index, blocks) for blocks in (network.blocks, network.gradient_blocks))
            start, stop = stop, stop + outputs
            self.undivided.append(make(Share(own, network.activations, *views), rows))
            self._own.append(slice(start, stop))

    def outputs_of(self, inputs: np.ndarray) -> np.ndarray:
        def forward(tower: TrainingBuffers, own: slice) -> None:
            self.outputs[own] = tower.outputs_of(inputs)

        self._each(forward)
        return self.outputs

    def policy_features(self) -> np.ndarray:
        return self.undivided[0].policy_features()

    def weight_gradient(self, d_outputs: np.ndarray, d_features: np.ndarray | None = None) -> None:
        def backward(tower: TrainingBuffers, own: slice) -> None:
            tower.weight_gradient(d_outputs[own], None if own.start else d_features)

        self._each(backward)

    def input_gradient(self, d_outputs: np.ndarray, which: slice) -> np.ndarray:
        found = np.empty((len(self._own), which.stop - which.start, d_outputs.shape[1]), np.float32)

        def backward(tower: TrainingBuffers, own: slice) -> None:
            found[self._own.index(own)] = tower.input_gradient(d_outputs[own], which)

        self._each(backward)
        return np.add.reduce(found)


def _of_tower(layout: LayersLayout, tower: int, blocks: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Views of a tower's parameters, in the shapes of a network of this tower alone."""
    views, stacked = {}, slice(tower, tower + 1)
    for name, block in blocks.items():
        if name == "hidden_0" and not layout.batch_renorm:
            views[name] = layout.layer(blocks, 0, tower)
        elif name.startswith(("hidden_", "norm_", "renorm_", "running_")):
            views[name] = block[stacked]
        else:
            views[name] = block
    return views


class _ByRows(_Divided):
    """Passes of a single tower that compute parts of the rows, each with its own gradient.

    The gradient is the sum of theirs: its bits depend on their number, and not on that of the cores.

    Args:
        network, rows, make: as for _ByTower.
        count: number of parts.
    """

    def __init__(self, network: NumpyNetwork, rows: int, make: Callable[[Share, int], TrainingBuffers], count: int):
        super().__init__(network, rows)
        layout, edges = network.layout, [number * rows // count for number in range(count + 1)]
        self._gradient, self._further = network.gradient, np.zeros((count - 1, layout.size), np.float32)
        gradients = network.gradient_blocks, *map(layout.blocks, self._further)
        self._own = [slice(start, stop) for start, stop in itertools.pairwise(edges)]
        self.undivided = [
            make(Share(layout, network.activations, network.blocks, its), own.stop - own.start)
            for its, own in zip(gradients, self._own)
        ]

    def outputs_of(self, inputs: np.ndarray) -> np.ndarray:
        def forward(part: TrainingBuffers, own: slice) -> None:
            self.outputs[:, own] = part.outputs_of(inputs[own])

        self._each(forward)
        return self.outputs

    def policy_features(self) -> np.ndarray:
        return np.concatenate([part.policy_features() for part in self.undivided], axis=1)

    def weight_gradient(self, d_outputs: np.ndarray, d_features: np.ndarray | None = None) -> None:
        def backward(part: TrainingBuffers, own: slice) -> None:
            part.weight_gradient(d_outputs[:, own], None if d_features is None else d_features[:, own])

        self._each(backward)
        for further in self._further:
            np.add(self._gradient, further, out=self._gradient)

    def input_gradient(self, d_outputs: np.ndarray, which: slice) -> np.ndarray:
        result = np.empty((which.stop - which.start, d_outputs.shape[1]), np.float32)

        def backward(part: TrainingBuffers, own: slice) -> None:
            result[:, own] = part.input_gradient(d_outputs[:, own], which)

        self._each(backward)
        return result


def divided(network: NumpyNetwork, rows: int, make: Callable[[NumpyNetwork | Share, int], TrainingBuffers]) -> Passes:
    """Passes of a batch size, divided where that is worth it.

    Args:
        network, rows: as for Passes.
        make: makes undivided buffers.
    """
    layout, count = network.layout, kernels.num_parts(rows, network.layout.size)
    if layout.hiddens and layout.num_towers > 1 and count >= min(layout.num_towers, kernels.MOST_PARTS):
        return _ByTower(network, rows, make)
    count = min(count, rows // kernels.FEWEST_ROWS)
    # Batch renormalisation needs all rows.
    if layout.hiddens and layout.num_towers == 1 and count > 1 and layout.batch_renorm is None:
        return _ByRows(network, rows, make, count)
    return make(network, rows)


class _Layer:
    """Buffers and views of one hidden layer of all towers.

    z is the affine map, y what the activation h reads: z itself, or its normal features scaled and shifted (z then
    holds the normal features). The gradient is first that with respect to y, then to z.

    Args:
        network, rows: as for Passes.
        index: index of the layer.
        scratch: memory for one number of each unit and row.
        before: the layer whose outputs this one reads; None: it reads the network's inputs.

    Attributes:
        multiply: writes the affine map of the layer before; None: there is none.
        multiply_gradient: writes the gradient with respect to the outputs of the layer before.
        multiply_weight_gradient: writes the gradient with respect to the weights.
    """

    def __init__(
        self, network: "NumpyNetwork | Share", index: int, rows: int, scratch: np.ndarray, before: "_Layer | None"
    ):
        towers, width = network.layout.num_towers, network.layout.hiddens[index]
        block, norm = network.blocks[f"hidden_{index}"], network.blocks.get(f"norm_{index}")
        self.activation = activation = network.activations[index]
        self.weights_t = block.swapaxes(-1, -2)
        self.weights_without_bias = block[..., :-1, :]
        self.z = np.empty((towers, width, rows), np.float32)
        self.z_flat = self.z.reshape(towers * width, rows)
        self.norm = None if norm is None else LayerNorm(norm, rows)
        self.y = self.z if norm is None else np.empty_like(self.z)
        self.augmented = np.ones((towers, width + 1, rows), np.float32)
        self.h = self.augmented[:, :-1]
        self.gradient = np.empty((towers, width, rows), np.float32) if activation.keeps_input else self.y
        self.gradient_t = self.gradient.swapaxes(-1, -2)
        self.gradient_flat = self.gradient.reshape(towers * width, rows)
        self.scratch = scratch[: self.z.size].reshape(self.z.shape)
        self.multiply = None
        if before is not None:
            of_weights = network.gradient_blocks[f"hidden_{index}"]
            self.multiply = kernels.product(self.weights_t, before.augmented, self.z)
            self.multiply_gradient = kernels.product(self.weights_without_bias, self.gradient, before.gradient)
            self.multiply_weight_gradient = kernels.product_along_rows(before.augmented, self.gradient_t, of_weights)


class _Reading:
    """Products of the first layer, of all towers at once, with the network's inputs.

    Args:
        layer: the first layer.
        weight_gradient: [inputs, width], written by `backward`.
        rows: the batch size.
    """

    def __init__(self, layer: "_Layer", weight_gradient: np.ndarray, rows: int):
        self._layer, self._weight_gradient = layer, weight_gradient
        num_inputs, width = weight_gradient.shape
        self._multiply = self._partial = None
        if num_inputs > kernels.FEW_INPUTS:
            return
        columns = kernels.unpacked_columns(width, num_inputs, rows)
        if columns and rows >= kernels.FEWEST_ROWS:
            self._inputs_t = np.empty((num_inputs, rows), np.float32)
            self._multiply = kernels.product(layer.weights_t, self._inputs_t, layer.z_flat)
        # Its transpose is computed faster. Large ones are divided among cores.
        if width * num_inputs * rows < 2 * kernels.PART:
            self._partial = np.empty((rows // (columns or rows), width, num_inputs), np.float32)
            self._gradient = kernels.blocks_of_columns(layer.gradient_flat, columns or rows)

    def forward(self, inputs: np.ndarray) -> None:
        """Writes the affine map of inputs [B, inputs]."""
        if self._multiply is None:
            kernels.matmul(self._layer.weights_t, inputs.T, out=self._layer.z_flat)
        else:
            np.copyto(self._inputs_t, inputs.T)
            self._multiply()

    def backward(self, inputs: np.ndarray) -> None:
        """Writes the gradient with respect to the weights, from the layer's."""
        weight_gradient = self._weight_gradient
        if self._partial is None:
            multiply = kernels.matmul if weight_gradient.flags.c_contiguous else np.matmul
            multiply(inputs.T, self._layer.gradient_flat.T, out=weight_gradient)
            return
        partial = self._partial
        np.matmul(self._gradient, inputs.reshape(len(partial), -1, inputs.shape[1]), out=partial)
        np.add.reduce(partial, axis=0, out=weight_gradient.T)


class NetworkPerRow:
    """The policy's tower with N flat parameter vectors: N perturbed policies act with a few calls of numpy.

    A batched product of [N, 1, inputs] with [N, inputs, width] computes each row by itself, so a row's result does
    not depend on the number of rows.

    Args:
        layout: where the parameters lie in each vector.
        activations: activation function of each hidden layer, names in ACTIVATIONS.
        weights: float32 [N, layout.size]; the network reads this very memory, so rows may be replaced at any time.
    """

    def __init__(self, layout: LayersLayout, activations: tuple[str, ...], weights: np.ndarray):
        if not isinstance(layout, LayersLayout) or layout.torso:
            raise ValueError(
                "weights of separate rows are computed for fully connected networks alone, not for convolutions or a "
                "custom model. Use another exploration than ParameterNoise."
            )
        rows = len(weights)
        if weights.shape != (rows, layout.size) or weights.dtype != np.float32:
            raise ValueError(
                f"the network needs float32 weights [N, {layout.size}], but got {weights.dtype} of shape "
                f"{list(weights.shape)}"
            )
        blocks = layout.blocks(weights)
        self._steps = []
        for index, (width, activation) in enumerate(zip(layout.hiddens, activations, strict=True)):
            augmented = np.ones((rows, 1, width + 1), np.float32)
            norm = LayerNorm(layout.norm(blocks, index, 0), 1) if layout.layer_norm else None
            apply, z = ACTIVATIONS[activation].apply, np.empty((rows, 1, width), np.float32)
            self._steps.append((layout.layer(blocks, index, 0), norm, apply, z, augmented[:, :, :-1], augmented))
        self._head = layout.head(blocks, "policy")
        # Without a bias the head leaves the closing 1 out; 0: it reads everything.
        self._num_read = 0 if layout.head_bias else self._head.shape[1]
        self._log_std = blocks.get("log_std")
        num_outputs = layout.heads["policy"]
        self._result = np.empty((rows, num_outputs + layout.num_log_std), np.float32)
        self._outputs = self._result[:, :num_outputs]

    def forward(self, inputs: np.ndarray) -> np.ndarray:
        """Distribution inputs [N, outputs] of encoded observations [N, num_inputs + 1], whose last column is 1.

        Row i is computed by vector i. The result is a buffer that the next call overwrites.
        """
        h = inputs[:, None, :]
        for layer, norm, apply, z, active, augmented in self._steps:
            np.matmul(h, layer, out=z)
            if norm is not None:
                column = z.swapaxes(1, 2)
                norm.forward(column, column, active.swapaxes(1, 2))
            apply(z, active)
            h = augmented
        if self._num_read:
            h = h[:, :, : self._num_read]
        self._outputs[:] = np.matmul(h, self._head)[:, 0]
        if self._log_std is not None:
            self._result[:, self._outputs.shape[1] :] = self._log_std
        return self._result
