"""Names of packages that are imported when they are first used."""

import importlib
from collections.abc import Callable, Mapping
from typing import Any

from rllib.did_you_mean import missing


def lazy_names(
    package: dict[str, Any],
    homes: Mapping[str, str],
    why: Callable[[str], str | None] = lambda name: None,
    present: Callable[[str], str] = str,
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Makes the `__getattr__` and `__dir__` of a package.

    Args:
        package: its globals(), with `__all__`.
        homes: name -> module that defines it.
        why: advice for a name that the package does not have, or None.
        present: function of a name -> the name under which `homes` has the same thing.
    """

    def __getattr__(name: str) -> Any:
        if (known := present(name)) not in homes:
            raise missing(package["__name__"], name, package["__all__"], why(name))
        package[name] = value = getattr(importlib.import_module(homes[known]), known)
        return value

    def __dir__() -> list[str]:
        return sorted({*package, *package["__all__"]})

    return __getattr__, __dir__
