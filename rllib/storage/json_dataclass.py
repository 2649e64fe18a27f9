"""Dataclasses that checkpoints hold as JSON, each with a `kind` that names its class."""

import dataclasses
from typing import ClassVar


class Described:
    """A dataclass of numbers, texts and tuples that `from_json` restores."""

    kind: ClassVar[str]

    def to_json(self) -> dict:
        """A dict with the kind and the fields; tuples become lists, described fields are dicts of this form."""
        described = {
            field.name: getattr(self, field.name).to_json()
            for field in dataclasses.fields(self)
            if isinstance(getattr(self, field.name), Described)
        }
        return {"kind": self.kind, **as_lists(dataclasses.asdict(self)), **described}


def from_json(data: dict, classes: tuple[type[Described], ...]):
    """Reads the result of `to_json` of one of the classes, whose described fields are of them as well.

    Raises:
        ValueError: if its kind is of none of them.
    """
    fields = {
        name: from_json(value, classes) if isinstance(value, dict) and "kind" in value else as_tuples(value)
        for name, value in data.items()
        if name != "kind"
    }
    for each in classes:
        if each.kind == data["kind"]:
            return each(**fields)
    raise ValueError(f"unknown kind {data['kind']!r}; this version knows {', '.join(each.kind for each in classes)}")


def as_lists(value):
    """The value with lists instead of tuples, inside of dicts as well."""
    if isinstance(value, dict):
        return {name: as_lists(part) for name, part in value.items()}
    return [as_lists(part) for part in value] if isinstance(value, tuple) else value


def as_tuples(value):
    """The value with tuples instead of lists."""
    return tuple(as_tuples(part) for part in value) if isinstance(value, list | tuple) else value
