"""The attention network in numpy, for acting step by step; learners use torch (attention/in_torch.py).

Each step compares one query with a whole window of keys. Instead of projecting the window to keys and values, the
query is mapped into the space of the window's rows, and their weighted mean is projected afterwards: a thirtieth of the
products at the default sizes. Features of layers with a bias close with a 1, as in dense/in_numpy.py.
"""

import math

import numpy as np

from rllib.models.arithmetic.activations import ACTIVATIONS, sigmoid
from rllib.models.arithmetic.kernels import ZERO
from rllib.models.arithmetic.layer_norm import EPSILON, normalize_rows
from rllib.models.attention.layout import AttentionLayout, position_encodings
from rllib.models.dense.in_numpy import check_weights
from rllib.models.dense.torso_in_numpy import TorsoForward


class NumpyAttentionNetwork:
    """Computes distribution inputs and values of encoded observations and states.

    Args:
        layout: where the parameters lie.
        activations: activation function of each hidden layer before the first unit, names in ACTIVATIONS.
        weights: flat float32 [layout.size]; the network reads this very memory.
    """

    # There is no `backward`; learners have a separate network.
    closed_form = False
    gives_values = True

    def __init__(self, layout: AttentionLayout, activations: tuple[str, ...], weights: np.ndarray):
        check_weights(layout, weights)
        self.layout, self._activation_names, self._weights = layout, activations, weights
        self._window = layout.memory.window
        self._towers = [
            _Tower(layout, layout.blocks(weights), activations, tower) for tower in range(layout.num_towers)
        ]
        self._learned = None

    def forward(self, inputs: np.ndarray, seq_lens: np.ndarray, state: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Distribution inputs [B, K] and values [B] of sequences, computed in torch.

        Args:
            inputs: what `Policy.encode` gives, [B, ...], sequence after sequence.
            seq_lens: int [S], lengths of the sequences.
            state: [S, state_size] before their first rows.
        """
        if self._learned is None:
            from rllib.models.attention.in_torch import sequences_in_numpy

            self._learned = sequences_in_numpy(self.layout, self._activation_names, self._weights)
        return self._learned(inputs, seq_lens, state)

    def step(
        self, inputs: np.ndarray, state: np.ndarray, next_state: np.ndarray, values: np.ndarray | None = None
    ) -> np.ndarray:
        """Distribution inputs [B, K] of one step.

        Args:
            inputs: what `Policy.encode` gives, [B, ...].
            state: [B, state_size], zeros where an episode begins.
            next_state: [B, state_size], written; other memory than `state`.
            values: float32 [B], written if it is given.
        """
        layout, window, rows = self.layout, self._window, len(inputs)
        shape = rows, layout.num_towers, layout.memory.num_units, window, layout.memory.size
        before, after = state[:, :-1].reshape(shape), next_state[:, :-1].reshape(shape)
        after[..., :-1, :] = before[..., 1:, :]
        np.minimum(state[:, -1] + 1, window, out=next_state[:, -1])
        # Positions of the window that are still empty; the last one is the present row.
        empty = np.arange(window + 1) < window - state[:, -1:]
        results = [
            tower.results(inputs, before[:, index], after[:, index], empty) for index, tower in enumerate(self._towers)
        ]
        num_outputs = layout.heads["policy"]
        dist_inputs = results[0][:, :num_outputs]
        if values is not None:
            values[:] = results[-1][:, -1]
        if layout.num_log_std:
            log_std = np.broadcast_to(self._towers[0].log_std, (rows, layout.num_log_std))
            dist_inputs = np.concatenate([dist_inputs, log_std], axis=1)
        return dist_inputs


class _Tower:
    """Layers and heads of one tower."""

    def __init__(self, layout: AttentionLayout, blocks: dict, activations: tuple[str, ...], tower: int):
        memory = layout.memory
        self._torso = TorsoForward(layout.torso, blocks, tower) if layout.torso else None
        self._hiddens = [
            (blocks[f"hidden_{index}"][tower], ACTIVATIONS[name].apply) for index, name in enumerate(activations)
        ]
        self._embedding = blocks["embedding"][tower]
        self._units = [
            _Unit(layout, {name: blocks[f"unit_{unit}_{name}"][tower] for name in UNIT_BLOCKS})
            for unit in range(memory.num_units)
        ]
        post = ACTIVATIONS[memory.post_activation].apply
        self._posts = [(blocks[f"post_{index}"][tower], post) for index in range(len(memory.post_hiddens))]
        self._head = blocks[list(layout.head_blocks)[tower]]
        self.log_std = blocks.get("log_std")

    def results(self, inputs: np.ndarray, before: np.ndarray, after: np.ndarray, empty: np.ndarray) -> np.ndarray:
        """Results of the heads, [B, outputs]; the units' windows are [B, units, window, size]."""
        x = _through(self._hiddens, self._torso.forward(inputs) if self._torso else inputs) @ self._embedding
        for index, unit in enumerate(self._units):
            after[:, index, -1] = x
            x = unit.outputs(x, before[:, index], empty)
        return _through(self._posts, _closed(x)) @ self._head


UNIT_BLOCKS = (
    *("attention_norm", "query_key_value", "position", "score_bias", "joined", "attention_gate", "attention_gate_bias"),
    *("mlp_norm", "mlp_0", "mlp_1", "mlp_gate", "mlp_gate_bias"),
)


class _Unit:
    """A transformer unit.

    Args:
        blocks: name in UNIT_BLOCKS -> its parameters.
    """

    def __init__(self, layout: AttentionLayout, blocks: dict[str, np.ndarray]):
        memory = layout.memory
        self._blocks, self._size = blocks, memory.size
        heads, head_size = memory.num_heads, memory.head_size
        # [heads, ..., head_size] and the like: views.
        query, key, value = np.split(blocks["query_key_value"], 3, axis=1)
        self._query = query
        self._key = key.reshape(-1, heads, head_size).transpose(1, 2, 0)  # [heads, head_size, size]
        self._value = value.reshape(-1, heads, head_size).swapaxes(0, 1)  # [heads, size, head_size]
        self._biases = blocks["score_bias"].reshape(2, heads, 1, head_size)
        self._heads = heads, head_size
        self._positions = position_encodings(memory.window, memory.size)
        self._scale = np.float32(1 / math.sqrt(head_size))

    def outputs(self, x: np.ndarray, window: np.ndarray, empty: np.ndarray) -> np.ndarray:
        """Outputs [B, size] for inputs [B, size] and the window of earlier inputs [B, window, size]."""
        blocks = self._blocks
        x = self._gated("attention_gate", x, np.maximum(self._attended(x, window, empty), ZERO))
        normal = x.copy()
        normalize_rows(normal, blocks["mlp_norm"])
        within = np.maximum(_closed(normal) @ blocks["mlp_0"], ZERO)
        return self._gated("mlp_gate", x, np.maximum(_closed(within) @ blocks["mlp_1"], ZERO))

    def _attended(self, x: np.ndarray, window: np.ndarray, empty: np.ndarray) -> np.ndarray:
        (scale, shift), (heads, head_size), rows = self._blocks["attention_norm"], self._heads, len(x)
        seen = np.concatenate([window, x[:, None]], axis=1)
        _normalize(seen)
        query = ((seen[:, -1] * scale + shift) @ self._query).reshape(rows, heads, head_size).swapaxes(0, 1)
        # The keys' shift is left out: it shifts all scores of a row alike, which softmax does not notice.
        for_contents = ((query + self._biases[0]) @ self._key * scale).transpose(1, 2, 0)  # [B, size, heads]
        positions = (self._positions @ self._blocks["position"]).reshape(-1, heads, head_size).transpose(1, 2, 0)
        scores = (seen @ for_contents).swapaxes(1, 2)  # [B, heads, window + 1]
        scores = scores + ((query + self._biases[1]) @ positions).swapaxes(0, 1)
        scores *= self._scale
        np.copyto(scores, -np.inf, where=empty[:, None])
        scores -= scores.max(2, keepdims=True)
        shares = np.exp(scores, out=scores)
        shares /= shares.sum(2, keepdims=True)
        means = (shares @ seen) * scale + shift  # [B, heads, size]
        return (means.swapaxes(0, 1) @ self._value).swapaxes(0, 1).reshape(rows, -1) @ self._blocks["joined"]

    def _gated(self, name: str, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """GRU-type gate between x, which bypasses a layer, and the layer's result y."""
        gate, size = self._blocks[name], self._size
        of_y = y @ gate[:size]
        gates = of_y[:, : 2 * size] + x @ gate[size:, : 2 * size]
        gates[:, size:] -= self._blocks[f"{name}_bias"]
        sigmoid(gates, gates)
        candidate = np.tanh(of_y[:, 2 * size :] + (gates[:, :size] * x) @ gate[size:, 2 * size :])
        candidate -= x
        candidate *= gates[:, size:]
        candidate += x
        return candidate


def _normalize(z: np.ndarray) -> None:
    """Brings rows [..., width] to mean 0 and variance 1, in place."""
    average = np.full(z.shape[-1], 1 / z.shape[-1], np.float32)
    z -= (z @ average)[..., None]
    variance = np.einsum("...i,...i->...", z, z) * average[0]
    z *= (1 / np.sqrt(variance + np.float32(EPSILON)))[..., None]


def _closed(features: np.ndarray) -> np.ndarray:
    """Copy of the features with a closing column of ones."""
    closed = np.ones((len(features), features.shape[1] + 1), np.float32)
    closed[:, :-1] = features
    return closed


def _through(layers: list[tuple], features: np.ndarray) -> np.ndarray:
    for weights, apply in layers:
        z = features @ weights
        features = np.ones((len(z), z.shape[1] + 1), np.float32)
        apply(z, features[:, :-1])
    return features
