"""Spaces as text, `Box(-inf, inf, (4,))`: on the command line, in files, and from clients. Nothing is evaluated."""

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from gymnasium import Space, spaces

from rllib.storage.encoding import MOST_NUMBERS

EXAMPLES = (
    "Box(-inf, inf, (4,)), Box(0, 255, (84, 84, 4), uint8), Discrete(2), MultiDiscrete([3, 2]), MultiBinary(4), "
    "Dict({'seen': Box(0, 1, (2,)), 'left': Discrete(9)}) or Tuple([Discrete(2), Discrete(3)])"
)
_LONGEST, _DEEPEST = 1 << 20, 32
_TOKEN = re.compile(
    r"\s*(?:(?P<number>[-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?|inf\b))|(?P<name>[A-Za-z_]\w*)|"
    r"(?P<text>'[^'\\]*'|\"[^\"\\]*\")|(?P<mark>[()\[\]{},=:]))"
)
_CLOSING = {"(": ")", "[": "]", "{": "}"}
_DTYPES = {"float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"}


def space_from_text(text: str) -> Space:
    """Reads a space.

    Args:
        text: as EXAMPLES are; arguments may have their names, `Discrete(n=2, start=1)`.

    Raises:
        ValueError: for anything else; names the place where reading stopped.
    """
    if not isinstance(text, str) or len(text) > _LONGEST:
        raise ValueError(f"a space is a text such as {EXAMPLES}, but got {text!r:.80}")
    try:
        reader = _Reader(text)
        space = reader.value(0)
        reader.end()
        if not isinstance(space, Space):
            raise ValueError("it is no space")
    except (ValueError, TypeError, AssertionError, OverflowError) as error:
        raise ValueError(f"{text!r:.80} is no space ({error}). Spaces are written as {EXAMPLES}.") from None
    return space


def spaces_from_text(text: str | Mapping[str, str]) -> Space | dict[str, Space]:
    """Reads a space, or a mapping of them by agent; errors as for `space_from_text`."""
    if isinstance(text, Mapping):
        return {agent: space_from_text(each) for agent, each in text.items()}
    return space_from_text(text)


def form_of(space: Space | Mapping[str, Space]) -> Any:
    """Kind and shapes of a space: the space without the bounds of its Boxes, which observations may leave."""
    if isinstance(space, spaces.Box):
        return "Box", space.shape, space.dtype
    if isinstance(space, spaces.Tuple):
        return "Tuple", [form_of(part) for part in space]
    if isinstance(space, Mapping):
        return {key: form_of(part) for key, part in space.items()}
    return space


class _Reader:
    """Reads values one after another from a text."""

    def __init__(self, text: str):
        self._text, self._at = text, 0
        self._left = MOST_NUMBERS

    def end(self) -> None:
        if rest := self._text[self._at :].strip():
            raise ValueError(f"there is {rest!r:.20} behind it")

    def value(self, depth: int) -> Any:
        """The next value: a number, a text, a list, a dict, the name of a dtype or a space."""
        if depth > _DEEPEST:
            raise ValueError(f"it has more than {_DEEPEST} levels")
        kind, token = self._next()
        if kind == "number":
            return int(token) if re.fullmatch(r"[-+]?\d+", token) else float(token)
        if kind == "text":
            return token[1:-1]
        if kind == "name":
            return self._space(token, depth) if token in _KINDS else self._dtype(token)
        if token in ("(", "["):
            return self._items(_CLOSING[token], lambda: self.value(depth + 1))
        if token == "{":
            return dict(self._items("}", lambda: self._pair(depth)))
        raise ValueError(f"there is {token!r} where a value must be")

    def _space(self, name: str, depth: int) -> Space:
        self._expect("(")
        words = {}

        def argument():
            start = self._at
            kind, word = self._next()
            if kind == "name" and self._peek() == "=":
                self._next()
                words[word] = self.value(depth + 1)
                return None
            self._at = start
            if words:
                raise ValueError("an argument without a name stands behind one with a name")
            return self.value(depth + 1)

        values = self._items(")", argument)
        space = _KINDS[name](*values[: len(values) - len(words)], **words)
        self._left -= math.prod(getattr(space, "shape", None) or ())
        if self._left < 0:
            raise ValueError(f"spaces have more than {MOST_NUMBERS:,} numbers")
        return space

    def _pair(self, depth: int) -> tuple[str, Any]:
        kind, key = self._next()
        if kind != "text":
            raise ValueError("keys of a dict are texts")
        self._expect(":")
        return key[1:-1], self.value(depth + 1)

    def _items(self, closing: str, item: Callable[[], Any]) -> list:
        items = []
        while self._peek() != closing:
            items.append(item())
            if self._peek() != ",":
                break
            self._next()
        self._expect(closing)
        return items

    @staticmethod
    def _dtype(name: str) -> str:
        if name not in _DTYPES:
            raise ValueError(f"{name} is neither a space nor a dtype")
        return name

    def _next(self) -> tuple[str, str]:
        found = _TOKEN.match(self._text, self._at)
        if found is None:
            rest = self._text[self._at :].strip()
            raise ValueError(f"{rest!r:.20} cannot be read" if rest else "it is cut off")
        self._at = found.end()
        return found.lastgroup, found[found.lastgroup]

    def _peek(self) -> str:
        found = _TOKEN.match(self._text, self._at)
        return found[found.lastgroup] if found else ""

    def _expect(self, mark: str) -> None:
        if (found := self._peek()) != mark:
            raise ValueError(f"there is {found!r} where {mark!r} must be" if found else f"{mark!r} is missing")
        self._next()


def _box(low, high, shape=None, dtype="float32"):
    if dtype not in _DTYPES:
        raise ValueError(f"{dtype!r:.20} is no dtype of a Box")
    if shape is not None:
        shape = tuple([shape] if isinstance(shape, int) else shape)
        if any(type(size) is not int or size < 0 for size in shape) or math.prod(shape) > MOST_NUMBERS:
            raise ValueError(f"{shape} is no shape of a Box of at most {MOST_NUMBERS:,} numbers")
    bounds = (np.array(bound, dtype) if isinstance(bound, list) else bound for bound in (low, high))
    return spaces.Box(*bounds, shape, np.dtype(dtype).type)


def _multi_discrete(nvec, start=None, dtype="int64"):
    if dtype not in _DTYPES:
        raise ValueError(f"{dtype!r:.20} is no dtype of a MultiDiscrete")
    return spaces.MultiDiscrete(nvec, dtype=np.dtype(dtype).type, start=start)


def _multi_binary(n):
    sizes = n if isinstance(n, list) else [n]
    if any(type(size) is not int or size < 1 for size in sizes) or math.prod(sizes) > MOST_NUMBERS:
        raise ValueError(f"{n!r:.20} is no size of a MultiBinary")
    return spaces.MultiBinary(n)


def _dict(given=None, **named):
    return spaces.Dict({**(given or {}), **named})


def _tuple(*given):
    return spaces.Tuple(given[0] if len(given) == 1 and isinstance(given[0], list) else given)


_KINDS: Mapping[str, Callable] = {
    "Box": _box,
    "Discrete": lambda n, start=0: spaces.Discrete(n, start=start),
    "MultiDiscrete": _multi_discrete,
    "MultiBinary": _multi_binary,
    "Dict": _dict,
    "Tuple": _tuple,
}
