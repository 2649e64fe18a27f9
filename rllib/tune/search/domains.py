"""The entries of a search space: the distributions of Ray Tune, under their names.

Quantised domains draw multiples of q within the range, both ends included. Integer domains without q exclude the upper
end, as numpy's do. All domains check their arguments when they are made.
"""

import math
import random
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any


class Domain:
    """A distribution of values."""

    def draw(self, rng) -> Any:
        """Draws one value with a `random.Random`, or with the module `random`."""
        raise NotImplementedError

    def sample(self, config=None, size: int = 1, random_state=None) -> Any:
        """Draws values.

        Args:
            config: configuration or `spec` for the function of `sample_from`; not used by other domains.
            size: number of values; for 1 the value itself is returned, else a list.
            random_state: a seed, a `random.Random`, or a generator of numpy; Python's global generator by default.

        Raises:
            ValueError: if size is no whole number >= 1, or the domain draws nothing by itself.
        """
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise ValueError(f"sample(size={size!r}): size must be a whole number >= 1")
        rng = _generator(random_state)
        values = [self._draw_for(config, rng) for _ in range(size)]
        return values[0] if size == 1 else values

    def _draw_for(self, config, rng) -> Any:
        return self.draw(rng)

    def contains(self, value) -> bool:
        """Whether the value can be drawn, or lies between two such values."""
        return True


class Choice(Domain):
    """One of some values, each equally likely. Values that hold domains themselves make the space conditional."""

    def __init__(self, values: Sequence):
        self.values = _listed(values, "choice")

    def __setstate__(self, state):  # of a pickle or a journal: what it draws is what `values` lists
        vars(self).update(state)
        Choice.__init__(self, self.values)

    def draw(self, rng):
        return rng.choice(self.values)

    def contains(self, value) -> bool:
        return self.option_of(value) is not None

    def option_of(self, value) -> int | None:
        """Position of the first option that is equal to the value, or of which it can be drawn; None without one."""
        return next((index for index, option in enumerate(self.values) if _can_be(option, value)), None)

    def __repr__(self):
        return f"choice({self.values!r})"


class _Range(Domain):
    """A range with its bounds `low` and `high`, uniform in it or in its logarithm; or the multiples of `q` in it."""

    def _draw_multiple(self, rng) -> int:
        """Draws k of k q; with log, from half a quantum more at both ends, which become as likely as other values."""
        first, last = self._ends
        if not self.log:
            return rng.randint(first, last)
        return _clip(round(math.exp(rng.uniform(math.log(first - 0.5), math.log(last + 0.5)))), first, last)

    def contains(self, value) -> bool:
        return isinstance(value, (int, float)) and self.low <= value <= self.high

    def __repr__(self):
        return self._repr


class Float(_Range):
    """A number in [low, high], uniform in it or in its logarithm.

    Attributes:
        low, high: the bounds; of a quantised domain, the lowest and highest multiple of q in the range.
        log: whether its logarithm is uniform.
        q: the quantum; None: not quantised.
    """

    def __init__(self, low: float, high: float, log: bool = False, q: float | None = None, name: str = "uniform"):
        low, high, q = _number(low, name), _number(high, name), None if q is None else _number(q, name)
        self._repr = f"{name}({low!r}, {high!r}{'' if q is None else f', {q!r}'})"
        _check_range(low, high, log, self._repr)
        self.low, self.high, self.log, self.q = low, high, log, q
        self._bounds = low, high
        if q is not None:
            first, last = self._ends = _multiples(low, high, q, log, self._repr)
            self.low, self.high = _times(first, q), _times(last, q)

    def __setstate__(self, state):
        vars(self).update(state)
        Float.__init__(self, *self._bounds, self.log, self.q, self._repr.partition("(")[0])

    def quantized(self, q: float) -> "Float":
        """The multiples of q in the same range."""
        return Float(*self._bounds, self.log, q, "qloguniform" if self.log else "quniform")

    def draw(self, rng):
        if self.q is not None:
            return _times(self._draw_multiple(rng), self.q)
        if not self.log:
            return rng.uniform(self.low, self.high)
        return _clip(math.exp(rng.uniform(math.log(self.low), math.log(self.high))), self.low, self.high)


class Integer(_Range):
    """A whole number in [low, high], uniform in it or in its logarithm; attributes as Float's, high included."""

    def __init__(self, low: int, high: int, log: bool = False, q: int = 1, name: str = "randint", inclusive=False):
        low, high, q = _whole(low, name), _whole(high, name), _whole(q, name)
        self._repr = f"{name}({low}, {high}{f', {q}' if inclusive else ''})"
        _check_range(low, high, log, self._repr)
        self._bounds = low, high
        first, last = self._ends = _multiples(low, high if inclusive else high - 1, q, log, self._repr)
        self.low, self.high, self.log, self.q = first * q, last * q, log, q

    def __setstate__(self, state):
        vars(self).update(state)
        name = self._repr.partition("(")[0]
        Integer.__init__(self, *self._bounds, self.log, self.q, name, inclusive=name.startswith("q"))

    def quantized(self, q: int) -> "Integer":
        """The multiples of q in the same range, upper end included, as in qrandint."""
        return Integer(*self._bounds, self.log, q, "qlograndint" if self.log else "qrandint", inclusive=True)

    def draw(self, rng):
        return self._draw_multiple(rng) * self.q


class Normal(Domain):
    """A normally distributed number, rounded to multiples of q if there is one."""

    def __init__(self, mean: float = 0.0, sd: float = 1.0, q: float | None = None):
        self.mean, self.sd = _number(mean, "randn"), _number(sd, "randn")
        self.q = None if q is None else _number(q, "qrandn")
        if self.sd <= 0:
            raise ValueError(f"randn: sd > 0 must hold, but got sd={sd!r}")
        if q is not None and self.q <= 0:
            raise ValueError(f"qrandn: q > 0 must hold, but got q={q!r}")

    def __setstate__(self, state):
        vars(self).update(state)
        Normal.__init__(self, self.mean, self.sd, self.q)

    def quantized(self, q: float) -> "Normal":
        """The same distribution, rounded to multiples of q."""
        return Normal(self.mean, self.sd, q)

    def draw(self, rng):
        drawn = rng.gauss(self.mean, self.sd)
        return drawn if self.q is None else _times(round(drawn / self.q), self.q)

    def contains(self, value) -> bool:
        return isinstance(value, (int, float)) and math.isfinite(value)

    def __repr__(self):
        return f"randn({self.mean!r}, {self.sd!r})" if self.q is None else f"qrandn({self.mean}, {self.sd}, {self.q})"


class Function(Domain):
    """The value of a function of `spec`; `spec.config.x` are the values that have been drawn."""

    def __init__(self, function: Callable):
        if not callable(function):
            raise TypeError(f"sample_from needs a function of spec, but got {function!r}")
        self.function = function

    def __setstate__(self, state):
        vars(self).update(state)
        Function.__init__(self, self.function)

    def draw(self, rng):
        raise ValueError(
            "sample_from depends on the rest of the configuration, so it cannot be drawn by itself; "
            "sample(config) calls the function with that configuration"
        )

    def _draw_for(self, config, rng):
        return self.draw(rng) if config is None else self.function(config)

    def __repr__(self):
        # The type, if there is no name: an address would differ in every process.
        return f"sample_from({getattr(self.function, '__name__', type(self.function).__name__)})"


def position_in(options: Sequence, value) -> int | None:
    """Position of the first option that is equal to the value; None if there is none. Options may be or hold arrays."""
    return next((index for index, option in enumerate(options) if _is_equal(option, value)), None)


# What represents a setting is `Any`, so that type checkers accept it where the setting is a number.


def choice(values: Sequence) -> Any:
    """One of the values, each equally likely."""
    return Choice(values)


def uniform(lower: float, upper: float) -> Any:
    """Uniform in [lower, upper]."""
    return Float(lower, upper)


def quniform(lower: float, upper: float, q: float) -> Any:
    """Uniform among the multiples of q in [lower, upper]."""
    return Float(lower, upper, q=q, name="quniform")


def loguniform(lower: float, upper: float, base: float = 10) -> Any:
    """In [lower, upper] with a uniform logarithm; the base has no effect."""
    return Float(lower, upper, log=True, name="loguniform")


def qloguniform(lower: float, upper: float, q: float, base: float = 10) -> Any:
    """A multiple of q in [lower, upper] with a uniform logarithm; the base has no effect."""
    return Float(lower, upper, log=True, q=q, name="qloguniform")


def randint(lower: int, upper: int) -> Any:
    """A whole number in [lower, upper): upper excluded."""
    return Integer(lower, upper)


def qrandint(lower: int, upper: int, q: int = 1) -> Any:
    """A multiple of q in [lower, upper]: upper included."""
    return Integer(lower, upper, q=q, name="qrandint", inclusive=True)


def lograndint(lower: int, upper: int, base: float = 10) -> Any:
    """A whole number in [lower, upper) with a uniform logarithm: upper excluded."""
    return Integer(lower, upper, log=True, name="lograndint")


def qlograndint(lower: int, upper: int, q: int, base: float = 10) -> Any:
    """A multiple of q in [lower, upper] with a uniform logarithm: upper included."""
    return Integer(lower, upper, log=True, q=q, name="qlograndint", inclusive=True)


def randn(mean: float = 0.0, sd: float = 1.0) -> Any:
    """Normally distributed."""
    return Normal(mean, sd)


def qrandn(mean: float, sd: float, q: float) -> Any:
    """Normally distributed, rounded to multiples of q."""
    return Normal(mean, sd, q)


def sample_from(function: Callable) -> Any:
    """The value of `function(spec)`; `spec.config.x` are the values that have been drawn."""
    return Function(function)


def grid_search(values: Sequence) -> Any:
    """Each of the values once, in combination with all other grids."""
    return {"grid_search": _listed(values, "grid_search")}


def is_lambda_of_spec(value) -> bool:
    """Whether this is a lambda to draw from, as in 0.8: `lambda spec: ...`.

    A lambda whose argument is called otherwise is a value of the configuration, such as an environment's creator.
    """
    return (
        isinstance(value, types.FunctionType)
        and value.__name__ == "<lambda>"
        and value.__code__.co_varnames[: value.__code__.co_argcount] == ("spec",)
    )


def _generator(random_state):
    """A `random.Random`, or the module `random`, for a random_state of `sample`."""
    if random_state is None:
        return random
    if isinstance(random_state, random.Random):
        return random_state
    if hasattr(random_state, "bytes"):  # numpy's RandomState and Generator
        return random.Random(random_state.bytes(8))
    return random.Random(random_state)


def _can_be(node, value) -> bool:
    """Whether a part of a search space is equal to the value, or can be drawn as it."""
    if isinstance(node, Domain):
        return node.contains(value)
    if is_lambda_of_spec(node):
        return True
    if isinstance(node, Mapping):
        is_alike = isinstance(value, Mapping) and node.keys() == value.keys()
        return is_alike and all(_can_be(node[key], value[key]) for key in node)
    if type(node) in (list, tuple):
        is_alike = isinstance(value, type(node)) and len(node) == len(value)
        return is_alike and all(map(_can_be, node, value))
    return _is_equal(node, value)


def _is_equal(first, second) -> bool:
    """Whether two values are equal; two arrays are if they have equal shapes and entries."""
    if first is second:
        return True
    if isinstance(first, Mapping) and isinstance(second, Mapping):
        return first.keys() == second.keys() and all(_is_equal(first[key], second[key]) for key in first)
    if any(isinstance(first, kind) and isinstance(second, kind) for kind in (list, tuple)):
        return len(first) == len(second) and all(map(_is_equal, first, second))
    if getattr(first, "shape", ()) != getattr(second, "shape", ()):  # of which some arrays raise, and others broadcast
        return False
    equal = first == second
    return bool(equal.all() if hasattr(equal, "all") else equal)


def _listed(values, name: str) -> list:
    if isinstance(values, (str, bytes, Mapping)) or not hasattr(values, "__iter__"):
        raise TypeError(f"{name} needs a list of values, but got {values!r}")
    values = list(values)
    if not values:
        raise ValueError(f"{name}([]) draws nothing: give it at least one value")
    return values


def _number(value, name: str) -> float:
    if isinstance(value, bool) or not hasattr(value, "__float__"):
        raise TypeError(f"{name} needs numbers, but got {value!r}")
    if not math.isfinite(value):
        raise ValueError(f"{name} needs finite numbers, but got {value!r}")
    return float(value)


def _whole(value, name: str) -> int:
    if _number(value, name) != int(value):
        raise ValueError(f"{name} draws whole numbers, so its bounds and q must be whole, but got {value!r}")
    return int(value)


def _check_range(low: float, high: float, log: bool, shown: str) -> None:
    if not low < high:
        raise ValueError(f"{shown}: lower < upper must hold, but got lower={low:g} and upper={high:g}")
    if log and low <= 0:
        raise ValueError(f"{shown} has a logarithm, so lower > 0 must hold, but got lower={low:g}")


def _multiples(low: float, high: float, q: float, log: bool, shown: str) -> tuple[int, int]:
    """The first and last k with low <= k q <= high, up to a rounding error."""
    if q <= 0:
        raise ValueError(f"{shown}: q > 0 must hold, but got q={q:g}")
    first, last = math.ceil(low / q - 1e-9), math.floor(high / q + 1e-9)
    if first > last:
        raise ValueError(f"{shown} draws nothing: there is no multiple of q={q:g} in the range")
    if log and first <= 0:
        raise ValueError(f"{shown} has a logarithm, so its lowest multiple of {q:g} must be above 0")
    return first, last


def _times(k: int, q: float) -> float:
    """k q without the tail of binary fractions: 3 x 0.1 is 0.3."""
    return round(k * q, 12) if abs(q) > 1e-9 else k * q


def _clip(value, low, high):
    return min(max(value, low), high)
