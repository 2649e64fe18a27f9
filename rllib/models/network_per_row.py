"""A forward pass in which every row has its own weights: N perturbed policies act with a few calls of numpy.

A batched product of [N, 1, inputs] with [N, inputs, width] computes each row by itself, so a row's result does
not depend on the number of rows.
"""

import numpy as np

from rllib.models.activations import ACTIVATIONS
from rllib.models.layer_norm import LayerNorm
from rllib.models.layout import ParameterLayout


class NetworkPerRow:
    """The policy's tower of N flat parameter vectors, for acting.

    Args:
        layout: where the parameters lie in each vector.
        activations: of each hidden layer, names in ACTIVATIONS.
        weights: float32 [N, layout.size]; the network reads this very memory, so rows may be replaced at any time.
    """

    def __init__(self, layout: ParameterLayout, activations: tuple[str, ...], weights: np.ndarray):
        rows = len(weights)
        if weights.shape != (rows, layout.size) or weights.dtype != np.float32:
            raise ValueError(
                f"the network needs float32 weights [N, {layout.size}], but got {weights.dtype} of shape "
                f"{list(weights.shape)}"
            )
        blocks, offset = {}, 0
        for name, shape in layout.block_shapes().items():
            size = int(np.prod(shape))
            blocks[name] = weights[:, offset : offset + size].reshape(rows, *shape)
            offset += size
        self._steps = []
        for index, (width, activation) in enumerate(zip(layout.hiddens, activations, strict=True)):
            block = blocks[f"hidden_{index}"]
            augmented = np.ones((rows, 1, width + 1), np.float32)
            layer = block[:, 0] if index else block[:, :, :width]
            norm = LayerNorm(blocks[f"norm_{index}"][:, 0], 1) if layout.layer_norm else None
            apply, z = ACTIVATIONS[activation].apply, np.empty((rows, 1, width), np.float32)
            self._steps.append((layer, norm, apply, z, augmented[:, :, :-1], augmented))
        self._head = blocks["policy_head"] if layout.num_towers == 2 else blocks["head"][:, :, : layout.num_outputs]
        self._log_std = blocks.get("log_std")
        num_log_std = layout.num_log_std
        self._result = np.empty((rows, layout.num_outputs + num_log_std), np.float32)
        self._outputs = self._result[:, : layout.num_outputs]

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
        self._outputs[:] = np.matmul(h, self._head)[:, 0]
        if self._log_std is not None:
            self._result[:, self._outputs.shape[1] :] = self._log_std
        return self._result
