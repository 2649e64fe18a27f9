"""What is known of another library's names: the form of the tables."""

from collections.abc import Callable, Mapping
from typing import NamedTuple


class Table(NamedTuple):
    """Names of a library, and of those that come with it.

    Attributes:
        libraries: their packages.
        hook: module of ours that serves them.
        guide: page of the documentation that lists what is here.
        found: module there -> module here -> names. "Theirs=Ours" is a name that is called otherwise here; "*"
            represents all that our module exports.
        where_built: rows of parts that may be missing from an installation; a name is served where its module has it.
        moved: earlier folders -> those whose rows count for them.
        reason_for: the reason why a name with its module is not here, or what to use instead; None if nothing is known.
    """

    libraries: tuple[str, ...]
    hook: str
    guide: str
    found: Mapping[str, Mapping[str, str]]
    where_built: Mapping[str, Mapping[str, str]]
    moved: Mapping[str, str]
    reason_for: Callable[[str], str | None]
