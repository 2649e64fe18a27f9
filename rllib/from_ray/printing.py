"""Results as text."""

from collections.abc import Mapping
from typing import Any

import yaml

from rllib.from_ray.arrays import convert_numpy_to_python_primitives

# Parts of a result that are settings, or lists of all episodes.
_LEFT_OUT = ("config", "hist_stats")


def pretty_print(result: Mapping[str, Any], exclude: Any = None) -> str:
    """A result as YAML, without its config, its lists of episodes, and values that are None.

    Args:
        exclude: further keys that are left out.
    """
    left_out = {*_LEFT_OUT, *(exclude or ())}
    return yaml.safe_dump(_shown(result, left_out), default_flow_style=False)


def _shown(value: Any, left_out: set[str]) -> Any:
    value = convert_numpy_to_python_primitives(value)
    if isinstance(value, dict):
        kept = {key: _shown(inner, left_out) for key, inner in value.items() if key not in left_out}
        return {key: inner for key, inner in kept.items() if inner is not None}
    if isinstance(value, list):
        return [_shown(inner, left_out) for inner in value]
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)
