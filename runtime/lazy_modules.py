"""Modules of a package as its attributes, imported with their first use, since most programs need few of them."""

import importlib
import importlib.util
from collections.abc import Callable, Mapping
from types import ModuleType


def lazy_modules(package: str, instead: Mapping[str, str]) -> Callable[[str], ModuleType]:
    """Makes the `__getattr__` of a package.

    Args:
        package: its `__name__`.
        instead: name that the package does not have -> what to use.
    """

    def __getattr__(name: str) -> ModuleType:
        module = f"{package}.{name}"
        if not name.startswith("_") and importlib.util.find_spec(module) is not None:
            return importlib.import_module(module)
        advice = f": {instead[name]}." if name in instead else ""
        raise AttributeError(f"module {package!r} has no attribute {name!r}{advice}")

    return __getattr__
