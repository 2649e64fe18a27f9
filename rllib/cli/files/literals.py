"""Python expressions in the files of others, read as data: nothing of them runs."""

import ast
from typing import Any


def read_literal(text: str) -> Any:
    """Reads an expression of numbers, texts, lists, dicts and names.

    Args:
        text: the expression, such as "dict(net_arch=[64], activation_fn=nn.ReLU)". A name represents itself, as text
            ("nn.ReLU").

    Raises:
        ValueError: for any other expression, such as a call.
    """
    try:
        return _value(ast.parse(" ".join(text.split()), mode="eval").body)
    except (SyntaxError, RecursionError, MemoryError, TypeError) as error:  # a dict with a list as key
        raise ValueError(f"{text!r:.80} is no expression of Python: {getattr(error, 'msg', error)}") from error
    except _NoDataError as error:
        raise ValueError(
            f"{text!r:.80} must be data, without {error}: expressions in files are read, and do not run"
        ) from None


class _NoDataError(Exception):
    """A part of an expression that would have to run."""


def _value(node: ast.expr) -> Any:
    match node:
        case ast.Constant(value=bool() | int() | float() | str() | None):
            return node.value
        case ast.List(elts=items):
            return [_value(item) for item in items]
        case ast.Tuple(elts=items):
            return tuple(_value(item) for item in items)
        case ast.Dict(keys=keys, values=values) if None not in keys:
            return {_value(key): _value(value) for key, value in zip(keys, values)}
        case ast.Call(func=ast.Name(id="dict"), args=[], keywords=keywords) if all(each.arg for each in keywords):
            return {each.arg: _value(each.value) for each in keywords}
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)):
            return -number
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=value, attr=name):
            return f"{_value(value)}.{name}"
    raise _NoDataError(f"{ast.unparse(node)!r:.40}")
