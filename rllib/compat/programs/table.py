"""The form of the tables of other libraries' names."""

from collections.abc import Callable, Mapping
from typing import NamedTuple


class Table(NamedTuple):
    """Names of a library, and of libraries that belong to it.

    Attributes:
        libraries: packages of these libraries.
        hook: module of this library that serves them.
        guide: page of the documentation that lists the supported names.
        found: module there -> module here -> names. "Theirs=Ours" is a name that differs here; "*" represents all that
            our module exports.
        where_built: rows of parts that may be missing from an installation; a name is served where its module has it.
        moved: older folder -> folder whose rows are used for it.
        reason_for: the reason why a name with its module is not here, or what to use instead; None if nothing is known.
    """

    libraries: tuple[str, ...]
    hook: str
    guide: str
    found: Mapping[str, Mapping[str, str]]
    where_built: Mapping[str, Mapping[str, str]]
    moved: Mapping[str, str]
    reason_for: Callable[[str], str | None]
