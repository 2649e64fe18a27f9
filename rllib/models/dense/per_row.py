"""Forward pass with separate weights for every row: N perturbed policies act with a few calls of numpy.

A batched product of [N, 1, inputs] with [N, inputs, width] computes each row by itself, so a row's result does
not depend on the number of rows.
"""

import numpy as np

from rllib.models.arithmetic.activations import ACTIVATIONS
from rllib.models.arithmetic.layer_norm import LayerNorm
from rllib.models.dense.layout import LayersLayout


class NetworkPerRow:
    """The policy's tower with N flat parameter vectors, for acting.

    Args:
        layout: where the parameters lie in each vector.
        activations: of each hidden layer, names in ACTIVATIONS.
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
