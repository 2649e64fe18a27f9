"""points_to_evaluate: configurations that a search tries first."""

from collections.abc import Mapping
from typing import Any

from rllib.did_you_mean import did_you_mean
from rllib.tune.search.domains import Domain
from rllib.tune.search.space import is_grid


def with_point(space: Mapping, point: Mapping) -> dict[str, Any]:
    """The space with the point's values in place of what would be drawn; what the point leaves out is drawn.

    Points are nested like the space, or name their entries "a/b".

    Raises:
        ValueError: if the point has a key that the space has not, or a value that cannot be drawn.
    """
    if not isinstance(point, Mapping):
        raise ValueError(f"points_to_evaluate needs a list of dicts, but one of them is {point!r:.80}")
    return _merged(space, _nested(space, point), "")


def _nested(space: Mapping, point: Mapping) -> dict:
    nested: dict = {}
    for key, value in point.items():
        way = [key] if key in space or not isinstance(key, str) else key.split("/")
        place = nested
        for part in way[:-1]:
            place = place.setdefault(part, {})
        place[way[-1]] = value
    return nested


def _merged(space: Mapping, point: Mapping, prefix: str) -> dict:
    merged = dict(space)
    for key, value in point.items():
        path = f"{prefix}{key}"
        if key not in space:
            hint = did_you_mean(str(key), map(str, space))
            raise ValueError(f"points_to_evaluate: the search space has no {path}.{hint}")
        inside = space[key]
        if isinstance(inside, Mapping) and not is_grid(inside) and isinstance(value, Mapping):
            merged[key] = _merged(inside, value, f"{path}/")
            continue
        if isinstance(inside, Domain) and not inside.contains(value):
            raise ValueError(f"points_to_evaluate: {path}={value!r} is not in {inside!r}")
        merged[key] = value
    return merged
