"""Batch renormalisation (Ioffe, arXiv:1702.03275, algorithm 1) by hand, forward and backward, for the numpy networks.

With mean m and variance v of a feature over the rows of a batch, running ones M and V, and e = epsilon:

    y = scale ((x - m) / s r + d) + shift,    s = sqrt(v + e),    S = sqrt(V + e)
    r = clip(s / S, 1 / r_max, r_max),        d = clip((m - M) / S, -d_max, d_max)
    M += momentum (m - M),                    V += momentum (v - V)

Gradients flow through m and v, not through r and d. For the first `warm_up` batches r = 1 and d = 0, which is batch
normalisation. Passes other than training (acting, judging) compute y = scale (x - M) / S + shift and move nothing.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from rllib.models.arithmetic import kernels
from rllib.models.arithmetic.kernels import ONE, ZERO
from rllib.storage.json_dataclass import Described

# float32 counts batches exactly up to this number.
MOST_BATCHES = 2**24


@dataclass(frozen=True)
class BatchRenorm(Described):
    """Constants of batch renormalisation.

    Attributes:
        momentum: share of a new batch in the running statistics.
        epsilon: added to variances.
        warm_up: batches that are normalised by themselves alone, at most MOST_BATCHES.
        r_max, d_max: bounds of the corrections by the running statistics.
    """

    kind: ClassVar[str] = "batch_renorm"
    momentum: float = 0.01
    epsilon: float = 1e-3
    warm_up: int = 100_000
    r_max: float = 3.0
    d_max: float = 5.0


class RenormalizedProduct:
    """Affine map of a layer, or of the heads of all towers, over normalised rows, for batches of one size.

    The normalised features y are never written. With x' = x - m of the batch, or x' = x by the running statistics,

        y = slope x' + offset,    slope = scale r / s,    offset = scale d + shift    (d = -M / S where x' = x)

    so that slope W and b + offset W make of x' what weights W and bias b make of y. Weights are fewer than
    the numbers of a batch. Feature-major: statistics are of contiguous memory.

    Args:
        constants: constants of the normalisation.
        index: index of the layer.
        weights: [towers, width + 1, outputs]; the last row is the bias.
        gradient: likewise; written.
        blocks: of all weights, by name; read in place, and the running statistics in them moved.
        gradients: the same blocks of the gradient.
        rows: B, of the batches.
        scratch: float32, at least as long as what all towers read in a batch, and as the weights.
    """

    def __init__(
        self,
        constants: BatchRenorm,
        index: int,
        weights: np.ndarray,
        gradient: np.ndarray,
        blocks: dict,
        gradients: dict,
        rows: int,
        scratch: np.ndarray,
    ):
        self._constants, self._rows, self._passes = constants, np.float32(rows), blocks["passes"]
        self._weights, self._bias = weights[:, :-1], weights[:, -1:]
        self._gradient, self._bias_gradient = gradient[:, :-1], gradient[:, -1:]
        parameters, running = blocks[f"renorm_{index}"], blocks[f"running_{index}"]
        self._scale, self._shift = parameters[:, 0, :, None], parameters[:, 1, :, None]
        self._mean, self._variance = running[:, 0, :, None], running[:, 1, :, None]
        self._scale_gradient, self._shift_gradient = gradients[f"renorm_{index}"].swapaxes(0, 1)[..., None]
        towers, width, _ = self._weights.shape
        # The first layer of all towers reads the same rows.
        self._centered = np.ones((towers if index else 1, width + 1, rows), np.float32)
        self._folded, self._correlations = np.empty_like(weights, order="C"), np.empty_like(weights, order="C")
        self._read_scratch = scratch[: towers * width * rows].reshape(towers, width, rows)
        self._weight_scratch = scratch[: self._weights.size].reshape(self._weights.shape)

    def forward(self, x: np.ndarray, by_batch: bool, out: np.ndarray) -> None:
        """Writes the product.

        Args:
            x: [towers or 1, width + 1, B], the inputs; the last row is ones. Kept for `backward`.
            by_batch: by the statistics of these rows, which the running ones follow, instead of by the running ones.
            out: [towers, outputs, B].
        """
        self._by_batch = by_batch
        if by_batch:
            self._read = self._centered
            self._center(x[:, :-1])
        else:
            self._read = x
            self._r, self._inverse_std = ONE, self._running_inverse_std()
            self._d = -self._mean * self._inverse_std
        self._slope = self._scale * self._r * self._inverse_std
        self._offset = self._scale * self._d + self._shift
        kernels.scale_rows(self._weights, self._slope, out=self._folded[:, :-1])
        np.add(self._bias, np.matmul(self._offset.swapaxes(1, 2), self._weights), out=self._folded[:, -1:])
        kernels.matmul(self._folded.swapaxes(1, 2), self._read, out=out)

    def _running_inverse_std(self) -> np.ndarray:
        return 1 / np.sqrt(self._variance + np.float32(self._constants.epsilon))

    def _center(self, x: np.ndarray) -> None:
        """Takes the statistics of x, sets the corrections, then moves the running statistics."""
        constants, momentum = self._constants, np.float32(self._constants.momentum)
        mean, centered = kernels.row_sums(x) / self._rows, self._centered[:, :-1]
        kernels.subtract_from_rows(x, mean, out=centered)
        variance = kernels.row_squares(centered) / self._rows
        self._inverse_std = 1 / np.sqrt(variance + np.float32(constants.epsilon))
        self._r, self._d = ONE, ZERO
        if self._passes[0] >= constants.warm_up:
            inverse = self._running_inverse_std()
            self._r = np.clip(inverse / self._inverse_std, 1 / np.float32(constants.r_max), np.float32(constants.r_max))
            bound = np.float32(constants.d_max)
            self._d = np.clip((mean - self._mean) * inverse, -bound, bound)
        self._mean += momentum * (mean - self._mean)
        self._variance += momentum * (variance - self._variance)

    def backward(self, gradient: np.ndarray, learns: bool, out: np.ndarray | None) -> None:
        """Computes the gradients of the last `forward`.

        With g the gradient with respect to the product and dy = W g, the sums over the batch of dy x' and of dy are
        the sums of W * (x' g^T) and of W (sum of g) over the outputs; the weights' gradient needs x' g^T as
        well. dx = slope dy - slope / B (sum(dy) + x' sum(dy x') / s^2) by the batch's own statistics, and slope dy by
        the running ones.

        Args:
            gradient: g, [towers, outputs, B].
            learns: write the gradients of weights, scales and shifts.
            out: [towers, width, B], receives dx; None: it is not needed.
        """
        if learns or self._by_batch:
            kernels.matmul(self._read, gradient.swapaxes(1, 2), out=self._correlations)
            along_rows, totals = self._correlations[:, :-1], self._correlations[:, -1:]
            along = kernels.row_products(self._weights, along_rows)
            total = np.matmul(self._weights, totals.swapaxes(1, 2))
        if learns:
            self._scale_gradient[:] = self._r * self._inverse_std * along + self._d * total
            self._shift_gradient[:] = total
            kernels.scale_rows(totals, self._offset, out=self._gradient)
            kernels.add_scaled_rows(along_rows, self._slope, out=self._gradient, scratch=self._weight_scratch)
            self._bias_gradient[:] = totals
        if out is None:
            return
        if not self._by_batch:
            kernels.matmul(self._folded[:, :-1], gradient, out=out)
            return
        share = self._slope / -self._rows
        kernels.matmul(self._folded[:, :-1], gradient, out=out, plus=share * total)
        of_spread = share * along * np.square(self._inverse_std)
        kernels.add_scaled_rows(self._centered[:, :-1], of_spread, out=out, scratch=self._read_scratch)


def renormalize_rows(
    x: np.ndarray, parameters: np.ndarray, running: np.ndarray, epsilon: np.float32, out: np.ndarray
) -> None:
    """Normalises by the running statistics, for acting.

    Args:
        x: [width, B].
        parameters, running: [2, width] of one tower.
        epsilon: as in BatchRenorm.
        out: [width, B], written.
    """
    np.subtract(x, running[0][:, None], out=out)
    np.multiply(out, (parameters[0] / np.sqrt(running[1] + epsilon))[:, None], out=out)
    np.add(out, parameters[1][:, None], out=out)
