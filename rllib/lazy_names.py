"""Names of packages that are imported when they are first used."""

import importlib
import importlib.util
import pkgutil
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from rllib.did_you_mean import missing

# Modules whose import changes the process: a name alone, as of hasattr, does not import them.
_SWITCHES = ("as_ray", "as_sb3")


def lazy_names(
    package: dict[str, Any],
    homes: Mapping[str, str] = MappingProxyType({}),
    why: Callable[[str], str | None] = lambda name: None,
    present: Callable[[str], str] = str,
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Makes the `__getattr__` and `__dir__` of a package, whose modules are attributes as well, whatever is imported.

    Args:
        package: its globals(), with `__all__` if it has names.
        homes: name -> module that defines it.
        why: advice for a name that the package does not have, or None.
        present: function of a name -> the name under which `homes` has the same thing.
    """

    def __getattr__(name: str) -> Any:
        if (known := present(name)) in homes:
            package[name] = value = getattr(importlib.import_module(homes[known]), known)
            return value
        module = f"{package['__name__']}.{name}"
        if not name.startswith("_") and name not in _SWITCHES and importlib.util.find_spec(module) is not None:
            return importlib.import_module(module)
        known_names = package.get("__all__") or [module.name for module in pkgutil.iter_modules(package["__path__"])]
        raise missing(package["__name__"], name, known_names, why(name))

    def __dir__() -> list[str]:
        return sorted({*package, *package.get("__all__", ())})

    return __getattr__, __dir__
