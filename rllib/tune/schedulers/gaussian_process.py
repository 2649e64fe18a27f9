"""Gaussian process over points of the unit cube whose function drifts in time (arXiv:1601.06650, section 3).

Of numpy alone: scikit-learn has no kernel that forgets, and Optuna's Gaussian process is private and needs torch.
"""

from dataclasses import dataclass, replace

import numpy as np

# Values that are tried for the kernel: lengths in the unit cube, forgetting per unit of time, share of noise.
_LENGTHS = (0.1, 0.2, 0.4, 0.8)
_FORGETTING = (0.0, 0.02, 0.1, 0.3)
_NOISE = (0.01, 0.1, 0.4)


@dataclass(frozen=True)
class Kernel:
    """Time-varying squared exponential kernel (arXiv:2002.02518, section 4.1), with the variance 1.

    k((x, t), (x', t')) = exp(-|(x - x') / length|^2 / 2) * (1 - forgetting)^(|t - t'| / 2)

    Attributes:
        lengths: length scale of each of the D dimensions.
        forgetting: epsilon in [0, 1); 0: the function does not change.
        noise: share of the noise in the variance of an observation, in (0, 1); the function has the rest.
    """

    lengths: tuple[float, ...]
    forgetting: float
    noise: float

    def __call__(self, points, times, other_points, other_times) -> np.ndarray:
        """Covariance of the function at (points, times), [N, D] and [N], and at M others: [N, M] float64."""
        return self._at(*distances(points, times, other_points, other_times))

    def of_observations(self, squares, apart) -> np.ndarray:
        """Covariance of N observations, noise included, [N, N], by their `distances`."""
        return (1.0 - self.noise) * self._at(squares, apart) + self.noise * np.eye(len(apart))

    def _at(self, squares, apart) -> np.ndarray:
        return np.exp((np.log1p(-self.forgetting) * apart - squares @ np.power(self.lengths, -2.0)) / 2)


def distances(points, times, other_points, other_times) -> tuple[np.ndarray, np.ndarray]:
    """Squared distances by dimension, [N, M, D], and distances in time, [N, M], of N points from M others."""
    return np.square(points[:, None] - other_points[None]), np.abs(times[:, None] - other_times[None])


class GaussianProcess:
    """Posterior of a drifting function after observations of it (Rasmussen and Williams 2006, algorithm 2.1).

    Args:
        kernel: covariance of the function.
        points: [N, D] float64 in the unit cube; N may be 0.
        times: [N] float64.
        values: [N] float64, of mean 0 and variance 1.
    """

    def __init__(self, kernel: Kernel, points, times, values):
        self._kernel, self._points, self._times = kernel, points, times
        covariance = kernel.of_observations(*distances(points, times, points, times))
        self._whitening = np.linalg.inv(np.linalg.cholesky(covariance))
        self._whitened = self._whitening @ values

    def predict(self, points, time: float) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation of the function at M points and one time: [M] float64 each."""
        share = 1.0 - self._kernel.noise
        cross = share * self._kernel(self._points, self._times, points, np.full(len(points), float(time)))
        cross = self._whitening @ cross
        return cross.T @ self._whitened, np.sqrt(np.maximum(share - np.square(cross).sum(0), 0.0))


def log_likelihoods(kernels, points, times, values) -> np.ndarray:
    """Logarithm of the marginal likelihood of observations by each of K kernels, without the constant: [K] float64.

    log p(y) = -y' C^-1 y / 2 - log|C| / 2 (Rasmussen and Williams 2006, eq. 2.30). One decomposition gives both terms:
    the last row of the Cholesky factor of [[C, y], [y', c]] is L^-1 y.

    Args:
        kernels: K kernels.
        points, times, values: observations, as for GaussianProcess.
    """
    count, apart = len(values), distances(points, times, points, times)
    covariances = np.empty((len(kernels), count + 1, count + 1))
    for kernel, matrix in zip(kernels, covariances):
        matrix[:count, :count] = kernel.of_observations(*apart)
        matrix[:count, count] = matrix[count, :count] = values
        matrix[count, count] = values @ values / kernel.noise + 1.0  # large enough to leave the matrix positive
    factors = np.linalg.cholesky(covariances)
    logs = np.log(np.diagonal(factors, axis1=1, axis2=2)[:, :count]).sum(1)
    return -np.square(factors[:, count, :count]).sum(1) / 2 - logs


def fitted_kernel(points, times, values) -> Kernel:
    """The most likely kernel on a grid: first with one length for all dimensions, then each dimension's length in turn.

    Args:
        points, times, values: observations, as for GaussianProcess.
    """

    def best(kernels: list[Kernel]) -> Kernel:
        return kernels[int(log_likelihoods(kernels, points, times, values).argmax())]

    dimensions = points.shape[1]
    kernel = best(
        [
            Kernel((length,) * dimensions, forgetting, noise)
            for length in _LENGTHS
            for forgetting in _FORGETTING
            for noise in _NOISE
        ]
    )
    for index in range(dimensions if dimensions > 1 else 0):
        before, after = kernel.lengths[:index], kernel.lengths[index + 1 :]
        kernel = best([kernel, *(replace(kernel, lengths=(*before, length, *after)) for length in _LENGTHS)])
    return kernel
