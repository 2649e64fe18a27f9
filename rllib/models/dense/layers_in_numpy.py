"""Networks that read several arrays side by side, in numpy; in torch: TorchLayers (dense/in_torch.py)."""

import numpy as np

from rllib.models.arithmetic.buffers import BuffersByRows


class NumpyLayers:
    """One network, or several of which each layer is one product, with closed-form gradients.

    Results and gradients are views of buffers that the next call with the same number of rows overwrites.

    Args:
        network: computes the results of all copies, one below the other: a NumpyNetwork or a ResidualNetwork.
        num_inputs: numbers that it reads, without the closing 1.
        reads: what the arguments of a call are; "observation" closes with a 1.
        num_outputs: results of a copy; None: a single one, whose results have no axis of outputs.
        copies: number of networks; None: one, whose results are not stacked.

    Attributes:
        weights: the network's, flat float32.
        gradient: with respect to these, where `backward` writes.
    """

    def __init__(
        self,
        network,
        num_inputs: int,
        reads: tuple[str, ...],
        num_outputs: int | None = None,
        copies: int | None = None,
    ):
        self._network, self.weights, self.gradient = network, network.weights, network.gradient
        self._reads, self._stacked, self._single = reads, copies is not None, num_outputs is None
        self._shape = (copies or 1, num_outputs or 1)
        # What the first layer reads, feature-major; the last row stays 1, for the bias.
        self._inputs = BuffersByRows(lambda rows: np.ones((num_inputs + 1, rows), np.float32))
        self._widths: tuple[int, ...] = ()

    def forward(self, *read: np.ndarray, **how) -> np.ndarray:
        """Results [copies, B, outputs], or [copies, B] of a single one.

        Args:
            read: its inputs, [B, ...] each.
            how: by_batch, where there is batch renormalisation.
        """
        rows = len(read[0])
        inputs, start, widths = self._inputs[rows], 0, []
        for name, part in zip(self._reads, read, strict=True):
            columns = part.reshape(rows, -1).T
            columns = columns[:-1] if name == "observation" else columns
            inputs[start : start + len(columns)] = columns
            start += len(columns)
            widths.append(len(columns))
        self._widths = tuple(widths)
        outputs = self._network.all_outputs(inputs.T, **how).reshape(*self._shape, rows).swapaxes(1, 2)
        outputs = outputs if self._stacked else outputs[0]
        return outputs[..., 0] if self._single else outputs

    def backward(self, gradients: np.ndarray) -> np.ndarray:
        """Gradient with respect to the weights, from the gradient of the last results, in their shape."""
        return self._network.weight_gradient(self._feature_major(gradients))

    def input_gradient(self, gradients: np.ndarray, name: str) -> np.ndarray:
        """Gradient [B, width] with respect to one of its inputs; the weights' gradient is not computed."""
        place = self._reads.index(name)
        start = sum(self._widths[:place])
        which = slice(start, start + self._widths[place])
        return self._network.input_gradient(self._feature_major(gradients), which).T

    def _feature_major(self, gradients):
        gradients = gradients[..., None] if self._single else gradients
        gradients = gradients if self._stacked else gradients[None]
        return gradients.swapaxes(1, 2).reshape(-1, gradients.shape[1])
