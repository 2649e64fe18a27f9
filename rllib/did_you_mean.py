"""Suggestions for misspelt names, for messages."""

import difflib
import importlib.util
import sys
from collections.abc import Iterable

# Names that differ from what was written by more than this many times what the nearest differs by are not meant.
_FURTHER = 2


def nearest(name: str, known: Iterable[str]) -> list[str]:
    """Up to three known names similar to `name`, the most similar first; none that is much less so than the first."""
    by_lower = {known_name.lower(): known_name for known_name in known}
    matches = difflib.get_close_matches(name.lower(), by_lower, n=3, cutoff=0.6)
    differences = [1 - difflib.SequenceMatcher(None, match, name.lower()).ratio() for match in matches]
    return [by_lower[match] for match, by in zip(matches, differences) if by <= _FURTHER * differences[0]]


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A sentence that suggests the most similar known name, after a space; "" if none is similar."""
    near = nearest(name, known)
    return f" Did you mean {near[0]}?" if near else ""


def missing(package: str, name: str, known: Iterable[str], why: str | None = None) -> AttributeError | ImportError:
    """Builds the error for a name that a package with lazy attributes does not have; its `__getattr__` raises it.

    `from package import name` would replace the message of an AttributeError, so it gets an ImportError.

    Args:
        package, name: of the attribute.
        known: names that the package has, from which similar ones are suggested.
        why: advice for a name that is known to be absent; None: similar names are suggested.
    """
    near = [] if why or name.startswith("_") else nearest(name, known)
    hint = f": {why}." if why else f". Did you mean {' or '.join(near)}?" if near else ""
    # The import statement looks for the name first, before it looks for a module of the package.
    importing = sys._getframe(2).f_code.co_name == "_handle_fromlist"
    if importing and hint and importlib.util.find_spec(f"{package}.{name}") is None:
        return ImportError(f"cannot import name {name!r} from {package!r}{hint}", name=name)
    return AttributeError(f"module {package!r} has no attribute {name!r}{hint}")
