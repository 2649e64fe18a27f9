"""Ray's `check`: compares numbers, arrays, tensors, and dicts and lists of them."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from rllib.compat.programs.arrays import convert_to_numpy


def check(
    x: Any, y: Any, decimals: int = 5, atol: float | None = None, rtol: float | None = None, false: bool = False
) -> None:
    """Checks that two values are equal, numbers up to rounding.

    Args:
        x, y: dicts and lists of values that are compared by key and position; numbers, arrays and tensors by their
            elements; everything else by ==.
        decimals: places behind the point in which numbers are equal; without effect if `atol` or `rtol` is given.
        atol, rtol: tolerance, and relative tolerance with respect to `y`; where one is given the other is 0.
        false: checks that they differ instead, each part of a dict or list from its counterpart.

    Raises:
        AssertionError: naming the two values; for dicts and lists of other keys or lengths as well.
    """
    if isinstance(x, Mapping):
        assert isinstance(y, Mapping) and set(x) == set(y), f"the keys of {x!r:.200} are not those of {y!r:.200}"
        pairs = [(x[key], y[key]) for key in x]
    elif isinstance(x, list | tuple):
        assert isinstance(y, list | tuple | np.ndarray) and len(x) == len(y), f"{x!r:.200} is not as long as {y!r:.200}"
        pairs = list(zip(x, y))
    else:
        is_same = _is_close(x, y, decimals, atol, rtol)
        assert is_same is not false, f"{x!r:.200} {'is' if is_same else 'is not'} the same as {y!r:.200}"
        return
    for one, other in pairs:
        check(one, other, decimals, atol, rtol, false)


def _is_close(x: Any, y: Any, decimals: int, atol: float | None, rtol: float | None) -> bool:
    if x is None or y is None or isinstance(x, str | bool | np.bool_):
        return bool(x == y)
    given, expected = np.asarray(convert_to_numpy(x, False)), np.asarray(convert_to_numpy(y, False))
    if given.dtype.kind not in "biufc" or expected.dtype.kind not in "biufc":
        return bool(np.array_equal(given, expected))
    if atol is None and rtol is None:
        atol = 1.5 * 10.0**-decimals
    try:
        return bool(np.allclose(given, expected, atol=atol or 0.0, rtol=rtol or 0.0, equal_nan=True))
    except ValueError:  # the shapes differ
        return False
