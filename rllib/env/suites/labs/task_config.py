"""Changes of a task's own configuration: objects of dataclasses and dicts, in Isaac Lab as in mjlab."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from rllib.did_you_mean import did_you_mean


def change(config: Any, changes: Mapping[str, Any], where: str) -> None:
    """Sets fields of a configuration, which keep their types.

    Args:
        config: an object or a dict; it is changed.
        changes: field -> value, or a mapping of fields of its part: {"sim": {"dt": 0.005}}. None switches a part off.
        where: name of the configuration, for messages: "env".

    Raises:
        ValueError: for a field that there is not, with the nearest ones, or a value of another type.
    """
    for name, value in changes.items():
        fields = _fields(config)
        if name not in fields:
            known = sorted(map(str, fields))
            hint = did_you_mean(name, known, repr, otherwise=f"It has {', '.join(known)}.")
            raise ValueError(f"{where} of the task has no {name!r}.{hint}")
        present, path = fields[name], f"{where}.{name}"
        if isinstance(value, Mapping) and _fields(present):
            change(present, value, path)
        elif isinstance(config, dict):
            config[name] = _like(present, value, path)
        else:
            setattr(config, name, _like(present, value, path))


def _fields(config: Any) -> dict[str, Any]:
    """Name -> value of each field; {} for a value without any."""
    if isinstance(config, dict):
        return config
    if not dataclasses.is_dataclass(config) or isinstance(config, type):
        return {}
    names = {*(field.name for field in dataclasses.fields(config)), *vars(config)}
    return {name: getattr(config, name) for name in names if not name.startswith("_") and hasattr(config, name)}


def _like(present: Any, value: Any, path: str) -> Any:
    """The value as one of the type of the present one.

    Raises:
        ValueError: if it is none.
    """
    if value is None or present is None or isinstance(present, type(dataclasses.MISSING)):
        return value
    if isinstance(present, tuple) and isinstance(value, list):
        return tuple(value)
    if isinstance(present, float) and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    plain = (bool, int, float, str, list, tuple, dict)
    if isinstance(present, plain) and (type(value) is not type(present)):
        raise ValueError(
            f"{path}={value!r} must be of the type {type(present).__name__}, as the present value {present!r:.60}"
        )
    if not isinstance(present, plain) and isinstance(value, plain):
        raise ValueError(
            f"{path}={value!r:.60} would replace a {type(present).__name__}. Set its fields: {path}.FIELD=VALUE; null "
            "switches it off."
        )
    return value
