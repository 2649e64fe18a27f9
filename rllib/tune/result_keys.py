"""Results are nested dicts whose values are named by "a/b" paths."""

from collections.abc import Mapping


def lookup(result: Mapping, key: str):
    """The value under a key or an "a/b" path; None where there is none."""
    try:
        return result[key]
    except KeyError:
        pass
    value = result
    for part in key.split("/"):
        if not isinstance(value, Mapping) or part not in value:
            return None
        value = value[part]
    return value
