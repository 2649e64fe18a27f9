"""Layer normalisation (Ba et al., arXiv:1607.06450) by hand, forward and backward, for the numpy networks."""

import numpy as np

# torch.nn.LayerNorm's default, added to the variance.
EPSILON = 1e-5


class LayerNorm:
    """Layer that brings the features of every row to mean 0 and variance 1, then scales and shifts them.

    Means over features are products with a row of 1 / width: along the first axis of feature-major memory BLAS is
    quicker than numpy's own reductions.

    Args:
        parameters: [..., 2, width], the scales and the shifts; read where they lie.
        rows: B, of the batches.
    """

    def __init__(self, parameters: np.ndarray, rows: int):
        width = parameters.shape[-1]
        self._scale, self._shift = parameters[..., 0, :, None], parameters[..., 1, :, None]
        self._scale_row = parameters[..., :1, :]
        self._average = np.full((1, width), 1 / width, np.float32)
        self._mean = np.empty((*parameters.shape[:-2], 1, rows), np.float32)
        self._inverse_std = np.empty_like(self._mean)

    def forward(self, z: np.ndarray, out: np.ndarray, scratch: np.ndarray, normal: np.ndarray | None = None) -> None:
        """Writes the result for z into out, and the normalised features (before scale and shift) into normal.

        Args:
            z: [..., width, B].
            out: of z's shape; it may be normal itself where no backward pass follows.
            scratch: of z's shape, other memory than normal; it may be out.
            normal: of z's shape; None: z itself.
        """
        inverse_std = self._inverse_std
        np.matmul(self._average, z, out=self._mean)
        z = np.subtract(z, self._mean, out=z if normal is None else normal)
        np.multiply(z, z, out=scratch)
        np.matmul(self._average, scratch, out=inverse_std)
        np.add(inverse_std, np.float32(EPSILON), out=inverse_std)
        np.sqrt(inverse_std, out=inverse_std)
        np.reciprocal(inverse_std, out=inverse_std)
        np.multiply(z, inverse_std, out=z)
        np.multiply(z, self._scale, out=out)
        np.add(out, self._shift, out=out)

    def backward(
        self,
        gradient: np.ndarray,
        normal: np.ndarray,
        d_parameters: np.ndarray | None,
        scratch: np.ndarray,
        rows: np.ndarray | None = None,
    ) -> None:
        """Turns the gradient with respect to the last result into that with respect to z, in place.

        With n the normalised features, s the scales and averages over the features:
        dz = (s dy - mean(s dy) - n mean(s dy n)) / std.

        Args:
            gradient: [..., width, B].
            normal: the normalised features of the last forward.
            d_parameters: [..., 2, width], receives the gradients of scales and shifts; None: they are not computed.
            scratch: of gradient's shape.
            rows: indices of the rows of the last forward that these arrays are of; None: all.
        """
        inverse_std = self._inverse_std if rows is None else self._inverse_std[..., rows]
        weights = self._scale_row * self._average
        np.multiply(gradient, normal, out=scratch)
        if d_parameters is not None:
            np.add.reduce(scratch, axis=-1, out=d_parameters[..., 0, :])
            np.add.reduce(gradient, axis=-1, out=d_parameters[..., 1, :])
        mean = np.matmul(weights, gradient)
        along_normal = np.matmul(weights, scratch)
        np.multiply(gradient, self._scale, out=gradient)
        np.subtract(gradient, mean, out=gradient)
        np.multiply(normal, along_normal, out=scratch)
        np.subtract(gradient, scratch, out=gradient)
        np.multiply(gradient, inverse_std, out=gradient)


def normalize_rows(z: np.ndarray, parameters: np.ndarray) -> None:
    """Layer normalisation of row-major features z [B, width], in place; parameters [2, width]."""
    width = z.shape[1]
    z -= np.dot(z, np.full(width, 1 / width, np.float32))[:, None]
    variance = np.einsum("bi,bi->b", z, z) * np.float32(1 / width)
    z *= (1 / np.sqrt(variance + np.float32(EPSILON)))[:, None]
    z *= parameters[0]
    z += parameters[1]
