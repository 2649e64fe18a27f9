"""LSTM and GRU cells in numpy: one step for acting; forward and backward through time for learning.

Rows are in the order of their steps (memory/spec.py: StepOrder), so a step is a contiguous block of rows; arrays are
[towers, rows, numbers]. What does not depend on the step before is computed for all rows at once: the features' product
before the loop over steps, and the factors of the gradient before the loop back. A sigmoid is written with tanh, which
never overflows: all gates of a step are then one tanh.
"""

import numpy as np

from rllib.models.arithmetic import kernels
from rllib.models.memory.layout import StepOrder

ONE = np.float32(1)


class Buffers:
    """Arrays [towers, rows, numbers] by name, kept for the largest number of rows so far; filled with ones at first."""

    def __init__(self, towers: int):
        self._towers = towers
        self._arrays: dict[str, np.ndarray] = {}

    def __call__(self, name: str, rows: int, numbers: int) -> np.ndarray:
        array = self._arrays.get(name)
        if array is None or array.shape[1] < rows:
            array = self._arrays[name] = np.ones((self._towers, rows, numbers), np.float32)
        return array[:, :rows]


class LSTM:
    """LSTM cells of all towers (Hochreiter and Schmidhuber 1997, with forget gates), equations of torch.nn.LSTM.

    Gates stand in the order input, forget, candidate, output.

    Args:
        weights, gradient: the block "cell" of the weights and of their gradient (memory/spec.py: MemoryLayout).
        size: numbers in the output.
    """

    num_gates = 4

    def __init__(self, weights: np.ndarray, gradient: np.ndarray, size: int):
        self._size = size
        self._read, self._remembered = weights[:, : -size - 1], weights[:, -size - 1 :]
        self._d_read, self._d_remembered = gradient[:, : -size - 1], gradient[:, -size - 1 :]
        self._buffers = Buffers(len(weights))
        # gate = scale * tanh(scale * z) + shift; its derivative by z is (is_sigmoid - gate) * gate + is_tanh.
        self._scale, self._shift = _sigmoid_gates(size, (True, True, False, True))
        self._is_sigmoid = 2 * self._shift
        self._is_tanh = ONE - self._is_sigmoid

    def forward(self, features: np.ndarray, order: StepOrder, states: np.ndarray) -> np.ndarray:
        """Outputs [towers, B, size + 1], closing with a 1, in a buffer; remembers what `backward` needs.

        Args:
            features: [towers, B, width + 1], or without the first axis where all towers read the same; closing with 1.
            order: order of the B rows.
            states: [towers, S, 2, size], before the first steps, in the order's sequence.
        """
        size, num_sequences, rows = self._size, len(order.by_length), len(order.rows)
        buffers, remembered = self._buffers, self._remembered
        h, c = buffers("h", num_sequences + rows, size + 1), buffers("c", num_sequences + rows, size)
        h[:, :num_sequences, :-1], c[:, :num_sequences] = states[:, :, 0], states[:, :, 1]
        gates, tanh_c = buffers("gates", rows, 4 * size), buffers("tanh_c", rows, size)
        from_before, scratch = buffers("from_before", num_sequences, 4 * size), buffers("scratch", num_sequences, size)
        kernels.matmul(features, self._read, out=gates)
        for here, before, now in order.steps:
            z, count = gates[:, here], here.stop - here.start
            added, product = from_before[:, :count], scratch[:, :count]
            kernels.matmul(h[:, before], remembered, out=added)
            np.add(z, added, out=z)
            _squash(z, self._scale, self._shift)
            new_c, squashed = c[:, now], tanh_c[:, here]
            np.multiply(z[..., size : 2 * size], c[:, before], out=new_c)
            np.multiply(z[..., :size], z[..., 2 * size : 3 * size], out=product)
            np.add(new_c, product, out=new_c)
            np.tanh(new_c, out=squashed)
            np.multiply(z[..., 3 * size :], squashed, out=h[:, now, :-1])
        self._kept = features, order, gates, h, c, tanh_c
        return h[:, num_sequences:]

    def backward(self, d_outputs: np.ndarray, wants_features: bool) -> np.ndarray | None:
        """Writes the weights' gradient; returns the features' gradient [towers, B, width] if `wants_features`.

        Args:
            d_outputs: gradient of the outputs [towers, B, size]; overwritten.
            wants_features: whether the gradient of the features is computed.
        """
        features, order, gates, h, c, tanh_c = self._kept
        size, buffers = self._size, self._buffers
        towers, rows = gates.shape[:2]
        i, f, g, o = (gates[..., start : start + size] for start in range(0, 4 * size, size))
        previous = np.take(h, order.previous, axis=1, out=buffers("previous", rows, size + 1), mode="clip")
        # The gradient of each gate without the factor dc (dh for the output gate), which the loop multiplies in.
        d_gates = buffers("d_gates", rows, 4 * size)
        np.subtract(self._is_sigmoid, gates, out=d_gates)
        np.multiply(d_gates, gates, out=d_gates)
        np.add(d_gates, self._is_tanh, out=d_gates)
        by_gate = d_gates.reshape(towers, rows, 4, size)
        for gate, factor in enumerate((g, np.take(c, order.previous, axis=1), i, tanh_c)):
            np.multiply(by_gate[:, :, gate], factor, out=by_gate[:, :, gate])
        d_cells = buffers("d_cells", rows, size)  # likewise: dc = dh o (1 - tanh(c)^2) + f dc of the step after
        np.multiply(tanh_c, tanh_c, out=d_cells)
        np.subtract(ONE, d_cells, out=d_cells)
        np.multiply(d_cells, o, out=d_cells)

        num_sequences = len(order.by_length)
        carried_h, carried_c = buffers("carried_h", num_sequences, size), buffers("carried_c", num_sequences, size)
        # A copy: products of few rows are faster with a matrix that lies in order.
        back = np.ascontiguousarray(self._remembered[:, :-1].swapaxes(1, 2))
        following = 0
        for here, _, _ in reversed(order.steps):
            count = here.stop - here.start
            dh, dc = d_outputs[:, here], d_cells[:, here]
            if following:
                dh[:, :following] += carried_h[:, :following]
            np.multiply(dc, dh, out=dc)
            if following:
                dc[:, :following] += carried_c[:, :following]
            by_cell, by_output = by_gate[:, here, :3], by_gate[:, here, 3]
            np.multiply(by_cell, dc[:, :, None], out=by_cell)
            np.multiply(by_output, dh, out=by_output)
            if here.start:
                np.multiply(dc, f[:, here], out=carried_c[:, :count])
                kernels.matmul(d_gates[:, here], back, out=carried_h[:, :count])
            following = count
        kernels.matmul(features.swapaxes(-1, -2), d_gates, out=self._d_read)
        kernels.matmul(previous.swapaxes(1, 2), d_gates, out=self._d_remembered)
        if not wants_features:
            return None
        out = buffers("d_features", rows, self._read.shape[1] - 1)
        kernels.matmul(d_gates, self._read[:, :-1].swapaxes(1, 2), out=out)
        return out


class GRU:
    """GRU cells of all towers (Cho et al., arXiv:1406.1078), equations of torch.nn.GRU.

    Gates stand in the order reset, update, candidate; the reset gate multiplies the candidate's part from the step
    before, bias included. Arguments and methods as for LSTM; states are [towers, S, 1, size].
    """

    num_gates = 3

    def __init__(self, weights: np.ndarray, gradient: np.ndarray, size: int):
        self._size = size
        self._read, self._remembered = weights[:, : -size - 1], weights[:, -size - 1 :]
        self._d_read, self._d_remembered = gradient[:, : -size - 1], gradient[:, -size - 1 :]
        self._buffers = Buffers(len(weights))

    def forward(self, features: np.ndarray, order: StepOrder, states: np.ndarray) -> np.ndarray:
        size, num_sequences, rows = self._size, len(order.by_length), len(order.rows)
        buffers, remembered = self._buffers, self._remembered
        h = buffers("h", num_sequences + rows, size + 1)
        h[:, :num_sequences, :-1] = states[:, :, 0]
        gates, from_before = buffers("gates", rows, 3 * size), buffers("from_before", rows, 3 * size)
        scratch = buffers("scratch", num_sequences, size)
        kernels.matmul(features, self._read, out=gates)
        for here, before, now in order.steps:
            z, added, product = gates[:, here], from_before[:, here], scratch[:, : here.stop - here.start]
            kernels.matmul(h[:, before], remembered, out=added)
            _gru_gates(z, added, product, size)
            new_h, candidate = h[:, now, :-1], z[..., 2 * size :]
            np.subtract(h[:, before, :-1], candidate, out=new_h)
            np.multiply(new_h, z[..., size : 2 * size], out=new_h)
            np.add(new_h, candidate, out=new_h)
        self._kept = features, order, gates, h, from_before
        return h[:, num_sequences:]

    def backward(self, d_outputs: np.ndarray, wants_features: bool) -> np.ndarray | None:
        features, order, gates, h, from_before = self._kept
        size, buffers = self._size, self._buffers
        towers, rows = gates.shape[:2]
        reset, update, candidate = (gates[..., start : start + size] for start in range(0, 3 * size, size))
        previous = np.take(h, order.previous, axis=1, out=buffers("previous", rows, size + 1), mode="clip")
        # The gradient of each gate without the factor dh, which the loop multiplies in. d_gates refers to the product
        # with the state; the product with the features has the same gradient but for the candidate.
        d_gates = buffers("d_gates", rows, 3 * size)
        d_reset, d_update, d_remembered = (d_gates[..., start : start + size] for start in range(0, 3 * size, size))
        d_candidate = (ONE - update) * (ONE - candidate * candidate)
        np.multiply(d_candidate, reset, out=d_remembered)
        np.multiply(d_remembered, from_before[..., 2 * size :], out=d_reset)
        np.multiply(d_reset, ONE - reset, out=d_reset)
        np.subtract(previous[..., :-1], candidate, out=d_update)
        np.multiply(d_update, update, out=d_update)
        np.multiply(d_update, ONE - update, out=d_update)

        carried = buffers("carried", len(order.by_length), size)
        back = np.ascontiguousarray(self._remembered[:, :-1].swapaxes(1, 2))
        by_gate, following = d_gates.reshape(towers, rows, 3, size), 0
        for here, _, _ in reversed(order.steps):
            count = here.stop - here.start
            dh, factors = d_outputs[:, here], by_gate[:, here]
            if following:
                dh[:, :following] += carried[:, :following]
            np.multiply(factors, dh[:, :, None], out=factors)
            if here.start:
                kernels.matmul(d_gates[:, here], back, out=carried[:, :count])
                carried[:, :count] += dh * update[:, here]
            following = count
        kernels.matmul(previous.swapaxes(1, 2), d_gates, out=self._d_remembered)
        np.multiply(d_candidate, d_outputs, out=d_remembered)
        kernels.matmul(features.swapaxes(-1, -2), d_gates, out=self._d_read)
        if not wants_features:
            return None
        out = buffers("d_features", rows, self._read.shape[1] - 1)
        kernels.matmul(d_gates, self._read[:, :-1].swapaxes(1, 2), out=out)
        return out


class LSTMStep:
    """One tower's LSTM for acting.

    Args:
        weights: the tower's part of the block "cell".
        size: numbers in the output.
        rows: number of rows.

    Attributes:
        features: [rows, width + 1] closing with a 1; to be written before a step.
        outputs: [rows, size + 1] closing with a 1.
    """

    def __init__(self, weights: np.ndarray, size: int, rows: int):
        self._size, self._weights = size, weights
        # Features and the output of the step before side by side, so that one product reads both.
        self._read = np.ones((rows, len(weights)), np.float32)
        self.features, self._before = self._read[:, : -size - 1], self._read[:, -size - 1 : -1]
        self.outputs = np.ones((rows, size + 1), np.float32)
        self._z = z = np.empty((rows, 4 * size), np.float32)
        self._gates = [z[:, start : start + size] for start in range(0, 4 * size, size)]
        self._scratch = np.empty((rows, size), np.float32)
        self._scale, self._shift = _sigmoid_gates(size, (True, True, False, True))

    def step(self, state: np.ndarray, next_state: np.ndarray) -> None:
        """Reads `features`, writes `outputs`; states [rows, 2 * size] are h and c side by side."""
        size, scratch = self._size, self._scratch
        i, f, g, o = self._gates
        self._before[:] = state[:, :size]
        kernels.matmul(self._read, self._weights, out=self._z)
        _squash(self._z, self._scale, self._shift)
        c = next_state[:, size:]
        np.multiply(f, state[:, size:], out=c)
        np.multiply(i, g, out=scratch)
        np.add(c, scratch, out=c)
        np.tanh(c, out=scratch)
        h = next_state[:, :size]
        np.multiply(o, scratch, out=h)
        self.outputs[:, :-1] = h


class GRUStep:
    """One tower's GRU for acting; arguments and attributes as for LSTMStep, states are [rows, size]."""

    def __init__(self, weights: np.ndarray, size: int, rows: int):
        self._size = size
        self._read, self._remembered = weights[: -size - 1], weights[-size - 1 :]
        self.features = np.ones((rows, len(self._read)), np.float32)
        self.outputs = np.ones((rows, size + 1), np.float32)
        self._before = np.ones((rows, size + 1), np.float32)
        self._z, self._added = np.empty((rows, 3 * size), np.float32), np.empty((rows, 3 * size), np.float32)
        self._scratch = np.empty((rows, size), np.float32)

    def step(self, state: np.ndarray, next_state: np.ndarray) -> None:
        """Reads `features`, writes `outputs`."""
        size, z = self._size, self._z
        self._before[:, :-1] = state
        kernels.matmul(self.features, self._read, out=z)
        kernels.matmul(self._before, self._remembered, out=self._added)
        _gru_gates(z, self._added, self._scratch, size)
        candidate = z[:, 2 * size :]
        np.subtract(state, candidate, out=next_state)
        np.multiply(next_state, z[:, size : 2 * size], out=next_state)
        np.add(next_state, candidate, out=next_state)
        self.outputs[:, :-1] = next_state


CELLS = {"lstm": (LSTM, LSTMStep), "gru": (GRU, GRUStep)}


def _sigmoid_gates(size: int, are_sigmoid: tuple[bool, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Scale and shift of each number of the gates: gate = scale * tanh(scale * z) + shift."""
    sigmoid = np.repeat(np.array(are_sigmoid), size)
    return np.where(sigmoid, 0.5, 1.0).astype(np.float32), np.where(sigmoid, 0.5, 0.0).astype(np.float32)


def _squash(z: np.ndarray, scale, shift) -> None:
    np.multiply(z, scale, out=z)
    np.tanh(z, out=z)
    np.multiply(z, scale, out=z)
    np.add(z, shift, out=z)


HALF = np.float32(0.5)


def _gru_gates(z: np.ndarray, added: np.ndarray, scratch: np.ndarray, size: int) -> None:
    """Turns z, the products with the features, into the gates; `added` are the products with the state before."""
    sigmoids, candidate = z[..., : 2 * size], z[..., 2 * size :]
    np.add(sigmoids, added[..., : 2 * size], out=sigmoids)
    _squash(sigmoids, HALF, HALF)
    np.multiply(z[..., :size], added[..., 2 * size :], out=scratch)
    np.add(candidate, scratch, out=candidate)
    np.tanh(candidate, out=candidate)
