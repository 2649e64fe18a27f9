"""Welch's comparison of two means, whose variances may differ (Welch, Biometrika 34, 1947)."""

import math
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass
class Sample:
    """Number, mean and sum of squared deviations of values, updated one by one (Welford, Technometrics 4, 1962)."""

    count: int = 0
    mean: float = 0.0
    squares: float = 0.0

    @classmethod
    def of(cls, values: Iterable[float]) -> "Sample":
        """The sample of these values."""
        sample = cls()
        for value in values:
            sample.add(value)
        return sample

    def add(self, value: float) -> None:
        """Adds a value."""
        self.count += 1
        difference = value - self.mean
        self.mean += difference / self.count
        self.squares += difference * (value - self.mean)

    @property
    def variance(self) -> float:
        """The unbiased variance; 0 of fewer than two values."""
        return self.squares / (self.count - 1) if self.count > 1 else 0.0

    @property
    def deviation(self) -> float:
        """The root of the variance."""
        return math.sqrt(self.variance)


def p_greater(first: Sample, second: Sample, shift: float = 0.0) -> float:
    """One-sided p-value against "the first mean plus the shift is not above the second".

    t = (m1 + shift - m2) / sqrt(v1 / n1 + v2 / n2), with the degrees of freedom of Welch and Satterthwaite. Without any
    variance the means decide.

    Args:
        first, second: samples of at least two values.
        shift: added to the first mean.

    Raises:
        ValueError: for a sample of fewer than two values.
    """
    if min(first.count, second.count) < 2:
        raise ValueError(f"Welch's test needs two values of each, but there are {first.count} and {second.count}")
    difference = first.mean + shift - second.mean
    parts = first.variance / first.count, second.variance / second.count
    if not sum(parts):
        return 1.0 if difference < 0 else 0.5 if difference == 0 else 0.0
    weights = parts[0] ** 2 / (first.count - 1) + parts[1] ** 2 / (second.count - 1)
    if not weights:  # variances so small that their squares are none
        return 1.0 if difference < 0 else 0.5 if difference == 0 else 0.0
    return t_tail(difference / math.sqrt(sum(parts)), sum(parts) ** 2 / weights)


def t_tail(t: float, freedom: float) -> float:
    """P(T > t) of Student's distribution: half of the incomplete beta function I_x(f/2, 1/2) with x = f / (f + t^2)."""
    half = 0.5 * _incomplete_beta(freedom / 2, 0.5, freedom / (freedom + t * t))
    return half if t > 0 else 1.0 - half


def _incomplete_beta(a: float, b: float, x: float) -> float:
    """The regularised incomplete beta function, by its continued fraction (DLMF 8.17.22)."""
    if x <= 0.0 or x >= 1.0:
        return min(max(x, 0.0), 1.0)
    if x > (a + 1) / (a + b + 2):  # where the fraction of the complement converges faster
        return 1.0 - _incomplete_beta(b, a, 1.0 - x)
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x))
    return front * _fraction(a, b, x) / a


def _fraction(a: float, b: float, x: float, most_terms: int = 10_000) -> float:
    """1 / (1 + d1 / (1 + d2 / (1 + ...))) by Lentz's method, whose products must not be 0."""
    tiny = 1e-300
    value, c, d = 1.0, 1.0, 1.0 - (a + b) * x / (a + 1)
    d = 1.0 / (d or tiny)
    value = d
    for m in range(1, most_terms):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            d = 1.0 / ((1.0 + term * d) or tiny)
            c = (1.0 + term / c) or tiny
            value *= c * d
        if abs(c * d - 1.0) < 1e-14:
            break
    return value
