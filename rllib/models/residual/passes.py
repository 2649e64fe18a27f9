"""SimBa's network (spec.py) in numpy, forward and backward by hand, in buffers that are made once for a batch size.

Features are feature-major, [width, B]. Large batches are computed in parts, which several cores share
(arithmetic/kernels.py): each copy by itself, or the rows of a single one.
"""

import functools
import itertools
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from rllib.models.arithmetic import kernels
from rllib.models.arithmetic.layer_norm import LayerNorm
from rllib.models.dense.in_numpy import MANY_LEFT
from rllib.models.residual.layout import EPSILON, EXPANSION, BlocksLayout, ResidualLayout


class Passes:
    """Passes of all copies over one number of rows.

    Args:
        layout: layout of simba's networks.
        weights: flat float32 [layout.size]; read where they lie.
        gradient: float32 [layout.trained.size], where `weight_gradient` writes.
        rows: the batch size.
    """

    def __init__(self, layout: ResidualLayout, weights: np.ndarray, gradient: np.ndarray, rows: int):
        trained, mean, variance = layout.split(weights)
        self._mean, self._variance, self._rows = mean[:, None], variance[:, None], rows
        self._observed = np.empty((layout.num_observed, rows), np.float32)
        of_copies, copies = layout.trained, len(layout.trained.owners)
        count = 1
        if copies == 1:
            count = max(1, min(kernels.num_parts(rows, of_copies.size), rows // kernels.FEWEST_ROWS))
        edges = [number * rows // count for number in range(count + 1)]
        # The gradient is the sum over parts of the rows: its bits depend on their number, and not on that of the cores.
        self._gradient = gradient
        self._further = np.zeros((count - 1, of_copies.size), np.float32)
        self._parts = [
            (_Part(of_copies, copy, trained, its, stop - start), copy, slice(start, stop))
            for copy in range(copies)
            for (start, stop), its in zip(itertools.pairwise(edges), (gradient, *self._further))
        ]
        self._outputs = np.empty((copies, sum(layout.heads), rows), np.float32)
        self._d_inputs = np.empty((copies, of_copies.num_inputs, rows), np.float32)

    def outputs_of(self, inputs: np.ndarray) -> np.ndarray:
        """Results [copies * outputs, B] of inputs [B, num_inputs + 1], whose last column is left out."""
        observed, count = self._observed, len(self._observed)
        np.subtract(inputs.T[:count], self._mean, out=observed)
        np.divide(observed, np.sqrt(self._variance + np.float32(EPSILON)), out=observed)
        others = inputs.T[count:-1]

        def forward(part: "_Part", copy: int, own: slice) -> None:
            part.inputs[:count], part.inputs[count:] = observed[:, own], others[:, own]
            self._outputs[copy, :, own] = part.forward()

        self._each(forward)
        return self._outputs.reshape(-1, self._rows)

    def weight_gradient(self, d_outputs: np.ndarray) -> None:
        """Writes the gradient with respect to the weights, from that with respect to the last results."""
        d_outputs = d_outputs.reshape(self._outputs.shape)
        self._each(lambda part, copy, own: part.backward(d_outputs[copy, :, own], learns=True))
        for further in self._further:
            np.add(self._gradient, further, out=self._gradient)

    def input_gradient(self, d_outputs: np.ndarray, which: slice) -> np.ndarray:
        """Gradient [inputs, B] with respect to some of the inputs behind the observation, summed over the copies."""
        d_outputs = d_outputs.reshape(self._outputs.shape)
        found = self._d_inputs[:, which]

        def backward(part: "_Part", copy: int, own: slice) -> None:
            found[copy, :, own] = part.input_gradient(d_outputs[copy, :, own], which)

        self._each(backward)
        return np.add.reduce(found)

    def _each(self, compute) -> None:
        """Calls a function of each part, its copy and its rows."""
        kernels.together([functools.partial(compute, *part) for part in self._parts])


class _Part:
    """Passes of one copy over some rows.

    Args:
        layout: layout of all copies.
        copy: index of this one.
        weights, gradient: flat float32 [layout.size] of all copies; the second is written.
        rows: their number.

    Attributes:
        inputs: [num_inputs, rows], written before `forward`; observations are normalised.
    """

    def __init__(self, layout: BlocksLayout, copy: int, weights: np.ndarray, gradient: np.ndarray, rows: int):
        width, count = layout.residual.width, layout.residual.num_blocks

        def memory(size: int = width) -> np.ndarray:
            return np.empty((size, rows), np.float32)

        self.inputs, self._scratch = memory(layout.num_inputs), memory()
        # The features, what a block adds to them, and the gradients with respect to both ends of a block's branch.
        self._x, self._added, self._d_x, self._d_read = memory(), memory(), memory(), memory()
        self._d_hidden = memory(EXPANSION * width)
        parts, gradients = (
            {name: each[copy] for name, each in layout.blocks(flat).items()} for flat in (weights, gradient)
        )
        affine = functools.partial(_Affine, parts, gradients)
        normalized = functools.partial(_Normalized, layout, copy, weights, gradient)
        self._embed = affine("embed", self.inputs, self._x, self._d_x, None)
        self._blocks = []
        for name in (f"block_{index}" for index in range(count)):
            norm, hidden = normalized(f"{name}.norm", memory(), memory(), self._scratch), memory(EXPANSION * width)
            up = affine(f"{name}.up", norm.result, hidden, self._d_hidden, self._d_read)
            down = affine(f"{name}.down", hidden, self._added, self._d_x, self._d_hidden)
            self._blocks.append(_Block(norm, up, hidden, down))
        self._norm = normalized("norm", memory(), memory(), self._scratch)
        self._outputs, self._d_outputs = memory(sum(layout.heads)), memory(sum(layout.heads))
        self._heads, stop = [], 0
        for index, outputs in enumerate(layout.heads):
            start, stop = stop, stop + outputs
            d_read = self._d_read if index else self._d_x
            ends = (each[start:stop] for each in (self._outputs, self._d_outputs))
            self._heads.append(affine(f"head_{index}", self._norm.result, *ends, d_read))

    def forward(self) -> np.ndarray:
        """Results [outputs, rows] of `inputs`."""
        x = self._x
        self._embed.forward()
        for norm, up, hidden, down in self._blocks:
            norm.forward(x)
            up.forward()
            kernels.relu(hidden, hidden)
            down.forward()
            np.add(x, self._added, out=x)
        self._norm.forward(x)
        for head in self._heads:
            head.forward()
        return self._outputs

    def backward(self, d_outputs: np.ndarray, learns: bool) -> None:
        """Computes the gradient with respect to the first features, and the weights' if it `learns`."""
        d_x, d_read, d_hidden = self._d_x, self._d_read, self._d_hidden
        np.copyto(self._d_outputs, d_outputs)
        for index, head in enumerate(self._heads):
            head.backward(learns)
            if index:
                np.add(d_x, d_read, out=d_x)
        self._norm.backward(d_x, learns)
        for norm, up, hidden, down in reversed(self._blocks):
            down.backward(learns)
            kernels.relu_derivative(d_hidden, hidden)
            up.backward(learns)
            norm.backward(d_read, learns)
            np.add(d_x, d_read, out=d_x)
        if learns:
            self._embed.learn()

    def input_gradient(self, d_outputs: np.ndarray, which: slice) -> np.ndarray:
        """Gradient [inputs, rows] with respect to some of the inputs."""
        # Of a critic of several: where another one is least, its inputs have no gradient.
        rows = np.flatnonzero(d_outputs.any(axis=0))
        if len(rows) > MANY_LEFT * d_outputs.shape[1]:
            self.backward(d_outputs, learns=False)
            return np.dot(self._embed.weight[which], self._d_x)
        of_inputs = np.zeros((which.stop - which.start, d_outputs.shape[1]), np.float32)
        of_inputs[:, rows] = np.dot(self._embed.weight[which], self._descend_of(rows, d_outputs[:, rows]))
        return of_inputs

    def _descend_of(self, rows: np.ndarray, d_outputs: np.ndarray) -> np.ndarray:
        """Gradient [width, number] with respect to the first features of these rows, from theirs alone."""
        d_x = np.dot(np.concatenate([head.weight for head in self._heads], axis=1), d_outputs)
        self._norm.backward_of(rows, d_x)
        for norm, up, hidden, down in reversed(self._blocks):
            d_hidden = np.dot(down.weight, d_x)
            kernels.relu_derivative(d_hidden, np.take(hidden, rows, axis=1))
            d_read = np.dot(up.weight, d_hidden)
            norm.backward_of(rows, d_read)
            d_x += d_read
        return d_x


class _Block(NamedTuple):
    """A residual block; `up` writes `hidden`, and `down` reads it."""

    norm: "_Normalized"
    up: "_Affine"
    hidden: np.ndarray
    down: "_Affine"


class _Affine:
    """An affine map from features to features.

    Args:
        parts, gradients: name -> parameters of a copy, and their gradients.
        name: name of the map.
        read, out: [inputs, rows] and [outputs, rows].
        d_out, d_read: gradients with respect to these; without the second one there is no `backward`.
    """

    def __init__(
        self,
        parts: Mapping[str, np.ndarray],
        gradients: Mapping[str, np.ndarray],
        name: str,
        read: np.ndarray,
        out: np.ndarray,
        d_out: np.ndarray,
        d_read: np.ndarray | None,
    ):
        self.weight, self._bias, self._out = parts[f"{name}.weight"], parts[f"{name}.bias"][:, None], out
        self._multiply = kernels.product(self.weight.T, read, out)
        self._multiply_weight_gradient = kernels.product_along_rows(read, d_out.T, gradients[f"{name}.weight"])
        ones = np.ones(out.shape[1], np.float32)
        self._sum_up = functools.partial(np.dot, d_out, ones, out=gradients[f"{name}.bias"])
        self._multiply_gradient = None if d_read is None else kernels.product(self.weight, d_out, d_read)

    def forward(self) -> None:
        self._multiply()
        np.add(self._out, self._bias, out=self._out)

    def backward(self, learns: bool) -> None:
        """Computes the gradient with respect to what it reads, and the weights' if it `learns`."""
        if learns:
            self.learn()
        self._multiply_gradient()

    def learn(self) -> None:
        """Writes the gradient with respect to weights and bias."""
        self._multiply_weight_gradient()
        self._sum_up()


class _Normalized:
    """Features behind a layer normalisation.

    Args:
        layout, copy, weights, gradient: as for _Part.
        name: name of the normalisation.
        normal, result: memory [width, rows] for features before and after scales and shifts.
        scratch: memory of this shape.

    Attributes:
        result: as given.
    """

    def __init__(
        self,
        layout: BlocksLayout,
        copy: int,
        weights: np.ndarray,
        gradient: np.ndarray,
        name: str,
        normal: np.ndarray,
        result: np.ndarray,
        scratch: np.ndarray,
    ):
        parameters, self._d_parameters = (layout.norm(flat, name)[copy] for flat in (weights, gradient))
        self._norm = LayerNorm(parameters, result.shape[1])
        self._normal, self.result, self._scratch = normal, result, scratch

    def forward(self, x: np.ndarray) -> None:
        self._norm.forward(x, self.result, self.result, self._normal)

    def backward(self, gradient: np.ndarray, learns: bool) -> None:
        """Turns the gradient with respect to the result into that with respect to x, in place."""
        self._norm.backward(gradient, self._normal, self._d_parameters if learns else None, self._scratch)

    def backward_of(self, rows: np.ndarray, gradient: np.ndarray) -> None:
        """As `backward`, of these rows alone, without the gradients of scales and shifts."""
        self._norm.backward(gradient, np.take(self._normal, rows, axis=1), None, np.empty_like(gradient), rows)
