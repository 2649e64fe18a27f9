"""Spaces of a model of Stable-Baselines3, from the readable fields next to their pickles."""

import math
import re
from collections.abc import Mapping

from gymnasium import spaces

from rllib.compat.files.sb3.archive import type_of
from rllib.storage.encoding import decode
from rllib.storage.foreign_files import WRONG_FORM


def space_of(fields: Mapping, what: str) -> spaces.Space:
    """The space that these fields describe.

    Args:
        fields: of a space in the entry `data`.
        what: "observation_space" or "action_space", for messages.

    Raises:
        ValueError: if the fields do not describe the whole space, as with Dict spaces.
    """
    try:
        return decode({"$space": _as_json(fields)})
    except WRONG_FORM as error:
        raise ValueError(
            f"the model's {what}, {type_of(fields) or 'which is none'}, cannot be read without running code ({error}). "
            "Name the environment with --env, whose spaces are taken."
        ) from None


def _as_json(fields: Mapping) -> dict:
    """The space in the form of checkpoints' JSON."""
    kind = type_of(fields)
    if kind == "Box":
        shape = list(fields["_shape"])
        bounds = {name: _bounds(fields, name, math.prod(shape)) for name in ("low", "high")}
        return {"type": kind, "shape": shape, "dtype": fields["dtype"], **bounds}
    if kind == "Discrete":
        return {"type": kind, "n": int(fields["n"]), "start": int(fields.get("start", 0)), "dtype": "int64"}
    if kind == "MultiDiscrete":
        sizes = [int(number) for number in _numbers(fields["nvec"])]
        return {"type": kind, "nvec": sizes, "start": [0] * len(sizes), "dtype": "int64"}
    if kind == "MultiBinary":
        return {"type": kind, "n": int(fields["n"])}
    raise ValueError("its readable fields do not hold it")


def _bounds(fields: Mapping, name: str, count: int) -> list[float] | float:
    """Bounds of a Box: numpy's text, or the one number that represents all of them."""
    for text in (fields.get(name), fields.get(f"{name}_repr")):
        if isinstance(text, str) and "..." not in text:
            numbers = _numbers(text)
            if len(numbers) == count:
                return numbers
            if len(numbers) == 1:  # which represents all, however many
                return numbers[0]
    raise ValueError(f"{name} is shortened")


def _numbers(text: str) -> list[float]:
    return [float(number) for number in re.sub(r"[\[\],]", " ", text).split()]


def differing(space: spaces.Space, fields: Mapping) -> str | None:
    """Describes the difference between a space of the environment and the model's; None if they are alike.

    Pictures may have their channels first or last, since Stable-Baselines3 moves them to the front.
    """
    kind = type_of(fields)
    if kind and kind != type(space).__name__:
        return f"is a {type(space).__name__}, and the model's a {kind}"
    there = fields.get("_shape")
    if isinstance(space, spaces.Box) and isinstance(there, list):
        moved = [*space.shape[2:], *space.shape[:2]] if len(space.shape) == 3 else list(space.shape)
        if there not in (list(space.shape), moved):
            return f"has the shape {list(space.shape)}, and the model's {there}"
    if isinstance(space, spaces.Discrete) and str(fields.get("n", space.n)) != str(space.n):
        return f"has {space.n} values, and the model's {fields['n']}"
    return None
