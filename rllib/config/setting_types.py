"""Types of settings: which values fit, which can be converted without loss, and how a type reads in words.

A type is built from bool, int, float, str, None, Literal, dict, classes, and `|`. A bare `list` represents a schedule
(schedules.py): points [[timestep, value], ...], a dict with a type, or a function; so `float | list` is a number or a
schedule.
"""

import contextlib
import dataclasses
import math
import os
import types
from collections.abc import Callable, Mapping, Sequence
from numbers import Real
from typing import Any, Literal, Union, get_args, get_origin


def convert(value, type_):
    """`value` as `type_`, if that loses nothing.

    Ints are fine for floats, 4e3 for an int, numpy's scalars for Python's, paths for text. A bool is no number, and a
    number no bool.

    Raises:
        TypeError: if it does not fit.
    """
    if type_ is Any:
        return value
    if type(value).__module__ == "numpy" and value.shape == ():
        value = value.item()
    origin = get_origin(type_)
    if origin is Literal:
        for allowed in get_args(type_):
            if type(allowed) is type(value) and allowed == value:
                return value
        raise TypeError
    if origin in (Union, types.UnionType):
        for alternative in get_args(type_):
            with contextlib.suppress(TypeError):
                return convert(value, alternative)
        raise TypeError
    if type_ is list:
        return _to_schedule(value)
    kind = origin or type_
    if kind in _CONVERSIONS:
        try:
            converted = _CONVERSIONS[kind](value)
        except OverflowError:  # an int beyond all floats
            raise TypeError from None
        if kind is list:
            return [convert(each, get_args(type_)[0]) for each in converted]
        return converted
    if isinstance(value, kind):
        return value
    raise TypeError


def _to_int(value) -> int:
    if isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value) and value == int(value):
        return int(value)
    raise TypeError


def _to_float(value) -> float:
    if isinstance(value, Real) and not isinstance(value, bool) and not math.isnan(value):
        return float(value)
    raise TypeError


def _to_schedule(value) -> list | dict | Callable:
    if isinstance(value, Mapping):
        return dict(value)
    return value if callable(value) else _to_list(value)


def _to_list(value) -> list:
    if hasattr(value, "tolist"):
        value = value.tolist()
    if not isinstance(value, Sequence) or isinstance(value, (str, bytes)):
        raise TypeError
    return [list(point) if isinstance(point, tuple) else point for point in value]


def _to_text(value) -> str:
    if isinstance(value, (str, os.PathLike)):
        return os.fspath(value)
    raise TypeError


def _to_dict(value) -> dict:
    if isinstance(value, Mapping):
        return dict(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    raise TypeError


_CONVERSIONS = {int: _to_int, float: _to_float, str: _to_text, list: _to_list, dict: _to_dict}

_WORDS = {
    bool: "True or False",
    int: "an integer",
    float: "a number",
    str: "a string",
    list: "a schedule [[timestep, value], ...]",
    dict: "a dict",
    types.NoneType: "None",
    Callable: "a function",
    type: "a class",
    Any: "anything",
}


def type_in_words(type_, range_="") -> str:
    """ "an integer >= 1 or None" for `int | None` and the range ">= 1"."""
    origin = get_origin(type_)
    if origin is Literal:
        return " or ".join(map(repr, get_args(type_)))
    if origin in (Union, types.UnionType):
        return " or ".join(type_in_words(alternative, range_) for alternative in get_args(type_))
    if origin is list:
        (item,) = get_args(type_)
        if get_origin(item) is Literal:
            items = f" of {type_in_words(item)}"
        else:
            items = "" if item is Any else f" of {_WORDS[item].split(' ', 1)[1]}s"
        return f"a list{items} {range_}".rstrip()
    words = _WORDS.get(origin or type_) or f"a {(origin or type_).__name__}"
    if range_ == "finite" and type_ is float:
        return "a finite number"
    return f"{words} {range_}" if range_ and type_ in (int, float) else words


def type_in_code(type_) -> str:
    """ "int | None", as it would be written in an annotation."""
    origin = get_origin(type_)
    if origin is Literal:
        return " | ".join(map(repr, get_args(type_)))
    if origin in (Union, types.UnionType):
        return " | ".join(type_in_code(alternative) for alternative in get_args(type_))
    if type_ is types.NoneType:
        return "None"
    return getattr(type_, "__name__", str(type_))


def allows(type_, wanted) -> bool:
    """Whether the type is `wanted`, or has it among its alternatives."""
    return type_ is wanted or wanted in get_args(type_)


def is_schedule(value, type_) -> bool:
    """Whether the value of a setting of this type is given as a schedule."""
    return allows(type_, list) and (isinstance(value, list | dict) or callable(value))


def numbers_in(value) -> list[float]:
    """The numbers a range is about: the value itself, or those of a list."""
    values = value if isinstance(value, list) else [value]
    return [each for each in values if isinstance(each, Real) and not isinstance(each, bool)]


def text_hint(value) -> str:
    """Hint about a number in quotes, with a note on YAML, which reads 5e-5 as text; else an empty string."""
    try:
        number = float(value) if isinstance(value, str) else None
    except ValueError:
        number = None
    if number is None:
        return ""
    about_yaml = " (YAML takes 5e-5 for text, and 5.0e-5 for a number)" if "e" in value.lower() else ""
    return f", not text; write {number:g} without quotes{about_yaml}"
