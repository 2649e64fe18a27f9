"""The recurrent network in numpy: hidden layers, LSTM or GRU, more layers, heads; forward and backward by hand.

Acting and learning work on views of one flat vector, as in dense/in_numpy.py. Activations are [towers, rows, width + 1]
and close with a 1, so biases come with the products; rows are in the order of their steps (memory/spec.py: StepOrder).
"""

from functools import cached_property

import numpy as np

from rllib.models.arithmetic import kernels
from rllib.models.arithmetic.activations import ACTIVATIONS, Activation
from rllib.models.arithmetic.buffers import BuffersByRows
from rllib.models.dense.in_numpy import check_weights
from rllib.models.dense.torso_in_numpy import TorsoForward
from rllib.models.memory.cells import CELLS, Buffers
from rllib.models.memory.layout import MemoryLayout, StepOrder


class NumpyMemoryNetwork:
    """Computes distribution inputs and values of encoded observations and states.

    Args:
        layout: where the parameters lie.
        activations: activation function of each hidden layer before the cell, names in ACTIVATIONS.
        weights: flat float32 [layout.size]; the network reads this very memory.

    Attributes:
        closed_form: whether there is a `backward`; convolutions have none.
        gives_values: True, since every step can compute values as well.
    """

    gives_values = True

    def __init__(self, layout: MemoryLayout, activations: tuple[str, ...], weights: np.ndarray):
        check_weights(layout, weights)
        self.layout = layout
        self.closed_form = layout.torso is None
        self.activations = [ACTIVATIONS[name] for name in activations]
        self.blocks = layout.blocks(weights)
        self.torsos = [
            TorsoForward(layout.torso, self.blocks, tower) for tower in range(len(layout.towers) if layout.torso else 0)
        ]
        self._acting = BuffersByRows(lambda rows: _Acting(self, rows))

    # Both are made when they are needed: a network that only acts takes less memory.
    @cached_property
    def gradient(self) -> np.ndarray:
        """The newest gradient, float32 [layout.size]."""
        return np.zeros(self.layout.size, np.float32)

    @cached_property
    def _training(self) -> "_Training":
        return _Training(self)

    def forward(self, inputs: np.ndarray, seq_lens: np.ndarray, state: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Distribution inputs [B, K] (feature-major memory) and values [B]; remembers what `backward` needs.

        Args:
            inputs: [B, num_inputs + 1], sequence after sequence.
            seq_lens: int [S], lengths of the sequences.
            state: [S, state_size] before their first rows.
        """
        return self._training.forward(inputs, seq_lens, state)

    def backward(self, gradients: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
        """The gradient with respect to the weights, float32 [layout.size], in a buffer that the next call overwrites.

        No gradient flows into the initial states of the sequences.

        Args:
            gradients: gradients of the loss with respect to the two results of the last `forward`.
        """
        self._training.backward(*gradients)
        return self.gradient

    def step(
        self, inputs: np.ndarray, state: np.ndarray, next_state: np.ndarray, values: np.ndarray | None = None
    ) -> np.ndarray:
        """Distribution inputs [B, K] of one step, in a buffer that the next call with this number of rows overwrites.

        Args:
            inputs: what `Policy.encode` gives, [B, ...].
            state: [B, state_size], zeros where an episode begins.
            next_state: [B, state_size], written.
            values: float32 [B], written if it is given.
        """
        return self._acting[len(inputs)].step(inputs, state, next_state, values)


# ---------------------------------------------------------------------- acting


class _Acting:
    """Buffers for one number of rows. Each tower is computed separately, by products of plain matrices."""

    def __init__(self, network: NumpyMemoryNetwork, rows: int):
        layout, blocks = network.layout, network.blocks
        self._torsos = network.torsos
        self._towers = [_ActingTower(network, tower, rows) for tower in range(layout.num_towers)]
        self._tower_state = layout.memory.size * layout.memory.num_states
        num_outputs = layout.heads["policy"]
        self._heads = [blocks[name] for name in layout.head_blocks]
        self._results = [np.empty((rows, head.shape[1]), np.float32) for head in self._heads]
        self._dist_inputs = self._results[0][:, :num_outputs]
        self._log_std = None
        if layout.num_log_std:
            self._log_std = blocks["log_std"]
            self._dist_inputs = np.empty((rows, num_outputs + layout.num_log_std), np.float32)
        self._num_outputs = num_outputs
        self._values = self._results[-1][:, -1] if "value" in layout.heads else None

    def step(self, inputs, state, next_state, values) -> np.ndarray:
        for index, (tower, head, results) in enumerate(zip(self._towers, self._heads, self._results)):
            own = slice(index * self._tower_state, (index + 1) * self._tower_state)
            read = self._torsos[index].forward(inputs) if self._torsos else inputs
            kernels.matmul(tower.features(read, state[:, own], next_state[:, own]), head, out=results)
        if values is not None:
            values[:] = self._values
        if self._log_std is not None:
            self._dist_inputs[:, : self._num_outputs] = self._results[0][:, : self._num_outputs]
            self._dist_inputs[:, self._num_outputs :] = self._log_std
        return self._dist_inputs


class _ActingTower:
    def __init__(self, network: NumpyMemoryNetwork, tower: int, rows: int):
        blocks, memory = network.blocks, network.layout.memory
        post = ACTIVATIONS[memory.post_activation]
        self._cell = CELLS[memory.cell][1](blocks["cell"][tower], memory.size, rows)
        hiddens = [(blocks[f"hidden_{index}"][tower], each.apply) for index, each in enumerate(network.activations)]
        posts = [(blocks[f"post_{index}"][tower], post.apply) for index in range(len(memory.post_hiddens))]
        self._hiddens = [(*layer, *_layer_buffers(layer[0], rows)) for layer in hiddens]
        if hiddens:  # the last layer writes where the cell reads
            self._hiddens[-1] = (*self._hiddens[-1][:3], self._cell.features)
        self._posts = [(*layer, *_layer_buffers(layer[0], rows)) for layer in posts]

    def features(self, inputs: np.ndarray, state: np.ndarray, next_state: np.ndarray) -> np.ndarray:
        """Inputs of the heads, [rows, width + 1]."""
        if self._hiddens:
            _through(self._hiddens, inputs)
        else:
            self._cell.features[:] = inputs
        self._cell.step(state, next_state)
        return _through(self._posts, self._cell.outputs)


def _layer_buffers(weights: np.ndarray, rows: int) -> tuple[np.ndarray, np.ndarray]:
    width = weights.shape[1]
    return np.empty((rows, width), np.float32), np.ones((rows, width + 1), np.float32)


def _through(layers: list[tuple], features: np.ndarray) -> np.ndarray:
    for weights, apply, z, out in layers:
        kernels.matmul(features, weights, out=z)
        apply(z, out[:, :-1])
        features = out
    return features


# ---------------------------------------------------------------------- learning


class _Training:
    """Forward and backward over whole sequences, all towers at once."""

    def __init__(self, network: NumpyMemoryNetwork):
        layout, blocks, memory = network.layout, network.blocks, network.layout.memory
        gradients = layout.blocks(network.gradient)
        self._layout, self._torsos = layout, network.torsos
        self._buffers = buffers = Buffers(layout.num_towers)
        post = ACTIVATIONS[memory.post_activation]
        self._hiddens = [
            _Layer(f"hidden_{index}", blocks, gradients, activation, buffers)
            for index, activation in enumerate(network.activations)
        ]
        self._cell = CELLS[memory.cell][0](blocks["cell"], gradients["cell"], memory.size)
        self._posts = [
            _Layer(f"post_{index}", blocks, gradients, post, buffers) for index in range(len(memory.post_hiddens))
        ]
        self._heads = [(blocks[name], gradients[name]) for name in layout.head_blocks]
        self._log_std = blocks.get("log_std")
        self._d_log_std = gradients.get("log_std")
        self._num_outputs = layout.heads["policy"]

    def forward(self, inputs, seq_lens, state) -> tuple[np.ndarray, np.ndarray]:
        layout, memory = self._layout, self._layout.memory
        self._order = order = StepOrder(seq_lens)
        features = inputs[order.rows]
        if self._torsos:
            features = np.stack([torso.forward(features) for torso in self._torsos])
        for layer in self._hiddens:
            features = layer.forward(features)
        # [towers, S, h and c, size]
        shape = len(seq_lens), layout.num_towers, memory.num_states, memory.size
        states = state[order.by_length].reshape(shape).swapaxes(0, 1)
        features = self._cell.forward(features, order, states)
        for layer in self._posts:
            features = layer.forward(features)
        self._features = features
        results = np.concatenate([head.T @ read.T for (head, _), read in zip(self._heads, features)])
        outputs = np.take(results, order.back, axis=1)
        dist_inputs, values = outputs[: self._num_outputs], outputs[self._num_outputs :].reshape(-1)
        if self._log_std is not None:
            log_std = np.broadcast_to(self._log_std[:, None], (len(self._log_std), len(inputs)))
            dist_inputs = np.concatenate([dist_inputs, log_std])
        return dist_inputs.T, values

    def backward(self, d_dist_inputs: np.ndarray, d_values: np.ndarray) -> None:
        rows, order = len(d_dist_inputs), self._order
        num_outputs = self._num_outputs
        if self._log_std is not None:
            d_dist_inputs[:, num_outputs:].sum(0, out=self._d_log_std)
        d_results = np.concatenate([d_dist_inputs.T[:num_outputs], d_values.reshape(-1, rows)])
        d_results = np.take(d_results, order.rows, axis=1)
        d_features, start = self._buffers("d_top", rows, self._features.shape[2] - 1), 0
        for read, d_read, (head, gradient) in zip(self._features, d_features, self._heads):
            own = d_results[start : start + head.shape[1]]
            kernels.matmul(read.T, own.T, out=gradient)
            # In a shared tower only the policy's outputs, which come first (MemoryLayout); other towers have no more.
            kernels.matmul(own[:num_outputs].T, head[:-1, :num_outputs].T, out=d_read)
            start += head.shape[1]
        for layer in reversed(self._posts):
            d_features = layer.backward(d_features, True)
        d_features = self._cell.backward(d_features, bool(self._hiddens))
        for index in reversed(range(len(self._hiddens))):
            d_features = self._hiddens[index].backward(d_features, index > 0)


class _Layer:
    """A fully connected layer of all towers."""

    def __init__(self, name: str, blocks: dict, gradients: dict, activation: Activation, buffers: Buffers):
        self._name, self._activation, self._buffers = name, activation, buffers
        self._weights, self._gradient = blocks[name], gradients[name]

    def forward(self, features: np.ndarray) -> np.ndarray:
        """Outputs [towers, B, width + 1] for features [towers, B, before + 1], or [B, before + 1] for all towers."""
        rows, width = features.shape[-2], self._weights.shape[2]
        z, out = self._buffers(f"{self._name}_z", rows, width), self._buffers(self._name, rows, width + 1)
        kernels.matmul(features, self._weights, out=z)
        self._activation.apply(z, out[..., :-1])
        self._kept = features, z, out[..., :-1]
        return out

    def backward(self, d_outputs: np.ndarray, wants_features: bool) -> np.ndarray | None:
        """Writes the weights' gradient; returns the features' gradient if it is wanted. Overwrites d_outputs."""
        features, z, h = self._kept
        scratch = self._buffers(f"{self._name}_scratch", *z.shape[1:])
        self._activation.multiply_derivative(d_outputs, h, z, scratch)
        kernels.matmul(features.swapaxes(-1, -2), d_outputs, out=self._gradient)
        if not wants_features:
            return None
        out = self._buffers(f"{self._name}_d_features", len(z[0]), self._weights.shape[1] - 1)
        kernels.matmul(d_outputs, self._weights[:, :-1].swapaxes(1, 2), out=out)
        return out
