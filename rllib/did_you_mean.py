"""The known name that a misspelt one looks like, for messages."""

import difflib
import importlib.util
import sys
from collections.abc import Iterable


def nearest(name: str, known: Iterable[str]) -> list[str]:
    """Up to three known names that look most like `name`, the nearest first."""
    by_lower = {known_name.lower(): known_name for known_name in known}
    matches = difflib.get_close_matches(name.lower(), by_lower, n=3, cutoff=0.6)
    return [by_lower[match] for match in matches]


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A sentence with the known name that looks most like `name`, with a space before it; "" if none does."""
    near = nearest(name, known)
    return f" Did you mean {near[0]}?" if near else ""


def missing(package: str, name: str, known: Iterable[str], why: str | None = None) -> AttributeError | ImportError:
    """The error for a name that a package with lazy attributes does not have; its `__getattr__` raises it.

    `from package import name` replaces the message of an AttributeError by one of its own, so it gets an ImportError.

    Args:
        package, name: see above.
        known: names that the package has, for the nearest.
        why: what to use instead of a name that is known and absent.
    """
    near = [] if why or name.startswith("_") else nearest(name, known)
    told = f": {why}." if why else f". Did you mean {' or '.join(near)}?" if near else ""
    # The import statement looks for the name first, before it looks for a module of the package.
    importing = sys._getframe(2).f_code.co_name == "_handle_fromlist"
    if importing and told and importlib.util.find_spec(f"{package}.{name}") is None:
        return ImportError(f"cannot import name {name!r} from {package!r}{told}", name=name)
    return AttributeError(f"module {package!r} has no attribute {name!r}{told}")
