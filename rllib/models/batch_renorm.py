"""Batch renormalisation (Ioffe, arXiv:1702.03275, algorithm 1) by hand, forward and backward, for the numpy networks.

With mean m and variance v of a feature over the rows of a batch, running ones M and V, and e = epsilon:

    y = scale ((x - m) / s r + d) + shift,    s = sqrt(v + e),    S = sqrt(V + e)
    r = clip(s / S, 1 / r_max, r_max),        d = clip((m - M) / S, -d_max, d_max)
    M += momentum (m - M),                    V += momentum (v - V)

Gradients flow through m and v, not through r and d. For the first `warm_up` batches r = 1 and d = 0, which is batch
normalisation. Whatever is not a training pass (acting, judging) reads y = scale (x - M) / S + shift and moves nothing.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from rllib.models import kernels
from rllib.models.described import Described

# Up to which float32 counts them.
MOST_BATCHES = 2**24


@dataclass(frozen=True)
class BatchRenorm(Described):
    """The constants.

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


class RenormalizedRows:
    """What one layer reads, normalised, for batches of one size. Feature-major: statistics are of contiguous memory.

    Args:
        constants: of the normalisation.
        blocks: those of the weights; read, and the running statistics moved, where they lie.
        gradients: those of the gradient.
        index: of the layer.
        rows: B, of the batches.
        scratch: memory for `forward` and `backward`, of the size of `gradient` or larger.

    Attributes:
        augmented: [towers, width + 1, B], the result of `forward`; the last row is ones.
        gradient: [towers, width, B], with respect to that, without the last row; `backward` turns it into that with
            respect to x.
    """

    def __init__(
        self, constants: BatchRenorm, blocks: dict, gradients: dict, index: int, rows: int, scratch: np.ndarray
    ):
        self._constants, self._rows, self._passes = constants, rows, blocks["passes"]
        parameters, running = blocks[f"renorm_{index}"], blocks[f"running_{index}"]
        self._scale, self._shift = parameters[:, 0, :, None], parameters[:, 1, :, None]
        self._mean, self._variance = running[:, 0, :, None], running[:, 1, :, None]
        self._d_scale, self._d_shift = gradients[f"renorm_{index}"].swapaxes(0, 1)
        towers, _, width = parameters.shape
        self.augmented = np.ones((towers, width + 1, rows), np.float32)
        self._result = self.augmented[:, :-1]
        self._centered = np.empty((towers, width, rows), np.float32)
        self.gradient = np.empty_like(self._centered)
        self._scratch = scratch[: self.gradient.size].reshape(self.gradient.shape)

    def forward(self, x: np.ndarray, by_batch: bool) -> None:
        """Normalises x [towers or 1, width, B] into `augmented`.

        Args:
            x: what the layer reads.
            by_batch: by the statistics of these rows, which the running ones follow, instead of by the running ones.
        """
        centered, epsilon = self._centered, np.float32(self._constants.epsilon)
        self._by_batch, self._r, self._d = by_batch, np.float32(1), np.float32(0)
        if by_batch:
            mean = kernels.row_sums(x) / np.float32(self._rows)
            kernels.affine(x, None, -mean, out=centered)
            variance = kernels.row_products(centered, centered, self._scratch) / np.float32(self._rows)
            self._inverse_std = 1 / np.sqrt(variance + epsilon)
            self._follow(mean, variance)
        else:
            kernels.affine(x, None, -self._mean, out=centered)
            self._inverse_std = 1 / np.sqrt(self._variance + epsilon)
        self._slope = self._r * self._scale * self._inverse_std
        kernels.affine(centered, self._slope, self._d * self._scale + self._shift, out=self._result)

    def _follow(self, mean: np.ndarray, variance: np.ndarray) -> None:
        """Sets the corrections, then moves the running statistics."""
        constants, momentum = self._constants, np.float32(self._constants.momentum)
        if self._passes[0] >= constants.warm_up:
            inverse = 1 / np.sqrt(self._variance + np.float32(constants.epsilon))
            self._r = np.clip(inverse / self._inverse_std, 1 / np.float32(constants.r_max), np.float32(constants.r_max))
            bound = np.float32(constants.d_max)
            self._d = np.clip((mean - self._mean) * inverse, -bound, bound)
        self._mean += momentum * (mean - self._mean)
        self._variance += momentum * (variance - self._variance)

    def backward(self, learns: bool) -> np.ndarray:
        """Turns `gradient` into that with respect to the last x, which is returned.

        With n = (x - m) / s and the slope k = r scale / s: dx = k (dy - mean(dy) - n mean(dy n)) by the batch's own
        statistics, and k dy by the running ones.

        Args:
            learns: also write the gradients of scales and shifts.
        """
        dy, centered, inverse_std = self.gradient, self._centered, self._inverse_std
        if learns or self._by_batch:
            along, total = kernels.row_products(dy, centered, self._scratch), kernels.row_sums(dy)
            if learns:
                self._d_scale[:] = (self._r * inverse_std * along + self._d * total)[..., 0]
                self._d_shift[:] = total[..., 0]
        added = None
        if self._by_batch:
            slope, added = self._slope / np.float32(-self._rows), self._scratch
            kernels.affine(centered, along * np.square(inverse_std) * slope, total * slope, out=added)
        kernels.affine(dy, self._slope, added, out=dy)
        return dy


def renormalize_rows(
    x: np.ndarray, parameters: np.ndarray, running: np.ndarray, epsilon: np.float32, out: np.ndarray
) -> None:
    """By the running statistics, for acting.

    Args:
        x: [width, B].
        parameters, running: [2, width] of one tower.
        epsilon: as in BatchRenorm.
        out: [width, B], written.
    """
    np.subtract(x, running[0][:, None], out=out)
    np.multiply(out, (parameters[0] / np.sqrt(running[1] + epsilon))[:, None], out=out)
    np.add(out, parameters[1][:, None], out=out)
